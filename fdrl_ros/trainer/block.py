# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""One block of private steps (DP-DQN Alg. 1), of one hospital or of many side by side."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Protocol

from fdrl_ros.errors import PolicyError
from fdrl_ros.trainer.checkpoint import Checkpoint
from fdrl_ros.trainer.gradient import DoubleDqn
from fdrl_ros.trainer.learner import TrainingStopped
from fdrl_ros.trainer.network import Layered
from fdrl_ros.trainer.optimizer import optimizer_of
from fdrl_ros.trainer.replay import Replay
from fdrl_ros.trainer.settings import LearnerSettings
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
    trainers: Sequence[Steps],
    states: Sequence[Checkpoint],
    anchor: np.ndarray,
    stopped: Callable[[], bool],
) -> list[Checkpoint]:
    """
    Run one block of all of them and return their states after it.

    :param trainers: of the same settings.
    :param states: where each stands, after the same number of steps of the same round.
    :param anchor: weights that the proximal term holds to.
    :raises PolicyError: if the weights are not finite any more.
    :raises TrainingStopped: before the next step, as soon as `stopped` says so.
    """
    first, learner, dqn = trainers[0], trainers[0].learner, trainers[0].dqn
    begun, count, round = states[0].steps, first.steps_per_block, states[0].round
    weights = np.stack([state.weights for state in states])
    target = np.stack([state.target for state in states])
    optimizer = optimizer_of(
        learner.optimizer,
        learner.learning_rate,
        np.stack([state.moments for state in states], axis=1),
        begun,
    )
    replays = [each.replay(state.priorities) for each, state in zip(trainers, states, strict=True)]
    apart = [dqn.layered(each) for each in target]
    for step in range(begun, begun + count):
        if stopped():
            raise TrainingStopped(f'round {round} stopped before step {step}')
        current = weights.astype(np.float32)
        now = [dqn.layered(each) for each in current]
        if step % learner.target_period == 0:
            target, apart = current, now
        gradient = np.stack(
            [
                each.private_gradient(replay, now[i], apart[i], round, step)
                for i, (each, replay) in enumerate(zip(trainers, replays, strict=True))
            ]
        )
        if learner.proximal:
            gradient += learner.proximal * (weights - anchor)[:, dqn.start :]
        weights[:, dqn.start :] += optimizer.step(gradient)
    if not np.isfinite(weights).all():
        # Told by the weights, which are released, and not by any record.
        raise PolicyError('learning diverged: a lower learning_rate or clip_norm may hold it')
    return [
        replace(
            state,
            blocks=state.blocks + 1,
            steps=begun + count,
            weights=weights[i].copy(),
            target=target[i].copy(),
            moments=optimizer.moments[:, i].copy(),
            priorities=replays[i].priorities,
        )
        for i, state in enumerate(states)
    ]
