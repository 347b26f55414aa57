# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""
Severity scores by their published tables: NEWS2 and SOFA, on simulated patients only.

NEWS2: Royal College of Physicians 2017, chart 1, oxygen scale 1. SOFA: Singer et al. 2016
(Sepsis-3), table 1; where only SpO2 is known, SpO2/FiO2 at most 302, 221, 142, 67 stands for
PaO2/FiO2 below 400, 300, 200, 100.
"""

from bisect import bisect_left, bisect_right
import math
from typing import NamedTuple

from fdrl_ros.errors import StateError
from fdrl_ros.surgery.constants import constant

ROOM_AIR = constant('scores.room_air')

# NEWS2 is charted in whole numbers, temperature in tenths: a band ends half way to the next.
RATE = (8.5, 11.5, 20.5, 24.5), (3, 1, 0, 2, 3)
OXYGEN = (91.5, 93.5, 95.5), (3, 2, 1, 0)
SYSTOLIC = (90.5, 100.5, 110.5, 219.5), (3, 2, 1, 0, 3)
PULSE = (40.5, 50.5, 90.5, 110.5, 130.5), (3, 1, 0, 1, 2, 3)
_TEMPERATURE = (35.05, 36.05, 38.05, 39.05), (3, 1, 0, 1, 2)

LOW_PRESSURE = 70.0
"""Mean arterial pressure below which SOFA counts a point, mmHg."""

_ARTERIAL_RATIO = (100.0, 200.0, 300.0, 400.0)
SATURATION_RATIO = (67.0, 142.0, 221.0, 302.0)
_PLATELETS = (20.0, 50.0, 100.0, 150.0)
_BILIRUBIN = (1.2, 2.0, 6.0, 12.0)
_CREATININE = (1.2, 2.0, 3.5, 5.0)
_URINE = 200.0, 500.0
_COMA = (6, 10, 13, 15)


class VitalsError(StateError):
    """A vital sign or laboratory value that no patient can have."""


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
    respiratory_rate: float,
    oxygen_saturation: float,
    systolic_pressure: float,
    pulse: float,
    temperature: float,
    supplemental_oxygen: bool = False,
    alert: bool = True,
) -> News2:
    """
    Score vital signs by NEWS2, as rounded half up to what the chart shows.

    :param respiratory_rate: 1/min.
    :param oxygen_saturation: SpO2, %, on scale 1.
    :param systolic_pressure: mmHg.
    :param pulse: 1/min.
    :param temperature: degrees Celsius.
    :param supplemental_oxygen: whether more than air is breathed.
    :param alert: no new confusion, and not only responsive to voice, pain or nothing.
    :raises VitalsError: on a value that is not finite or that no patient can have.
    """
    if not (
        0.0 <= respiratory_rate < math.inf
        and 0.0 <= oxygen_saturation <= 100.0
        and 0.0 <= systolic_pressure < math.inf
        and 0.0 <= pulse < math.inf
        and 10.0 <= temperature <= 50.0
    ):
        raise _refuse(
            'finite numbers of at least 0, at most 100 %, and 10 to 50 degrees',
            respiratory_rate=respiratory_rate,
            oxygen_saturation=oxygen_saturation,
            systolic_pressure=systolic_pressure,
            pulse=pulse,
            temperature=temperature,
        )
    return News2(
        RATE[1][bisect_right(RATE[0], respiratory_rate)],
        OXYGEN[1][bisect_right(OXYGEN[0], oxygen_saturation)],
        2 if supplemental_oxygen else 0,
        SYSTOLIC[1][bisect_right(SYSTOLIC[0], systolic_pressure)],
        PULSE[1][bisect_right(PULSE[0], pulse)],
        0 if alert else 3,
        _TEMPERATURE[1][bisect_right(_TEMPERATURE[0], temperature)],
    )


def respiration(ratio: float, arterial: bool = True, supported: bool = True) -> int:
    """
    Return the points of respiration in SOFA; 3 and 4 are for patients on a ventilator.

    :param ratio: PaO2/FiO2 in mmHg, or SpO2/FiO2 in %.
    :param arterial: whether it is the former.
    :param supported: whether a ventilator supports the breathing.
    :raises VitalsError: if the ratio is negative or not finite.
    """
    _amount('ratio', ratio)
    points = 4 - (
        bisect_right(_ARTERIAL_RATIO, ratio) if arterial else bisect_left(SATURATION_RATIO, ratio)
    )
    return points if supported else min(points, 2)


def cardiovascular(
    mean_arterial_pressure: float,
    norepinephrine: float = 0.0,
    epinephrine: float = 0.0,
    dopamine: float = 0.0,
    dobutamine: float = 0.0,
) -> int:
    """
    Return the points of the circulation in SOFA.

    :param mean_arterial_pressure: mmHg.
    :param norepinephrine: ug/kg/min for an hour or more, as the other drugs.
    :raises VitalsError: on a value that is negative or not finite.
    """
    _amount('mean_arterial_pressure', mean_arterial_pressure)
    strong = max(_amount('norepinephrine', norepinephrine), _amount('epinephrine', epinephrine))
    weak = max(_amount('dopamine', dopamine), _amount('dobutamine', dobutamine))
    if strong > 0.1 or dopamine > 15.0:
        return 4
    if strong > 0.0 or dopamine > 5.0:
        return 3
    if weak > 0.0:
        return 2
    return 1 if mean_arterial_pressure < LOW_PRESSURE else 0


def _coma(scale: int) -> int:
    if not 3 <= scale <= 15 or int(scale) != scale:
        raise _refuse('a whole number from 3 to 15', glasgow_coma_scale=scale)
    return 4 - bisect_right(_COMA, scale)


def sofa_score(
    *,
    ratio: float,
    platelets: float,
    bilirubin: float,
    mean_arterial_pressure: float,
    glasgow_coma_scale: int,
    creatinine: float,
    urine: float | None = None,
    arterial: bool = True,
    supported: bool = True,
    norepinephrine: float = 0.0,
    epinephrine: float = 0.0,
    dopamine: float = 0.0,
    dobutamine: float = 0.0,
) -> Sofa:
    """
    Score organ failure by SOFA.

    :param ratio: PaO2/FiO2 in mmHg, or SpO2/FiO2 in % if not `arterial`.
    :param platelets: 10^9/L.
    :param bilirubin: mg/dL.
    :param mean_arterial_pressure: mmHg.
    :param glasgow_coma_scale: 3 to 15.
    :param creatinine: mg/dL.
    :param urine: mL a day, if known.
    :param supported: whether a ventilator supports the breathing.
    :param norepinephrine: ug/kg/min, as the other drugs.
    :raises VitalsError: on a value that is not finite or that no patient can have.
    """
    renal = bisect_right(_CREATININE, _amount('creatinine', creatinine))
    if urine is not None:
        renal = max(renal, (4, 3, 0)[bisect_right(_URINE, _amount('urine', urine))])
    return Sofa(
        respiration(ratio, arterial, supported),
        4 - bisect_right(_PLATELETS, _amount('platelets', platelets)),
        bisect_right(_BILIRUBIN, _amount('bilirubin', bilirubin)),
        cardiovascular(mean_arterial_pressure, norepinephrine, epinephrine, dopamine, dobutamine),
        _coma(glasgow_coma_scale),
        renal,
    )
