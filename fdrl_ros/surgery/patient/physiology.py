# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""
Vital signs of one simulated patient, or of many: first-order physiology, not for clinical use.

Both bodies follow the law of :mod:`fdrl_ros.surgery.patient.body`; one patient's has scores too.
"""

from dataclasses import dataclass
import math

from fdrl_ros.errors import StateError
from fdrl_ros.surgery.constants import constant
from fdrl_ros.surgery.patient.body import (
    Body,
    BREATHING_MOST,
    COMPLIANCE,
    LONGEST_STEP,
    MOST_LOSS,
    QUANTITIES,
    steps_of,
    STROKE_VOLUME,
)
from fdrl_ros.surgery.patient.breathing import breathing_factor, SpanTable
from fdrl_ros.surgery.patient.events import spans
from fdrl_ros.surgery.patient.patient import Patient
from fdrl_ros.surgery.patient.scores import (
    cardiovascular,
    News2,
    news2,
    respiration,
    Sofa,
    sofa,
    VectorScores,
)
from fdrl_ros.surgery.scalar_or_array import Array, Rows
import numpy as np
from numpy.typing import NDArray

LABEL = 'simulated, not for clinical use'

_GAS_PRESSURE = constant('physiology.pneumoperitoneum_pressure')
_GAS_HEART = constant('physiology.pneumoperitoneum_heart')


@dataclass(frozen=True)
class Vitals:
    """What the monitors show: mmHg, 1/min, %, 1/min."""

    mean_arterial_pressure: float
    heart_rate: float
    oxygen_saturation: float
    respiratory_rate: float


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
        self._pace = pace
        self.labs = patient.labs
        events = patient.events
        self._bleeds = spans(events, 'bleed', pace)
        self._falls = spans(events, 'desaturation', pace)
        self._coughs = spans(events, 'breathing')
        self._patient = patient
        self._scored: Sofa | None = None
        self.time = self.low_time = self.blood_loss = self.wound = self.pain = 0.0
        self.insufflate(insufflated)
        self.heart, self.pressure = self.rest_heart, self.rest_pressure
        self.resistance, self.stroke = self.rest_resistance, STROKE_VOLUME
        self.saturation = self.rest_saturation = patient.oxygen_saturation
        self.breathing = self.rest_breathing = patient.respiratory_rate
        self.breathing_reserve = max(0.0, BREATHING_MOST - patient.respiratory_rate)

    def insufflate(self, gas: bool = True) -> None:
        """Fill the belly with gas, or let it out; heart and vessels follow in their time."""
        share = 1.0 if gas else 0.0
        self.set_rest(
            self._patient.mean_arterial_pressure + share * _GAS_PRESSURE,
            self._patient.heart_rate + share * _GAS_HEART,
        )

    @property
    def vitals(self) -> Vitals:
        """Return what the monitors show now."""
        return Vitals(*self.values())

    @property
    def diastolic(self) -> float:
        """Return the diastolic pressure, mmHg."""
        return max(0.0, self.pressure - self.stroke * (1.0 / 3.0 / COMPLIANCE))

    def news2(self) -> News2:
        """Return NEWS2 of the vitals now, with the alertness of before anaesthesia."""
        return news2(self.labs, self.breathing, self.saturation, self.systolic, self.heart)

    def sofa(self) -> Sofa:
        """Return SOFA of the labs, which stay as they are, and the vitals now."""
        labs, saturation = self.labs, self.saturation
        if self._scored is None or not 0.0 <= saturation <= 100.0:
            self._scored = sofa(labs, self.pressure, saturation)
            return self._scored
        _, coagulation, liver, _, nervous, renal = self._scored
        return Sofa(
            respiration(saturation / labs.inspired_oxygen),
            coagulation,
            liver,
            cardiovascular(self.pressure, labs.norepinephrine),
            nervous,
            renal,
        )

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
        force = abs(force)
        if period <= LONGEST_STEP:
            self._pass(period, force, damage)
            return
        parts = math.ceil(period / LONGEST_STEP)
        for _ in range(parts):
            self._pass(period / parts, force, damage / parts)

    def _pass(self, period: float, force: float, damage: float) -> None:
        pace = self._pace
        end = self.time + period * pace
        cough = breathing_factor(self._coughs, end / pace)[0] if self._coughs else 1.0
        if pace == 1.0:
            self.live(period, force, damage, cough, self._bleeds, self._falls)
            return
        steps = steps_of(period * pace)
        for _ in range(steps):
            own = period * pace / steps
            self.live(own, force, damage / steps, cough, self._bleeds, self._falls)

    def bleed(self, volume: float) -> None:
        """
        Take blood at once, as a test or a scenario does.

        :param volume: mL.
        :raises StateError: if it is negative or not finite.
        """
        if not 0.0 <= volume < math.inf:
            raise StateError(f'volume {volume!r} mL: expected a finite number of at least 0')
        self.blood_loss = min(self.blood_loss + volume, MOST_LOSS)


class VectorPhysiology(Body):
    """
    The bodies of n patients, each in its own operation.

    :param count: n.
    :param pace: how many times faster than real time they live.
    """

    def __init__(self, count: int, pace: float = 1.0) -> None:
        self._pace = pace
        for each in QUANTITIES:
            setattr(self, each, np.ones(count))
        self._scores = VectorScores(count)
        self._bleeds = SpanTable('bleed', count, pace)
        self._falls = SpanTable('desaturation', count, pace)

    def put(self, row: int, patient: Patient, body: Physiology) -> None:
        """
        Write one patient's body.

        :param body: of the patient at the start.
        """
        for each in QUANTITIES:
            getattr(self, each)[row] = getattr(body, each)
        news2, sofa = body.news2(), body.sofa()
        fixed = news2.supplemental_oxygen + news2.consciousness + news2.temperature
        failed = sofa.coagulation + sofa.liver + sofa.nervous + sofa.renal
        if body.labs.norepinephrine > 0.0:
            failed += sofa.cardiovascular
        self._scores.put(row, body.labs, (fixed, failed))
        self._bleeds.put(row, patient.events)
        self._falls.put(row, patient.events)

    def select(self, rows: Rows) -> None:
        """Keep only some patients."""
        self._scores.select(rows)
        self._bleeds.select(rows)
        self._falls.select(rows)
        for each in QUANTITIES:
            setattr(self, each, getattr(self, each)[rows])

    def advance(self, period: float, force: Array, damage: Array, cough: Array) -> None:
        """
        Let time pass.

        :param period: s of real time, at most LONGEST_STEP.
        :param force: on tissue, N, at least 0.
        :param damage: done to tissue in this time, N s.
        :param cough: factor on breathing motion at the end of it.
        """
        steps = 1 if self._pace == 1.0 else steps_of(period * self._pace)
        own, harm = period * self._pace / steps, damage / steps
        bleeds, falls = self._bleeds.spans(), self._falls.spans()
        for _ in range(steps):
            self.live(own, force, harm, cough, bleeds, falls)

    def scores(self, rows: Rows | slice = slice(None)) -> tuple[NDArray[np.int64], ...]:
        """
        Return NEWS2 and SOFA.

        :param rows: of which patients, if not of all.
        """
        vitals = [each[rows] for each in self.values()]
        return self._scores.totals(vitals, self.systolic[rows], rows)
