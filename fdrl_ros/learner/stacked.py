# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""
Many hospitals' learners in one pass, for simulations of a federation in one process.

Each keeps its own records, ledger, noise and checkpoint, and ends where it would have ended alone,
bit for bit.
"""

from collections.abc import Callable, Sequence
from functools import partial

from fdrl_ros.errors import SettingError
from fdrl_ros.learner.block import train_block
from fdrl_ros.learner.learner import TrainingProgress, TrainingResult
from fdrl_ros.learner.trainer import Trainer
import numpy as np
from numpy.typing import NDArray


class StackedTrainers:
    """
    Trains hospitals side by side: all run a block, then all the next.

    Their settings must be the same; how many patients they have, and so their steps, may differ.
    """

    def __init__(self, trainers: Sequence[Trainer]) -> None:
        """
        Stack learners.

        :raises SettingError: if there is none, one is there twice, or network or settings differ.
        """
        if not trainers:
            raise SettingError('trainers', 0, 'at least one')
        if len({id(each) for each in trainers}) < len(trainers):
            # Both would train on one ledger and checkpoint, each over what the other left.
            raise SettingError('trainers', '(one of them twice)', 'each hospital once')
        for each in trainers[1:]:
            if each.settings != trainers[0].settings:
                raise SettingError('trainers', each.settings, 'the same settings of all')
        self._trainers = list(trainers)

    def train(
        self,
        weights: NDArray[np.float32],
        round: int,
        *,
        report: Callable[[int, TrainingProgress], None] = lambda which, progress: None,
        stopped: Callable[[], bool] = lambda: False,
    ) -> list[TrainingResult]:
        """
        Run E local epochs of every hospital from the global weights; see :class:`Learner`.

        :param report: told the hospital's place in the list, and its progress.
        :returns: one result each, in the order of the learners.
        :raises BudgetExceededError: when the next block would pass a hospital's budget. What was
            trained until then is in the checkpoints.
        """
        trainers = self._trainers
        states = [each.begin(weights, round) for each in trainers]
        for block in range(trainers[0].learner.epochs):
            behind = [i for i, state in enumerate(states) if state.blocks == block]
            for i in behind:
                trainers[i].reserve(states[i])
            for i in behind:
                states[i] = train_block(trainers[i], states[i], weights, stopped)
                trainers[i].keep(states[i], partial(report, i))
        return [each.result(state) for each, state in zip(trainers, states, strict=True)]
