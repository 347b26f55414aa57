# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""
The events of many patients at once, and what breathing does with their organs meanwhile.

h = A f sin(theta), theta = rate * integral of f + phase, as :mod:`fdrl_ros.env.events` has it for
one patient. The last axis of every array is the patient.
"""

from collections.abc import Iterable
import math

from fdrl_ros.env.events import Event, RAMP
from fdrl_ros.env.patient import Patient
import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
Rows = NDArray[np.intp]


class Spans:
    """
    The events of one kind, of whichever patient.

    :param kind: one of :data:`fdrl_ros.env.events.KINDS`.
    """

    def __init__(self, kind: str) -> None:
        self.kind = kind
        self.rows: Rows = np.empty(0, np.intp)
        """Whose event it is, shape (events,), as what follows."""
        self.start: Array = np.empty(0)
        self.end: Array = np.empty(0)
        self.magnitude: Array = np.empty(0)

    def put(self, row: int, events: Iterable[Event]) -> None:
        """Forget the events of a row, and take these."""
        own = [each for each in events if each.kind == self.kind]
        others = self.rows != row
        if own or not others.all():
            self._take(others)
            self.rows = np.append(self.rows, [row] * len(own)).astype(np.intp)
            self.start = np.append(self.start, [each.start for each in own])
            self.end = np.append(self.end, [each.end for each in own])
            self.magnitude = np.append(self.magnitude, [each.magnitude for each in own])

    def keep(self, rows: Rows, count: int) -> None:
        """Keep only the patients of some rows, out of so many, in their order."""
        place = np.full(count, -1)
        place[rows] = np.arange(len(rows))
        self.rows = place[self.rows]
        self._take(self.rows >= 0)

    def _take(self, chosen: NDArray[np.bool_]) -> None:
        self.rows, self.start = self.rows[chosen], self.start[chosen]
        self.end, self.magnitude = self.end[chosen], self.magnitude[chosen]

    def during(self, begin: Array, end: Array) -> Rows:
        """Return which events touch the time of their patient between two moments, s."""
        whose = self.rows
        return np.flatnonzero((begin.take(whose) < self.end) & (self.start < end.take(whose)))


class Breathing:
    """
    The organs' motion under n breathing patients.

    :param count: n.
    """

    def __init__(self, count: int) -> None:
        self.amplitude: Array = np.zeros(count)
        self.rate: Array = np.zeros(count)
        """Without events, rad/s."""
        self.phase: Array = np.zeros(count)
        self.coughs = Spans('breathing')

    def put(self, row: int, patient: Patient) -> None:
        """Take a patient's breathing for that of a row."""
        self.amplitude[row] = patient.breathing_amplitude
        self.rate[row] = 2.0 * math.pi * patient.respiratory_rate / 60.0
        self.phase[row] = patient.breathing_phase
        self.coughs.put(row, patient.events)

    def keep(self, rows: Rows) -> None:
        """Keep only some rows."""
        self.coughs.keep(rows, len(self.amplitude))
        self.amplitude, self.rate = self.amplitude[rows], self.rate[rows]
        self.phase = self.phase[rows]

    def motion(self, times: Array) -> tuple[Array, Array, Array]:
        """
        Return height above rest (m), upward speed (m/s) and factor f at some times.

        :param times: s, of shape (k, n), as what is returned.
        """
        begun = np.flatnonzero(self.coughs.start < times.max(axis=0).take(self.coughs.rows))
        if not len(begun):
            angle = self.rate * times + self.phase
            return (
                self.amplitude * np.sin(angle),
                self.amplitude * self.rate * np.cos(angle),
                np.ones_like(times),
            )
        factor, derivative, clock = self._factor(times, begun)
        angle = self.rate * clock + self.phase
        sine, cosine = np.sin(angle), np.cos(angle)
        speed = self.amplitude * (derivative * sine + self.rate * factor * factor * cosine)
        return self.amplitude * factor * sine, speed, factor

    def _factor(self, times: Array, begun: Rows) -> tuple[Array, Array, Array]:
        """Return f, its derivative and its integral from 0, with the events that have begun."""
        coughs = self.coughs
        whose, start = coughs.rows[begun], coughs.start[begun]
        duration, excess = coughs.end[begun] - start, coughs.magnitude[begun] - 1.0
        ramp = np.minimum(RAMP, 0.5 * duration)
        elapsed = times.take(whose, axis=1) - start
        left = duration - elapsed
        edge = np.minimum(np.maximum(np.minimum(elapsed, left) / ramp, 0.0), 1.0)
        slope = excess * 6.0 * edge * (1.0 - edge) / ramp
        since = np.maximum(np.minimum(elapsed, duration), 0.0)
        up = np.minimum(since / ramp, 1.0)
        down = np.maximum((since - duration) / ramp + 1.0, 0.0)
        area = ramp * up * up * up * (1.0 - 0.5 * up) + np.maximum(since - ramp, 0.0)
        area -= ramp * down * down * down * (1.0 - 0.5 * down)
        factor, derivative, clock = np.ones_like(times), np.zeros_like(times), times.copy()
        for total, part in (
            (factor, excess * edge * edge * (3.0 - 2.0 * edge)),
            (derivative, np.where(elapsed < left, slope, -slope)),
            (clock, excess * area),
        ):
            np.add.at(total.T, whose, part.T)
        return factor, derivative, clock
