# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""
Public pre-training: the learner on simulated public patients, which costs no epsilon.

These patients come from a random stream that no hospital uses, so the starting
weights contain nothing about any hospital's patient.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

from fdrl_ros.errors import TrainingStopped
from fdrl_ros.learner.optimizer import fresh_moments, Optimizer
from fdrl_ros.learner.records.collection import Progress
from fdrl_ros.learner.records.records import Records
from fdrl_ros.learner.records.transitions import Transitions
from fdrl_ros.learner.settings import LearnerSettings
from fdrl_ros.learner.tabular_dqn import gradients_for
from fdrl_ros.policy.network import Network
from fdrl_ros.settings import setting, Settings
import numpy as np
from numpy.typing import NDArray

_REPORT_EVERY = 50


class Start(NamedTuple):
    """
    What pre-training begins with: first weights, shape (n_parameters,), and whose loss it is.

    Discount and steps are those of :class:`PretrainingSettings`.
    """

    weights: NDArray[np.float32]
    network: Network
    learner: LearnerSettings


@dataclass(frozen=True)
class PretrainingSettings(Settings):
    """Settings of public pre-training."""

    patients: int = setting(400, 'public patients', limits=(1, 1000000), unit='patients')
    heterogeneity: float = setting(
        0.0, 'H of the public patients: over how wide a range they differ', limits=(0.0, 1.0)
    )
    guide: str = setting(
        'expert',
        'who operates on public patients; controller: a hand-written one that sees what a policy '
        'sees',
        choices=('expert', 'controller'),
    )
    labels: str = setting(
        'done',
        'what is recorded as the action of a tick: what was done, or what the guide would do, '
        'which only cloning learns from (DAgger, Ross et al. 2011)',
        choices=('done', 'guide'),
    )
    exploration: float = setting(
        -1.0,
        'share of ticks at which another move is tried, the same in all operations; -1: as '
        'collection.exploration and its variation say',
        limits=(-1.0, 1.0),
    )
    steps: int = setting(6000, 'steps of Adam', limits=(0, 10000000), unit='steps')
    batch: int = setting(
        256,
        'transitions of a step, at most as many as there are',
        limits=(1, 1000000),
        unit='transitions',
    )
    learning_rate: float = setting(0.001, 'step size of Adam', limits=(1e-8, 1.0))
    settling: float = setting(
        0.0,
        'share of the steps, the last ones, over which the step size falls linearly to 0',
        limits=(0.0, 1.0),
    )
    target_period: int = setting(
        100, 'steps between two copies into the target network', limits=(1, 1000000)
    )
    discount: float = setting(0.4, 'gamma of the learner', limits=(0.0, 1.0))

    def step_size(self, step: int) -> float:
        """Return the step size of a step, counted from 0."""
        left, falling = self.steps - step, self.settling * self.steps
        return self.learning_rate if left >= falling else self.learning_rate * left / falling


def pretrain(
    records: Records,
    start: Start,
    settings: PretrainingSettings,
    rng: np.random.Generator,
    *,
    progress: Progress = lambda done, count: None,
    stopped: Callable[[], bool] = lambda: False,
) -> np.ndarray:
    """
    Learn from public records without privacy: the learner's loss, minibatches, Adam.

    :param records: of public patients only.
    :param rng: of the minibatches.
    :param progress: called with steps done and steps in all.
    :returns: weights, shape (n_parameters,), float32.
    :raises RecordsError: if states or actions do not fit the network.
    :raises TrainingStopped: as soon as `stopped` says so.
    """
    n_step = None if start.learner.return_steps is None else 1
    transitions = Transitions.from_records(records, discount=settings.discount, n_step=n_step)
    transitions.check_fit(start.network)
    learner = gradients_for(start.network, start.learner, public=True)
    current = start.weights
    wide = current.astype(np.float64)
    optimizer = Optimizer('adam', settings.learning_rate, fresh_moments('adam', learner.size))
    count = len(records.actions)
    for step in range(settings.steps):
        if stopped():
            raise TrainingStopped(f'pre-training stopped before step {step}')
        if step % settings.target_period == 0:
            target = current
        index = rng.integers(count, size=(min(settings.batch, count), 1))
        optimizer.learning_rate = settings.step_size(step)
        wide[learner.index] += optimizer.step(
            learner.mean(
                current, target, transitions.at(index, transitions.idled(index, start.learner))
            )
        )
        current = wide.astype(np.float32)
        if (step + 1) % _REPORT_EVERY == 0 or step + 1 == settings.steps:
            progress(step + 1, settings.steps)
    return current
