# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""
Severity scores by their published tables, NEWS2 and SOFA, of one simulated patient or of many.

Labs, oxygen and consciousness stay as they are during an operation; their points are fixed.

NEWS2: Royal College of Physicians 2017, chart 1, oxygen scale 1. SOFA: Singer et al. 2016
(Sepsis-3), table 1, of patients on a ventilator whose urine is not measured. As only SpO2 is
known, SpO2/FiO2 at most 302, 221, 142, 67 stands for PaO2/FiO2 below 400, 300, 200, 100.
"""

from bisect import bisect_right
from collections.abc import Sequence

from fdrl_ros.surgery.patient.labs import ALERT, Labs, ROOM_AIR
from fdrl_ros.surgery.scalar_or_array import Number
import numpy as np
from numpy import ndarray


class _Chart:
    """
    Points of one sign.

    :param limits: ascending; each belongs to the band above it.
    :param points: of the bands, one more than limits.
    """

    def __init__(self, limits: Sequence[float], points: Sequence[int]) -> None:
        self._limits, self._points = tuple(limits), tuple(points)
        self._limit_array, self._point_array = np.array(limits), np.array(points)

    def points(self, value: Number) -> Number:
        """Return the points of a value, or of many."""
        if type(value) is ndarray:
            return self._point_array.take(self._limit_array.searchsorted(value, 'right'))
        return self._points[bisect_right(self._limits, value)]


# NEWS2 is charted in whole numbers, temperature in tenths: a band ends half way to the next.
_NEWS2_RATE = _Chart((8.5, 11.5, 20.5, 24.5), (3, 1, 0, 2, 3))
_NEWS2_OXYGEN = _Chart((91.5, 93.5, 95.5), (3, 2, 1, 0))
_NEWS2_SYSTOLIC = _Chart((90.5, 100.5, 110.5, 219.5), (3, 2, 1, 0, 3))
_NEWS2_PULSE = _Chart((40.5, 50.5, 90.5, 110.5, 130.5), (3, 1, 0, 1, 2, 3))
_NEWS2_TEMPERATURE = _Chart((35.05, 36.05, 38.05, 39.05), (3, 1, 0, 1, 2))

# A ratio counts up to its limit, all others from theirs on.
_SOFA_RATIO = _Chart(np.nextafter((67.0, 142.0, 221.0, 302.0), np.inf).tolist(), (4, 3, 2, 1, 0))
_SOFA_PLATELETS = _Chart((20.0, 50.0, 100.0, 150.0), (4, 3, 2, 1, 0))
_SOFA_BILIRUBIN = _Chart((1.2, 2.0, 6.0, 12.0), (0, 1, 2, 3, 4))
_SOFA_CREATININE = _Chart((1.2, 2.0, 3.5, 5.0), (0, 1, 2, 3, 4))
_SOFA_COMA = _Chart((6, 10, 13, 15), (4, 3, 2, 1, 0))
_SOFA_PRESSURE = _Chart((70.0,), (1, 0))
"""Of the mean arterial pressure, mmHg."""


def fixed_points(labs: Labs) -> tuple[int, int]:
    """Return the points in NEWS2 and in SOFA that stay during an operation."""
    news2 = (
        _NEWS2_TEMPERATURE.points(labs.temperature)
        + (2 if labs.inspired_oxygen > ROOM_AIR else 0)
        + (0 if labs.glasgow_coma_scale == ALERT else 3)
    )
    sofa = (
        _SOFA_PLATELETS.points(labs.platelets)
        + _SOFA_BILIRUBIN.points(labs.bilirubin)
        + _SOFA_COMA.points(labs.glasgow_coma_scale)
        + _SOFA_CREATININE.points(labs.creatinine)
    )
    if labs.norepinephrine > 0.0:  # a vasopressor has its points whatever the pressure is
        sofa += 4 if labs.norepinephrine > 0.1 else 3
    return news2, sofa


def news2(
    fixed: Number, breathing: Number, saturation: Number, systolic: Number, pulse: Number
) -> Number:
    """
    Return the National Early Warning Score 2, 0 to 20, of vitals rounded half up as charted.

    :param fixed: points of temperature, oxygen and consciousness.
    :param breathing: breaths, 1/min.
    :param saturation: SpO2, %.
    :param systolic: pressure, mmHg.
    :param pulse: 1/min.
    """
    return (
        fixed
        + _NEWS2_RATE.points(breathing)
        + _NEWS2_OXYGEN.points(saturation)
        + _NEWS2_SYSTOLIC.points(systolic)
        + _NEWS2_PULSE.points(pulse)
    )


def sofa(fixed: Number, pressure: Number, unsupported: Number, ratio: Number) -> Number:
    """
    Return the Sequential Organ Failure Assessment, 0 to 24.

    :param fixed: points of labs, consciousness and vasopressor.
    :param pressure: mean arterial pressure, mmHg.
    :param unsupported: 1 without a vasopressor, else 0.
    :param ratio: SpO2/FiO2, %.
    """
    return fixed + _SOFA_RATIO.points(ratio) + _SOFA_PRESSURE.points(pressure) * unsupported
