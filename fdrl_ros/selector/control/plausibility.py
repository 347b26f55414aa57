# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""Whether states come from a working robot: stamps in order, sensors that are not frozen."""

from dataclasses import dataclass
import math
import struct

from fdrl_ros.settings import setting, Settings
from fdrl_ros.shield.observation import Observation, Reason
from fdrl_ros.shield.retreat import Vector
from fdrl_ros.surgery.gym.state import INDEX, OPERATION_SIZE
import numpy as np

_WIDTH = 8
"""Bytes of a number."""

_FELT = struct.Struct('=dd')

SET_BACK = 5.0
"""Greatest delay of a message, second: one that is older than that shows that a clock was set."""

Tip = tuple[Vector, float]
"""A set-point of the tip as the arm told it, m, and its stamp, s."""


@dataclass(frozen=True)
class PlausibilitySettings(Settings):
    """What stamps and sensors of a working robot do not do."""

    longest_gap: float = setting(
        0.25, 'greatest step between two stamps of a case', unit='s', minimum=0.02, maximum=10.0
    )
    settling: float = setting(
        0.05, 'how long stamps must be in order after a leap', unit='s', minimum=0.0, maximum=5.0
    )
    clock_tolerance: float = setting(
        0.5,
        "greatest difference between a stamp and the node's clock; 0 compares nothing",
        unit='s',
        minimum=0.0,
        maximum=60.0,
    )
    frozen_time: float = setting(
        0.25,
        'how long no number of the operation may change while its time runs; 0 for ever',
        unit='s',
        minimum=0.0,
        maximum=60.0,
    )
    frozen_way: float = setting(
        0.004,
        'how far the set-point may move while goal error, or in contact force and lag, stand still'
        '; 0 for ever',
        unit='m',
        minimum=0.0,
        maximum=0.1,
    )
    frozen_vitals: float = setting(
        600.0,
        'how long all vital signs may stay the same while time runs; 0 for ever. A simulated '
        'patient at rest does so for minutes, a real one not for seconds',
        unit='s',
        minimum=0.0,
        maximum=86400.0,
    )


class StampOrder:
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

    def step(self, time: float, clock: float | None = None) -> tuple[Reason | None, bool]:
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


class Newest:
    """
    Tells which messages of one topic to believe, where an old one may come after a newer one.

    That happens where it is heard twice, best effort and reliable. One that is stamped more than
    :data:`SET_BACK` before the last is believed: simulated time began again.
    """

    def __init__(self) -> None:
        self._last = -math.inf

    def believes(self, time: float) -> bool:
        """
        Judge the next message.

        :param time: its stamp, second; 0 where it has none: such a one is believed.
        """
        if time == 0.0:
            return True
        if 0.0 < self._last - time <= SET_BACK:
            return False
        self._last = time
        return True


class _Standing:
    """How long, and over which way of the set-point, some numbers have been the same."""

    __slots__ = ('_numbers', '_start', 'since', 'way')

    def __init__(self) -> None:
        self._numbers = b''
        self.since = math.inf
        self.set_out()

    def set_out(self) -> None:
        """Measure the way from where the set-point is next."""
        self._start: Vector | None = None
        self.way = 0.0

    def step(self, numbers: bytes, time: float, tip: Tip | None = None) -> bool:
        """
        Take in the numbers of a state; say whether they changed, bit for bit.

        The way begins at a set-point that was told with these numbers or after them: an earlier
        one may be of another case, from which no way leads here.
        """
        if numbers != self._numbers:
            self._numbers, self.since = numbers, time
            self.set_out()
            return True
        if tip is not None and tip[1] >= self.since:
            place = tip[0]
            if self._start is None:
                self._start = place
            self.way = max(self.way, math.dist(place, self._start))
        return False


class FrozenSensors:
    """
    Finds sensors that say the same bit for bit though they cannot.

    All numbers of the operation, while its time runs (`time_left` has been seen to fall); the
    goal error, while the set-point that the arm tells moves; force and lag in contact, likewise;
    all vital signs, for longer than a body can, while time runs. It is over when they change, and
    of ways also when the robot sets out anew.
    """

    def __init__(self, settings: PlausibilitySettings) -> None:
        self._settings = settings
        self._goal = slice(_WIDTH * INDEX['goal_error_x'], _WIDTH * (INDEX['goal_error_z'] + 1))
        self._force, self._lag = INDEX['force'], INDEX['lag']
        self._contact, self._time_left = INDEX['contact'], INDEX['time_left']
        self.restart()

    def restart(self) -> None:
        """Begin another case."""
        self._whole, self._aim, self._felt, self._body = (_Standing() for _ in range(4))
        self._left = math.nan
        self._runs = False

    def set_out(self) -> None:
        """Forget over which way numbers stood still: from now on others move the arm."""
        self._aim.set_out()
        self._felt.set_out()

    def step(
        self, operation: Observation, patient: Observation | None, tip: Tip | None
    ) -> Reason | None:
        """
        Judge a state.

        :param tip: set-point of the tip as the arm told it last before that state, m, and its
            stamp, s; None if it told none.
        """
        settings, time = self._settings, operation.time
        values = np.asarray(operation.values)
        if values.shape != (OPERATION_SIZE,) or values.dtype != np.float64:
            return None  # refused for that elsewhere
        whole, read = values.tobytes(), values.item
        left = read(self._time_left)
        self._runs = left < 1.0 and (self._runs or left < self._left)  # all of it left: it waits
        self._left = left
        frozen = False
        if not self._whole.step(whole, time) and self._runs and settings.frozen_time:
            frozen = time - self._whole.since > settings.frozen_time
        way = settings.frozen_way
        if not self._aim.step(whole[self._goal], time, tip) and way:
            frozen |= self._aim.way > way
        if read(self._contact) > 0.0:
            felt = _FELT.pack(read(self._force), read(self._lag))
            if not self._felt.step(felt, time, tip) and way:
                frozen |= self._felt.way > way
        elif self._felt.since < math.inf:
            self._felt = _Standing()
        if not self._runs:  # a simulated patient waits too
            self._body = _Standing()
        elif patient is not None:
            signs = np.asarray(patient.values).tobytes()
            if not self._body.step(signs, patient.time) and settings.frozen_vitals:
                frozen |= patient.time - self._body.since > settings.frozen_vitals
        return Reason.FROZEN if frozen else None
