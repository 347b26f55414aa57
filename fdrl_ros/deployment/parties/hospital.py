# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""
Put a hospital together: its records, ledger, noise, trainer and party.

With the seeded source every driver gets the same parties, hence the same global policy.
"""

from collections.abc import Callable
from contextlib import ExitStack
from functools import partial
import hashlib
import logging
import os
from pathlib import Path
from typing import NamedTuple

from fdrl_ros.crypto.keys.key_file import Passphrase
from fdrl_ros.crypto.keys.keystore import NOISE_FILE
from fdrl_ros.crypto.keys.roster import SERVERS
from fdrl_ros.deployment.agreed_encryption import agreed_encryption, check_sums
from fdrl_ros.deployment.layout import Layout
from fdrl_ros.deployment.parties.channel import open_channel
from fdrl_ros.deployment.plan import Plan
from fdrl_ros.deployment.policy_file import load_home, load_policy, save_home
from fdrl_ros.errors import LedgerCorruptError, LedgerError, PrivacyError, RecordsError
from fdrl_ros.federation.hospital.hospital import Hospital, HospitalSettings
from fdrl_ros.federation.hospital.state import LocalUpdate, RoundSeeds, UPDATE
from fdrl_ros.federation.protocol.ledger_watch import heads_seen
from fdrl_ros.federation.protocol.store import peek_record, Store
from fdrl_ros.learner.checkpoint import recorded_ledger_head
from fdrl_ros.learner.forecast import RoundCosts
from fdrl_ros.learner.home import HOME_CHECKPOINTS, HomeSetup, HomeTrainer
from fdrl_ros.learner.records.collection import HospitalSimulator
from fdrl_ros.learner.records.records import Records
from fdrl_ros.learner.settings import HomeSettings
from fdrl_ros.learner.trainer import Trainer, TrainingSetup
from fdrl_ros.privacy.accountant.leakage_bounds import (
    bounds_of_guarantee,
    leakage_bounds,
    LeakageBounds,
)
from fdrl_ros.privacy.ledger.account import AccountedLedger, Note
from fdrl_ros.privacy.ledger.chain import Head, Owner
from fdrl_ros.privacy.ledger.ledger import Ledger
from fdrl_ros.privacy.noise import NoiseSource
import numpy as np

log = logging.getLogger(__name__)

LEDGER = 'ledger.sqlite'
"""File of a hospital's privacy ledger, in its directory."""

CHECKPOINT = 'checkpoint'
"""File of a hospital's state of training, with the head that its ledger had then."""

CHECKPOINTS = (CHECKPOINT, *HOME_CHECKPOINTS)
"""All such files, in rounds and at home."""

HOME = 'home.npz'
"""File of a hospital's home policy."""


def noise_source(
    directory: Path, name: str, plan: Plan, passphrase: Passphrase | None = None
) -> NoiseSource:
    """
    Return a hospital's source of noise, as the plan asks.

    :param directory: where its key lies or is made, after its ledger.
    :param name: of the hospital; with the seed it names a seeded source.
    :param passphrase: of its keys.
    :raises PassphraseError: if the passphrase is missing, wrong, or not needed.
    :raises KeyFileError: if the key is damaged, of an older version, or open to others.
    """
    if plan.federation.noise == 'secure':
        return NoiseSource.secure(directory / NOISE_FILE, passphrase)
    text = f'{plan.federation.seed} {name}'.encode()
    return NoiseSource.seeded(int.from_bytes(hashlib.sha256(text).digest()[:8], 'little'))


def open_records(
    layout: Layout,
    name: str,
    plan: Plan,
    *,
    progress: Callable[[int, int], None] = lambda done, count: None,
    stopped: Callable[[], bool] = lambda: False,
) -> Records:
    """
    Read a hospital's records, or collect them on the first call.

    :raises RecordsError: if the file is damaged, or the plan simulates no patients for it.
    :raises TrainingStopped: as soon as `stopped` says so.
    """
    path = layout.records(name)
    if path.exists():
        return plan.load_records(path)
    if name not in plan.hospitals:
        raise RecordsError(
            f'{name} is none of the {len(plan.hospitals)} hospitals whose patients the plan '
            f'simulates, and has no records of its own: put them into {path}, of as many patients '
            'as the roster declares'
        )
    population = plan.population(plan.hospitals.index(name))
    collector = HospitalSimulator(plan.task, plan.world, plan.collection)
    records = collector.collect(population, progress=progress, stopped=stopped)
    records.save(path)
    return records


def prepare_training(
    layout: Layout,
    name: str,
    plan: Plan,
    report: Callable[[tuple[int, int]], None] = lambda done: None,
    stopped: Callable[[], bool] = lambda: False,
    *,
    niceness: int = 10,
) -> Trainer:
    """
    Collect a hospital's records if there are none yet; open its ledger and verify it.

    :param report: told how many of how many records are collected.
    :param niceness: how far this thread gives way to others from now on.
    :raises TrainingStopped: as soon as `stopped` says so.
    :raises FdrlError: as :func:`open_records` and :func:`open_training`.
    """
    # Of this thread alone: what is said to the others does not wait.
    niceness = max(niceness, os.getpriority(os.PRIO_PROCESS, 0))
    os.setpriority(os.PRIO_PROCESS, 0, niceness)
    records = open_records(
        layout, name, plan, progress=lambda done, count: report((done, count)), stopped=stopped
    )
    start = load_policy(layout.pretrained).weights if plan.home.epochs else None
    directory = layout.party(name)
    return open_training(directory, name, plan, records, start=start, passphrase=layout.passphrase)


class Spent(NamedTuple):
    """What a hospital has spent: epsilon, and what it bounds of any membership attack."""

    epsilon: float
    attacks: LeakageBounds


def ledger_spent(layout: Layout, name: str, plan: Plan) -> Spent:
    """
    Read what a hospital has spent, by the tight accountant, from its ledger.

    A ledger that lacks entries which a server of this directory saw was restored from an older
    copy. What it lacks is unknown: the hospital then counts as having spent its whole budget.

    :raises LedgerError: if the ledger is in use, damaged or of another hospital.
    """
    with open_ledger(layout.party(name), name, plan) as ledger:
        for server in SERVERS:
            seen = heads_seen(layout.state(server)).get(name)
            try:
                ledger.verify(seen, f'the {server.replace("_", " ")}')
            except LedgerCorruptError as error:
                log.warning('%s counts as having spent its whole budget: %s', name, error)
                whole = ledger.epsilon_stated(newest=False)
                return Spent(whole, bounds_of_guarantee(whole, ledger.owner.delta))
        return Spent(ledger.epsilon(), leakage_bounds(ledger.chain.history()))


def open_training(
    directory: Path,
    name: str,
    plan: Plan,
    records: Records,
    *,
    purpose: str = '',
    done: int = 0,
    start: np.ndarray | None = None,
    passphrase: Passphrase | None = None,
) -> Trainer:
    """
    Open a hospital's ledger, noise and trainer; close the trainer's ledger when done.

    :param directory: of the hospital; ledger, noise key and checkpoint lie there.
    :param purpose: tells apart trainings whose noise must differ, such as a baseline's.
    :param done: rounds that the federation ended before this hospital joined.
    :param start: the public start, for a hospital that makes a home policy if the plan says so.
    :param passphrase: of the hospital's keys.
    :raises LedgerError: if the ledger is locked, damaged or of another hospital.
    :raises KeyFileError: if the noise key is damaged, of another ledger, or does not open.
    :raises PrivacyError: if nothing is spent yet and the budget, or what other federations left
        of it, does not pay for all rounds that are left.
    """
    with ExitStack() as unless_opened:
        ledger = unless_opened.enter_context(open_ledger(directory, name, plan))
        noise = noise_source(directory, f'{name} {purpose}'.strip(), plan, passphrase)
        setup = TrainingSetup(
            plan.network,
            plan.learner,
            plan.privacy,
            ledger,
            noise,
            task=plan.identity,
            fields=plan.spec.names,
        )
        path = directory / CHECKPOINT
        if plan.home.epochs and start is not None:
            keep = partial(save_home, directory / HOME, plan=plan)
            kept = partial(load_home, directory / HOME)
            home = HomeSetup(plan.home, start, plan.home_network, keep, kept)
            trainer: Trainer = HomeTrainer(setup, records, path, home)
            after = plan.home
        else:
            trainer, after = Trainer(setup, records, path), HomeSettings(epochs=0)
        if not ledger.chain.head.entries:
            left = max(1, plan.rounds.rounds - done)
            before = ledger.charged_elsewhere()
            try:
                RoundCosts(plan.learner, plan.privacy, after, records, elsewhere=before).check(
                    left
                )
            except PrivacyError as error:
                if not before:
                    raise
                # The error of a node reaches other parties, the log of its host does not.
                log.warning('%s: account %s: %s', name, ledger.account, error)
                raise PrivacyError(
                    f'{name}: what other federations left of its shared account does not pay for '
                    'the rounds that are left; the log of this host tells the amounts'
                ) from error
        unless_opened.pop_all()
    return trainer


def ledger_owner(name: str, plan: Plan) -> Owner:
    """Return whose ledger a plan asks for, and what it must promise."""
    chosen = plan.privacy
    return Owner(name, chosen.unit, chosen.delta, chosen.budget, plan.network.name)


def open_ledger(directory: Path, name: str, plan: Plan) -> Ledger:
    """
    Open a hospital's ledger and verify it, with the shared account that it charges, if any.

    :param directory: of the hospital.
    :raises LedgerError: if it is locked, damaged or of another hospital, unit, delta, budget or
        model, older than the last update or checkpoint, or gone while the key of the noise drawn
        under it is still there; also if that is so of its account.
    :raises CheckpointError: if the checkpoint is of another ledger or version.
    """
    check_not_lost(directory, plan)
    sent = last_sent(directory)
    with ExitStack() as unless_whole:
        ledger = unless_whole.enter_context(_opened_ledger(directory / LEDGER, name, plan))
        ledger.verify(sent, 'its last update')
        for each in CHECKPOINTS:
            head = recorded_ledger_head(directory / each, ledger.owner)
            ledger.verify(head, f'its {each.replace("_", " ")}')
        unless_whole.pop_all()
    return ledger


def _opened_ledger(path: Path, name: str, plan: Plan) -> Ledger:
    owner, account = ledger_owner(name, plan), plan.privacy.account_of(name)
    if account is None and (note := Note.read(path)):
        account = note.path  # a ledger that joined an account never leaves it
    return Ledger(path, owner) if account is None else AccountedLedger(path, owner, account)


def check_not_lost(directory: Path, plan: Plan) -> None:
    """
    Refuse a hospital's directory that had a ledger and has none.

    :raises LedgerError: if the noise key, the last update or a checkpoint is there, but not the
        ledger.
    """
    path, key = directory / LEDGER, directory / NOISE_FILE
    if os.path.lexists(path):
        return
    if plan.federation.noise == 'secure' and os.path.lexists(key):
        # A new ledger would let the noise of a round be drawn again for other weights.
        raise LedgerError(
            f'ledger {path} is missing, but noise was drawn with {key}: put the ledger back; only '
            f'if nothing trained here was ever sent, remove {key.name} too and begin anew'
        )
    sent = last_sent(directory)
    noted = [recorded_ledger_head(directory / each) for each in CHECKPOINTS]
    for what, seen in (
        ('an update went out', sent),
        *(('a checkpoint was made', each) for each in noted),
    ):
        if seen is not None and seen.entries:
            raise LedgerError(
                f'ledger {path} is missing, but {what} with its head {seen}: put it back'
            )


def last_sent(directory: Path) -> Head | None:
    """
    Return the head that the hospital's last update went out with, if it made one.

    :raises StoreError: if the hospital's state is damaged.
    """
    update = peek_record(directory / 'state.sqlite', UPDATE, LocalUpdate)
    return Head(update.result.ledger_entries, update.result.ledger_head) if update else None


def open_hospital(
    layout: Layout, name: str, plan: Plan, trainer: Trainer, store: Store
) -> Hospital:
    """
    Put a hospital together.

    :raises LedgerError: if its ledger is older than an update that its journal tells of.
    :raises KeyFileError: if its noise key is older than its ledger.
    :raises RecordsError: if its records are not of as many patients as the roster declares, since
        the weight n_i of its updates and its sampling probability must be public.
    """
    channel = open_channel(layout, name, store)
    # Without the newest state it is the journal that tells what the ledger must have.
    unseen = (each for each in channel.journal.unseen() if each.kind == 'sent')
    heads = [Head.parse(each.fields['ledger']) for each in unseen]
    newest = max(heads, default=None, key=lambda head: head.entries)
    trainer.ledger.verify(newest, 'its journal')
    trainer.check_noise_key()
    declared = channel.roster.member(name).size
    if plan.privacy.unit == 'patient' and trainer.n_units != declared:
        simulated = plan.collection.patients
        known = f' (the plan simulates {simulated}, collection.patients)'  # theirs is private
        raise RecordsError(
            f'the records of {name} are not of the {declared} patients that the roster declares'
            f'{known if name in plan.hospitals and simulated != declared else ""}: '
            f'take those it was made for, or have the root sign a roster with the new number'
        )
    check_sums(plan, channel.roster)
    return Hospital(
        channel,
        trainer,
        plan.network.layout,
        store,
        RoundSeeds(layout.party(name), federation=channel.roster.federation, name=name),
        HospitalSettings(
            agreed_encryption(plan, channel.roster.n_max, layout.pretrained),
            unit=plan.privacy.unit,
            delta=plan.privacy.delta,
            quorum=plan.rounds.quorum,
            release=plan.federation.release,
            personal=plan.federation.personal_layers,
        ),
    )
