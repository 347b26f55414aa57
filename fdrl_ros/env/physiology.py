# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""
Vital signs of a simulated patient: simple first-order physiology, not for clinical use.

Stroke volume falls with lost blood; heart rate and vessel resistance follow baroreflex, volume,
nociception and pneumoperitoneum; C dMAP/dt = Q - (MAP - CVP) / R (two-element Windkessel).
"""

from dataclasses import dataclass

from fdrl_ros.env.constants import constant
from fdrl_ros.env.patient import Patient

_C = constant('physiology.compliance')
_SV = constant('physiology.stroke_volume')
_CVP = constant('physiology.venous_pressure')
_VOLUME = constant('physiology.blood_volume')
_EMPTY = constant('physiology.empty_fraction')
_T_HEART = constant('physiology.heart_time')
_T_RESISTANCE = constant('physiology.resistance_time')
_T_SATURATION = constant('physiology.saturation_time')
_T_PAIN = constant('physiology.nociception_time')
_T_CLOT = constant('physiology.clotting_time')
_HEART = tuple(constant(f'physiology.heart_{n}') for n in ('baroreflex', 'volume', 'nociception'))
_VESSEL = tuple(
    constant(f'physiology.resistance_{n}') for n in ('baroreflex', 'volume', 'nociception')
)
_BREATHING = constant('physiology.breathing_volume')
_BLEEDING = constant('physiology.bleeding')
_GAS_PRESSURE = constant('physiology.pneumoperitoneum_pressure')
_GAS_HEART = constant('physiology.pneumoperitoneum_heart')
_HYPOTENSION = constant('physiology.hypotension')
_HYPOTENSION_TIME = constant('physiology.hypotension_time')
_DESATURATION = constant('physiology.desaturation')
_HARD_STOP = constant('tissue.hard_stop')


@dataclass(frozen=True)
class Vitals:
    """What the monitors show: mmHg, 1/min, %, 1/min."""

    mean_arterial_pressure: float
    heart_rate: float
    oxygen_saturation: float
    respiratory_rate: float


class Physiology:
    """
    The body of one patient during one operation.

    :param patient: baselines before insufflation.
    :param insufflated: start in the steady state under pneumoperitoneum.
    """

    def __init__(self, patient: Patient, insufflated: bool = True) -> None:
        gas = 1.0 if insufflated else 0.0
        self.blood_loss = 0.0
        """Blood lost so far, mL."""
        self.low_time = 0.0
        """Time that the pressure has been below the hypotension threshold without a break, s."""
        self._wound = 0.0
        self._pain = 0.0
        self._rest_heart = patient.heart_rate + gas * _GAS_HEART
        self._rest_pressure = patient.mean_arterial_pressure + gas * _GAS_PRESSURE
        flow = _SV * self._rest_heart / 60.0
        self._rest_resistance = (self._rest_pressure - _CVP) / flow
        self._rest_saturation = patient.oxygen_saturation
        self._rest_breathing = patient.respiratory_rate
        self._heart = self._rest_heart
        self._pressure = self._rest_pressure
        self._resistance = self._rest_resistance
        self._saturation = self._rest_saturation

    @property
    def vitals(self) -> Vitals:
        """Return what the monitors show now."""
        return Vitals(*self.values())

    def values(self) -> tuple[float, float, float, float]:
        """Return the vitals in the order of :class:`Vitals`."""
        loss = self.blood_loss / _VOLUME
        breathing = self._rest_breathing * (1.0 + _BREATHING * max(0.0, loss - 0.1))
        return self._pressure, self._heart, self._saturation, breathing

    @property
    def hypotensive(self) -> bool:
        """Say whether the pressure has been too low for a minute."""
        return self.low_time >= _HYPOTENSION_TIME

    def advance(self, period: float, force: float = 0.0, damage: float = 0.0) -> None:
        """
        Let time pass.

        :param period: s; at most 0.2 s keep the pressure's equation stable and exact enough.
        :param force: on tissue, N: it hurts.
        :param damage: done to tissue in this time, N s: it bleeds.
        """
        self._wound += damage - self._wound * period / _T_CLOT
        self.blood_loss = min(
            self.blood_loss + _BLEEDING * self._wound * period, _VOLUME * (1.0 - _EMPTY)
        )
        self._pain += (min(force / _HARD_STOP, 1.0) - self._pain) * period / _T_PAIN
        loss = self.blood_loss / _VOLUME
        fall = (self._rest_pressure - self._pressure) / self._rest_pressure
        reflex, volume, pain = _HEART
        heart = self._rest_heart * (1.0 + reflex * fall + volume * loss + pain * self._pain)
        heart = min(max(heart, 35.0), 180.0)
        self._heart += (heart - self._heart) * period / _T_HEART
        reflex, volume, pain = _VESSEL
        resistance = 1.0 + reflex * fall + volume * loss + pain * self._pain
        resistance = self._rest_resistance * min(max(resistance, 0.4), 2.5)
        self._resistance += (resistance - self._resistance) * period / _T_RESISTANCE
        filled = (1.0 - loss - _EMPTY) / (1.0 - _EMPTY)
        flow = _SV * filled * self._heart / 60.0
        self._pressure += (flow - (self._pressure - _CVP) / self._resistance) * period / _C
        perfusion = min(self._pressure / _HYPOTENSION, 1.0)
        saturation = self._rest_saturation - _DESATURATION * (1.0 - perfusion)
        self._saturation += (saturation - self._saturation) * period / _T_SATURATION
        self.low_time = self.low_time + period if self._pressure < _HYPOTENSION else 0.0

    def bleed(self, volume: float) -> None:
        """
        Take blood at once, as a test or a scenario does.

        :param volume: mL.
        """
        self.blood_loss = min(self.blood_loss + volume, _VOLUME * (1.0 - _EMPTY))
