# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""The learner's gradients with canaries in the place of some units, through the real clipping."""

from collections.abc import Sequence
from dataclasses import fields
from typing import Any

from fdrl_ros.audit.canary import Canaries, DenseCanaries
from fdrl_ros.audit.table_canary import TableCanaries
from fdrl_ros.learner.gradient import DoubleDqn
from fdrl_ros.learner.network import Layered, Slopes
from fdrl_ros.learner.records.transitions import Batch
from fdrl_ros.learner.settings import LearnerSettings
from fdrl_ros.learner.table import make_dqn, TableDqn
from fdrl_ros.policy import NetworkShape
import numpy as np
from numpy.typing import NDArray


class PlantedDqn(DoubleDqn):
    """
    Gradients of patients and canaries.

    Tell it by :meth:`expect` who is in the next batch; it stays so until told otherwise.
    """

    known: NDArray[np.float64]
    """What the patients alone added to the last sum, shape (size,)."""

    def plant(self, first: int) -> None:
        """:param first: unit that is the first canary; those before are patients."""
        self._first = first
        self._units = np.empty(0, np.int64)
        self.known = np.zeros(self.size)

    def expect(self, units: NDArray[np.int64]) -> None:
        """:param units: who is in the next batch, shape (joined,)."""
        self._units = units

    def clipped_sum(
        self, weights: Layered, target: Layered, batch: Batch, clip_norm: float
    ) -> NDArray[np.float64]:
        """Clip and sum as ever; see :class:`DoubleDqn`. What patients add is kept too."""
        units, patients = self._units, self._units < self._first
        self.known = np.zeros(self.size)
        if patients.any():
            self._units = units[patients]
            alone = _of_units(batch, patients)
            self.known = super().clipped_sum(weights, target, alone, clip_norm)
            self._units = units
        return super().clipped_sum(weights, target, batch, clip_norm)

    def places(self, batch: Batch) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Return which canaries are in a batch, (units,), and their rows, (units, rows)."""
        at = np.flatnonzero(self._units >= self._first)
        transitions = batch.actions.shape[-1]
        return self._units[at] - self._first, at[:, None] * transitions + np.arange(transitions)


class CanaryDqn(PlantedDqn):
    """Gradients of a network with dense layers, with canaries."""

    canaries: DenseCanaries

    def slopes(
        self, weights: Layered, target: Layered, batch: Batch, scale: float
    ) -> Sequence[Slopes]:
        """Return every row's gradient; the canaries' rows have theirs."""
        found = super().slopes(weights, target, batch, scale)
        self.canaries.plant(found, *self.places(batch))
        return found


class CanaryTable(PlantedDqn, TableDqn):
    """Gradients of a table, with canaries."""

    canaries: TableCanaries

    def heads(
        self, weights: Layered, target: Layered, batch: Batch, scale: float
    ) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
        """Return every row's gradient; the canaries' rows have theirs."""
        states, slopes = super().heads(weights, target, batch, scale)
        self.canaries.plant(states, slopes, *self.places(batch))
        return states, slopes


def draw_canaries(
    shape: NetworkShape,
    learner: LearnerSettings,
    inputs: NDArray[np.floating] | None,
    *,
    count: int,
    norm: float,
    rng: np.random.Generator,
) -> Canaries:
    """
    Draw canaries that suit a learner, and which of them are members.

    :param inputs: as :class:`fdrl_ros.learner.trainer.Trainer` takes it.
    :param norm: of their gradients before clipping.
    :raises SettingError: if there are not so many directions.
    """
    if isinstance(make_dqn(shape, learner, inputs), TableDqn) and inputs is not None:
        return TableCanaries.draw(shape, np.diagonal(inputs), count, norm, rng)
    return DenseCanaries.draw(shape, learner.frozen_layers, count, norm, rng)


def planted(
    shape: NetworkShape,
    learner: LearnerSettings,
    inputs: NDArray[np.floating] | None,
    canaries: Canaries,
    first: int,
) -> PlantedDqn:
    """
    Make the gradients that a learner takes, with canaries from a unit on.

    :param canaries: as :func:`draw_canaries` draws them for this learner.
    :param first: unit that is the first canary.
    """
    made: CanaryDqn | CanaryTable
    if isinstance(canaries, TableCanaries) and inputs is not None:
        scales = np.diagonal(inputs)
        made = CanaryTable(shape, scales, loss=learner.loss, conservative=learner.conservative)
        made.canaries = canaries
    else:
        assert isinstance(canaries, DenseCanaries)
        made = CanaryDqn.from_settings(shape, learner)
        made.canaries = canaries
    made.plant(first)
    return made


def _of_units(batch: Batch, which: NDArray[np.bool_]) -> Batch:
    """Take some units out of a batch."""
    taken: dict[str, Any] = {}
    for each in fields(batch):
        column = getattr(batch, each.name)
        taken[each.name] = None if column is None else column[which]
    return Batch(**taken)
