# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""
How many operations end and what they earn, by the law of Operation.tick.

The last axis of every array is the patient.
"""

from fdrl_ros.surgery.patient.batch_events import Array, Rows
from fdrl_ros.surgery.patient.patient import Patient
from fdrl_ros.surgery.settings import WorldSettings
from fdrl_ros.surgery.tasks.outcome import ABOVE, FAILURES, LATERAL
from fdrl_ros.surgery.tasks.reward import force_terms, reward_of
import numpy as np
from numpy.typing import NDArray

Bits = NDArray[np.bool_]

NO_FAILURE = -1
"""Failure of an operation that goes on or succeeded; otherwise it is the place in FAILURES."""

_FORCE, _WORKSPACE, _VITALS, _TIME = (
    FAILURES.index(each) for each in ('force', 'workspace', 'vitals', 'time')
)
_HIGHEST: Array = np.array([[LATERAL], [LATERAL], [ABOVE]])


class Rules:
    """
    The limits of n operations, and the weights of their rewards.

    :param settings: of the world.
    :param count: n.
    """

    def __init__(self, settings: WorldSettings, count: int) -> None:
        self._settings = settings
        self.wanted, self.warn, self.limit, self._free, self._against = np.ones((5, count))
        """Forces: to be held, that does damage, that ends it (N); and what rewards need."""
        self.horizon, self._force_emphasis, self._time_emphasis = np.ones((3, count))
        self._goal, self._lowest = np.zeros((2, 3, count))
        self._remaining: Array = np.zeros(count)

    def put(self, row: int, patient: Patient, horizon: int, remaining: float) -> None:
        """
        Take a patient's rules for those of a row.

        :param horizon: time allowed, ticks.
        :param remaining: cost that is left at the start, m.
        """
        procedure = patient.procedure
        self.wanted[row], self.warn[row] = procedure.target_force, procedure.warn_force
        self.limit[row] = procedure.force_limit
        self._free[row], self._against[row] = force_terms(procedure)
        self._force_emphasis[row] = patient.force_emphasis
        self._time_emphasis[row] = patient.time_emphasis
        self.horizon[row], self._remaining[row] = horizon, remaining
        self._goal[:, row] = patient.goal
        self._lowest[:, row] = -LATERAL, -LATERAL, -patient.thickness

    def keep(self, rows: Rows) -> None:
        """Keep only some rows."""
        for name, value in vars(self).items():
            if isinstance(value, np.ndarray):
                setattr(self, name, np.ascontiguousarray(value[..., rows]))

    def breach(self, tip: Array) -> Bits:
        """Say which tips, shape (3, n), have left the workspace."""
        off = tip - self._goal
        x, y, z = (off < self._lowest) | (off > _HIGHEST)
        left: Bits = x | y | z
        return left

    def failure(
        self, ticks: Array, peak: Array, breach: Bits, lost: Rows, hypotensive: Bits, done: Array
    ) -> Rows:
        """Return what each operation fails by, or NO_FAILURE: the first of force, breach, ..."""
        failure = np.where(ticks >= self.horizon, _TIME, NO_FAILURE)
        for code, true in (
            (NO_FAILURE, done >= 1.0),
            (_VITALS, hypotensive),
            (lost, lost != NO_FAILURE),
            (_WORKSPACE, breach),
            (_FORCE, peak > self.limit),
        ):
            np.copyto(failure, code, where=true)
        return failure

    def ending(self, failure: Rows, done: Array) -> tuple[Bits, Bits, Bits]:
        """Return which operations succeed, which fail before their time, and which at its end."""
        good, late = failure == NO_FAILURE, failure == _TIME
        return good & (done >= 1.0), ~(good | late), late

    def reward(
        self, remaining: Array, progress: Array, load: Array, success: Bits, failed: Bits
    ) -> Array:
        """
        Return the rewards of a tick.

        :param remaining: cost that is left, m.
        :param progress: what the fraction done has grown by.
        :param load: at the end of the tick, N.
        """
        nearer, self._remaining = self._remaining - remaining, remaining
        reward: Array = reward_of(
            self._settings,
            nearer=nearer,
            progress=progress,
            load=load,
            free=self._free,
            against=self._against,
            force_emphasis=self._force_emphasis,
            time_emphasis=self._time_emphasis,
            success=success,
            failed=failed,
        )
        return reward
