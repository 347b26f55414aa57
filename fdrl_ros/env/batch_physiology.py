# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""
The bodies of many patients at once, by the law of :mod:`fdrl_ros.env.physiology`.

Not for clinical use. The last axis of every array is the patient; scores are left out.
"""

from fdrl_ros.env.batch_events import Array, Rows, Spans
from fdrl_ros.env.constants import constant
from fdrl_ros.env.patient import Patient
from fdrl_ros.env.physiology import Physiology
import numpy as np
from numpy.typing import NDArray

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
_HYPOTENSION = constant('physiology.hypotension')
_HYPOTENSION_TIME = constant('physiology.hypotension_time')
_DESATURATION = constant('physiology.desaturation')
_LEAST_SATURATION = constant('physiology.least_saturation')
_HARD_STOP = constant('tissue.hard_stop')


def _least(value: Array, bound: float) -> Array:
    return np.maximum(value, bound)


def _most(value: Array, bound: float) -> Array:
    return np.minimum(value, bound)


class BatchPhysiology:
    """
    The bodies of n patients, each in its own operation.

    :param count: n.
    """

    _REST = ('rest_pressure', 'rest_heart', 'rest_saturation', 'rest_breathing')
    _NOW = ('pressure', 'heart', 'saturation', 'breathing')
    _ZERO = ('time', 'low_time', 'blood_loss', 'wound', 'pain')

    def __init__(self, count: int) -> None:
        self.rest_pressure, self.rest_heart, self.rest_saturation, self.rest_breathing = np.ones(
            (4, count)
        )
        self.rest_flow, self.rest_resistance, self.heart_reserve, self.breathing_reserve = np.ones(
            (4, count)
        )
        self.pressure, self.heart, self.saturation, self.breathing = np.ones((4, count))
        self.resistance = np.ones(count)
        self.time, self.low_time, self.blood_loss, self.wound, self.pain = np.zeros((5, count))
        self._bleeds, self._falls = Spans('bleed', count), Spans('desaturation', count)

    def put(self, row: int, patient: Patient, body: Physiology) -> None:
        """
        Put a patient into a row.

        :param body: of the patient at the start, at rest.
        """
        pressure, heart, saturation, breathing = values = body.values()
        for rest, now, value in zip(self._REST, self._NOW, values, strict=True):
            getattr(self, rest)[row] = getattr(self, now)[row] = value
        flow = _SV * heart / 60.0
        self.rest_flow[row] = flow
        self.resistance[row] = self.rest_resistance[row] = (pressure - _CVP) / flow
        self.heart_reserve[row] = max(0.0, _HEART_MOST - heart)
        self.breathing_reserve[row] = max(0.0, _BREATHING_MOST - breathing)
        for each in self._ZERO:
            getattr(self, each)[row] = 0.0
        self._bleeds.put(row, patient.events)
        self._falls.put(row, patient.events)

    def keep(self, rows: Rows) -> None:
        """Keep only some rows."""
        for each in (self._bleeds, self._falls):
            each.keep(rows)
        for name, value in vars(self).items():
            if isinstance(value, np.ndarray):
                setattr(self, name, value[rows])

    def values(self) -> tuple[Array, Array, Array, Array]:
        """Return MAP (mmHg), heart rate (1/min), SpO2 (%) and breaths (1/min)."""
        return self.pressure, self.heart, self.saturation, self.breathing

    @property
    def hypotensive(self) -> NDArray[np.bool_]:
        """Say whose pressure has been too low for a minute."""
        return self.low_time >= _HYPOTENSION_TIME

    def advance(self, period: float, force: Array, damage: Array, cough: Array) -> None:
        """
        Let time pass, no longer than one step of :class:`Physiology`.

        :param period: s.
        :param force: on tissue, N, at least 0.
        :param damage: done to tissue in this time, N s.
        :param cough: factor on breathing motion at the end of it.
        """
        begin = self.time
        self.time = time = begin + period
        wound = self.wound + damage - self.wound * period / _T_CLOT
        self.wound = wound = _most(wound, _MOST_WOUND)
        lost = self.blood_loss + _BLEEDING * wound * period
        if self._bleeds:
            start, end, rate = self._bleeds.table
            during = np.minimum(time, end) - np.maximum(begin, start)
            lost = lost + (rate * np.maximum(during, 0.0)).sum(axis=0)
        self.blood_loss = lost = _most(lost, _MOST_LOSS)
        loss = lost / _VOLUME

        drive = _most(_BREATHING * _least(loss - _BREATHING_FROM, 0.0), 1.0)
        self.breathing = (self.rest_breathing + self.breathing_reserve * drive) * cough
        hurt = _most(force / _HARD_STOP + _AROUSAL * (cough - 1.0), 1.0)
        self.pain = pain = self.pain + (hurt - self.pain) * period / _T_PAIN

        pressure = self.pressure
        fall = (self.rest_pressure - pressure) / self.rest_pressure
        drive = _HEART_REFLEX * fall + _HEART_PAIN * pain
        drive += _HEART_VOLUME * _least(loss - _HEART_FROM, 0.0)
        target = _least(self.rest_heart + self.heart_reserve * _most(drive, 1.0), _HEART_LEAST)
        self.heart = heart = self.heart + (target - self.heart) * period / _T_HEART
        tone = 1.0 + _VESSEL_REFLEX * fall + _VESSEL_VOLUME * loss + _VESSEL_PAIN * pain
        tone = _most(_least(tone, _VESSEL_LEAST), _VESSEL_MOST)
        resistance = self.resistance
        resistance = (
            resistance + (self.rest_resistance * tone - resistance) * period / _T_RESISTANCE
        )
        self.resistance = resistance

        filled = (1.0 - loss - _EMPTY) / (1.0 - _EMPTY)
        flow = self.rest_flow * filled * (heart / self.rest_heart) ** _FILLING
        pressure = pressure + (flow - (pressure - _CVP) / resistance) * period / _C
        self.pressure = pressure

        low = pressure < _HYPOTENSION
        saturation = self.rest_saturation - low * (_DESATURATION * (1.0 - pressure / _HYPOTENSION))
        self.low_time = low * (self.low_time + period)
        if self._falls:
            start, end, depth = self._falls.table
            saturation = saturation - (((begin < end) & (start < time)) * depth).sum(axis=0)
        saturation = _least(saturation, _LEAST_SATURATION)
        self.saturation = self.saturation + (saturation - self.saturation) * period / _T_SATURATION
