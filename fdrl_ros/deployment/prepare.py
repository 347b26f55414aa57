# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""
Make a federation's directory ready for every party.

Preparing is idempotent: it keeps what exists and repeats what an interruption left half done.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields, replace
from functools import partial
import logging
import math
from pathlib import Path
import time

from fdrl_ros.crypto.keys.keystore import check_opens, KEY_FILE, make_federation, NewFederation
from fdrl_ros.crypto.keys.roster import SERVERS
from fdrl_ros.crypto.keys.transaction import reading
from fdrl_ros.deployment.agreed_encryption import check_encryption, check_sums
from fdrl_ros.deployment.layout import Layout, ROBOTS
from fdrl_ros.deployment.ledger_inspection import charged_so_far
from fdrl_ros.deployment.plan import Plan
from fdrl_ros.deployment.policy_file import save_policy
from fdrl_ros.deployment.robot.robot_network import save_graph
from fdrl_ros.errors import errors_named, FdrlError, RecordsError, SettingError, StoreError
from fdrl_ros.learner.forecast import RoundCosts
from fdrl_ros.learner.offsets import with_unused_inputs
from fdrl_ros.learner.pretraining import pretrain, Start
from fdrl_ros.learner.privacy_cost import ChargedMechanism, RecordCounts
from fdrl_ros.learner.records.collection import HospitalSimulator
from fdrl_ros.learner.records.records import Records
from fdrl_ros.learner.records.transitions import check_actions
from fdrl_ros.learner.settings import FROM_REWARDS
from fdrl_ros.learner.tabular_dqn import gradients_for
from fdrl_ros.runtime.durable import make_private_directory, write_whole
import numpy as np

log = logging.getLogger(__name__)

FREE_GROUPS = ('rounds', 'selector', 'shield', 'value', 'safety', 'evaluation')
"""
Settings that a directory may change later: nothing that is kept depends on them.

So may single ones of other groups whose text leaves them out, such as an account that is moved.
"""

_NAMED = 4  # hospitals that a message names of many
_FORECAST = 10  # times the planned rounds, up to which is counted what a budget pays for

Progress = Callable[[str, int, int], None]
"""What is under way, and how many of how many are done."""


def prepare(
    directory: Path,
    plan: Plan,
    own: Mapping[str, Records] | None = None,
    *,
    progress: Progress = lambda what, done, count: None,
    stopped: Callable[[], bool] = lambda: False,
) -> Layout:
    """
    Make a directory ready for every party: plan, keys, directories, public starting policy.

    A plan that is refused is not left behind, so that another one may follow.

    :param own: records that hospitals bring along, by the name of the hospital.
    :param progress: told what is made.
    :raises PrivacyError: if the budget of a hospital does not pay for all rounds of this plan, or
        it could not train by it; nothing is made then.
    :raises SettingError: if the quorum is more than all hospitals, no limit of updates can be
        derived, or nothing would be left of an update; as :func:`check_plan`.
    :raises CryptoError: if updates have no room for their projections.
    :raises StoreError: if the directory was prepared for another plan.
    :raises RosterError: if the roster is not valid now.
    :raises PassphraseError: if the passphrase of the keys is missing, wrong, or not needed.
    :raises KeyFileError: if it cannot be made, or others may enter it.
    :raises TrainingStopped: as soon as `stopped` says so.
    """
    layout = Layout(directory)
    passphrase = layout.passphrase
    if layout.keys.exists():
        check_keys(layout)
    check_plan(plan, layout, own)
    started, planned = layout.pretrained.exists(), layout.plan.exists()
    make_private_directory(directory)
    place_records(layout, plan, own or {})
    new = None if layout.keys.exists() else _new_federation(layout, plan)
    sizes = list(new.sizes.values() if new else (each.size for each in layout.roster().hospitals))
    if started:
        check_encryption(plan, sizes, layout.pretrained)
    write_whole(layout.plan, plan.to_yaml().encode())
    if not started:
        start = learn_public_start(plan, progress, stopped)
        save_policy(layout.pretrained, start, plan)
    try:
        if not started:
            check_encryption(plan, sizes, layout.pretrained)
        if new is not None:
            make_federation(layout.keys, new, passphrase)
    except FdrlError:
        for path, before in ((layout.pretrained, started), (layout.plan, planned)):
            if not before:
                path.unlink()
        raise
    members = [each.name for each in layout.roster().hospitals]
    for name in (*members, *SERVERS, *ROBOTS):
        make_private_directory(layout.party(name))
    make_private_directory(layout.log)
    save_graph(layout, plan)
    return layout


def learn_public_start(
    plan: Plan,
    progress: Progress = lambda what, done, count: None,
    stopped: Callable[[], bool] = lambda: False,
) -> np.ndarray:
    """
    Collect a plan's public patients and learn the starting policy from them, which costs nothing.

    The seed of the plan determines the first weights and the minibatches, hence the result.

    :param progress: called with 'collect' or 'pretrain', the count done and the total.
    :returns: weights, shape (n_parameters,), float32.
    :raises TrainingStopped: as soon as `stopped` says so.
    """
    records = public_records(plan, partial(progress, 'collect'), stopped)
    rng = np.random.default_rng(plan.federation.seed)
    learners = [plan.learner, *([plan.home.fine_tuned(plan.learner)] if plan.home.epochs else [])]
    if offsets := dict.fromkeys(name for each in learners for name in each.offset_inputs):
        records = with_unused_inputs(records, offsets, plan.spec.names, rng)
    start = Start(plan.network.draw(rng), plan.network, plan.learner)
    tell = partial(progress, 'pretrain')
    return pretrain(records, start, plan.pretraining, rng, progress=tell, stopped=stopped)


def public_records(
    plan: Plan,
    progress: Callable[[int, int], None] = lambda done, count: None,
    stopped: Callable[[], bool] = lambda: False,
) -> Records:
    """
    Collect the records that a plan's public start is learned from.

    :raises SettingError: if they are to have labels of a guide, and the learner does not clone.
    :raises TrainingStopped: as soon as `stopped` says so.
    """
    _check_labels(plan)
    public, collection = plan.pretraining, plan.collection
    settings = replace(collection, patients=public.patients, guide=public.guide)
    if public.exploration >= 0.0:
        settings = replace(settings, exploration=public.exploration, variation=0.0)
    world = plan.task.public_world(plan.world)
    simulator = HospitalSimulator(plan.task, world, settings, labels=public.labels)
    population = plan.task.population(plan.federation, None, public.heterogeneity)
    return simulator.collect(population, progress=progress, stopped=stopped)


def _check_labels(plan: Plan) -> None:
    """Refuse labels of a guide where the learner takes rewards for those of the actions."""
    usual = 'behaviour_cloning' if plan.network.continuous else 'double_dqn'
    algorithm = plan.learner.algorithm or usual
    if plan.pretraining.labels == 'guide' and algorithm in FROM_REWARDS:
        expected = f"'done': {algorithm} learns from the rewards of what was done"
        raise SettingError('pretraining.labels', plan.pretraining.labels, expected)


def check_plan(
    plan: Plan, layout: Layout | None, own: Mapping[str, Records] | None = None
) -> None:
    """
    Refuse a plan that a hospital would refuse only after it collected its patients.

    :param layout: of the federation that the plan is for; None for a new one.
    :param own: records that hospitals bring along, by the name of the hospital.
    :raises PrivacyError: if the budget of a hospital does not pay for all rounds of this plan, or
        it could not train by it, or the compiled arithmetic is not built.
    :raises SettingError: if the quorum is more than all hospitals, or a guide labels public
        records and the learner does not clone; also if the roster says other buckets, or other
        numbers of patients of those that are going to be simulated.
    :raises StoreError: if the layout was prepared for another plan.
    """
    _check_labels(plan)
    if plan.privacy.noise_multiplier:
        gradients_for(plan.network, plan.learner).check_private()
    known = layout is not None and layout.keys.exists()
    count = len(layout.roster().hospitals if layout and known else plan.hospitals)
    if plan.rounds.quorum > count:
        raise SettingError('rounds.quorum', plan.rounds.quorum, f'at most {count} hospitals')
    for name, size in _known_sizes(plan, layout, own).items():
        # What other federations charged, the hospital checks when it opens the account.
        chain, _ = charged_so_far(layout, name, plan)
        RoundCosts(plan.learner, plan.privacy, plan.home, size, chain=chain).check(
            plan.rounds.rounds
        )
    if layout and layout.plan.exists():
        _check_same_settings(layout, plan)
    if layout and known:
        check_sums(plan, layout.roster())
        _check_patients(plan, layout, own or {})


def _check_patients(plan: Plan, layout: Layout, own: Mapping[str, Records]) -> None:
    """Refuse a new plan that simulates other numbers of patients than the roster declares."""
    simulated = plan.collection.patients
    if plan.privacy.unit != 'patient' or layout.plan.exists():
        return
    other: dict[int, list[str]] = {}
    for each in layout.roster().hospitals:
        brings = each.name in own or layout.records(each.name).exists()
        if each.name in plan.hospitals and not brings and each.size != simulated:
            other.setdefault(each.size, []).append(each.name)
    if other:
        declared = ', '.join(f'{size} of {few(names)}' for size, names in other.items())
        raise SettingError(
            'collection.patients',
            simulated,
            f'as many patients as the roster declares ({declared}), or records of their own '
            f'(--records {next(iter(other.values()))[0]}=FILE)',
        )


def without_patients(layout: Layout, plan: Plan) -> list[str]:
    """Return the hospitals of the roster without records, and without a place in the plan."""
    return [
        each.name
        for each in layout.roster().hospitals
        if each.name not in plan.hospitals and not layout.records(each.name).exists()
    ]


def few(names: Sequence[str]) -> str:
    """Name the first of many hospitals."""
    more = len(names) - _NAMED
    return ', '.join(names[:_NAMED]) + (f' and {more} more' if more > 0 else '')


def budget_words(
    plan: Plan, layout: Layout | None, own: Mapping[str, Records] | None = None
) -> str:
    """
    Say how many rounds the budget of each hospital pays for, the home policy included.

    Rounds that its ledger has count, and so does what other federations charged its account.

    :param layout: of the federation that the plan is for; None for a new one.
    :param own: records that hospitals bring along, by the name of the hospital.
    :returns: empty where there is no budget, or nobody knows how many records there will be.
    """
    if math.isinf(plan.privacy.budget):
        return ''
    planned = plan.rounds.rounds
    most = _FORECAST * planned
    paid: dict[tuple[int, int], list[str]] = {}
    counts: dict[tuple[object, ...], tuple[int, int]] = {}
    for name, size in _known_sizes(plan, layout, own).items():
        chain, others = charged_so_far(layout, name, plan)
        history = () if chain is None else chain.history()
        key = (size.n_patients, size.n_transitions, size.longest, history, others)
        if key not in counts:
            forecast = RoundCosts(
                plan.learner, plan.privacy, plan.home, size, chain=chain, elsewhere=others
            )
            more = forecast.rounds_paid(max(0, most - forecast.done))
            counts[key] = forecast.done, more
        paid.setdefault(counts[key], []).append(name)
    home = ', with a home policy after' if plan.home.epochs else ''
    parts = []
    for (done, count), names in sorted(paid.items()):
        # What was made at home after the rounds that are done is spent: another one costs again.
        words = f'{count}{" or more" if done + count >= most else ""} '
        words += 'round' if count == 1 and done + count < most else 'rounds'
        words += f' beyond the {done} that are done' if done else ''
        parts.append(words + (f' ({few(names)})' if len(paid) > 1 else ''))
    words = f'The budget of epsilon {plan.privacy.budget:g} pays for {", ".join(parts)}{home}'
    verb = 'is' if planned == 1 else 'are'
    return f'{words}; {planned} {verb} planned.' if parts else ''


def _known_sizes(
    plan: Plan, layout: Layout | None, own: Mapping[str, Records] | None
) -> dict[str, RecordCounts | Records]:
    """Return the counts of records of each hospital of which they are known."""
    patients, found = plan.collection.patients, {}
    for name in dict.fromkeys((*plan.hospitals, *(own or ()))):
        most = plan.privacy.most_transitions
        size: RecordCounts | Records = RecordCounts(patients, patients, most)
        if own and name in own:
            size = own[name]
        elif layout and layout.records(name).exists():
            size = plan.load_records(layout.records(name))
        elif 'transition' in (plan.privacy.unit, plan.privacy.clipped):
            continue  # how many transitions there will be, nobody knows yet
        found[name] = size
    return found


def check_accounts(plan: Plan) -> None:
    """
    Refuse accounts that cannot be opened, and warn where several hospitals charge one.

    For a plan whose hospitals all run here: on several hosts each site has its own.

    :raises SettingError: naming the first.
    """
    account = plan.privacy.account
    if not account:
        return
    for path in {plan.privacy.account_of(name) for name in plan.hospitals}:
        assert path is not None
        if not path.parent.is_dir() or path.is_dir():
            raise SettingError('privacy.account', str(path), 'a file in a folder that exists')
    if '{hospital}' not in account:
        log.warning(
            'all hospitals charge the account %s: each pays for all of them, which only patients '
            'of several hospitals need; {hospital} in the path gives each its own',
            account,
        )


def changed_settings(layout: Layout, plan: Plan) -> list[str]:
    """Return the settings that a directory was prepared with other values of, such as `a.b`."""
    before, now = Plan.load(layout.plan).to_mapping(), plan.to_mapping()
    return [
        f'{group}.{each.name}'
        for group, kind in Plan.groups(plan.federation.task).items()
        for each in fields(kind)
        if group not in FREE_GROUPS and each.repr
        if before[group].get(each.name) != now[group][each.name]
    ]


def _check_same_settings(layout: Layout, plan: Plan) -> None:
    """Refuse a plan that contradicts what a directory was prepared for."""
    changed = changed_settings(layout, plan)
    if changed:
        raise StoreError(
            f'{layout.directory} was prepared with other settings ({", ".join(changed)}): '
            'take those again, or another directory'
        )


def check_keys(layout: Layout) -> None:
    """
    Refuse now what some party on this host would refuse when it starts.

    :raises RosterError: if the roster is not signed, or not valid now.
    :raises PassphraseError: if the passphrase is missing, wrong, or not needed.
    :raises KeyFileError: if a key is damaged or open to others.
    """
    layout.check_keys_there()
    with reading(layout.keys):
        roster = layout.roster()
        roster.check_time(time.time())
        for member in roster.members:
            path = layout.keys / member.name / KEY_FILE
            if member.role != 'operator' and path.exists():
                check_opens(path, layout.passphrase)
        if layout.he_key.exists():
            check_opens(layout.he_key, layout.passphrase)


def taking_part(layout: Layout, plan: Plan) -> tuple[str, ...]:
    """
    Return the hospitals of the roster that run here, in its order.

    They are those of the plan that were not revoked, and those admitted since that have records.
    """
    named = [each.name for each in layout.roster().hospitals]
    return tuple(name for name in named if name in plan.hospitals or layout.records(name).exists())


def _new_federation(layout: Layout, plan: Plan) -> NewFederation:
    """Return what the first roster of a directory says."""
    brought = {
        name: plan.load_records(layout.records(name)).n_patients
        for name in plan.hospitals
        if layout.records(name).exists()
    }
    # Simulated hospitals draw from streams of their own: no patient is in two of them. Of records
    # that came from elsewhere nobody knows.
    sizes = dict.fromkeys(plan.hospitals, plan.collection.patients) | brought
    buckets = plan.federation.buckets
    return NewFederation(sizes, disjoint_patients=not brought, buckets=buckets)


def read_records(
    plan: Plan, files: Mapping[str, Path], layout: Layout | None = None
) -> dict[str, Records]:
    """
    Read the records of some hospitals and see that the plan can train on them.

    :param files: by the name of the hospital.
    :param layout: of the federation that they are for; None for a new one.
    :raises SettingError: on a hospital that neither the plan nor the roster has.
    :raises RecordsError: if a file is missing, damaged, or of another form.
    :raises PrivacyError: if batch or delta do not suit the number of patients.
    """
    found, known = {}, dict.fromkeys(plan.hospitals)
    if files and layout and layout.keys.exists():
        known = dict.fromkeys(each.name for each in layout.roster().hospitals)
    for name, path in files.items():
        if name not in known:
            raise SettingError('records', name, 'one of ' + ', '.join(known))
        records = plan.load_records(path)
        with errors_named(RecordsError, str(path)):
            check_actions(
                records.actions,
                plan.network.actions,
                continuous=plan.network.continuous,
                places=plan.network.places,
            )
        ChargedMechanism.from_settings(records, plan.learner, plan.privacy)
        found[name] = records
    return found


def place_records(layout: Layout, plan: Plan, found: Mapping[str, Records]) -> None:
    """
    Put records where their hospitals look for them; what lies there is never written over.

    :param layout: of a federation that is prepared afterwards: its roster then declares as many
        patients as the records have.
    :raises StoreError: if a hospital has other records, or the roster declares another number;
        nothing is placed then.
    """
    if not found:
        return
    sizes, placed = {}, {}
    if layout.keys.exists():
        sizes = {each.name: each.size for each in layout.roster().members}
    for name, records in found.items():
        path = layout.records(name)
        if path.exists():
            if plan.load_records(path).digest() != records.digest():
                raise StoreError(f'{path} holds other records: take another directory')
            continue
        if sizes.get(name, records.n_patients) != records.n_patients:
            raise StoreError(
                f'the roster of {layout.directory} declares {sizes[name]} patients of {name}, '
                f'the records have {records.n_patients}: take another directory'
            )
        placed[name] = records
    make_private_directory(layout.directory)
    for name, records in placed.items():
        make_private_directory(layout.party(name))
        records.save(layout.records(name))
