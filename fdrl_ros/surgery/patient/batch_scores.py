# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""
NEWS2 and SOFA of many patients at once, by the tables of :mod:`fdrl_ros.surgery.patient.scores`.

Labs, oxygen and consciousness stay as they are in an operation, so each score is a number of the
patient's own plus a step at each limit that a vital sign has reached.
"""

from fdrl_ros.surgery.patient.batch_events import Array, Rows
from fdrl_ros.surgery.patient.body import SYSTOLIC_PER_STROKE
from fdrl_ros.surgery.patient.physiology import Physiology
from fdrl_ros.surgery.patient.scores import (
    LOW_PRESSURE,
    OXYGEN,
    PULSE,
    RATE,
    SATURATION_RATIO,
    SYSTOLIC,
)
import numpy as np
from numpy.typing import NDArray

_NEWS2, _SOFA = range(2)
_TABLE = (
    (_SOFA, (LOW_PRESSURE,), (1, 0)),
    (_NEWS2, *PULSE),
    (_NEWS2, *OXYGEN),
    (_NEWS2, *RATE),
    (_NEWS2, *SYSTOLIC),
    # A ratio counts up to its limit, all others from theirs on.
    (_SOFA, tuple(np.nextafter(SATURATION_RATIO, np.inf)), (4, 3, 2, 1, 0)),
)
"""Of each sign the score that it counts in, its limits and its points: Body.values() and more."""

_SIGN = np.array([sign for sign, (_, limits, _) in enumerate(_TABLE) for _ in limits])
_LIMITS: Array = np.array([limit for _, limits, _ in _TABLE for limit in limits])
_STEPS: Array = np.array(
    [
        [step * (score == own) for own, _, points in _TABLE for step in np.diff(points)]
        for score in (_NEWS2, _SOFA)
    ]
)


class BatchScores:
    """
    The scores of n patients.

    :param count: n.
    """

    def __init__(self, count: int) -> None:
        self._limits: Array = np.repeat(_LIMITS[:, None], count, axis=1)
        self._inspired: Array = np.ones(count)
        self._own: Array = np.zeros((2, count))

    def put(self, row: int, body: Physiology) -> None:
        """Put a patient into a row, with the body at the start."""
        labs = body.labs
        self._inspired[row] = labs.inspired_oxygen
        # A vasopressor has its points whatever the pressure is.
        self._limits[0, row] = -np.inf if labs.norepinephrine > 0.0 else LOW_PRESSURE
        signs = *body.values(), body.systolic, body.saturation / labs.inspired_oxygen
        reached = np.array(signs)[_SIGN] >= self._limits[:, row]
        self._own[:, row] = (body.news2().total, body.sofa().total) - _STEPS @ reached

    def keep(self, rows: Rows) -> None:
        """Keep only some rows."""
        for name, value in vars(self).items():
            setattr(self, name, np.ascontiguousarray(value[..., rows]))

    def of(self, vitals: Array, stroke: Array, rows: Rows | None = None) -> NDArray[np.int64]:
        """
        Return NEWS2 and SOFA, shape (2, n).

        :param vitals: as Body.values() has them, shape (4, n).
        :param stroke: mL, shape (n,).
        :param rows: whose they are, if not all.
        """
        inspired, limits, own = self._inspired, self._limits, self._own
        if rows is not None:
            inspired, limits, own = inspired[rows], limits[:, rows], own[:, rows]
        signs = np.empty((6, len(stroke)))
        signs[:4] = vitals
        np.multiply(stroke, SYSTOLIC_PER_STROKE, out=signs[4])
        signs[4] += vitals[0]
        np.divide(vitals[2], inspired, out=signs[5])
        reached = (signs.take(_SIGN, axis=0) >= limits).astype(np.float64)
        return (_STEPS @ reached + own).astype(np.int64)
