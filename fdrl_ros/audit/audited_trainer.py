# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""The real trainer, with observers of every release and canaries among its patients."""

from collections.abc import Callable
from dataclasses import dataclass

from fdrl_ros.audit.canary import Canaries, planted, PlantedDqn
from fdrl_ros.learner.records.records import Records
from fdrl_ros.learner.records.sampling import Draw
from fdrl_ros.learner.records.transitions import Batch
from fdrl_ros.learner.trainer import Trainer
import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True, eq=False)
class Release:
    """
    One step, with what the world sees of it and what only a test sees.

    ``gradient``: the noised mean gradient, released, (trained weights,). ``clipped``: the sum
    before noise, and ``known``: the part of it that others than canaries added, same shape.
    ``units``: who joined, (joined,).
    """

    gradient: NDArray[np.float64]
    clipped: NDArray[np.float64]
    known: NDArray[np.float64]
    units: NDArray[np.int64]


Watch = Callable[[Release], None]
"""Sees a step."""


class AuditedTrainer(Trainer):
    """
    The trainer with canaries among its patients, which shows every release to its observers.

    A canary has a record, as a patient has, and joins a step by the trainer's own coins. One that
    is no member has an empty place: it may join, and adds nothing.
    """

    dqn: PlantedDqn
    watchers: tuple[Watch, ...] = ()

    def plant(self, canaries: Canaries) -> None:
        """Put canaries into the last records, which :func:`with_places` added."""
        first = self.guarantee.n_records - len(canaries)
        self.dqn = planted(self.shape, self.learner, self._inputs, canaries, first)

    def batch(self, draw: Draw, round: int, step: int) -> Batch:
        """Return the transitions of those who joined; see :class:`Trainer`."""
        self.dqn.units = draw.units
        return super().batch(draw, round, step)

    def noised(self, clipped: np.ndarray, noise: np.ndarray) -> np.ndarray:
        """Return the private mean gradient of a step, and show it."""
        gradient = super().noised(clipped, noise)
        units, self.dqn.units = self.dqn.units, np.empty(0, np.int64)
        known = self.dqn.known if len(units) else np.zeros(self.dqn.size)
        for watch in self.watchers:
            watch(Release(gradient.copy(), clipped, known, units))
        return gradient


def with_places(records: Records, count: int) -> Records:
    """Add places for canaries to the records: patients of one transition of zeros each."""
    columns: dict[str, NDArray[np.generic]] = {}
    for name, before in vars(records).items():
        added = np.zeros((count, *before.shape[1:]), before.dtype)
        columns[name] = np.concatenate((before, added))
    columns['starts'] = np.append(records.starts, records.starts[-1] + 1 + np.arange(count))
    names = [f'canary {number}' for number in range(count)]
    columns['patients'] = np.concatenate((records.patients, names))
    return Records(**columns)
