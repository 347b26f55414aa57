# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""
Vital signs of a simulated patient: simple first-order physiology, not for clinical use.

Lost blood empties the heart; heart rate and vessels answer to it, to the pressure (baroreflex), to
nociception and to gas in the belly: C dMAP/dt = Q - (MAP - CVP) / R (two-element Windkessel), with
Q = Q0 v (HR / HR0)^0.2, v the filling. Breathing follows the loss as if the patient breathed
without a ventilator, as the ATLS classes do.
"""

from collections.abc import Sequence
from dataclasses import dataclass
import math

from fdrl_ros.env.constants import constant
from fdrl_ros.env.events import breathing_events, breathing_factor, Event
from fdrl_ros.env.labs import sofa
from fdrl_ros.env.patient import Patient
from fdrl_ros.env.scores import News2, news2, ROOM_AIR, Sofa
from fdrl_ros.errors import StateError

LABEL = 'simulated, not for clinical use'

_C = constant('physiology.compliance')
_SV = constant('physiology.stroke_volume')
_CVP = constant('physiology.venous_pressure')
_VOLUME = constant('physiology.blood_volume')
_EMPTY = constant('physiology.empty_fraction')
_MOST_LOSS = _VOLUME * (1.0 - _EMPTY)
_FILLING = constant('physiology.filling')
_T_HEART = constant('physiology.heart_time')
_T_RESISTANCE = constant('physiology.resistance_time')
_T_SATURATION = constant('physiology.saturation_time')
_T_PAIN = constant('physiology.nociception_time')
_T_CLOT = constant('physiology.clotting_time')
_HEART_REFLEX = constant('physiology.heart_baroreflex')
_HEART_VOLUME = constant('physiology.heart_volume')
_HEART_FROM = constant('physiology.heart_volume_from')
_HEART_PAIN = constant('physiology.heart_nociception')
_HEART_LEAST = constant('physiology.heart_least')
_HEART_MOST = constant('physiology.heart_most')
_VESSEL_REFLEX = constant('physiology.resistance_baroreflex')
_VESSEL_VOLUME = constant('physiology.resistance_volume')
_VESSEL_PAIN = constant('physiology.resistance_nociception')
_VESSEL_LEAST = constant('physiology.resistance_least')
_VESSEL_MOST = constant('physiology.resistance_most')
_BREATHING = constant('physiology.breathing_volume')
_BREATHING_FROM = constant('physiology.breathing_volume_from')
_BREATHING_MOST = constant('physiology.breathing_most')
_AROUSAL = constant('physiology.arousal')
_BLEEDING = constant('physiology.bleeding')
_MOST_WOUND = constant('physiology.most_bleeding') / _BLEEDING
_GAS_PRESSURE = constant('physiology.pneumoperitoneum_pressure')
_GAS_HEART = constant('physiology.pneumoperitoneum_heart')
_HYPOTENSION = constant('physiology.hypotension')
_HYPOTENSION_TIME = constant('physiology.hypotension_time')
_DESATURATION = constant('physiology.desaturation')
_LEAST_SATURATION = constant('physiology.least_saturation')
_LONGEST = constant('physiology.longest_step')
_HARD_STOP = constant('tissue.hard_stop')


@dataclass(frozen=True)
class Vitals:
    """What the monitors show: mmHg, 1/min, %, 1/min."""

    mean_arterial_pressure: float
    heart_rate: float
    oxygen_saturation: float
    respiratory_rate: float


def _spans(events: Sequence[Event], kind: str) -> tuple[tuple[float, float, float], ...]:
    """Return start, end and magnitude of the events of a kind."""
    return tuple((each.start, each.end, each.magnitude) for each in events if each.kind == kind)


class Physiology:
    """
    The body of one patient during one operation.

    :param patient: baselines before insufflation, labs, and what will happen.
    :param insufflated: start in the steady state under pneumoperitoneum.
    """

    def __init__(self, patient: Patient, insufflated: bool = True) -> None:
        self.blood_loss = 0.0
        """Blood lost so far, mL."""
        self.low_time = 0.0
        """Time that the pressure has been below the hypotension threshold without a break, s."""
        self.time = 0.0
        """Time since the start, s."""
        self.labs = patient.labs
        events = patient.events
        self._bleeds = _spans(events, 'bleed')
        self._falls = _spans(events, 'desaturation')
        self._coughs = breathing_events(events)
        self._oxygen = self.labs.inspired_oxygen > ROOM_AIR
        self._alert = self.labs.glasgow_coma_scale == 15
        self._wound = 0.0
        self._pain = 0.0
        self._patient = patient
        self.insufflate(insufflated)
        self._heart = self._rest_heart
        self._pressure = self._rest_pressure
        self._resistance = self._rest_resistance
        self._stroke = _SV
        self._saturation = self._rest_saturation = patient.oxygen_saturation
        self._breathing = self._rest_breathing = patient.respiratory_rate
        self._breathing_reserve = max(0.0, _BREATHING_MOST - patient.respiratory_rate)
        self.worst_news2 = self.news2().total
        """Greatest NEWS2 so far."""

    def insufflate(self, gas: bool = True) -> None:
        """Fill the belly with gas, or let it out; heart and vessels follow in their time."""
        share = 1.0 if gas else 0.0
        self._rest_heart = self._patient.heart_rate + share * _GAS_HEART
        self._rest_pressure = self._patient.mean_arterial_pressure + share * _GAS_PRESSURE
        self._rest_flow = _SV * self._rest_heart / 60.0
        self._rest_resistance = (self._rest_pressure - _CVP) / self._rest_flow
        self._reserve = max(0.0, _HEART_MOST - self._rest_heart)

    @property
    def vitals(self) -> Vitals:
        """Return what the monitors show now."""
        return Vitals(*self.values())

    def values(self) -> tuple[float, float, float, float]:
        """Return the vitals in the order of :class:`Vitals`."""
        return self._pressure, self._heart, self._saturation, self._breathing

    @property
    def pulse_pressure(self) -> float:
        """Return systolic minus diastolic pressure, mmHg: stroke volume over compliance."""
        return self._stroke / _C

    @property
    def systolic(self) -> float:
        """Return the systolic pressure, mmHg."""
        return self._pressure + self._stroke * (2.0 / 3.0 / _C)

    @property
    def diastolic(self) -> float:
        """Return the diastolic pressure, mmHg."""
        return max(0.0, self._pressure - self._stroke * (1.0 / 3.0 / _C))

    @property
    def hypotensive(self) -> bool:
        """Say whether the pressure has been too low for a minute."""
        return self.low_time >= _HYPOTENSION_TIME

    def news2(self) -> News2:
        """Return NEWS2 of the vitals now, with the alertness of before anaesthesia."""
        return news2(
            self._breathing,
            self._saturation,
            self._pressure + self._stroke * (2.0 / 3.0 / _C),
            self._heart,
            self.labs.temperature,
            self._oxygen,
            self._alert,
        )

    def sofa(self) -> Sofa:
        """Return SOFA of the labs and the vitals now."""
        return sofa(self.labs, self._pressure, self._saturation)

    def advance(self, period: float, force: float = 0.0, damage: float = 0.0) -> None:
        """
        Let time pass.

        :param period: s; longer ones than 0.2 s are cut into equal steps.
        :param force: on tissue, N, either sign: it hurts.
        :param damage: done to tissue in this time, N s: it bleeds.
        :raises StateError: on a number that is not finite, or negative time or damage.
        """
        if not (0.0 <= period < math.inf and 0.0 <= damage < math.inf and abs(force) < math.inf):
            raise StateError(
                f'period {period!r} s, force {force!r} N, damage {damage!r} N s: '
                'expected finite numbers, time and damage at least 0'
            )
        if period > _LONGEST:
            steps = math.ceil(period / _LONGEST)
            for _ in range(steps):
                self._step(period / steps, force, damage / steps)
        else:
            self._step(period, force, damage)

    def _step(self, period: float, force: float, damage: float) -> None:
        begin = self.time
        self.time = time = begin + period
        wound = self._wound + damage - self._wound * period / _T_CLOT
        self._wound = wound = wound if wound < _MOST_WOUND else _MOST_WOUND
        lost = self.blood_loss + _BLEEDING * wound * period
        for start, end, rate in self._bleeds:
            if begin < end and start < time:
                lost += rate * (min(time, end) - max(begin, start))
        self.blood_loss = lost = lost if lost < _MOST_LOSS else _MOST_LOSS
        loss = lost / _VOLUME

        breathing = self._rest_breathing
        if loss > _BREATHING_FROM:
            drive = min(_BREATHING * (loss - _BREATHING_FROM), 1.0)
            breathing += self._breathing_reserve * drive
        hurt = abs(force) / _HARD_STOP
        if self._coughs:
            factor = breathing_factor(self._coughs, time)[0]
            breathing *= factor
            hurt += _AROUSAL * (factor - 1.0)
        self._breathing = breathing
        hurt = hurt if hurt < 1.0 else 1.0
        self._pain = pain = self._pain + (hurt - self._pain) * period / _T_PAIN

        pressure = self._pressure
        fall = (self._rest_pressure - pressure) / self._rest_pressure
        drive = _HEART_REFLEX * fall + _HEART_PAIN * pain
        if loss > _HEART_FROM:
            drive += _HEART_VOLUME * (loss - _HEART_FROM)
        target = self._rest_heart + self._reserve * (drive if drive < 1.0 else 1.0)
        target = target if target > _HEART_LEAST else _HEART_LEAST
        self._heart = heart = self._heart + (target - self._heart) * period / _T_HEART
        tone = 1.0 + _VESSEL_REFLEX * fall + _VESSEL_VOLUME * loss + _VESSEL_PAIN * pain
        tone = min(max(tone, _VESSEL_LEAST), _VESSEL_MOST)
        resistance = self._resistance
        resistance += (self._rest_resistance * tone - resistance) * period / _T_RESISTANCE
        self._resistance = resistance

        filled = (1.0 - loss - _EMPTY) / (1.0 - _EMPTY)
        flow = self._rest_flow * filled * (heart / self._rest_heart) ** _FILLING
        self._stroke = 60.0 * flow / heart
        pressure += (flow - (pressure - _CVP) / resistance) * period / _C
        self._pressure = pressure

        saturation = self._rest_saturation
        if pressure < _HYPOTENSION:
            saturation -= _DESATURATION * (1.0 - pressure / _HYPOTENSION)
            self.low_time += period
        else:
            self.low_time = 0.0
        for start, end, depth in self._falls:
            if begin < end and start < time:
                saturation -= depth
        saturation = saturation if saturation > _LEAST_SATURATION else _LEAST_SATURATION
        self._saturation += (saturation - self._saturation) * period / _T_SATURATION
        score = sum(self.news2())
        if score > self.worst_news2:
            self.worst_news2 = score

    def bleed(self, volume: float) -> None:
        """
        Take blood at once, as a test or a scenario does.

        :param volume: mL.
        :raises StateError: if it is negative or not finite.
        """
        if not 0.0 <= volume < math.inf:
            raise StateError(f'volume {volume!r} mL: expected a finite number of at least 0')
        self.blood_loss = min(self.blood_loss + volume, _MOST_LOSS)
