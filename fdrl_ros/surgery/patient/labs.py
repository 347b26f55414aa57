# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""
Laboratory values of a simulated patient: log-normal draws between health and septic shock.

ln value ~ N(m(s), sd(s)) with m and sd linear in the severity s from 0 to 1; healthy ends are 95 %
reference intervals, sick ends the means and deviations of published patients in septic shock.
"""

from dataclasses import dataclass, fields
import math

from fdrl_ros.errors import SettingError, StateError
from fdrl_ros.runtime.ranges import is_within
from fdrl_ros.surgery.constants import constant, Group
import numpy as np

ROOM_AIR = constant('scores.room_air')
_LABS = Group('labs')

_LOG_NORMAL = ('platelets', 'bilirubin', 'creatinine', 'lactate')
_LEAST_COMA, ALERT = 3, 15
_MOST = 1e6
_RANGES = {
    'temperature': (10.0, 50.0),
    'inspired_oxygen': (ROOM_AIR, 1.0),
    'glasgow_coma_scale': (_LEAST_COMA, ALERT),
}


class VitalsError(StateError):
    """A vital sign or laboratory value that no patient can have."""


@dataclass(frozen=True)
class Labs:
    """
    What the laboratory and the ventilator say of one patient; fixed during an operation.

    :param platelets: 10^9/L.
    :param bilirubin: mg/dL.
    :param creatinine: mg/dL.
    :param lactate: mmol/L; no score needs it, hospitals are compared by it.
    :param temperature: of the core, degrees Celsius.
    :param inspired_oxygen: FiO2, 0.21 to 1.
    :param glasgow_coma_scale: before anaesthesia, 3 to 15.
    :param norepinephrine: ug/kg/min.
    """

    platelets: float = 245.0
    bilirubin: float = 0.5
    creatinine: float = 0.85
    lactate: float = 0.9
    temperature: float = 36.4
    inspired_oxygen: float = 0.3
    glasgow_coma_scale: int = 15
    norepinephrine: float = 0.0

    def __post_init__(self) -> None:
        """Refuse what no patient can have."""
        for name, low, high in _LIMITS:
            value = getattr(self, name)
            if not is_within(value, low, high):
                raise VitalsError(f'{name} = {value!r}: expected {low:g} to {high:g}')
        if not isinstance(self.glasgow_coma_scale, int):
            raise VitalsError(
                f'glasgow_coma_scale = {self.glasgow_coma_scale!r}: expected a whole number'
            )


_LIMITS = tuple((field.name, *_RANGES.get(field.name, (0.0, _MOST))) for field in fields(Labs))


def _ends(name: str) -> tuple[float, float]:
    """Return a constant of the healthy, and that of the sick."""
    return getattr(_LABS, f'{name}_healthy'), getattr(_LABS, f'{name}_sick')


def _between(ends: tuple[float, float], severity: float) -> float:
    healthy, sick = ends
    return healthy + severity * (sick - healthy)


_MEDIANS = {name: _ends(name) for name in _LOG_NORMAL}
_SPREADS = {name: _ends(f'{name}_spread') for name in (*_LOG_NORMAL, 'temperature')}
_HEAT = _ends('temperature')
_OXYGEN, _MOST_OXYGEN = _ends('inspired_oxygen')
_PRESSOR = _LABS.norepinephrine_sick / (1 - _LABS.norepinephrine_from)


def _log_normal(name: str, severity: float, normal: float) -> float:
    healthy, sick = _MEDIANS[name]
    median = math.log(healthy) + severity * math.log(sick / healthy)
    return math.exp(median + _between(_SPREADS[name], severity) * normal)


def draw_labs(rng: np.random.Generator, severity: float) -> Labs:
    """
    Draw a patient's values; the same draw moves smoothly with severity.

    Six normal and two uniform numbers are taken from `rng` whatever the severity.

    :param severity: 0, fit for an elective operation, to 1, septic shock.
    :raises SettingError: if the severity is not from 0 to 1.
    """
    if not 0.0 <= severity <= 1.0:
        raise SettingError('severity', severity, 'a number from 0 to 1')
    *chemistry, heat, dose = rng.standard_normal(6).tolist()
    oxygen, coma = rng.random(2).tolist()
    values = {
        name: _log_normal(name, severity, normal)
        for name, normal in zip(_LOG_NORMAL, chemistry, strict=True)
    }
    lost = -math.log1p(-coma) * _LABS.coma_loss * severity
    pressor = max(0.0, severity - _LABS.norepinephrine_from) * _PRESSOR
    warmth = _between(_HEAT, severity) + _between(_SPREADS['temperature'], severity) * heat
    rise = _MOST_OXYGEN - _OXYGEN
    return Labs(
        **values,
        temperature=min(max(warmth, 30.0), 42.0),
        inspired_oxygen=min(_OXYGEN + rise * severity * (0.5 + oxygen), 1.0),
        glasgow_coma_scale=max(_LEAST_COMA, ALERT - round(lost)),
        norepinephrine=pressor * math.exp(_LABS.norepinephrine_spread * dose),
    )
