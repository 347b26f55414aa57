# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""
Train a federation in this process, and each hospital alone with the same budget for comparison.

Both go on where an interruption left them: nothing is trained or charged twice.
"""

from contextlib import ExitStack
import logging
from pathlib import Path
from typing import NamedTuple

from fdrl_ros.deployment.layout import Layout
from fdrl_ros.deployment.parties.channel import open_channel
from fdrl_ros.deployment.parties.hospital import open_records, open_training
from fdrl_ros.deployment.parties.key_authority import open_key_authority
from fdrl_ros.deployment.parties.policy_validation import EVERYBODY, PublicValidation
from fdrl_ros.deployment.plan import Plan
from fdrl_ros.deployment.policy_file import load_policy, save_policy
from fdrl_ros.deployment.prepare import prepare, taking_part
from fdrl_ros.errors import BudgetExceededError, FdrlError, TrainingStopped
from fdrl_ros.experiments.hospital_group import HospitalGroup
from fdrl_ros.experiments.metric_logs import tensorboard
from fdrl_ros.experiments.ray_federation import RayEngine, RayFederation
from fdrl_ros.experiments.round_recorder import Meters, NoteTaken, RoundNote, RoundRecorder
from fdrl_ros.federation.aggregator.aggregator import Aggregator
from fdrl_ros.federation.key_authority.key_authority import KeyAuthority
from fdrl_ros.federation.key_authority.state import round_released, Validation
from fdrl_ros.federation.local_driver import LocalFederation
from fdrl_ros.federation.protocol.message import Phase
from fdrl_ros.federation.protocol.store import Store
from fdrl_ros.learner.home import HomeTrainer
from fdrl_ros.learner.learner import TrainingProgress
from fdrl_ros.policy import decode_weights, encode_weights
from fdrl_ros.privacy.stated import stated
from fdrl_ros.runtime.durable import make_private_directory
from fdrl_ros.runtime.progress import Caller, NOBODY, Progress
from fdrl_ros.runtime.stopwatch import peak_memory
from fdrl_ros.runtime.worker_processes import run_tasks
import numpy as np
from numpy.typing import NDArray

log = logging.getLogger(__name__)

_TAKES_NO_PART = ('no part', 'nothing sent')  # how hospitals begin to say that
_LONGEST_WAIT = 1000
"""Jumps of the clock without any work after which a federation counts as stuck."""


def prepare_run(directory: Path, plan: Plan, caller: Caller = NOBODY) -> Layout:
    """
    Prepare ``federation/`` and ``policies/`` of a run, unless they are there.

    :raises TrainingStopped: as soon as the caller says so; call it again to go on.
    """
    (directory / 'policies').mkdir(parents=True, exist_ok=True)
    return prepare(
        directory / 'federation',
        plan,
        progress=lambda what, done, count: caller.counter(what, 'public')(done, count),
        stopped=caller.stopped,
    )


def collect_all(layout: Layout, plan: Plan, caller: Caller = NOBODY) -> None:
    """Let every hospital collect its records, if it has none yet."""
    missing = [n for n in plan.hospitals if not layout.records(n).exists()]
    tasks, workers = [(layout, name, plan) for name in missing], plan.evaluation.workers
    run_tasks(collect_one, tasks, workers=workers, caller=caller)


def collect_one(layout: Layout, name: str, plan: Plan, caller: Caller) -> None:
    """Collect one hospital's records; a piece of work for a worker process."""
    open_records(
        layout,
        name,
        plan,
        progress=caller.counter('collect', name),
        stopped=caller.stopped,
    )


class _Parties(NamedTuple):
    """The parties of a federation in this process, and who keeps what they release."""

    federation: LocalFederation
    aggregator: Aggregator
    authority: KeyAuthority
    hospitals: HospitalGroup | RayFederation
    recorder: RoundRecorder

    def finished(self) -> bool:
        """Return whether all rounds are done, and every hospital has the last policy."""
        # What hospitals release of the last round is still on its way until then.
        return self.aggregator.phase is Phase.FINISHED and all(
            each.round >= self.authority.round
            for each in self.hospitals.standings().values()
            if not each.restored
        )


def train_federation(
    layout: Layout,
    plan: Plan,
    policies: Path,
    caller: Caller = NOBODY,
    engine: RayEngine | None = None,
) -> list[RoundNote]:
    """
    Run all rounds in this process, over the very parties that run on ROS 2.

    :param policies: directory for what is released: each global policy, and the hospitals'.
    :param engine: where hospitals work; in this process unless given. The policies are the same.
    :returns: notes of every round.
    :raises TrainingStopped: as soon as the caller says so.
    :raises FdrlError: if not one round can be done, saying why.
    """
    with ExitStack() as stack:
        told = stack.enter_context(tensorboard(policies.parent))
        parties = _open_parties(stack, layout, plan, policies, caller, told, engine)
        federation, recorder = parties.federation, parties.recorder

        def over() -> bool:
            if caller.stopped():
                federation.stop()
            return parties.finished()

        finished = federation.run(over, ticks=_LONGEST_WAIT)
        caller.check()
        # What hospitals make at home is done by then too.
        if finished and not federation.run(lambda: federation.idle):
            raise TrainingStopped('stopped by the user')
        caller.check()
        guilty = parties.aggregator.orders.guilty
        for name, each in parties.hospitals.standings().items():
            if each.problem and name not in guilty:
                log.warning('%s took no part: %s', name, each.problem)
        for name, fault in guilty.items():
            words = '%s was left out: it %s; see fdrl journal show --party aggregator'
            log.warning(words, name, fault)
        total, done = plan.rounds.rounds, recorder.notes[-1].round if recorder.notes else 0
        if not finished or done < total:
            words = _stuck(federation, parties.aggregator.phase, done, total)
            if not done:
                raise FdrlError(words)
            # What was learned until then is a policy all the same.
            caller.report(Progress('train', 'federation', done, total, words))
            if not recorder.notes[-1].ended:
                recorder.note_end(words)
        return recorder.notes


def _open_parties(
    stack: ExitStack,
    layout: Layout,
    plan: Plan,
    policies: Path,
    caller: Caller,
    told: NoteTaken,
    engine: RayEngine | None,
) -> _Parties:
    """
    Open every party with its store and ledger, and join them to one federation.

    :param stack: closes stores and ledgers in the end.
    :param told: gets the note of each round.
    """

    def tell(name: str, progress: TrainingProgress | Progress) -> None:
        if isinstance(progress, TrainingProgress):
            progress = training_progress('train', name, progress, plan)
        caller.report(progress)
        if caller.stopped():
            federation.stop()

    def store(name: str) -> Store:
        opened = Store(layout.state(name))
        stack.callback(opened.close)
        return opened

    names, done = taking_part(layout, plan), round_released(layout.state('key_authority'))
    federation = LocalFederation({}, report=tell)
    hospitals: HospitalGroup | RayFederation
    if engine is None:
        hospitals = HospitalGroup(layout, plan, names, done)
    else:
        shards = stack.enter_context(engine.started())
        federation = hospitals = RayFederation(
            layout, plan, names, done=done, shards=shards, report=tell, stopped=caller.stopped
        )
    stack.callback(hospitals.close)
    if isinstance(hospitals, RayFederation):
        hospitals.open()
    start = load_policy(layout.pretrained).weights
    test = federation.stopwatch.timed('validate', PublicValidation(plan, start))

    def validate(weights: NDArray[np.float32]) -> Validation:
        found: Validation = test(weights)
        recorder.note_success(authority.round + 1, found.shares[EVERYBODY])
        return found

    kept = store('aggregator')
    aggregator = Aggregator(open_channel(layout, 'aggregator', kept), plan.rounds, kept)
    authority = open_key_authority(layout, plan, store('key_authority'), validate=validate)
    notes = policies.parent / 'rounds.json'
    held = hospitals.peak_memory if isinstance(hospitals, RayFederation) else peak_memory
    meters = Meters(federation.stopwatch, hospitals.epsilons, held, told)
    recorder = RoundRecorder(layout.roster(), policies, notes, plan, meters)
    federation.join('observer', recorder)
    federation.join('aggregator', aggregator)
    federation.join('key_authority', authority)
    if isinstance(hospitals, HospitalGroup):
        for name, party in hospitals.hospitals.items():
            federation.join(name, party)
    return _Parties(federation, aggregator, authority, hospitals, recorder)


def train_alone(layout: Layout, name: str, plan: Plan, caller: Caller = NOBODY) -> float:
    """
    Train one hospital without the others: same start, steps, noise level and budget, at home too.

    It has a ledger of its own: this is what would have been without a federation. So it charges
    no shared account either. A hospital that really did both would have to add both epsilons.

    :returns: epsilon spent; the weights lie in :func:`alone_path`.
    """
    plan = plan.replaced({'privacy': {'account': ''}})
    directory = layout.directory / 'alone' / name
    make_private_directory(directory)
    store = Store(directory / 'state.sqlite')
    weights = load_policy(layout.pretrained).weights
    trainer = open_training(
        directory,
        name,
        plan,
        open_records(layout, name, plan),
        purpose='alone',
        start=weights,
        passphrase=layout.passphrase,
    )

    def report(progress: TrainingProgress) -> None:
        caller.report(training_progress('alone', name, progress, plan))

    try:
        saved, first = store.get('weights'), 1
        if saved is not None:
            first = int.from_bytes(saved[:8], 'little') + 1
            weights = decode_weights(saved[8:], len(weights))
        for round in range(first, plan.rounds.rounds + 1):
            try:
                trainer.check_affordable(round)
                result = trainer.train(weights, round, report=report, stopped=caller.stopped)
            except BudgetExceededError:
                break
            weights = result.weights
            store.put('weights', round.to_bytes(8, 'little') + encode_weights(weights))
            trainer.forget(round)
        if isinstance(trainer, HomeTrainer):
            weights = trainer.home(
                weights, plan.rounds.rounds, report=report, stopped=caller.stopped
            ).weights
        save_policy(alone_path(layout, name), weights, plan)
        return trainer.ledger.epsilon()
    finally:
        trainer.ledger.close()
        store.close()


def alone_path(layout: Layout, name: str) -> Path:
    """Return the file of the policy that a hospital trained without the others."""
    return layout.directory / 'alone' / name / 'policy.npz'


def train_all_alone(layout: Layout, plan: Plan, caller: Caller = NOBODY) -> None:
    """Train every hospital alone, if that was not done yet."""
    missing = [name for name in plan.hospitals if not alone_path(layout, name).exists()]
    tasks, workers = [(layout, name, plan) for name in missing], plan.evaluation.workers
    run_tasks(train_alone, tasks, workers=workers, caller=caller)


def training_progress(what: str, name: str, progress: TrainingProgress, plan: Plan) -> Progress:
    """Return the progress of a hospital over all rounds."""
    rounds = plan.rounds.rounds
    if progress.stage == 'home':
        detail = f'epsilon <= {stated(progress.epsilon)}'
        return Progress('home', name, progress.step, progress.steps, detail)
    done = max(progress.round - 1, 0) * progress.steps + progress.step
    detail = f'round {progress.round}/{rounds}  epsilon <= {stated(progress.epsilon)}'
    return Progress(what, name, done, rounds * progress.steps, detail)


def _stuck(federation: LocalFederation, phase: Phase, done: int, total: int) -> str:
    """Describe why the rounds have stopped, with the parties' messages."""
    said = [
        f'{name}: {note}'
        for name, note in federation.notes.items()
        if name == 'aggregator' or note.startswith(_TAKES_NO_PART)
    ]
    if federation.refused:
        name, error = federation.refused[-1]
        said.append(f'{name} refused last: {error}')
    return (
        f'the federation ended in phase {phase.name} after {done} of {total} rounds. '
        f'{"; ".join(said)}'
    )
