# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""
Severity scores by their published tables, NEWS2 and SOFA, of one simulated patient or of many.

NEWS2: Royal College of Physicians 2017, chart 1, oxygen scale 1. SOFA: Singer et al. 2016
(Sepsis-3), table 1, of patients on a ventilator whose urine is not measured. As only SpO2 is
known, SpO2/FiO2 at most 302, 221, 142, 67 stands for PaO2/FiO2 below 400, 300, 200, 100.
"""

from bisect import bisect_right
from collections.abc import Sequence
import math
from typing import NamedTuple

from fdrl_ros.surgery.patient.labs import ALERT, Labs, ROOM_AIR, VitalsError
from fdrl_ros.surgery.scalar_or_array import Array, Number, Rows
import numpy as np
from numpy import ndarray
from numpy.typing import NDArray


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
_RATE = _Chart((8.5, 11.5, 20.5, 24.5), (3, 1, 0, 2, 3))
_OXYGEN = _Chart((91.5, 93.5, 95.5), (3, 2, 1, 0))
_SYSTOLIC = _Chart((90.5, 100.5, 110.5, 219.5), (3, 2, 1, 0, 3))
_PULSE = _Chart((40.5, 50.5, 90.5, 110.5, 130.5), (3, 1, 0, 1, 2, 3))
_TEMPERATURE = _Chart((35.05, 36.05, 38.05, 39.05), (3, 1, 0, 1, 2))

# A ratio counts up to its limit, all others from theirs on.
_RATIO = _Chart(np.nextafter((67.0, 142.0, 221.0, 302.0), np.inf).tolist(), (4, 3, 2, 1, 0))
_PLATELETS = _Chart((20.0, 50.0, 100.0, 150.0), (4, 3, 2, 1, 0))
_BILIRUBIN = _Chart((1.2, 2.0, 6.0, 12.0), (0, 1, 2, 3, 4))
_CREATININE = _Chart((1.2, 2.0, 3.5, 5.0), (0, 1, 2, 3, 4))
_COMA = _Chart((6, 10, 13, 15), (4, 3, 2, 1, 0))
_PRESSURE = _Chart((70.0,), (1, 0))
"""Of the mean arterial pressure, mmHg."""


class News2(NamedTuple):
    """National Early Warning Score 2: points of each sign, each 0 to 3 (oxygen 0 or 2)."""

    respiratory_rate: int
    oxygen_saturation: int
    supplemental_oxygen: int
    systolic_pressure: int
    pulse: int
    consciousness: int
    temperature: int

    @property
    def total(self) -> int:
        """Return the sum, 0 to 20."""
        return sum(self)


class Sofa(NamedTuple):
    """Sequential Organ Failure Assessment: points of each organ system, each 0 to 4."""

    respiration: int
    coagulation: int
    liver: int
    cardiovascular: int
    nervous: int
    renal: int

    @property
    def total(self) -> int:
        """Return the sum, 0 to 24."""
        return sum(self)


def _refuse(expected: str, **values: object) -> VitalsError:
    given = ', '.join(f'{name} = {value!r}' for name, value in values.items())
    return VitalsError(f'{given}: expected {expected}')


def _amount(name: str, value: float) -> float:
    if not 0.0 <= value < math.inf:
        raise _refuse('a finite number of at least 0', **{name: value})
    return value


def news2(
    labs: Labs,
    respiratory_rate: float,
    oxygen_saturation: float,
    systolic_pressure: float,
    pulse: float,
) -> News2:
    """
    Score vital signs by NEWS2, as rounded half up to what the chart shows.

    :param labs: temperature, inspired oxygen, and coma scale, 15 being alert.
    :param respiratory_rate: 1/min.
    :param oxygen_saturation: SpO2, %, on scale 1.
    :param systolic_pressure: mmHg.
    :param pulse: 1/min.
    :raises VitalsError: on a value that is not finite or that no patient can have.
    """
    if not (
        0.0 <= respiratory_rate < math.inf
        and 0.0 <= oxygen_saturation <= 100.0
        and 0.0 <= systolic_pressure < math.inf
        and 0.0 <= pulse < math.inf
    ):
        raise _refuse(
            'finite numbers of at least 0, at most 100 %',
            respiratory_rate=respiratory_rate,
            oxygen_saturation=oxygen_saturation,
            systolic_pressure=systolic_pressure,
            pulse=pulse,
        )
    return News2(
        _RATE.points(respiratory_rate),
        _OXYGEN.points(oxygen_saturation),
        2 if labs.inspired_oxygen > ROOM_AIR else 0,
        _SYSTOLIC.points(systolic_pressure),
        _PULSE.points(pulse),
        0 if labs.glasgow_coma_scale == ALERT else 3,
        _TEMPERATURE.points(labs.temperature),
    )


def respiration(ratio: float) -> int:
    """
    Return the points of respiration in SOFA.

    :param ratio: SpO2/FiO2, %.
    :raises VitalsError: if the ratio is negative or not finite.
    """
    return int(_RATIO.points(_amount('ratio', ratio)))


def cardiovascular(mean_arterial_pressure: float, norepinephrine: float = 0.0) -> int:
    """
    Return the points of the circulation in SOFA.

    :param mean_arterial_pressure: mmHg.
    :param norepinephrine: ug/kg/min for an hour or more.
    :raises VitalsError: on a value that is negative or not finite.
    """
    _amount('mean_arterial_pressure', mean_arterial_pressure)
    if _amount('norepinephrine', norepinephrine) > 0.0:
        return 4 if norepinephrine > 0.1 else 3
    return int(_PRESSURE.points(mean_arterial_pressure))


def sofa(labs: Labs, mean_arterial_pressure: float, oxygen_saturation: float) -> Sofa:
    """
    Score organ failure from labs and what moves: pressure and SpO2/FiO2.

    :param mean_arterial_pressure: mmHg.
    :param oxygen_saturation: SpO2, %.
    :raises VitalsError: on a value that no patient can have.
    """
    if not 0.0 <= oxygen_saturation <= 100.0:
        raise _refuse('0 to 100', oxygen_saturation=oxygen_saturation)
    return Sofa(
        respiration(oxygen_saturation / labs.inspired_oxygen),
        int(_PLATELETS.points(labs.platelets)),
        int(_BILIRUBIN.points(labs.bilirubin)),
        cardiovascular(mean_arterial_pressure, labs.norepinephrine),
        int(_COMA.points(labs.glasgow_coma_scale)),
        int(_CREATININE.points(labs.creatinine)),
    )


class VectorScores:
    """
    NEWS2 and SOFA of n patients whose labs, oxygen and consciousness stay as they are.

    :param count: n.
    """

    def __init__(self, count: int) -> None:
        self._inspired: Array = np.ones(count)
        self._news2, self._sofa, self._unsupported = np.zeros((3, count), np.int64)

    def put(self, row: int, labs: Labs, totals: tuple[int, int]) -> None:
        """
        Write one patient's labs.

        :param totals: NEWS2 and SOFA of the labs, consciousness and oxygen alone.
        """
        self._inspired[row] = labs.inspired_oxygen
        # A vasopressor has its points whatever the pressure is.
        self._unsupported[row] = labs.norepinephrine == 0.0
        self._news2[row], self._sofa[row] = totals

    def select(self, rows: Rows) -> None:
        """Keep only some patients."""
        self._inspired, self._unsupported = self._inspired[rows], self._unsupported[rows]
        self._news2, self._sofa = self._news2[rows], self._sofa[rows]

    def totals(
        self, vitals: Sequence[Array], systolic: Array, rows: Rows | slice = slice(None)
    ) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """
        Return NEWS2 and SOFA.

        :param vitals: MAP (mmHg), heart rate (1/min), SpO2 (%) and breaths (1/min).
        :param systolic: pressure, mmHg.
        :param rows: whose vitals these are, if not all.
        """
        pressure, pulse, saturation, breathing = vitals
        news2 = (
            self._news2[rows]
            + _RATE.points(breathing)
            + _OXYGEN.points(saturation)
            + _SYSTOLIC.points(systolic)
            + _PULSE.points(pulse)
        )
        sofa = (
            self._sofa[rows]
            + _RATIO.points(saturation / self._inspired[rows])
            + _PRESSURE.points(pressure) * self._unsupported[rows]
        )
        return news2, sofa
