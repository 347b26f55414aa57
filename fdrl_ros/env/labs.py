# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""
Laboratory values of a simulated patient: log-normal draws between health and septic shock.

ln value ~ N(m(s), sd(s)) with m and sd linear in the severity s from 0 to 1; healthy ends are 95 %
reference intervals, sick ends the means and deviations of published patients in septic shock.
"""

from dataclasses import dataclass, fields
import math

from fdrl_ros.env.constants import constant
from fdrl_ros.env.ranges import is_within
from fdrl_ros.env.scores import ROOM_AIR, Sofa, sofa_score, VitalsError
from fdrl_ros.errors import SettingError
import numpy as np

_LOG_NORMAL = ('platelets', 'bilirubin', 'creatinine', 'lactate')
_LEAST_COMA, _FULL_COMA = 3, 15
_MOST = 1e6
_RANGES = {
    'temperature': (10.0, 50.0),
    'inspired_oxygen': (ROOM_AIR, 1.0),
    'glasgow_coma_scale': (_LEAST_COMA, _FULL_COMA),
}


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
        for each in fields(self):
            low, high = _RANGES.get(each.name, (0.0, _MOST))
            value = getattr(self, each.name)
            if not is_within(value, low, high):
                raise VitalsError(f'{each.name} = {value!r}: expected {low:g} to {high:g}')
        if not isinstance(self.glasgow_coma_scale, int):
            raise VitalsError(
                f'glasgow_coma_scale = {self.glasgow_coma_scale!r}: expected a whole number'
            )


def _between(name: str, severity: float) -> float:
    healthy, sick = constant(f'labs.{name}_healthy'), constant(f'labs.{name}_sick')
    return healthy + severity * (sick - healthy)


def _log_normal(name: str, severity: float, normal: float) -> float:
    healthy, sick = constant(f'labs.{name}_healthy'), constant(f'labs.{name}_sick')
    median = math.log(healthy) + severity * math.log(sick / healthy)
    return math.exp(median + _between(f'{name}_spread', severity) * normal)


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
    lost = -math.log1p(-coma) * constant('labs.coma_loss') * severity
    pressor = max(0.0, severity - constant('labs.norepinephrine_from'))
    pressor *= constant('labs.norepinephrine_sick') / (1 - constant('labs.norepinephrine_from'))
    spread = _between('temperature_spread', severity)
    rise = constant('labs.inspired_oxygen_sick') - constant('labs.inspired_oxygen_healthy')
    return Labs(
        **values,
        temperature=min(max(_between('temperature', severity) + spread * heat, 30.0), 42.0),
        inspired_oxygen=min(
            constant('labs.inspired_oxygen_healthy') + rise * severity * (0.5 + oxygen), 1.0
        ),
        glasgow_coma_scale=max(_LEAST_COMA, _FULL_COMA - round(lost)),
        norepinephrine=pressor * math.exp(constant('labs.norepinephrine_spread') * dose),
    )


def sofa(labs: Labs, mean_arterial_pressure: float, oxygen_saturation: float) -> Sofa:
    """
    Score organ failure from fixed labs and what moves: pressure and SpO2/FiO2.

    The patient is on a ventilator, as in every operation here.

    :param mean_arterial_pressure: mmHg.
    :param oxygen_saturation: SpO2, %.
    :raises VitalsError: on a value that no patient can have.
    """
    if not 0.0 <= oxygen_saturation <= 100.0:
        raise VitalsError(f'oxygen_saturation = {oxygen_saturation!r}: expected 0 to 100')
    return sofa_score(
        ratio=oxygen_saturation / labs.inspired_oxygen,
        arterial=False,
        platelets=labs.platelets,
        bilirubin=labs.bilirubin,
        mean_arterial_pressure=mean_arterial_pressure,
        norepinephrine=labs.norepinephrine,
        glasgow_coma_scale=labs.glasgow_coma_scale,
        creatinine=labs.creatinine,
    )
