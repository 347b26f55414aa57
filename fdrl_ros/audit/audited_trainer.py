# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""The real trainer, with observers of every release and canaries among its patients."""

from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from pathlib import Path

from fdrl_ros.audit.canary import Canaries
from fdrl_ros.audit.planted import planted, PlantedDqn
from fdrl_ros.learner.records.records import Records
from fdrl_ros.learner.records.sampling import Draw
from fdrl_ros.learner.records.transitions import Batch
from fdrl_ros.learner.settings import LearnerSettings, PrivacySettings
from fdrl_ros.learner.trainer import Trainer
from fdrl_ros.policy import NetworkShape
from fdrl_ros.privacy.ledger.ledger import Ledger
from fdrl_ros.privacy.noise import NoiseSource
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


class WatchedTrainer(Trainer):
    """A trainer that also passes every release to its observers; otherwise unchanged."""

    watchers: tuple[Watch, ...] = ()
    _units = np.empty(0, np.int64)

    def batch(self, draw: Draw, round: int, step: int) -> Batch:
        """Return the transitions of those who joined; see :class:`Trainer`."""
        self._units = draw.units
        return super().batch(draw, round, step)

    def noised(self, clipped: np.ndarray, noise: np.ndarray) -> np.ndarray:
        """Return the private mean gradient of a step, and show it."""
        gradient = super().noised(clipped, noise)
        units, self._units = self._units, np.empty(0, np.int64)
        release = Release(gradient.copy(), clipped, self.known(units), units)
        for watch in self.watchers:
            watch(release)
        return gradient

    def known(self, units: NDArray[np.int64]) -> NDArray[np.float64]:
        """Return what others than canaries added to the last sum."""
        return np.zeros(self.dqn.size)


class AuditedTrainer(WatchedTrainer):
    """
    A watched trainer with canaries among its patients.

    A canary has a record, as a patient has, and joins a step by the trainer's own coins. One that
    is no member has an empty place: it may join, and adds nothing.
    """

    dqn: PlantedDqn

    def __init__(
        self,
        records: Records,
        shape: NetworkShape,
        learner: LearnerSettings,
        privacy: PrivacySettings,
        ledger: Ledger,
        source: NoiseSource,
        checkpoint: Path,
        canaries: Canaries,
        steps: int | None = None,
        inputs: np.ndarray | None = None,
    ) -> None:
        """Bind a learner to patients and canaries; see :class:`Trainer`."""
        whole = with_places(records, len(canaries))
        super().__init__(whole, shape, learner, privacy, ledger, source, checkpoint, steps, inputs)
        first = self.guarantee.n_records - len(canaries)
        self.dqn = planted(shape, learner, inputs, canaries, first)

    def batch(self, draw: Draw, round: int, step: int) -> Batch:
        """Return the transitions of those who joined; see :class:`Trainer`."""
        self.dqn.expect(draw.units)
        return super().batch(draw, round, step)

    def known(self, units: NDArray[np.int64]) -> NDArray[np.float64]:
        """Return what patients added to the last sum."""
        return self.dqn.known if len(units) else super().known(units)


def with_places(records: Records, count: int) -> Records:
    """Add places for canaries to the records: patients of one transition of zeros each."""
    columns = {
        each.name: np.zeros((count, *getattr(records, each.name).shape[1:]))
        for each in fields(records)
    }
    columns['starts'] = records.starts[-1] + 1 + np.arange(count)
    made = {
        name: np.concatenate((getattr(records, name), new.astype(getattr(records, name).dtype)))
        for name, new in columns.items()
        if name != 'patients'
    }
    names = [f'canary {number}' for number in range(count)]
    return replace(records, **made, patients=np.concatenate((records.patients, names)))
