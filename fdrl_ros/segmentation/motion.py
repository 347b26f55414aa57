# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""Instruments at work: tips move from place to place, wrists turn, jaws open and close."""

from dataclasses import dataclass

from fdrl_ros.surgery.arm.kinematics import bent_joints, Joints, Point
import numpy as np

_JAW = (0.0, 1.1)
_ROLL, _BEND = 1.6, 0.8  # rad to either side
_CLOSED = 0.35  # chance that the jaw closes at a place


@dataclass(frozen=True)
class Room:
    """
    Where a tip moves, in the arm's base frame.

    :param low: least x, y and z, m.
    :param high: greatest, m.
    :param pace: mean time from one place to the next, s.
    """

    low: Point
    high: Point
    pace: float = 1.2


class Motion:
    """
    One instrument's motion: at each place it stops; between them speed rises and falls smoothly.

    :param rng: draws places, angles and times.
    :param length: for how long it moves, s.
    """

    def __init__(self, rng: np.random.Generator, room: Room, length: float) -> None:
        # x, y, z, roll, wrist pitch, wrist yaw, jaw
        low = np.array([*room.low, -_ROLL, -_BEND, -_BEND, _JAW[0]])
        high = np.array([*room.high, _ROLL, _BEND, _BEND, _JAW[1]])
        self._times, self._places = [0.0], [low + rng.random(7) * (high - low)]
        while self._times[-1] <= length:  # a longer motion begins with a shorter one
            draws = rng.random(8)
            if draws[6] < _CLOSED:
                draws[6] = 0.0
            self._places.append(low + draws[:7] * (high - low))
            self._times.append(self._times[-1] + room.pace * (0.5 + float(draws[7])))

    def at(self, time: float) -> tuple[Joints, float]:
        """Return joints (rad and m) and the angle of the jaw (rad) at a time, s."""
        time = max(0.0, time)
        index = min(int(np.searchsorted(self._times, time, side='right')), len(self._times) - 1)
        begin, end = self._times[index - 1], self._times[index]
        share = min(1.0, (time - begin) / (end - begin))
        share = share * share * share * (10.0 - 15.0 * share + 6.0 * share * share)
        first, last = self._places[index - 1], self._places[index]
        x, y, z, roll, pitch, yaw, jaw = (first + share * (last - first)).tolist()
        return bent_joints((x, y, z), (roll, pitch, yaw)), jaw
