# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""Whether states come from a working robot: stamps in order, sensors that are not frozen."""

from dataclasses import dataclass
import math
import struct

from fdrl_ros.selector.control.observation import Observation, Reason
from fdrl_ros.settings import setting, Settings
from fdrl_ros.shield.retreat import Vector
from fdrl_ros.surgery.gym.state import INDEX, OPERATION_SIZE
import numpy as np

_WIDTH = 8
"""Bytes of a number."""

_FORCE_AND_LAG = struct.Struct('=dd')

SET_BACK = 5.0
"""Greatest delay of a message, second: one that is older than that shows that a clock was set."""

Tip = tuple[Vector, float]
"""A set-point of the tip as the arm told it, m, and its stamp, s."""


@dataclass(frozen=True)
class PlausibilitySettings(Settings):
    """What stamps and sensors of a working robot do not do."""

    longest_gap: float = setting(
        0.25, 'greatest step between two stamps of a case', limits=(0.02, 10.0), unit='s'
    )
    settling: float = setting(
        0.05, 'how long stamps must be in order after a leap', limits=(0.0, 5.0), unit='s'
    )
    clock_tolerance: float = setting(
        0.5,
        "greatest difference between a stamp and the node's clock; 0 compares nothing",
        limits=(0.0, 60.0),
        unit='s',
    )
    frozen_time: float = setting(
        0.25,
        'how long no number of the operation may change while its time runs; 0 checks nothing',
        limits=(0.0, 60.0),
        unit='s',
    )
    frozen_way: float = setting(
        0.004,
        'how far the set-point may move while goal error (in contact: force and lag) does not '
        'change; 0 checks nothing',
        limits=(0.0, 0.1),
        unit='m',
    )
    frozen_vitals: float = setting(
        600.0,
        'how long all vital signs may stay the same while time runs; 0 checks nothing. A '
        'simulated patient at rest does so for minutes, a real one not for seconds',
        limits=(0.0, 86400.0),
        unit='s',
    )


class StampCheck:
    """
    Judges the stamps of one stream, one after the other.

    After a leap, forward or back, the new time counts as soon as it has been in order for a
    while: simulated clocks are set, and recordings begin again.
    """

    def __init__(self, settings: PlausibilitySettings) -> None:
        self._settings = settings
        self.restart()

    def restart(self) -> None:
        """Take any stamp as the next: another case begins."""
        self._last = math.nan
        self._settled = -math.inf

    def check(self, time: float, clock: float | None = None) -> tuple[Reason | None, bool]:
        """
        Judge a stamp.

        :param time: seconds.
        :param clock: what the receiver's clock of that kind said, seconds, if it is to agree.
        :returns: why that state must not be acted on, or None; and whether time went back so far
            that this is another time altogether.
        """
        settings = self._settings
        tolerance = settings.clock_tolerance
        if clock is not None and tolerance and not abs(clock - time) <= tolerance:
            return Reason.CLOCK, False
        step = time - self._last
        if step == 0.0:
            return Reason.FROZEN, False
        if -settings.longest_gap <= step < 0.0:
            return Reason.CLOCK, False
        self._last = time
        if abs(step) > settings.longest_gap:
            self._settled = time + settings.settling
            return Reason.CLOCK, step < 0.0
        return (Reason.CLOCK if time < self._settled else None), False


class NewestMessage:
    """
    Drops messages of a topic that come after a newer one.

    That happens where a topic is subscribed to twice, best effort and reliable. A message stamped
    more than :data:`SET_BACK` before the last is accepted: simulated time began again.
    """

    def __init__(self) -> None:
        self._last = -math.inf

    def accepts(self, time: float) -> bool:
        """
        Tell whether the next message counts.

        :param time: its stamp, second; 0 without one: such a message always counts.
        """
        if time == 0.0:
            return True
        if 0.0 < self._last - time <= SET_BACK:
            return False
        self._last = time
        return True


class _Unchanged:
    """For how long, and over which travel of the set-point, some numbers have been the same."""

    __slots__ = ('_numbers', '_start', 'since', 'travel')

    def __init__(self) -> None:
        self._numbers = b''
        self.since = math.inf
        self.restart_travel()

    def restart_travel(self) -> None:
        """Measure the travel from the next set-point on."""
        self._start: Vector | None = None
        self.travel = 0.0

    def update(self, numbers: bytes, time: float, tip: Tip | None = None) -> bool:
        """
        Take in the numbers of a state; return whether they changed, bit for bit.

        The travel begins at a set-point that was reported with these numbers or after them: an
        earlier one may belong to another case, from where the tip did not travel here.
        """
        if numbers != self._numbers:
            self._numbers, self.since = numbers, time
            self.restart_travel()
            return True
        if tip is not None and tip[1] >= self.since:
            place = tip[0]
            if self._start is None:
                self._start = place
            self.travel = max(self.travel, math.dist(place, self._start))
        return False


class StuckSensors:
    """
    Finds sensors that repeat their numbers bit for bit though they cannot.

    Checked are: all numbers of the operation, while its time runs (`time_left` has fallen); the
    goal error, while the set-point reported by the arm moves; force and lag in contact, likewise;
    all vital signs, for longer than a body can repeat them, while time runs. The fault ends when
    the numbers change, and one of travel also when the robot starts anew.
    """

    def __init__(self, settings: PlausibilitySettings) -> None:
        self._settings = settings
        self._goal = slice(_WIDTH * INDEX['goal_error_x'], _WIDTH * (INDEX['goal_error_z'] + 1))
        self._force, self._lag = INDEX['force'], INDEX['lag']
        self._contact, self._time_left = INDEX['contact'], INDEX['time_left']
        self.restart()

    def restart(self) -> None:
        """Begin another case."""
        self._operation, self._goal_error = _Unchanged(), _Unchanged()
        self._force_and_lag, self._vitals = _Unchanged(), _Unchanged()
        self._left = math.nan
        self._runs = False

    def restart_travel(self) -> None:
        """Forget the travel so far: from now on someone else moves the arm."""
        self._goal_error.restart_travel()
        self._force_and_lag.restart_travel()

    def check(
        self, operation: Observation, patient: Observation | None, tip: Tip | None
    ) -> Reason | None:
        """
        Return the fault of a state, if any.

        :param tip: last set-point of the tip that the arm reported before that state, m, and its
            stamp, s; None if it reported none.
        """
        settings, time = self._settings, operation.time
        values = np.asarray(operation.values)
        if values.shape != (OPERATION_SIZE,) or values.dtype != np.float64:
            return None  # StateReader refuses it
        whole, read = values.tobytes(), values.item
        left = read(self._time_left)
        self._runs = left < 1.0 and (self._runs or left < self._left)  # all of it left: it waits
        self._left = left
        frozen = False
        if not self._operation.update(whole, time) and self._runs and settings.frozen_time:
            frozen = time - self._operation.since > settings.frozen_time
        longest = settings.frozen_way
        if not self._goal_error.update(whole[self._goal], time, tip) and longest:
            frozen |= self._goal_error.travel > longest
        if read(self._contact) > 0.0:
            pair = _FORCE_AND_LAG.pack(read(self._force), read(self._lag))
            if not self._force_and_lag.update(pair, time, tip) and longest:
                frozen |= self._force_and_lag.travel > longest
        elif self._force_and_lag.since < math.inf:
            self._force_and_lag = _Unchanged()
        if not self._runs:  # a simulated patient waits too
            self._vitals = _Unchanged()
        elif patient is not None:
            signs = np.asarray(patient.values).tobytes()
            if not self._vitals.update(signs, patient.time) and settings.frozen_vitals:
                frozen |= patient.time - self._vitals.since > settings.frozen_vitals
        return Reason.FROZEN if frozen else None
