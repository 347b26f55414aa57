# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""
Online DP-DQN: a hospital collects with its private policy and trains on all that it has.

Each round adds patients and so lowers the sampling probability; every round is charged with its
own. The acting network is the private one, so later patients' data reveal nothing about earlier
patients beyond what the accountant charges (adaptive composition).
"""

from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
import math
from pathlib import Path
from typing import Protocol

from fdrl_ros.errors import (
    CheckpointError,
    PolicyError,
    PrivacyError,
    RecordsError,
    TrainingStopped,
)
from fdrl_ros.learner.checkpoint import Checkpoint
from fdrl_ros.learner.learner import TrainingProgress
from fdrl_ros.learner.online_files import PatientLog, RoundCheckpoints
from fdrl_ros.learner.privacy_cost import ChargedMechanism, RecordCounts
from fdrl_ros.learner.records.records import Records
from fdrl_ros.learner.records.transitions import GrowingRecords
from fdrl_ros.learner.tabular_dqn import gradients_for
from fdrl_ros.learner.trainer import Trainer, TrainingSetup
from fdrl_ros.policy import Policy
from fdrl_ros.policy.policy import Action
from fdrl_ros.privacy.accountant.accountant import Account, check_delta
from fdrl_ros.settings import setting, Settings
import gymnasium
import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True)
class OnlineSettings(Settings):
    """How collecting and learning alternate."""

    rounds: int = setting(100, 'rounds of collecting and learning', limits=(1, 1000000))
    patients: int = setting(4, 'new patients of a round', limits=(1, 1000000), unit='patients')
    updates: float = setting(
        1.0,
        'steps of learning for each new record, patient or transition, that is sampled',
        limits=(1e-6, 1e6),
    )
    warm_up: int = setting(
        1000, 'records before learning begins', limits=(1, 100000000), unit='records'
    )
    exploration: float = setting(
        1.0, 'share of actions drawn at random in the first round', limits=(0.0, 1.0)
    )
    final_exploration: float = setting(
        0.05, 'share of actions drawn at random in the end', limits=(0.0, 1.0)
    )
    exploration_rounds: int = setting(
        50, 'rounds over which exploration falls', limits=(1, 1000000)
    )

    def explored(self, round: int) -> float:
        """Return the share of random actions in a round, counted from 1."""
        done = min(1.0, (round - 1) / self.exploration_rounds)
        return self.exploration + done * (self.final_exploration - self.exploration)


class Collector(Protocol):
    """The source of new patients."""

    def collect(self, policy: Policy, exploration: float, first: int, count: int) -> Records:
        """
        Treat new patients by a released policy.

        :param exploration: share of actions drawn at random.
        :param first: number of the first patient; the same number is the same patient.
        :param count: how many.
        """
        ...


class GymCollector:
    """Collects whole episodes, one to a patient, in an env of Gymnasium."""

    def __init__(self, env: gymnasium.Env, seed: int) -> None:
        """
        Take an env.

        :param seed: of the patients and of exploration; patient i is reset by its own seed.
        :raises PolicyError: unless its actions are discrete.
        """
        space = env.action_space
        if not isinstance(space, gymnasium.spaces.Discrete):
            raise PolicyError(f'actions {space}: expected discrete ones')
        self._env = env
        self._actions = int(space.n)
        self._seed = seed

    def collect(self, policy: Policy, exploration: float, first: int, count: int) -> Records:
        """Treat new patients; see :class:`Collector`."""
        rows, starts = [], [0]
        for number in range(first, first + count):
            rng = np.random.default_rng([self._seed, number])
            state, _ = self._env.reset(seed=int(rng.integers(2**31)))
            done = False
            while not done:
                if rng.random() < exploration:
                    action: Action = int(rng.integers(self._actions))
                else:
                    action = policy(state)
                next_state, reward, terminated, truncated, _ = self._env.step(action)
                rows.append((state, action, reward, next_state, terminated))
                state, done = next_state, terminated or truncated
            starts.append(len(rows))
        patients = np.array([f'patient_{number}' for number in range(first, first + count)])
        states, actions, rewards, next_states, terminals = map(np.array, zip(*rows, strict=True))
        return Records(
            states, actions, rewards, next_states, terminals, np.array(starts), patients
        )


class OnlineTrainer:
    """
    Alternates between new patients, treated by the private policy, and learning on all records.

    A round's patients are durable before anything is learned from them, and the state after each
    round is saved. An interrupted round is repeated with the same patients, sampling and noise.
    """

    def __init__(
        self, setup: TrainingSetup, collector: Collector, online: OnlineSettings, directory: Path
    ) -> None:
        """
        Bind a learner to one hospital.

        :param setup: the collector uses its `inputs` too; a round is one epoch, without proximal.
        :param directory: existing directory for collected patients and the state between rounds.
        :raises PrivacyError: without the compiled arithmetic, as :class:`Trainer`.
        """
        if setup.privacy.noise_multiplier:
            gradients_for(setup.network, setup.learner, setup.inputs).check_private()
        self._setup = replace(setup, learner=replace(setup.learner, epochs=1, proximal=0.0))
        self._collector, self._online, self._directory = collector, online, directory
        self._recorded = setup.network.states if setup.inputs is None else 1
        privacy = setup.privacy
        by_transition = 'transition' in (privacy.unit, privacy.clipped)
        self._unit = 'transition' if by_transition else 'patient'
        # The public number of records that a patient counts as.
        self._most = max(1, privacy.most_transitions) if by_transition else 1
        self._trainer: Trainer | None = None
        self._records = self._no_records()

    @property
    def transitions(self) -> int:
        """Transitions collected so far."""
        return self._records.n_transitions

    def train(
        self,
        weights: NDArray[np.float32],
        *,
        report: Callable[[TrainingProgress, NDArray[np.float32]], None] = lambda *told: None,
        stopped: Callable[[], bool] = lambda: False,
        anew: bool = False,
    ) -> NDArray[np.float32]:
        """
        Run all rounds, or the remaining ones.

        :param weights: public starting weights, shape (n_parameters,).
        :param report: called with progress and the private weights after each round that runs.
        :param anew: repeat finished rounds too, on their collected patients, for a `report` that
            needs every round; this costs only time.
        :returns: private weights, shape (n_parameters,), float32.
        :raises TrainingStopped: once `stopped` returns True; the next call continues from there.
        :raises BudgetExceededError: if all rounds, or the next one, would exceed the budget.
        :raises PrivacyError: if there are too few records to learn, or too many for delta.
        :raises RecordsError: if patients of learned rounds are damaged or missing.
        :raises CheckpointError: if the saved state is of another hospital, model or version, or
            began with other weights, settings, records or noise key.
        :raises LedgerCorruptError: if the ledger is older than that state.
        :raises KeyFileError: if the noise key is older than that state.
        """
        self.check_affordable()
        online, ledger = self._online, self._setup.ledger
        start = current = weights.astype(np.float32)
        self._trainer, self._records = None, self._no_records()
        path = self._directory / 'patients.turns'
        opened = RoundCheckpoints(self._directory, ledger)
        with opened as checkpoints, PatientLog(path, self.identity) as log:
            done = checkpoints.newest.round if checkpoints.newest else 0
            if checkpoints.newest:
                self._setup.source.check_erased(checkpoints.newest.erased, 'the newest checkpoint')
            self._check_collected(log, done)
            state: Checkpoint | None = None
            resumed = 0 if anew or done > online.rounds else done
            for round in range(1, online.rounds + 1):
                if stopped():
                    raise TrainingStopped(f'stopped before round {round}')
                collected = log.next_stored() or log.append(self._collect_round(current, round))
                self._records.add(*collected)
                if round < resumed:
                    continue
                trainer = self._trainer_for(collected.records)
                if round == resumed:
                    state = self._verified(checkpoints.newest, trainer, start)
                elif trainer is not None:
                    state = trainer.train_on(state, start, round, stopped=stopped)
                    if round > done:
                        checkpoints.save(state)
                if state is not None and trainer is not None:
                    current = trainer.result(state)
                if round > resumed:
                    epsilon = ledger.epsilon_bound()
                    report(TrainingProgress(round, round, online.rounds, epsilon), current)
        if state is None:
            raise PrivacyError(
                f'nothing was learned in {online.rounds} rounds: there were never as many records '
                f'as warm_up = {online.warm_up} and batch = {self._setup.privacy.batch} ask for'
            )
        return current

    def check_affordable(self) -> None:
        """
        Refuse rounds that cannot all be trained, as far as known before any is collected.

        :raises BudgetExceededError: if the budget does not cover all of them.
        :raises PrivacyError: if there will be too few patients, or too many for delta.
        """
        online, privacy = self._online, self._setup.privacy
        if privacy.unit != 'patient':
            return  # the number of transitions is not known in advance
        patients, most = online.rounds * online.patients, self._most
        check_delta(privacy.delta, patients)
        needed = max(online.warm_up, privacy.batch)
        if patients * most < needed:
            raise PrivacyError(
                f'{patients} patients in all: warm_up and batch ask for {needed // most} or more'
            )
        if math.isinf(privacy.budget):
            return
        ledger = self._setup.ledger
        fresh = Account(privacy.delta, ledger.charged_elsewhere())
        steps = self._steps(online.patients * most)
        for count in range(online.patients, patients + 1, online.patients):
            if count * most >= needed:
                size = RecordCounts(count, count, most)
                mechanism = ChargedMechanism.from_settings(size, self._setup.learner, privacy)
                fresh.add(mechanism.charge(steps))
        wanted = fresh.epsilon_pld()
        if not wanted <= privacy.budget:
            raise ledger.exceeded(ledger.epsilon(), wanted)

    def _no_records(self) -> GrowingRecords:
        learner = self._setup.learner
        return GrowingRecords(
            discount=learner.discount, n_step=learner.return_steps, unit=self._unit
        )

    def _steps(self, new: int) -> int:
        """Return the steps of a round with so many new records."""
        return max(1, math.ceil(new * self._online.updates))

    @property
    def identity(self) -> dict[str, object]:
        """The values that identify this training in its :class:`PatientLog`."""
        online = asdict(self._online)
        del online['rounds']  # there may be more
        return {'hospital': self._setup.ledger.owner.hospital, 'states': self._recorded} | online

    def _check_collected(self, log: PatientLog, done: int) -> None:
        """
        Refuse to collect rounds again that were learned from.

        :param done: the round of the newest checkpoint.
        """
        missing = range(log.count + 1, self._online.rounds + 1)
        learned = max([done, *filter(self._setup.ledger.chain.blocks, missing)])
        if learned > log.count:
            raise RecordsError(
                f'{self._directory} has the patients of {log.count} rounds, and round {learned} '
                'was learned from already: put back the newest records'
            )

    def _trainer_for(self, new: Records) -> Trainer | None:
        """Return a learner on all records, or None while there are too few."""
        records, privacy = self._records, self._setup.privacy
        if privacy.unit == 'transition':
            count, added = records.n_transitions, new.n_transitions
        else:
            # The number of a patient's transitions is private: the number of steps must not
            # depend on it.
            count, added = self._most * records.n_patients, self._most * new.n_patients
        if count < max(self._online.warm_up, privacy.batch):
            return None
        steps = self._steps(added)
        if self._trainer is None:
            place = self._directory / 'checkpoint'
            self._trainer = Trainer(self._setup, records, place, steps)
        else:
            self._trainer.use_records(records, steps)
        return self._trainer

    def _verified(
        self, state: Checkpoint | None, trainer: Trainer | None, start: NDArray[np.float32]
    ) -> Checkpoint:
        """Return the saved state if these records and settings led to it."""
        if state is None or trainer is None or state.start != trainer.start_digest(start):
            raise CheckpointError(
                f'the checkpoints in {self._directory} are of other records, settings, starting '
                'weights or another noise key: put those back, or begin in an empty directory'
            )
        return state

    def _collect_round(self, weights: NDArray[np.float32], round: int) -> Records:
        """Treat the new patients of a round."""
        online, policy = self._online, self._setup.network.policy(weights)
        first = (round - 1) * online.patients
        records = self._collector.collect(policy, online.explored(round), first, online.patients)
        if records.states.shape[1] != self._recorded:
            raise RecordsError(
                f'states of {records.states.shape[1]} numbers, expected {self._recorded}'
            )
        self._records.check_new(records)  # before they become durable
        return records
