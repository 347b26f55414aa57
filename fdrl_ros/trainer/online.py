# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""
Online DP-DQN: a hospital collects with its private policy and trains on all that it has.

Each round adds patients, and so lowers the sampling probability: every round is charged with its
own. That the acting network is the private one keeps later patients' data from telling more of
earlier ones than the accountant knows (adaptive composition).
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
import math
from pathlib import Path
from typing import Protocol

from fdrl_ros.errors import RecordsError
from fdrl_ros.policy import NetworkShape, Policy
from fdrl_ros.privacy.ledger import Ledger
from fdrl_ros.privacy.noise import NoiseSource
from fdrl_ros.settings import setting, Settings
from fdrl_ros.trainer.learner import TrainingProgress, TrainingStopped
from fdrl_ros.trainer.records import Records
from fdrl_ros.trainer.settings import LearnerSettings, PrivacySettings
from fdrl_ros.trainer.trainer import Trainer
import gymnasium
import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True)
class OnlineSettings(Settings):
    """How collecting and learning take turns."""

    rounds: int = setting(100, 'turns of collecting and learning', minimum=1, maximum=1000000)
    patients: int = setting(
        4, 'new patients of a round', unit='patients', minimum=1, maximum=1000000
    )
    updates: float = setting(
        1.0,
        'steps of learning for each new record, patient or transition, that is sampled',
        minimum=1e-6,
        maximum=1e6,
    )
    warm_up: int = setting(
        1000, 'records before learning begins', unit='records', minimum=1, maximum=100000000
    )
    exploration: float = setting(
        1.0, 'share of actions drawn at random in the first round', minimum=0.0, maximum=1.0
    )
    final_exploration: float = setting(
        0.05, 'share of actions drawn at random in the end', minimum=0.0, maximum=1.0
    )
    exploration_rounds: int = setting(
        50, 'rounds over which exploration falls', minimum=1, maximum=1000000
    )

    def explored(self, round: int) -> float:
        """Return the share of actions that are drawn at random in a round, counted from 1."""
        done = min(1.0, (round - 1) / self.exploration_rounds)
        return self.exploration + done * (self.final_exploration - self.exploration)


class Collector(Protocol):
    """Where new patients come from."""

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
        """:param seed: of the patients and of exploration; patient i is reset by its own seed."""
        self._env = env
        self._seed = seed

    def collect(self, policy: Policy, exploration: float, first: int, count: int) -> Records:
        """Treat new patients; see :class:`Collector`."""
        states, actions, rewards, next_states = [], [], [], []
        terminals: list[bool] = []
        starts = [0]
        for number in range(first, first + count):
            rng = np.random.default_rng([self._seed, number])
            state, _ = self._env.reset(seed=int(rng.integers(2**31)))
            over = False
            while not over:
                if rng.random() < exploration:
                    action = int(rng.integers(policy.shape.actions))
                else:
                    action = policy(state)
                following, reward, terminated, truncated, _ = self._env.step(action)
                states.append(state)
                actions.append(action)
                rewards.append(reward)
                next_states.append(following)
                terminals.append(terminated)
                state, over = following, terminated or truncated
            starts.append(len(actions))
        return Records(
            states=np.array(states, np.float32),
            actions=np.array(actions, np.int64),
            rewards=np.array(rewards, np.float32),
            next_states=np.array(next_states, np.float32),
            terminals=np.array(terminals),
            starts=np.array(starts, np.int64),
            patients=np.array([f'patient_{i}' for i in range(first, first + count)]),
        )


class OnlineTrainer:
    """
    Takes turns: some new patients by the private policy, then private learning on all records.

    A round's patients are durable before anything is learned from them, and a round that was cut
    short is repeated with the very same patients, sampling and noise.
    """

    def __init__(
        self,
        collector: Collector,
        shape: NetworkShape,
        online: OnlineSettings,
        learner: LearnerSettings,
        privacy: PrivacySettings,
        ledger: Ledger,
        source: NoiseSource,
        directory: Path,
        inputs: NDArray[np.float32] | None = None,
    ) -> None:
        """
        Bind a learner to one hospital.

        :param directory: for what was collected and the state between rounds; it must exist.
        :param inputs: as :class:`Trainer` takes it; whoever collects knows it too.
        """
        self._collector = collector
        self._shape = shape
        self._online = online
        self._learner = replace(learner, epochs=1, proximal=0.0)
        self._privacy = privacy
        self._ledger = ledger
        self._source = source
        self._directory = directory
        self._inputs = inputs
        self._recorded = shape.states if inputs is None else 1
        self.transitions = 0
        """Transitions collected so far."""

    def train(
        self,
        weights: NDArray[np.float32],
        *,
        report: Callable[[TrainingProgress, NDArray[np.float32]], None] = lambda *told: None,
        stopped: Callable[[], bool] = lambda: False,
    ) -> NDArray[np.float32]:
        """
        Run all rounds, or those that are left.

        :param weights: to begin with: public ones, shape (n_parameters,).
        :param report: told progress and the private weights after each round.
        :returns: private weights, shape (n_parameters,), float32.
        :raises TrainingStopped: as soon as `stopped` says so; it goes on from there next time.
        :raises BudgetExceededError: when the next round would pass the budget.
        """
        online, state = self._online, None
        parts: list[Records] = []
        current = weights.astype(np.float32)
        for round in range(1, online.rounds + 1):
            if stopped():
                raise TrainingStopped(f'stopped before round {round}')
            parts.append(self._new_patients(Policy(current, self._shape), round))
            self.transitions = sum(len(each.actions) for each in parts)
            records = Records.joined(parts)
            trainer = self._trainer(records, parts[-1])
            if trainer is not None:
                state = trainer.train_on(state, current, round, stopped=stopped)
                current = state.weights.astype(np.float32)
            steps = 0 if state is None else state.steps
            spent = self._ledger.epsilon_rdp()
            report(TrainingProgress(round, steps, online.rounds, spent), current)
        return current

    def _trainer(self, records: Records, new: Records) -> Trainer | None:
        """Return a learner on all records, or None while there are too few."""
        by_transition = 'transition' in (self._privacy.unit, self._privacy.clipped)
        count, added = (
            (len(records.actions), len(new.actions))
            if by_transition
            else (records.n_patients, new.n_patients)
        )
        if count < max(self._online.warm_up, self._privacy.batch):
            return None
        return Trainer(
            records,
            self._shape,
            self._learner,
            self._privacy,
            self._ledger,
            self._source,
            self._directory / 'checkpoint.npz',
            steps=max(1, math.ceil(added * self._online.updates)),
            inputs=self._inputs,
        )

    def _new_patients(self, policy: Policy, round: int) -> Records:
        """Return a round's patients, collected or as they were collected before."""
        path = self._directory / f'patients_{round}.npz'
        if path.exists():
            return Records.load(path, self._recorded)
        count = self._online.patients
        first = (round - 1) * count
        records = self._collector.collect(policy, self._online.explored(round), first, count)
        if records.states.shape[1] != self._recorded:
            raise RecordsError(
                f'states of {records.states.shape[1]} numbers, expected {self._recorded}'
            )
        records.save(path)
        return records
