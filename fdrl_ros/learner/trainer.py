# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""The private learner of a hospital: DP-DQN (DP-DQN Alg. 1) with a proximal term (FDRL Eq. 3)."""

from collections.abc import Callable
from dataclasses import dataclass, replace
import hashlib
import math
from pathlib import Path

from fdrl_ros.errors import LedgerOwnerError, PolicyError, PrivacyError, TrainingStopped
from fdrl_ros.learner.checkpoint import Checkpoint
from fdrl_ros.learner.learner import TrainingProgress, TrainingResult
from fdrl_ros.learner.offsets import offsets_of, step_with
from fdrl_ros.learner.optimizer import fresh_moments, Optimizer
from fdrl_ros.learner.privacy_cost import ChargedMechanism
from fdrl_ros.learner.records.records import Records
from fdrl_ros.learner.records.sampling import Replay, SampledUnits
from fdrl_ros.learner.records.transitions import Batch, GrowingRecords, Transitions
from fdrl_ros.learner.settings import LearnerSettings, PrivacySettings
from fdrl_ros.learner.tabular_dqn import gradients_for, TabularDqn
from fdrl_ros.policy import digest_of
from fdrl_ros.policy.network import Network
from fdrl_ros.policy.policy import check_weights
from fdrl_ros.policy.task_identity import TaskIdentity
from fdrl_ros.privacy.ledger.chain import Head
from fdrl_ros.privacy.ledger.ledger import Ledger
from fdrl_ros.privacy.mechanism import noisy_mean
from fdrl_ros.privacy.noise import NoiseSource
import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True)
class TrainingSetup:
    """
    How a hospital learns, and where its spending and its randomness come from.

    ``inputs``: public table of the network's input for each state number, if records hold numbers,
    shape (numbers, states). ``task``: whose records are trained on; checkpoints carry it.
    ``fields``: names of the network's inputs, for learner.offsets.
    """

    network: Network
    learner: LearnerSettings
    privacy: PrivacySettings
    ledger: Ledger
    source: NoiseSource
    inputs: np.ndarray | None = None
    task: TaskIdentity | None = None
    fields: tuple[str, ...] = ()


class Trainer:
    """
    Trains a dueling double DQN on one hospital's records under a privacy budget.

    Each local epoch is one block of the ledger: it is reserved durably before its noise is drawn.
    A checkpoint follows each block. Inclusion and noise come from a keyed stream that is indexed
    by round and step, so an interrupted block is repeated with the same draws: it is the same
    release, and is charged once.
    """

    def __init__(
        self,
        setup: TrainingSetup,
        records: Records | GrowingRecords,
        checkpoint: Path,
        steps: int | None = None,
    ) -> None:
        """
        Bind a learner to one hospital.

        :param checkpoint: file for the state between blocks.
        :param steps: of a local epoch; by default as many as include each unit once on average.
        :raises PrivacyError: if the settings void the guarantee for these records, or there is
            noise and the compiled arithmetic is missing or was built from other sources.
        :raises KeyFileError: if the noise key is that of another ledger.
        :raises LedgerOwnerError: if the ledger counts for another unit, delta or budget.
        :raises RecordsError: if states or actions are not those of the network.
        :raises SettingError: if offsets of inputs do not fit the network.
        """
        owner, inputs = setup.ledger.owner, setup.inputs
        for name in ('unit', 'delta', 'budget'):
            counted, promised = getattr(owner, name), getattr(setup.privacy, name)
            if counted != promised:
                raise LedgerOwnerError(
                    f'the ledger of {owner.hospital} counts for {name} {counted!r}, the settings '
                    f'promise {promised!r}'
                )
        self.setup, self.checkpoint = setup, checkpoint
        self.network, self.learner, self.privacy = setup.network, setup.learner, setup.privacy
        self.task = setup.task
        self.dqn = gradients_for(self.network, self.learner, inputs)
        if self.privacy.noise_multiplier:
            self.dqn.check_private()
        self._offsets = offsets_of(self.network, self.learner, setup.fields)
        self.ledger, self._inputs = setup.ledger, inputs
        self._source = setup.source
        self._source.bind(self.ledger)
        self._settings_digest = hashlib.sha256(
            repr((self.network.name, self.learner, self.privacy, self.task)).encode()
            + self.network.layout.digest()
            + self._source.fingerprint
            + (b'' if inputs is None else np.ascontiguousarray(inputs).tobytes())
            + (repr(setup.fields).encode() if self.learner.offsets else b'')
        ).digest()
        self.use_records(records, steps)

    def use_records(self, records: Records | GrowingRecords, steps: int | None = None) -> None:
        """
        Train on these records from now on.

        :param steps: of a local epoch; by default as many as include each unit once on average.
        :raises PrivacyError: if the settings void the guarantee for these records.
        :raises RecordsError: if states or actions are not those of the network.
        """
        self.mechanism = ChargedMechanism.from_settings(records, self.learner, self.privacy)
        self.records = records
        inputs = None if isinstance(self.dqn, TabularDqn) else self._inputs
        if isinstance(records, GrowingRecords):
            self.transitions = records.transitions(inputs)
        else:
            self.transitions = Transitions.from_records(
                records,
                discount=self.learner.discount,
                n_step=self.learner.return_steps,
                unit='transition' if self.mechanism.clips_transitions else 'patient',
                inputs=inputs,
            )
        self.transitions.check_fit(self.network, self._inputs)
        self.steps_per_block = steps or self.mechanism.steps_of_epoch
        """Steps of a local epoch, which is one block of the ledger."""
        self._records_digest = hashlib.sha256(self._settings_digest + records.digest()).digest()

    @property
    def n_units(self) -> int:
        """Privacy units in the records."""
        return self.mechanism.n_units

    @property
    def secure(self) -> bool:
        """Whether noise and sampling come from the operating system's secure source."""
        return self._source.private

    def verify_ledger(self, seen: Head, by: str) -> None:
        """
        Refuse a ledger that does not contain a head; see :class:`Learner`.

        :raises LedgerError: if it does not.
        """
        self.ledger.verify(seen, by)

    def check_noise_key(self) -> None:
        """
        Refuse a noise key that is older than the ledger, where a server acknowledges each round.

        :raises KeyFileError: if it can draw a round that was over.
        """
        self._source.check_newest(self.ledger)

    def forget(self, round: int) -> None:
        """
        Erase the noise of a round that is over; see :class:`Learner`.

        :raises KeyFileError: if that cannot be written.
        """
        self._source.forget(round)

    def check_affordable(self, round: int) -> None:
        """
        Check that the budget covers a whole round; nothing is spent.

        :raises BudgetExceededError: if it does not.
        """
        missing = self.learner.epochs - self.ledger.chain.blocks(round)
        self.ledger.check(self.mechanism.charge(missing * self.steps_per_block))

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
        most: int | None = None,
    ) -> TrainingResult:
        """
        Run E local epochs of DP-SGD from the global weights; see :class:`Learner`.

        :param most: local epochs after which to end, where the budget pays for fewer than E.
        :raises BudgetExceededError: when the next block would pass the budget.
        :raises TaskError: if the checkpoint is of another task.
        :raises KeyFileError: if the noise key is older than the checkpoint.
        """
        start = self.start_digest(weights)
        state = Checkpoint.read(self.checkpoint, self.ledger)
        if state is not None and state.task is not None and self.task is not None:
            self.task.check(state.task, self.checkpoint)
        if state is not None:
            self._source.check_erased(state.erased, f'the checkpoint {self.checkpoint}')
        epochs = self.learner.epochs if most is None else min(most, self.learner.epochs)
        steps = epochs * self.steps_per_block
        averaged_from = steps - self.learner.averaged_steps(steps)
        if (
            state is None
            or (state.round, state.start) != (round, start)
            or state.averaged != max(0, state.steps - averaged_from)  # for more or fewer epochs
        ):
            state = self._fresh(weights, round, start)
        while state.blocks < epochs:
            state = self._train_block(state, weights, stopped, averaged_from)
            state.save(self.checkpoint, self.ledger)
            report(TrainingProgress(round, state.steps, steps, self.ledger.epsilon_bound()))
        return TrainingResult(
            self.result(state),
            self.ledger.epsilon(),
            *self.ledger.chain.head,
            *self.ledger.chain.head_before(round),
            self.ledger.chain.links(),
        )

    def start_digest(self, weights: np.ndarray) -> bytes:
        """
        Return the digest of everything that training starts from: settings, key, records, weights.

        :raises PolicyError: if the weights do not fit the network, or are not finite.
        """
        check_weights(weights, self.network.layout.n_parameters)
        return hashlib.sha256(self._records_digest + digest_of(weights)).digest()

    def _fresh(self, weights: np.ndarray, round: int, start: bytes) -> Checkpoint:
        """Return the state at the beginning of a round."""
        offsets = 0 if self._offsets is None else self._offsets.size
        moments = fresh_moments(self.learner.optimizer, self.dqn.size + offsets)
        wide, narrow = weights.astype(np.float64), weights.astype(np.float32)
        priorities = self.replay().priorities
        return Checkpoint(round, start, 0, 0, wide, narrow, moments, priorities, self.task)

    def train_on(
        self,
        state: Checkpoint | None,
        weights: np.ndarray,
        round: int,
        *,
        stopped: Callable[[], bool],
    ) -> Checkpoint:
        """
        Run one block of a further round from the end of an earlier round, on more records.

        The caller saves the returned state.

        :param state: after the earlier round; None begins at `weights`.
        :param weights: start of the first round, shape (n_parameters,).
        :raises BudgetExceededError: when the block would pass the budget.
        """
        start = self.start_digest(weights)
        if state is None:
            state = self._fresh(weights, round, start)
        else:
            priorities = self.replay().priorities
            priorities[: len(state.priorities)] = state.priorities
            state = replace(state, round=round, start=start, blocks=0, priorities=priorities)
            state = replace(state, averaged=0, total=None)
        steps = self.steps_per_block
        averaged_from = state.steps + steps - self.learner.averaged_steps(steps)
        return self._train_block(state, weights, stopped, averaged_from)

    def result(self, state: Checkpoint) -> NDArray[np.float32]:
        """Return the weights that a round ends with, shape (n_parameters,)."""
        return state.result(self.dqn.index)

    def _train_block(
        self,
        state: Checkpoint,
        anchor: np.ndarray,
        stopped: Callable[[], bool],
        averaged_from: int,
    ) -> Checkpoint:
        """
        Charge a block durably, then draw its noise and run it; return the state after it.

        :param anchor: weights that the proximal term pulls towards.
        :param averaged_from: first step whose weights are averaged.
        :raises NoiseErasedError: if the noise of the round was erased; nothing is charged.
        :raises PolicyError: if the weights are no longer finite.
        :raises TrainingStopped: before the next step, once `stopped` returns True.
        """
        charge = self.mechanism.charge(self.steps_per_block)
        self._source.check_drawable(state.round)
        self.ledger.reserve(
            round=state.round, block=state.blocks, charge=charge, inputs=state.digest()
        )
        learner, dqn, round = self.learner, self.dqn, state.round
        offsets = self._offsets
        rate = learner.learning_rate if offsets is None else offsets.rates
        optimizer = Optimizer(learner.optimizer, rate, state.moments.copy(), state.steps)
        span = None if offsets is None else offsets.span(anchor)
        replay = self.replay(state.priorities)
        weights, target = state.weights.copy(), state.target
        trained, anchored = dqn.index, anchor[dqn.index]
        end = state.steps + self.steps_per_block
        averaged, total = state.averaged, state.total
        for step in range(state.steps, end):
            if stopped():
                raise TrainingStopped(f'round {round} stopped before step {step}')
            current = weights.astype(np.float32)
            if step % learner.target_period == 0:
                target = current
            gradient = self.private_gradient(replay, current, target, round, step)
            if learner.proximal:
                gradient += learner.proximal * (weights[trained] - anchored)
            weights[trained] += (
                optimizer.step(gradient) if span is None else step_with(optimizer, gradient, span)
            )
            if step >= averaged_from:
                averaged += 1
                total = weights[trained] + (0.0 if total is None else total)
        if not np.isfinite(weights).all():
            # Decided by the weights, which are released, not by any record.
            raise PolicyError('learning diverged: a lower learning_rate or clip_norm may hold it')
        return replace(
            state,
            blocks=state.blocks + 1,
            steps=end,
            weights=weights,
            target=target,
            moments=optimizer.moments,
            priorities=replay.priorities,
            averaged=averaged,
            total=total,
            erased=self._source.erased,
        )

    def batch(self, draw: SampledUnits, round: int, step: int) -> Batch:
        """Return the transitions of the units in a step, shape (joined, transitions, ...)."""
        units, weights = draw
        if self.mechanism.clips_transitions:
            index = units[:, None]
        else:
            size = (len(units), self.learner.transitions_per_patient)
            uniforms = self._source.uniform('transitions', round, step, math.prod(size))
            index = self.transitions.draw_rows(units, uniforms.reshape(size))
            if self.learner.expected_transitions:
                own = self.transitions.lengths(units) / self.learner.expected_transitions
                weights = np.asarray(own if weights is None else weights * own, np.float32)
        each = None if weights is None else np.broadcast_to(weights[:, None], index.shape)
        return self.transitions.at(index, self.transitions.idled(index, self.learner, each))

    def private_gradient(
        self,
        replay: Replay,
        weights: np.ndarray,
        target: np.ndarray,
        round: int,
        step: int,
    ) -> np.ndarray:
        """
        Return the noised mean gradient of those who join a step, shape (trained weights,).

        :raises PrivacyError: if a learner of another package does not clip; nothing is released.
        """
        draw = replay.draw(round, step)
        clipped = np.zeros(self.dqn.size)
        if len(draw.units):
            batch = self.batch(draw, round, step)
            clip_norm = self.privacy.clip_norm
            clipped = self.dqn.clipped_sum(weights, target, batch, clip_norm)
            if not np.linalg.norm(clipped) <= len(draw.units) * clip_norm:  # also if it is NaN
                raise PrivacyError(
                    f'{self.network.name}: its learner gives a sum longer than clipped gradients '
                    'can have; clip each privacy unit to privacy.clip_norm'
                )
            if len(replay.priorities):
                replay.update_priorities(draw.units, self.dqn.errors(weights, target, batch))
        return self.add_noise(clipped, self.noise(round, step))

    def noise(self, round: int, step: int) -> np.ndarray:
        """Return the N(0, 1) draws of a step, shape (trained weights,)."""
        if not self.privacy.noise_multiplier:
            return np.zeros(self.dqn.size)
        return self._source.gaussian('gradient', round, step, self.dqn.size)

    def choice_noise(self, round: int, size: int) -> np.ndarray:
        """Return the N(0, 1) draws of the choice of a home policy, shape (size,)."""
        return self._source.gaussian('choice', round, 0, size)

    def add_noise(self, clipped: np.ndarray, noise: np.ndarray) -> np.ndarray:
        """Return the private mean gradient, the only release of a step."""
        return noisy_mean(
            clipped,
            noise_multiplier=self.privacy.noise_multiplier,
            clip_norm=self.privacy.clip_norm,
            expected_batch=self.privacy.batch,
            noise=noise,
        )

    def replay(self, priorities: np.ndarray | None = None) -> Replay:
        """Return the sampler of units, continuing from a checkpoint's priorities if given."""
        return Replay(self.mechanism, self.learner, self._source, priorities)
