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

_NEVER = (1e9, 2e9, 0.0)
"""Start, end and magnitude of no event, for patients with fewer than others."""


class Spans:
    """
    The events of one kind of n patients.

    :param kind: one of :data:`fdrl_ros.env.events.KINDS`.
    :param count: n.
    """

    def __init__(self, kind: str, count: int) -> None:
        self.kind = kind
        self.table: Array = np.empty((3, 0, count))
        """Start (s), end (s) and magnitude of up to k events of each patient, shape (3, k, n)."""

    def __bool__(self) -> bool:
        """Say whether anybody has, or had, such an event."""
        return self.table.shape[1] > 0

    def put(self, row: int, events: Iterable[Event]) -> None:
        """Take these events of a patient for those of a row."""
        own = [(each.start, each.end, each.magnitude) for each in events if each.kind == self.kind]
        room = self.table.shape[1]
        if len(own) > room:
            more = np.empty((3, len(own) - room, self.table.shape[2]))
            more[:] = np.reshape(_NEVER, (3, 1, 1))
            self.table = np.concatenate([self.table, more], axis=1)
        elif room:
            own += [_NEVER] * (room - len(own))
        if own:
            self.table[:, :, row] = np.transpose(own)

    def keep(self, rows: Rows) -> None:
        """Keep only some rows."""
        self.table = self.table[:, :, rows]


class Breathing:
    """
    The organs' motion under n breathing patients.

    :param count: n.
    """

    def __init__(self, count: int) -> None:
        self.amplitude: Array = np.zeros(count)
        """Without events, m."""
        self.rate: Array = np.zeros(count)
        """Without events, rad/s."""
        self.phase: Array = np.zeros(count)
        self._coughs = Spans('breathing', count)

    def put(self, row: int, patient: Patient) -> None:
        """Take a patient's breathing for that of a row."""
        self.amplitude[row] = patient.breathing_amplitude
        self.rate[row] = 2.0 * math.pi * patient.respiratory_rate / 60.0
        self.phase[row] = patient.breathing_phase
        self._coughs.put(row, patient.events)

    def keep(self, rows: Rows) -> None:
        """Keep only some rows."""
        self._coughs.keep(rows)
        self.amplitude, self.rate = self.amplitude[rows], self.rate[rows]
        self.phase = self.phase[rows]

    def motion(self, times: Array) -> tuple[Array, Array, Array]:
        """
        Return height above rest (m), upward speed (m/s) and factor f at some times.

        :param times: s, of shape (k, n), as what is returned.
        """
        amplitude, rate = self.amplitude, self.rate
        angle = rate * times + self.phase
        some = np.flatnonzero((self._coughs.table[0] < times.max(axis=0)).any(axis=0))
        if len(some):
            factor, derivative, ahead = self._factor(times.take(some, axis=1), some)
            angle[:, some] += rate[some] * ahead
        sine = np.sin(angle)
        heights, speeds = amplitude * sine, amplitude * rate * np.cos(angle)
        factors = np.ones_like(times)
        if len(some):
            factors[:, some] = factor
            heights *= factors
            speeds *= factors * factors
            speeds[:, some] += amplitude[some] * derivative * sine.take(some, axis=1)
        return heights, speeds, factors

    def _factor(self, times: Array, some: Rows) -> tuple[Array, Array, Array]:
        """
        Return f, its derivative, and how far its integral from 0 is ahead of time, for some rows.

        With x the share of a ramp since the start of an event, y that until its end, and the
        smoothstep s(u) = u^2 (3 - 2u): f - 1 = (m - 1) (s(x) + s(y) - 1).
        """
        start, end, magnitude = self._coughs.table[:, :, None, some]
        excess, ramp = magnitude - 1.0, np.minimum(RAMP, 0.5 * (end - start))
        ramps: Array = np.array([times - start, end - times]) / ramp
        shares = np.minimum(np.maximum(ramps, 0.0), 1.0)
        squares = shares * shares
        up, down = squares * (3.0 - 2.0 * shares)
        steep_up, steep_down = shares - squares
        area_up, area_down = squares * shares * (1.0 - 0.5 * shares)
        since, until = ramps
        area = area_up - area_down + np.maximum(since - 1.0, 0.0) - np.maximum(1.0 - until, 0.0)
        return (
            1.0 + (excess * (up + down - 1.0)).sum(axis=0),
            (excess * (6.0 / ramp) * (steep_up - steep_down)).sum(axis=0),
            (excess * ramp * (area + 0.5)).sum(axis=0),
        )
