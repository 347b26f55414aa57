# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""
The events of many patients at once, and what breathing does with their organs meanwhile.

h = A f sin(theta), theta = rate * integral of f + phase, as :mod:`fdrl_ros.surgery.patient.events`
has it for one patient. The last axis of every array is the patient.
"""

from collections.abc import Iterable
import math

from fdrl_ros.surgery.gym.actions import SUBSTEP, SUBSTEPS, TICK
from fdrl_ros.surgery.patient.events import Event, RAMP, spans
from fdrl_ros.surgery.patient.patient import Patient
import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
Rows = NDArray[np.intp]

MOMENTS = SUBSTEPS + 2
"""The beginning of a tick, the ends of its sub-steps, and when an arm will be where it is sent."""

_TICK: Array = np.arange(SUBSTEPS + 1.0) * SUBSTEP
_NEVER: Array = np.array([1e9, 2e9, 0.0])
"""Start, end and magnitude of no event, for patients with fewer than others."""


class Spans:
    """
    The events of one kind of n patients.

    :param kind: one of :data:`fdrl_ros.surgery.patient.events.KINDS`.
    :param count: n.
    :param pace: of the bodies that they happen to.
    """

    def __init__(self, kind: str, count: int, pace: float = 1.0) -> None:
        self.kind, self._pace = kind, pace
        self.table: Array = np.empty((3, 0, count))
        """Start (s), end (s) and magnitude of up to k events of each patient, shape (3, k, n)."""

    def __bool__(self) -> bool:
        """Say whether anybody has, or had, such an event."""
        return self.table.shape[1] > 0

    def put(self, row: int, events: Iterable[Event]) -> None:
        """Take these events of a patient for those of a row."""
        own = spans(events, self.kind, self._pace)
        room = self.table.shape[1]
        if len(own) > room:
            more = np.broadcast_to(
                _NEVER[:, None, None], (3, len(own) - room, self.table.shape[2])
            )
            self.table = np.concatenate([self.table, more], axis=1)
        if self:
            self.table[:, :, row] = _NEVER[:, None]
        if own:
            self.table[:, : len(own), row] = np.transpose(own)

    def keep(self, rows: Rows) -> None:
        """Keep only some rows."""
        self.table = self.table[:, :, rows]


class Breathing:
    """
    The organs' motion under n breathing patients.

    :param count: n.
    """

    def __init__(self, count: int) -> None:
        self.rate, self.phase, self.amplitude = np.zeros((3, count))
        """Rate (rad/s), phase (rad) and amplitude (m) without events."""
        self.ahead: Array = np.zeros((MOMENTS, count))
        """Time from the beginning of a tick to what :meth:`motion` tells of, s."""
        self._cosines: Array = np.ones((MOMENTS, count))
        self._sines: Array = np.zeros((MOMENTS, count))
        self._coughs = Spans('breathing', count)

    def put(self, row: int, patient: Patient) -> None:
        """Take a patient's breathing for that of a row."""
        rate = 2.0 * math.pi * patient.respiratory_rate / 60.0
        self.rate[row], self.phase[row] = rate, patient.breathing_phase
        self.amplitude[row] = patient.breathing_amplitude
        self.ahead[:, row] = ahead = np.append(_TICK, TICK + patient.servo_lag)
        self._cosines[:, row], self._sines[:, row] = np.cos(rate * ahead), np.sin(rate * ahead)
        self._coughs.put(row, patient.events)

    def keep(self, rows: Rows) -> None:
        """Keep only some rows."""
        self._coughs.keep(rows)
        for name, value in vars(self).items():
            if isinstance(value, np.ndarray):
                setattr(self, name, value[..., rows])

    def motion(self, begin: Array) -> tuple[Array, Array, Array]:
        """
        Return how breathing moves the organs in the tick that begins, which must be a later one.

        :param begin: when it does, shape (n,), s.
        :returns: height above rest (m), upward speed (m/s) and factor f at each of the MOMENTS,
            shapes (14, n).
        """
        start, end, _magnitude = self._coughs.table
        if (end <= begin).any():
            self._settle(begin)
        rate, amplitude = self.rate, self.amplitude
        angle = rate * begin + self.phase
        sine, cosine = np.sin(angle), np.cos(angle)
        heights = amplitude * (sine * self._cosines + cosine * self._sines)
        speeds = (amplitude * rate) * (cosine * self._cosines - sine * self._sines)
        factors = np.ones_like(heights)
        events, rows = np.nonzero(start < begin + self.ahead[-1])
        if len(rows):
            some, excess, derivative, lead = self._excess(begin, events, rows)
            factor = 1.0 + excess
            angle = rate[some] * (begin[some] + self.ahead.take(some, axis=1) + lead)
            angle += self.phase[some]
            height = amplitude[some] * np.sin(angle)
            speed = amplitude[some] * rate[some] * np.cos(angle)
            heights[:, some] = factor * height
            speeds[:, some] = derivative * height + factor * factor * speed
            factors[:, some] = factor
        return heights, speeds, factors

    def _settle(self, begin: Array) -> None:
        """Turn the phase once and for all by what events that are over have done to it."""
        start, end, magnitude = self._coughs.table
        over = end <= begin
        length = end - start
        lead = (magnitude - 1.0) * (length - np.minimum(RAMP, 0.5 * length))
        self.phase = self.phase + self.rate * np.where(over, lead, 0.0).sum(axis=0)
        self._coughs.table[:, over] = _NEVER[:, None]

    def _excess(self, begin: Array, events: Rows, rows: Rows) -> tuple[Rows, Array, Array, Array]:
        """
        Return what events, the first of a row first, add to f, its derivative and its integral.

        With x the share of a ramp since the start of an event, y that until its end, and the
        smoothstep s(u) = u^2 (3 - 2u): f - 1 = (m - 1) (s(x) + s(y) - 1).

        :returns: rows, each once, and for them f - 1, f' (1/s) and how far the integral of f from
            0 is ahead of time (s), shapes (14, rows).
        """
        start, end, magnitude = self._coughs.table[:, events, rows]
        times = begin[rows] + self.ahead.take(rows, axis=1)
        excess, ramp = magnitude - 1.0, np.minimum(RAMP, 0.5 * (end - start))
        ramps = np.empty((2, *times.shape))
        np.subtract(times, start, out=ramps[0])
        np.subtract(end, times, out=ramps[1])
        ramps /= ramp
        shares = np.minimum(np.maximum(ramps, 0.0), 1.0)
        squares = shares * shares
        up, down = squares * (3.0 - 2.0 * shares)
        steep_up, steep_down = shares - squares
        area_up, area_down = squares * shares * (1.0 - 0.5 * shares)
        since, until = ramps
        area = area_up - area_down + np.maximum(since - 1.0, 0.0) - np.maximum(1.0 - until, 0.0)
        added = (
            excess * (up + down - 1.0),
            excess * (6.0 / ramp) * (steep_up - steep_down),
            excess * ramp * (area + 0.5),
        )
        if len(set(rows.tolist())) == len(rows):
            return rows, *added
        some, place = np.unique(rows, return_inverse=True)
        total = np.zeros((3, len(times), len(some)))
        for each, column in enumerate(place.tolist()):
            for sums, one in zip(total, added, strict=True):
                sums[:, column] += one[:, each]
        return some, *total
