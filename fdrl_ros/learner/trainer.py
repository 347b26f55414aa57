# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""
One block of private steps (DP-DQN Alg. 1): what a hospital runs on one reservation.

The private learner of a hospital: DP-DQN (DP-DQN Alg. 1) with a proximal term (FDRL Eq. 3).
"""

from collections.abc import Callable
from dataclasses import replace
import hashlib
import math
from pathlib import Path
from typing import Protocol

from fdrl_ros.errors import LedgerOwnerError, PolicyError, RecordsError, TrainingStopped
from fdrl_ros.learner.checkpoint import Checkpoint
from fdrl_ros.learner.gradient import DoubleDqn
from fdrl_ros.learner.guarantee import Guarantee
from fdrl_ros.learner.learner import TrainingProgress, TrainingResult
from fdrl_ros.learner.network import Layered
from fdrl_ros.learner.optimizer import fresh_moments, make_optimizer
from fdrl_ros.learner.records.records import Records
from fdrl_ros.learner.records.sampling import Draw, make_replay, Replay
from fdrl_ros.learner.records.transitions import Batch, GrowingRecords, Transitions
from fdrl_ros.learner.settings import LearnerSettings, PrivacySettings
from fdrl_ros.learner.table import make_dqn, TableDqn
from fdrl_ros.policy import digest_of, NetworkShape
from fdrl_ros.privacy.ledger.chain import Head
from fdrl_ros.privacy.ledger.ledger import Ledger
from fdrl_ros.privacy.mechanism import noisy_mean
from fdrl_ros.privacy.noise import NoiseSource
import numpy as np


class Steps(Protocol):
    """What a block needs of a hospital's learner."""

    dqn: DoubleDqn
    learner: LearnerSettings
    steps_per_block: int

    def replay(self, priorities: np.ndarray | None = None) -> Replay:
        """Return the sampler of units, continuing from a checkpoint's priorities if given."""
        ...

    def private_gradient(
        self, replay: Replay, weights: Layered, target: Layered, round: int, step: int
    ) -> np.ndarray:
        """Return the noised mean gradient of those who join a step, shape (trained weights,)."""
        ...


def train_block(
    trainer: Steps,
    state: Checkpoint,
    anchor: np.ndarray,
    stopped: Callable[[], bool],
) -> Checkpoint:
    """
    Run one block and return the state after it.

    :param anchor: weights that the proximal term pulls towards.
    :raises PolicyError: if the weights are no longer finite.
    :raises TrainingStopped: before the next step, once `stopped` returns True.
    """
    learner, dqn, round = trainer.learner, trainer.dqn, state.round
    optimizer = make_optimizer(
        learner.optimizer, learner.learning_rate, state.moments.copy(), state.steps
    )
    replay = trainer.replay(state.priorities)
    weights, target = state.weights.copy(), state.target
    trained, held = weights[dqn.start :], anchor[dqn.start :]
    apart = dqn.layered(target)
    for step in range(state.steps, state.steps + trainer.steps_per_block):
        if stopped():
            raise TrainingStopped(f'round {round} stopped before step {step}')
        current = weights.astype(np.float32)
        now = dqn.layered(current)
        if step % learner.target_period == 0:
            target, apart = current, now
        gradient = trainer.private_gradient(replay, now, apart, round, step)
        if learner.proximal:
            gradient += learner.proximal * (trained - held)
        trained += optimizer.step(gradient)
    if not np.isfinite(weights).all():
        # Decided by the weights, which are released, not by any record.
        raise PolicyError('learning diverged: a lower learning_rate or clip_norm may hold it')
    return replace(
        state,
        blocks=state.blocks + 1,
        steps=state.steps + trainer.steps_per_block,
        weights=weights,
        target=target,
        moments=optimizer.moments,
        priorities=replay.priorities,
    )


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
        records: Records | GrowingRecords,
        shape: NetworkShape,
        learner: LearnerSettings,
        privacy: PrivacySettings,
        ledger: Ledger,
        source: NoiseSource,
        checkpoint: Path,
        steps: int | None = None,
        inputs: np.ndarray | None = None,
    ) -> None:
        """
        Bind a learner to one hospital.

        :param checkpoint: file for the state between blocks.
        :param steps: of a local epoch; by default as many as include each unit once on average.
        :param inputs: public table of the network's input for each state number, if records hold
            numbers, shape (numbers, states).
        :raises PrivacyError: if the settings void the guarantee for these records, or there is
            noise and the compiled arithmetic is missing or was built from other sources.
        :raises LedgerOwnerError: if the ledger counts for another unit, delta or budget.
        :raises RecordsError: if states or actions are not those of the network.
        """
        _check_ledger(ledger, privacy)
        self.shape = shape
        self.dqn = make_dqn(shape, learner, inputs)
        if privacy.noise_multiplier:
            self.dqn.check_private()
        self.learner, self.privacy = learner, privacy
        self.settings = (shape, learner, privacy)
        """The settings that the training depends on."""
        self._ledger = ledger
        self._source = source.for_ledger(ledger.owner.birth)
        self._checkpoint = Path(checkpoint)
        self._inputs = inputs
        self._settled = hashlib.sha256(
            repr(self.settings).encode()
            + self._source.fingerprint
            + (b'' if inputs is None else np.ascontiguousarray(inputs).tobytes())
        ).digest()
        self.use_records(records, steps)

    def use_records(self, records: Records | GrowingRecords, steps: int | None = None) -> None:
        """
        Train on these records from now on.

        :param steps: of a local epoch; by default as many as include each unit once on average.
        :raises PrivacyError: if the settings void the guarantee for these records.
        """
        self.guarantee = Guarantee.from_settings(records, self.learner, self.privacy)
        inputs = None if isinstance(self.dqn, TableDqn) else self._inputs
        if isinstance(records, GrowingRecords):
            self._transitions = records.transitions(inputs)
        else:
            self._transitions = Transitions.from_records(
                records,
                discount=self.learner.discount,
                n_step=self.learner.n_step,
                unit='transition' if self.guarantee.clips_transitions else 'patient',
                inputs=inputs,
            )
        self._check_records()
        self.steps_per_block = steps or math.ceil(1.0 / self.guarantee.rate)
        """Steps of a local epoch, which is one block of the ledger."""
        self._identity = hashlib.sha256(self._settled + records.digest()).digest()

    def _check_records(self) -> None:
        """Refuse states and actions that do not fit the network."""
        shape, seen = self.shape, self._transitions.states.shape[-1]
        if self._inputs is None:
            if seen != shape.states:
                raise RecordsError(f'states of {seen} numbers: the network takes {shape.states}')
        elif seen != 1 or self._inputs.ndim != 2 or self._inputs.shape[1] != shape.states:
            raise RecordsError(f'inputs must turn the number of a state into {shape.states}')
        elif (
            max(self._transitions.states.max(), self._transitions.next_states.max())
            >= len(self._inputs)
            or min(self._transitions.states.min(), self._transitions.next_states.min()) < 0
        ):
            raise RecordsError(f'a state beyond the {len(self._inputs)} of the inputs')
        if self._transitions.actions.max() >= shape.actions:
            raise RecordsError(f'an action beyond the {shape.actions} of the network')

    @property
    def n_units(self) -> int:
        """Privacy units in the records."""
        return self.guarantee.n_units

    @property
    def secure(self) -> bool:
        """Whether noise and sampling come from the operating system's secure source."""
        return self._source.private

    def verify_ledger(self, seen: Head, by: str) -> None:
        """
        Refuse a ledger that does not contain a head; see :class:`Learner`.

        :raises LedgerError: if it does not.
        """
        self._ledger.verify(seen, by)

    def check_affordable(self, round: int) -> None:
        """
        Check that the budget covers a whole round; nothing is spent.

        :raises BudgetExceededError: if it does not.
        """
        missing = self.learner.epochs - self._ledger.blocks(round)
        self._ledger.check(self.guarantee.charge(missing * self.steps_per_block))

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
        state = self.begin(weights, round)
        while state.blocks < self.learner.epochs:
            self.reserve(state)
            state = train_block(self, state, weights, stopped)
            self.save(state, report)
        return self.result(state)

    def begin(self, weights: np.ndarray, round: int) -> Checkpoint:
        """Return the state of a round: its checkpoint, or the global weights."""
        start = self.start_digest(weights)
        saved = Checkpoint.load(self._checkpoint, self._ledger, round, start)
        return self._fresh(weights, round, start) if saved is None else saved

    def start_digest(self, weights: np.ndarray) -> bytes:
        """
        Return the digest of everything that training starts from: settings, key, records, weights.

        :raises PolicyError: if the weights do not fit the network, or are not finite.
        """
        if np.shape(weights) != (self.shape.n_parameters,) or not np.isfinite(weights).all():
            raise PolicyError(f'weights: expected {self.shape.n_parameters} finite numbers')
        return hashlib.sha256(self._identity + digest_of(weights)).digest()

    def _fresh(self, weights: np.ndarray, round: int, start: bytes) -> Checkpoint:
        moments = fresh_moments(self.learner.optimizer, self.dqn.size)
        return Checkpoint.fresh(round, start, weights, moments, self.replay().priorities)

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
        priorities = self.replay().priorities
        priorities[: len(state.priorities)] = state.priorities
        state = replace(state, round=round, start=start, blocks=0, priorities=priorities)
        self.reserve(state)
        return train_block(self, state, weights, stopped)

    def reserve(self, state: Checkpoint) -> None:
        """Charge the next block, durably, before its noise is drawn."""
        charge = self.guarantee.charge(self.steps_per_block)
        self._ledger.reserve(
            round=state.round,
            block=state.blocks,
            noise_multiplier=charge.noise_multiplier,
            sampling_probability=charge.sampling_probability,
            steps=charge.steps,
            group=charge.group,
            inputs=state.digest(),
        )

    def save(self, state: Checkpoint, report: Callable[[TrainingProgress], None]) -> None:
        """Save the state after a block and report progress."""
        state.save(self._checkpoint, self._ledger)
        steps = self.learner.epochs * self.steps_per_block
        report(TrainingProgress(state.round, state.steps, steps, self._ledger.epsilon_rdp()))

    def result(self, state: Checkpoint) -> TrainingResult:
        """Return the result after the last block."""
        entries, head = self._ledger.head()
        before = self._ledger.head_before(state.round)
        return TrainingResult(
            state.weights.astype(np.float32),
            self._ledger.epsilon(),
            entries,
            head,
            *before,
            self._ledger.links(),
        )

    def batch(self, draw: Draw, round: int, step: int) -> Batch:
        """Return the transitions of the units in a step, shape (joined, transitions, ...)."""
        if self.guarantee.clips_transitions:
            index = draw.units[:, None]
        else:
            size = (len(draw.units), self.learner.transitions_per_patient)
            uniforms = self._source.uniform('transitions', round, step, math.prod(size))
            index = self._transitions.drawn(draw.units, uniforms.reshape(size))
        weights = draw.weights
        if self.learner.expected_transitions and not self.guarantee.clips_transitions:
            own = self._transitions.lengths(draw.units) / self.learner.expected_transitions
            weights = np.asarray(own if weights is None else weights * own, np.float32)
        return self._transitions.at(
            index, None if weights is None else np.broadcast_to(weights[:, None], index.shape)
        )

    def private_gradient(
        self, replay: Replay, weights: Layered, target: Layered, round: int, step: int
    ) -> np.ndarray:
        """Return the noised mean gradient of those who join a step, shape (trained weights,)."""
        draw = replay.draw(round, step)
        clipped = np.zeros(self.dqn.size)
        if len(draw.units):
            batch = self.batch(draw, round, step)
            clipped = self.dqn.clipped_sum(weights, target, batch, self.privacy.clip_norm)
            if len(replay.priorities):
                replay.learned(draw.units, self.dqn.errors(weights, target, batch))
        return self.noised(clipped, self.noise(round, step))

    def noise(self, round: int, step: int) -> np.ndarray:
        """Return the N(0, 1) draws of a step, shape (trained weights,)."""
        if not self.privacy.noise_multiplier:
            return np.zeros(self.dqn.size)
        return self._source.gaussian('gradient', round, step, self.dqn.size)

    def noised(self, clipped: np.ndarray, noise: np.ndarray) -> np.ndarray:
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
        return make_replay(
            self.guarantee.n_records,
            self.privacy.batch,
            self.learner,
            self._source,
            priorities,
            rate=self.guarantee.rate,
        )


def _check_ledger(ledger: Ledger, privacy: PrivacySettings) -> None:
    """Refuse a ledger that counts another epsilon than the settings promise."""
    owner = ledger.owner
    for name in ('unit', 'delta', 'budget'):
        counted, promised = getattr(owner, name), getattr(privacy, name)
        if counted != promised:
            raise LedgerOwnerError(
                f'the ledger of {owner.hospital} counts for {name} {counted!r}, the settings '
                f'promise {promised!r}'
            )
