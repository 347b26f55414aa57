# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""
The body of one simulated patient under operation, or of many: first order, not for clinical use.

Lost blood empties the heart; heart rate and vessels answer to it, to the pressure (baroreflex), to
nociception and to gas in the belly: C dMAP/dt = Q - (MAP - CVP) / R (two-element Windkessel), with
Q = Q0 v (HR / HR0)^0.2, v the filling. Breathing follows the loss as if the patient breathed
without a ventilator, as the ATLS classes do.
"""

from collections.abc import Sequence
import math

from fdrl_ros.errors import StateError
from fdrl_ros.surgery.constants import constant, Group
from fdrl_ros.surgery.patient.breathing import breathing_factor, SpanTable
from fdrl_ros.surgery.patient.events import Span, spans
from fdrl_ros.surgery.patient.patient import Patient
from fdrl_ros.surgery.patient.scores import fixed_points, news2, sofa
from fdrl_ros.surgery.scalar_or_array import Array, maths_of, Number, PerPatient
import numpy as np

_BODY = Group('physiology')
_HARD_STOP = constant('tissue.hard_stop')
_COMPLIANCE, _CVP, _VOLUME, _EMPTY, _FILLING = (
    constant(f'physiology.{name}')
    for name in ('compliance', 'venous_pressure', 'blood_volume', 'empty_fraction', 'filling')
)
_T_HEART, _T_RESISTANCE, _T_SATURATION, _T_PAIN, _T_CLOT = (
    constant(f'physiology.{name}_time')
    for name in ('heart', 'resistance', 'saturation', 'nociception', 'clotting')
)
_HEART_REFLEX, _HEART_VOLUME, _HEART_FROM, _HEART_PAIN, _HEART_LEAST = (
    constant(f'physiology.heart_{name}')
    for name in ('baroreflex', 'volume', 'volume_from', 'nociception', 'least')
)
_VESSEL_REFLEX, _VESSEL_VOLUME, _VESSEL_PAIN, _VESSEL_LEAST, _VESSEL_MOST = (
    constant(f'physiology.resistance_{name}')
    for name in ('baroreflex', 'volume', 'nociception', 'least', 'most')
)
_BREATHING, _BREATHING_FROM, _AROUSAL = (
    constant(f'physiology.{name}')
    for name in ('breathing_volume', 'breathing_volume_from', 'arousal')
)
_BLEEDING, _HYPOTENSION, _DESATURATION, _LEAST_SATURATION, _LONGEST_STEP = (
    constant(f'physiology.{name}')
    for name in ('bleeding', 'hypotension', 'desaturation', 'least_saturation', 'longest_step')
)
MOST_LOSS = _VOLUME * (1.0 - _EMPTY)
_SYSTOLIC_PER_STROKE = 2.0 / 3.0 / _COMPLIANCE
"""How far the systolic pressure is above the mean for each mL of a stroke, mmHg."""
_MOST_WOUND = _BODY.most_bleeding / _BLEEDING


class Body:
    """
    One body, or many in step.

    Time, time with a low pressure (both the body's own, s), blood lost (mL), wound (N s) and pain
    (fraction) start at 0. Mean arterial pressure (mmHg), heart rate (1/min), saturation (%),
    breathing (1/min) and resistance of the vessels (mmHg s/mL) have a value at rest each, as the
    flow (mL/s) has; stroke is in mL, and reserves are how far heart rate and breathing can rise
    (1/min). The rest is fixed: inspired oxygen (FiO2), 1 without a vasopressor, and points of
    NEWS2 and SOFA.
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
    inspired_oxygen: Number
    unsupported: Number
    fixed_news2: Number
    fixed_sofa: Number

    def __init__(self, pace: float) -> None:
        self._pace = pace
        self._bleeds: Sequence[Span] = ()
        """Events that take blood, at the body's pace."""
        self._falls: Sequence[Span] = ()
        """Events that lower the saturation."""

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
        return self.low_time >= _BODY.hypotension_time

    def scores(self) -> tuple[Number, Number]:
        """Return NEWS2 and SOFA of the vitals now."""
        saturation, pressure = self.saturation, self.pressure
        return (
            news2(self.fixed_news2, self.breathing, saturation, self.systolic, self.heart),
            sofa(self.fixed_sofa, pressure, self.unsupported, saturation / self.inspired_oxygen),
        )

    def _advance_paced(self, period: float, force: Number, damage: Number, cough: Number) -> None:
        """
        Let real time pass in as many steps of the body's own time as it needs.

        :param period: s of real time.
        :param force: on tissue, N.
        :param damage: done to tissue in this time, N s.
        :param cough: factor on breathing motion at the end of it.
        """
        if self._pace == 1.0:
            self._step(period, force, damage, cough)
            return
        own = period * self._pace
        steps = max(1, math.ceil(own / _LONGEST_STEP - 1e-9))
        for _ in range(steps):
            self._step(own / steps, force, damage / steps, cough)

    def _step(self, period: float, force: Number, damage: Number, cough: Number) -> None:
        """Let a short time of the body's own pass, s."""
        maths = maths_of(self.pressure)
        greater, lesser = maths.greater, maths.lesser
        begin, end = self.time, self.time + period
        bled: Number = 0.0
        fall: Number = 0.0
        for start, stop, _, rate in self._bleeds:
            during = lesser(end, stop) - greater(begin, start)
            bled = bled + rate * greater(during, 0.0)
        for start, stop, _, depth in self._falls:
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
        tone = 1.0 + _VESSEL_REFLEX * fallen + _VESSEL_VOLUME * loss
        tone = tone + _VESSEL_PAIN * pain
        tone = lesser(greater(tone, _VESSEL_LEAST), _VESSEL_MOST)
        towards = self.rest_resistance * tone - self.resistance
        self.resistance = resistance = self.resistance + towards * period / _T_RESISTANCE

        filled = (1.0 - loss - _EMPTY) / (1.0 - _EMPTY)
        flow = self.rest_flow * filled * (heart / self.rest_heart) ** _FILLING
        self.stroke = 60.0 * flow / heart
        drained = (pressure - _CVP) / resistance
        pressure = pressure + (flow - drained) * period / _COMPLIANCE
        self.pressure = pressure

        low = pressure < _HYPOTENSION
        self.low_time = low * (self.low_time + period)
        wanting = low * (_DESATURATION * (1.0 - pressure / _HYPOTENSION)) + fall
        towards = greater(self.rest_saturation - wanting, _LEAST_SATURATION) - self.saturation
        self.saturation = self.saturation + towards * period / _T_SATURATION


QUANTITIES = tuple(Body.__annotations__)
"""What a body consists of."""


class Physiology(Body):
    """
    The body of one patient during one operation.

    :param patient: baselines before insufflation, labs, and what will happen.
    :param insufflated: start in the steady state under pneumoperitoneum.
    :param pace: how many times faster than real time the body lives. Events begin and end in real
        time, and so does a cough, which moves the organ too; what they do to the body, and the
        blood that flows in a second, goes at the body's pace.
    """

    def __init__(self, patient: Patient, insufflated: bool = True, pace: float = 1.0) -> None:
        super().__init__(pace)
        self._bleeds = spans(patient.events, 'bleed', pace)
        self._falls = spans(patient.events, 'desaturation', pace)
        self._coughs = spans(patient.events, 'breathing')
        self._patient = patient
        self.time = self.low_time = self.blood_loss = self.wound = self.pain = 0.0
        self.insufflate(insufflated)
        self.heart, self.pressure = self.rest_heart, self.rest_pressure
        self.resistance, self.stroke = self.rest_resistance, _BODY.stroke_volume
        self.saturation = self.rest_saturation = patient.oxygen_saturation
        self.breathing = self.rest_breathing = patient.respiratory_rate
        self.breathing_reserve = max(0.0, _BODY.breathing_most - patient.respiratory_rate)
        self.inspired_oxygen = patient.labs.inspired_oxygen
        self.unsupported = int(patient.labs.norepinephrine == 0.0)
        self.fixed_news2, self.fixed_sofa = fixed_points(patient.labs)

    def insufflate(self, gas: bool = True) -> None:
        """Fill the belly with gas, or let it out; heart and vessels follow in their time."""
        patient, share = self._patient, 1.0 if gas else 0.0
        pressure = patient.mean_arterial_pressure + share * _BODY.pneumoperitoneum_pressure
        heart = patient.heart_rate + share * _BODY.pneumoperitoneum_heart
        self.rest_pressure, self.rest_heart = pressure, heart
        self.rest_flow = _BODY.stroke_volume * heart / 60.0
        self.rest_resistance = (pressure - _CVP) / self.rest_flow
        self.heart_reserve = max(0.0, _BODY.heart_most - heart)

    def advance(self, period: float, force: float = 0.0, damage: float = 0.0) -> None:
        """
        Let time pass.

        :param period: s of real time; longer ones than 0.2 s are cut into equal steps.
        :param force: on tissue, N, either sign: it hurts.
        :param damage: done to tissue in this time, N s: it bleeds.
        :raises StateError: on a number that is not finite, or negative time or damage.
        """
        if not (0.0 <= period < math.inf and 0.0 <= damage < math.inf and abs(force) < math.inf):
            raise StateError(
                f'period {period!r} s, force {force!r} N, damage {damage!r} N s: '
                'expected finite numbers, time and damage at least 0'
            )
        force, pace, coughs = abs(force), self._pace, self._coughs
        parts = 1 if period <= _LONGEST_STEP else math.ceil(period / _LONGEST_STEP)
        own, damage, cough = period / parts, damage / parts, 1.0
        for _ in range(parts):
            if coughs:
                cough, _ = breathing_factor(coughs, (self.time + own * pace) / pace)
            if pace == 1.0:
                self._step(own, force, damage, cough)
            else:
                self._advance_paced(own, force, damage, cough)


class VectorPhysiology(Body, PerPatient):
    """
    The bodies of n patients, each in its own operation.

    :param count: n.
    :param pace: how many times faster than real time they live.
    """

    def __init__(self, count: int, pace: float = 1.0) -> None:
        super().__init__(pace)
        for name in QUANTITIES:
            setattr(self, name, np.ones(count))
        self._bleed_table = SpanTable('bleed', count, pace)
        self._fall_table = SpanTable('desaturation', count, pace)

    def put(self, row: int, patient: Patient, body: Physiology) -> None:
        """
        Write one patient's body.

        :param body: of the patient at the start.
        """
        for name in QUANTITIES:
            getattr(self, name)[row] = getattr(body, name)
        self._bleed_table.put(row, patient.events)
        self._fall_table.put(row, patient.events)

    def advance(self, period: float, force: Array, damage: Array, cough: Array) -> None:
        """
        Let time pass.

        :param period: s of real time, at most 0.2 s.
        :param force: on tissue, N, at least 0.
        :param damage: done to tissue in this time, N s.
        :param cough: factor on breathing motion at the end of it.
        """
        self._bleeds, self._falls = self._bleed_table.spans(), self._fall_table.spans()
        self._advance_paced(period, force, damage, cough)
