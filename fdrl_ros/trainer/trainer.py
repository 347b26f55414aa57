# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""The private learner of a hospital: DP-DQN (DP-DQN Alg. 1) with a proximal term (FDRL Eq. 3)."""

from collections.abc import Callable
import hashlib
import math
from pathlib import Path

from fdrl_ros.errors import PrivacyError
from fdrl_ros.policy import digest_of, NetworkShape
from fdrl_ros.privacy.accountant import Charge, check_delta
from fdrl_ros.privacy.ledger import Ledger
from fdrl_ros.privacy.mechanism import clip_per_unit, noisy_mean, poisson_inclusion
from fdrl_ros.privacy.noise import NoiseSource
from fdrl_ros.trainer.checkpoint import Checkpoint
from fdrl_ros.trainer.gradient import per_unit_gradients
from fdrl_ros.trainer.learner import TrainingProgress, TrainingResult, TrainingStopped
from fdrl_ros.trainer.optimizer import Adam
from fdrl_ros.trainer.records import Records
from fdrl_ros.trainer.settings import LearnerSettings, PrivacySettings
import numpy as np


class Trainer:
    """
    Trains a dueling double DQN on one hospital's records under a privacy budget.

    Each local epoch is one block of the ledger: it is reserved durably, then its noise is drawn.
    A checkpoint follows each block. Inclusion and noise come from a keyed stream that is indexed
    by round and step, so a block that was cut short is repeated with the very same draws: it is
    the same release, and is charged once.
    """

    def __init__(
        self,
        records: Records,
        shape: NetworkShape,
        learner: LearnerSettings,
        privacy: PrivacySettings,
        ledger: Ledger,
        source: NoiseSource,
        checkpoint: Path,
    ) -> None:
        """
        Bind a learner to one hospital.

        :param checkpoint: file for the state between blocks.
        :raises PrivacyError: if delta or the batch does not suit the number of units.
        """
        self._records = records.by_transition() if privacy.unit == 'transition' else records
        n_units = self._records.n_patients
        if privacy.batch > n_units:
            raise PrivacyError(f'an expected batch of {privacy.batch} out of {n_units} units')
        check_delta(privacy.delta, n_units)
        self._shape = shape
        self._learner = learner
        self._privacy = privacy
        self._ledger = ledger
        self._source = source
        self._checkpoint = checkpoint
        self._rate = privacy.batch / n_units
        self._identity = hashlib.sha256(
            repr((shape, learner, privacy)).encode() + source.fingerprint + self._records.digest()
        ).digest()

    @property
    def n_units(self) -> int:
        """Privacy units in the records."""
        return self._records.n_patients

    @property
    def secure(self) -> bool:
        """Whether noise and sampling come from the operating system's secure source."""
        return self._source.private

    @property
    def steps_per_block(self) -> int:
        """Steps of a local epoch: so many that each unit is expected once."""
        return math.ceil(1.0 / self._rate)

    def check_affordable(self, round: int) -> None:
        """
        Refuse a round that the budget does not cover in full.

        :raises BudgetExceededError: if it does not; nothing is spent.
        """
        missing = self._learner.epochs - self._ledger.blocks(round)
        self._ledger.check(
            Charge(self._privacy.noise_multiplier, self._rate, missing * self.steps_per_block)
        )

    def rounding(self, round: int, size: int) -> np.ndarray:
        """Return the uniforms in (0, 1) for stochastic rounding of this round's update."""
        return self._source.uniform('rounding', round, 0, size)

    def train(
        self,
        weights: np.ndarray,
        round: int,
        *,
        report: Callable[[TrainingProgress], None],
        stopped: Callable[[], bool],
    ) -> TrainingResult:
        """
        Run E local epochs of DP-SGD from the global weights; see :class:`Learner`.

        :raises BudgetExceededError: when the next block would pass the budget.
        """
        start = hashlib.sha256(self._identity + digest_of(weights)).digest()
        state = Checkpoint.load(self._checkpoint, round, start) or Checkpoint.fresh(
            round, start, weights
        )
        steps = self._learner.epochs * self.steps_per_block
        while state.blocks < self._learner.epochs:
            self._ledger.reserve(
                round=round,
                block=state.blocks,
                noise_multiplier=self._privacy.noise_multiplier,
                sampling_probability=self._rate,
                steps=self.steps_per_block,
                inputs=state.digest(),
            )
            state = self._train_block(state, weights, stopped)
            state.save(self._checkpoint)
            done = state.blocks * self.steps_per_block
            report(TrainingProgress(round, done, steps, self._ledger.epsilon_rdp()))
        entries, head = self._ledger.head()
        before = self._ledger.head_before(round)
        return TrainingResult(
            state.weights.astype(np.float32), self._ledger.epsilon(), entries, head, *before
        )

    def _train_block(
        self, state: Checkpoint, anchor: np.ndarray, stopped: Callable[[], bool]
    ) -> Checkpoint:
        """Run one block of DP-SGD steps and return the state after it."""
        optimizer = Adam(self._learner.learning_rate, state.moments.copy(), state.steps)
        weights, target = state.weights.copy(), state.target
        for step in range(state.steps, state.steps + self.steps_per_block):
            if stopped():
                raise TrainingStopped(f'round {state.round} stopped before step {step}')
            if step % self._learner.target_period == 0:
                target = weights.copy()
            gradient = self._private_gradient(weights, target, state.round, step)
            gradient += self._learner.proximal * (weights - anchor)
            weights = weights + optimizer.step(gradient)
        return Checkpoint(
            round=state.round,
            start=state.start,
            blocks=state.blocks + 1,
            steps=state.steps + self.steps_per_block,
            weights=weights,
            target=target,
            moments=optimizer.moments,
        )

    def _private_gradient(
        self, weights: np.ndarray, target: np.ndarray, round: int, step: int
    ) -> np.ndarray:
        """Return the noised mean gradient of one Poisson batch, shape (n_parameters,)."""
        included = np.flatnonzero(
            poisson_inclusion(self.n_units, self._rate, self._source, round, step)
        )
        clipped = np.zeros(self._shape.n_parameters)
        if len(included):
            per_unit = self._learner.transitions_per_patient
            uniforms = self._source.uniform('transitions', round, step, self.n_units * per_unit)
            chosen = uniforms.reshape(self.n_units, per_unit)[included]
            batch = self._records.sample(included, chosen)
            gradients = per_unit_gradients(
                weights.astype(np.float32),
                target.astype(np.float32),
                self._shape,
                batch,
                self._learner.discount,
            )
            clipped = clip_per_unit(gradients, self._privacy.clip_norm)
        return noisy_mean(
            clipped,
            noise_multiplier=self._privacy.noise_multiplier,
            clip_norm=self._privacy.clip_norm,
            expected_batch=self._privacy.batch,
            noise=self._source.gaussian('gradient', round, step, len(clipped)),
        )
