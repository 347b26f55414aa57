# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""
The law of a body under operation, for the numbers of one patient or arrays of many.

Lost blood empties the heart; heart rate and vessels answer to it, to the pressure (baroreflex), to
nociception and to gas in the belly: C dMAP/dt = Q - (MAP - CVP) / R (two-element Windkessel), with
Q = Q0 v (HR / HR0)^0.2, v the filling. Breathing follows the loss as if the patient breathed
without a ventilator, as the ATLS classes do. Simulated, not for clinical use.
"""

from collections.abc import Iterable
import math

from fdrl_ros.surgery.constants import constant
from fdrl_ros.surgery.patient.events import Span
from fdrl_ros.surgery.scalar_or_array import maths_of, Number

COMPLIANCE = constant('physiology.compliance')
STROKE_VOLUME = constant('physiology.stroke_volume')
_SYSTOLIC_PER_STROKE = 2.0 / 3.0 / COMPLIANCE
"""How far the systolic pressure is above the mean for each mL of a stroke, mmHg."""
_CVP = constant('physiology.venous_pressure')
_VOLUME = constant('physiology.blood_volume')
_EMPTY = constant('physiology.empty_fraction')
MOST_LOSS = _VOLUME * (1.0 - _EMPTY)
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
HEART_MOST = constant('physiology.heart_most')
_VESSEL_REFLEX = constant('physiology.resistance_baroreflex')
_VESSEL_VOLUME = constant('physiology.resistance_volume')
_VESSEL_PAIN = constant('physiology.resistance_nociception')
_VESSEL_LEAST = constant('physiology.resistance_least')
_VESSEL_MOST = constant('physiology.resistance_most')
_BREATHING = constant('physiology.breathing_volume')
_BREATHING_FROM = constant('physiology.breathing_volume_from')
BREATHING_MOST = constant('physiology.breathing_most')
_AROUSAL = constant('physiology.arousal')
_BLEEDING = constant('physiology.bleeding')
_MOST_WOUND = constant('physiology.most_bleeding') / _BLEEDING
_HYPOTENSION = constant('physiology.hypotension')
_HYPOTENSION_TIME = constant('physiology.hypotension_time')
_DESATURATION = constant('physiology.desaturation')
_LEAST_SATURATION = constant('physiology.least_saturation')
_HARD_STOP = constant('tissue.hard_stop')
LONGEST_STEP = constant('physiology.longest_step')


def steps_of(period: float) -> int:
    """Return into how many equal steps a time (s of the body's own) is cut."""
    return max(1, math.ceil(period / LONGEST_STEP - 1e-9))


class Body:
    """
    One body, or many in step.

    Time, time with a low pressure (both the body's own, s), blood lost (mL), wound (N s) and pain
    (fraction) start at 0. Mean arterial pressure (mmHg), heart rate (1/min), saturation (%),
    breathing (1/min) and resistance of the vessels (mmHg s/mL) have a value at rest each, as the
    flow (mL/s) has; stroke is in mL, and reserves are how far heart rate and breathing can rise
    (1/min).
    """

    time: Number
    low_time: Number
    blood_loss: Number
    wound: Number
    pain: Number
    pressure: Number
    heart: Number
    saturation: Number
    breathing: Number
    resistance: Number
    stroke: Number
    rest_pressure: Number
    rest_heart: Number
    rest_saturation: Number
    rest_breathing: Number
    rest_flow: Number
    rest_resistance: Number
    heart_reserve: Number
    breathing_reserve: Number

    def values(self) -> tuple[Number, Number, Number, Number]:
        """Return MAP (mmHg), heart rate (1/min), SpO2 (%) and breaths (1/min)."""
        return self.pressure, self.heart, self.saturation, self.breathing

    @property
    def systolic(self) -> Number:
        """Return the systolic pressure, mmHg."""
        return self.pressure + self.stroke * _SYSTOLIC_PER_STROKE

    @property
    def hypotensive(self) -> Number:
        """Say whether the pressure has been too low for a minute."""
        return self.low_time >= _HYPOTENSION_TIME

    def set_rest(self, pressure: Number, heart: Number) -> None:
        """Set the pressure (mmHg) and the heart rate (1/min) at rest."""
        self.rest_pressure, self.rest_heart = pressure, heart
        self.rest_flow = STROKE_VOLUME * heart / 60.0
        self.rest_resistance = (pressure - _CVP) / self.rest_flow
        self.heart_reserve = maths_of(heart).greater(HEART_MOST - heart, 0.0)

    def live(
        self,
        period: float,
        force: Number,
        damage: Number,
        cough: Number,
        bleeds: Iterable[Span],
        falls: Iterable[Span],
    ) -> None:
        """
        Let a short time pass.

        :param period: s of the body's own time, at most LONGEST_STEP.
        :param force: on tissue, N, at least 0.
        :param damage: done to tissue in this time, N s.
        :param cough: factor on breathing motion at the end of it.
        :param bleeds: events that take blood.
        :param falls: events that lower the saturation.
        """
        maths = maths_of(self.pressure)
        greater, lesser = maths.greater, maths.lesser
        begin, end = self.time, self.time + period
        bled: Number = 0.0
        fall: Number = 0.0
        for start, stop, _, rate in bleeds:
            during = lesser(end, stop) - greater(begin, start)
            bled = bled + rate * greater(during, 0.0)
        for start, stop, _, depth in falls:
            fall = fall + ((begin < stop) & (start < end)) * depth
        self.time = end
        wound = self.wound + damage - self.wound * period / _T_CLOT
        self.wound = wound = lesser(wound, _MOST_WOUND)
        lost = lesser(self.blood_loss + _BLEEDING * wound * period + bled, MOST_LOSS)
        self.blood_loss = lost
        loss = lost / _VOLUME

        drive = lesser(_BREATHING * greater(loss - _BREATHING_FROM, 0.0), 1.0)
        self.breathing = (self.rest_breathing + self.breathing_reserve * drive) * cough
        hurt = lesser(force / _HARD_STOP + _AROUSAL * (cough - 1.0), 1.0)
        self.pain = pain = self.pain + (hurt - self.pain) * period / _T_PAIN

        pressure = self.pressure
        fallen = (self.rest_pressure - pressure) / self.rest_pressure
        drive = _HEART_REFLEX * fallen + _HEART_PAIN * pain
        drive = drive + _HEART_VOLUME * greater(loss - _HEART_FROM, 0.0)
        target = greater(self.rest_heart + self.heart_reserve * lesser(drive, 1.0), _HEART_LEAST)
        self.heart = heart = self.heart + (target - self.heart) * period / _T_HEART
        tone = 1.0 + _VESSEL_REFLEX * fallen + _VESSEL_VOLUME * loss + _VESSEL_PAIN * pain
        tone = lesser(greater(tone, _VESSEL_LEAST), _VESSEL_MOST)
        towards = self.rest_resistance * tone - self.resistance
        self.resistance = resistance = self.resistance + towards * period / _T_RESISTANCE

        filled = (1.0 - loss - _EMPTY) / (1.0 - _EMPTY)
        flow = self.rest_flow * filled * (heart / self.rest_heart) ** _FILLING
        self.stroke = 60.0 * flow / heart
        pressure = pressure + (flow - (pressure - _CVP) / resistance) * period / COMPLIANCE
        self.pressure = pressure

        low = pressure < _HYPOTENSION
        self.low_time = low * (self.low_time + period)
        wanting = low * (_DESATURATION * (1.0 - pressure / _HYPOTENSION)) + fall
        saturation = greater(self.rest_saturation - wanting, _LEAST_SATURATION)
        self.saturation = self.saturation + (saturation - self.saturation) * period / _T_SATURATION


QUANTITIES = tuple(Body.__annotations__)
"""What a body consists of."""
