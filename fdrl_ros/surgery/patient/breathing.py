# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""
How breathing moves the organs of one patient, or of many: h = A f sin(theta).

theta = rate * integral of f + phase. A cough scales the motion by f(t) = 1 + (m - 1) w(t), w a
smoothstep up, a plateau and a smoothstep down, so that height and speed are continuous. The last
axis of every array is the patient.
"""

from collections.abc import Iterable, Sequence
import math

from fdrl_ros.surgery.constants import constant
from fdrl_ros.surgery.gym.actions import SUBSTEP, SUBSTEPS, TICK
from fdrl_ros.surgery.patient.events import Event, Span, spans
from fdrl_ros.surgery.patient.patient import Patient
from fdrl_ros.surgery.scalar_or_array import (
    Array,
    maths_of,
    Number,
    PerPatient,
    Rows,
)
import numpy as np
from numpy.typing import NDArray

RAMP = constant('events.ramp')
"""Longest time that a cough takes to rise, and to fall, s."""

MOMENTS = SUBSTEPS + 2
"""The beginning of a tick, the ends of its sub-steps, and when the arm reaches its set-point."""

_TICK: Array = np.arange(SUBSTEPS + 1.0) * SUBSTEP
_NEVER: Array = np.array([1e9, 2e9, 1e9, 1.0])
"""The span of no event, for patients with fewer events than others."""


def breathing_factor(coughs: Iterable[Span], time: Number) -> tuple[Number, Number]:
    """
    Return the factor f on amplitude and rate of breathing, and its derivative, 1/s.

    Both are continuous in time. The excesses of coughs that overlap add up.
    """
    maths = maths_of(time)
    factor: Number = 1.0
    derivative: Number = 0.0
    for start, _, duration, magnitude in coughs:
        elapsed = time - start
        left = duration - elapsed
        edge = maths.lesser(elapsed, left)
        if not maths.some(edge > 0.0):
            continue
        ramp = maths.lesser(0.5 * duration, RAMP)
        edge = maths.lesser(maths.greater(edge / ramp, 0.0), 1.0)
        above = magnitude - 1.0
        factor = factor + above * edge * edge * (3.0 - 2.0 * edge)
        slope = above * 6.0 * edge * (1.0 - edge) / ramp
        derivative = derivative + maths.choose(elapsed < left, slope, -slope)
    return factor, derivative


def breathing_clock(coughs: Iterable[Span], time: Number) -> Number:
    """Return the integral of the factor from 0 to a time, s, which turns the phase."""
    maths = maths_of(time)
    clock = time
    for start, _, duration, magnitude in coughs:
        elapsed = maths.lesser(time - start, duration)
        if not maths.some(elapsed > 0.0):
            continue
        ramp = maths.lesser(0.5 * duration, RAMP)
        up = maths.lesser(maths.greater(elapsed / ramp, 0.0), 1.0)
        down = maths.greater((elapsed - duration) / ramp + 1.0, 0.0)
        area = ramp * up**3 * (1.0 - 0.5 * up) + maths.excess(elapsed, ramp)
        clock = clock + (magnitude - 1.0) * (area - ramp * down**3 * (1.0 - 0.5 * down))
    return clock


def breathing_motion(
    amplitude: Number, rate: Number, phase: Number, coughs: Sequence[Span], time: Number
) -> tuple[Number, Number, Number]:
    """
    Return height (m) and upward speed (m/s) of a surface above its middle, and the factor f.

    :param amplitude: A without coughs, m.
    :param rate: without coughs, rad/s.
    :param phase: rad.
    """
    maths = maths_of(time)
    if not coughs:
        angle = rate * time + phase
        return amplitude * maths.sine(angle), amplitude * rate * maths.cosine(angle), 1.0
    factor, derivative = breathing_factor(coughs, time)
    angle = rate * breathing_clock(coughs, time) + phase
    sine = maths.sine(angle)
    speed = amplitude * (derivative * sine + rate * factor * factor * maths.cosine(angle))
    return amplitude * factor * sine, speed, factor


def breathing_rate(patient: Patient) -> float:
    """Return the rate of a patient's breathing, rad/s."""
    return 2.0 * math.pi * patient.respiratory_rate / 60.0


def _span(numbers: Array) -> Span:
    start, end, duration, magnitude = numbers
    return start, end, duration, magnitude


class SpanTable(PerPatient):
    """
    The events of one kind of n patients.

    :param kind: one of :data:`fdrl_ros.surgery.patient.events.KINDS`.
    :param count: n.
    :param pace: of the bodies that they happen to.
    """

    def __init__(self, kind: str, count: int, pace: float = 1.0) -> None:
        self.kind, self._pace = kind, pace
        self.table: Array = np.empty((4, 0, count))
        """The spans of up to k events of each patient, shape (4, k, n)."""

    def spans(self) -> list[Span]:
        """Return the first events of all patients, the second ones, and so on."""
        return [_span(event) for event in self.table.swapaxes(0, 1)]

    def begun(self, time: Array) -> tuple[Rows, list[Span]]:
        """Return which patients have an event that has begun by a time, s, and their events."""
        begun = self.table[0] < time
        rows = np.flatnonzero(begun.any(axis=0))
        columns = np.flatnonzero(begun.any(axis=1)).tolist()
        return rows, [_span(self.table[:, column, rows]) for column in columns]

    def put(self, row: int, events: Iterable[Event]) -> None:
        """Write one patient's events."""
        own = spans(events, self.kind, self._pace)
        missing = len(own) - self.table.shape[1]
        if missing > 0:
            more = np.broadcast_to(_NEVER[:, None, None], (4, missing, self.table.shape[2]))
            self.table = np.concatenate([self.table, more], axis=1)
        if self.table.shape[1]:
            self.table[:, :, row] = _NEVER[:, None]
        if own:
            self.table[:, : len(own), row] = np.transpose(own)


class VectorBreathing(PerPatient):
    """
    The motion of n patients' organs, tick by tick.

    :param count: n.
    """

    def __init__(self, count: int) -> None:
        self.rate, self.phase, self.amplitude = np.zeros((3, count))
        self.ahead: Array = np.zeros((MOMENTS, count))
        """Time from the beginning of a tick to each of the MOMENTS, s."""
        self._turns: NDArray[np.complex128] = np.ones((MOMENTS, count), np.complex128)
        """How far breathing without coughs turns meanwhile, as exp(i rate time)."""
        self._coughs = SpanTable('breathing', count)

    def put(self, row: int, patient: Patient) -> None:
        """Write one patient's breathing."""
        self.rate[row], self.phase[row] = breathing_rate(patient), patient.breathing_phase
        self.amplitude[row] = patient.breathing_amplitude
        self.ahead[:-1, row] = _TICK
        self.ahead[-1, row] = (1 + patient.latency) * TICK + patient.servo_lag
        self._turns[:, row] = np.exp(1j * self.rate[row] * self.ahead[:, row])
        self._coughs.put(row, patient.events)

    def motion(self, begin: Array) -> tuple[Array, Array, Array]:
        """
        Return how breathing moves the organs in a tick; its begin never goes back.

        :param begin: of the tick, shape (n,), s.
        :returns: height above rest (m) and upward speed (m/s) at each of the MOMENTS, shapes
            (14, n), and the factor f at the end of the tick, shape (n,).
        """
        if (self._coughs.table[1] <= begin).any():
            self._retire(begin)
        times = begin + self.ahead
        # The sine and cosine of all moments' angles, by turning those of the first: much quicker.
        turned = np.exp(1j * (self.rate * begin + self.phase)) * self._turns
        heights, speeds = self.amplitude * turned.imag, self.amplitude * self.rate * turned.real
        factors = np.ones_like(begin)
        rows, coughs = self._coughs.begun(times[-1])
        if len(rows):
            own = self.amplitude[rows], self.rate[rows], self.phase[rows]
            moved = breathing_motion(*own, coughs, times.take(rows, axis=1))
            heights[:, rows], speeds[:, rows], factor = moved
            factors[rows] = factor[-2]
        return heights, speeds, factors

    def _retire(self, begin: Array) -> None:
        """Turn the phase once and for all by the coughs that are over, and forget them."""
        ended = self._coughs.table[1] <= begin
        for column, span in zip(ended, self._coughs.spans(), strict=True):
            lead = breathing_clock([span], span[1]) - span[1]
            self.phase = self.phase + self.rate * np.where(column, lead, 0.0)
        self._coughs.table[:, ended] = _NEVER[:, None]
