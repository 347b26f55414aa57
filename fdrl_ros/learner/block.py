# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""One block of private steps (DP-DQN Alg. 1): what a hospital runs on one reservation."""

from collections.abc import Callable
from dataclasses import replace
from typing import Protocol

from fdrl_ros.errors import PolicyError, TrainingStopped
from fdrl_ros.learner.checkpoint import Checkpoint
from fdrl_ros.learner.gradient import DoubleDqn
from fdrl_ros.learner.network import Layered
from fdrl_ros.learner.optimizer import optimizer_of
from fdrl_ros.learner.records.sampling import Replay
from fdrl_ros.learner.settings import LearnerSettings
import numpy as np


class Steps(Protocol):
    """What a block needs of a hospital's learner."""

    dqn: DoubleDqn
    learner: LearnerSettings
    steps_per_block: int

    def replay(self, priorities: np.ndarray | None = None) -> Replay:
        """Return who joins the steps, going on from a checkpoint's priorities if given."""
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

    :param anchor: weights that the proximal term holds to.
    :raises PolicyError: if the weights are not finite any more.
    :raises TrainingStopped: before the next step, as soon as `stopped` says so.
    """
    learner, dqn, round = trainer.learner, trainer.dqn, state.round
    optimizer = optimizer_of(
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
        # Told by the weights, which are released, and not by any record.
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
