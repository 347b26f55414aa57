# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""
How much deeper the tip can get, and how fast, before a retraction that begins in time has worked.

Surface and arm are taken at their worst within bounds: the surface rises as fast as it can, what
sinks does so with the quickest arm, and what rises with the slowest.
"""

from bisect import bisect_right
from dataclasses import dataclass
from functools import lru_cache
import itertools
import math

from fdrl_ros.env.actions import COARSE_STEP, FINE_STEP, MAXIMUM_SPEED, SUBSTEP, TICK
from fdrl_ros.errors import SettingError
from fdrl_ros.selector.either import Number
import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
MOVES = (-COARSE_STEP, -FINE_STEP, 0.0, FINE_STEP, COARSE_STEP)
"""What an action can add to the height of the set-point, m."""

DEPTHS = (-0.03, -0.015, -0.005, 0.0, 0.005, 0.015, 0.04, 0.15)
"""Depths at present that the tables hold, m; between them lies a chord, which is never below."""

LEVELS = 8
"""How many ranges of the arm's lag there are tables for, each up to less than the one before."""

_UNTIL = 0.7
_LAGS = LEVELS + 1
_SPEEDS, _BEHIND = 25, 33
_STARTS = 17
_POWER = 2.0 / 3.0


@dataclass(frozen=True)
class Bounds:
    """
    What is taken for granted of patient, arm and sensor.

    :param softest: least stiffness E, Pa.
    :param stiffest: greatest stiffness E, Pa.
    :param damping: greatest Hunt-Crossley factor, s/m.
    :param speed: greatest speed of the surface, m/s.
    :param acceleration: greatest acceleration of the surface, m/s^2.
    :param swing: furthest that the surface rises, from its lowest to its highest, m.
    :param rate: greatest rate of its breathing, coughs included, rad/s.
    :param surge: greatest speed that a cough adds by growing, m/s.
    :param registration: greatest error of the planned height of the surface, m.
    :param quickest: least lag of the arm, s.
    :param slowest: greatest lag of the arm, s.
    :param latency: longest time from a state to the beginning of its action, s.
    :param force_error: greatest error of the measured force, N.
    :param arm_error: how much deeper than by its lag alone the tip can get, m.
    :param slope: of the surface at most, metre a metre.
    """

    softest: float
    stiffest: float
    damping: float
    speed: float
    acceleration: float
    swing: float
    rate: float
    surge: float
    registration: float
    quickest: float
    slowest: float
    latency: float
    force_error: float
    arm_error: float
    slope: float

    def __post_init__(self) -> None:
        """
        Refuse bounds that contradict each other.

        :raises SettingError: on them.
        """
        if not 0.0 < self.softest <= self.stiffest:
            raise SettingError('stiffest', self.stiffest, f'at least {self.softest:g} Pa')
        if not 0.0 < self.quickest <= self.slowest:
            raise SettingError('slowest', self.slowest, f'at least {self.quickest:g} s')
        if self.damping * (self.speed + MAXIMUM_SPEED) >= 0.9:
            raise SettingError(
                'damping', self.damping, 'less than 0.9 / (the speeds of surface and arm)'
            )


def ramp(time: Array, move: float, lag: float, span: float) -> Array:
    """
    Return how far the tip has followed a set-point that moves evenly and then stands.

    :param time: since the set-point began to move, s; nothing moves before 0.
    :param move: of the set-point, m.
    :param lag: of the arm, s.
    :param span: time that the set-point takes, s.
    """
    if move == 0.0:
        return np.zeros_like(time)
    going = np.clip(time, 0.0, span)
    after = np.maximum(time - span, 0.0)
    left = lag * (1.0 - np.exp(-going / lag)) * np.exp(-after / lag)
    followed: Array = move / span * (going - left)
    return followed


def surface(bounds: Bounds, speeds: Array, steps: int) -> tuple[Array, Array]:
    """
    Return the greatest rise (m) and the greatest speed (m/s) of the surface after each sub-step.

    A surface that breathes, h = A f sin(theta), is within half its swing of its middle and no
    faster than surge + rate sqrt(swing^2 / 4 - h^2): one that is fast is near its middle, and
    rises half its swing more at the most.

    :param speeds: greatest at present, m/s, shape (n,).
    :returns: both of shape (n, steps).
    """
    half = 0.5 * bounds.swing
    fast = np.maximum(np.abs(speeds) - bounds.surge, 0.0) / bounds.rate
    edge = np.sqrt(np.maximum(half * half - fast * fast, 0.0))
    begin = edge[:, None] * np.linspace(-1.0, 1.0, _STARTS)
    height = begin.copy()
    speed = np.repeat(speeds[:, None], _STARTS, axis=1)
    rises, rising = np.empty((2, len(speeds), steps))
    for step in range(steps):
        speed = np.minimum(speed + bounds.acceleration * SUBSTEP, bounds.speed)
        room = np.sqrt(np.maximum(half * half - height * height, 0.0))
        speed = np.minimum(speed, bounds.surge + bounds.rate * room)
        height = np.minimum(height + speed * SUBSTEP, half)
        rises[:, step] = (height - begin).max(axis=1)
        rising[:, step] = speed.max(axis=1)
    return rises, rising


class Excursion:
    """
    The greatest depth that can come about, each made greater by what its speed adds to the force.

    For what is known when an action is chosen: how fast the surface may rise, how far the tip is
    behind its set-point, which move is still to be carried out, and which is chosen. From the
    second tick on after that the tip is drawn back with the fastest move there is. With d the
    depth and v its speed, what is held is the maximum over time of d (1 + lambda v)^(2/3): the
    force to the power 2/3 is kappa times that. It is convex in the depth at present.

    :param bounds: of arm and surface.
    """

    def __init__(self, bounds: Bounds) -> None:
        self.bounds = bounds
        lags: Array = np.geomspace(bounds.quickest, bounds.slowest, _LAGS).astype(np.float64)
        self.levels: list[float] = [float(lags[-1 - each]) for each in range(LEVELS)]
        """Greatest lag of the arm in each range, s; the widest comes first."""
        self._reach = MAXIMUM_SPEED * bounds.slowest + 2.0 * bounds.arm_error
        self._speed_step = 2.0 * bounds.speed / (_SPEEDS - 1)
        self._lag_step = 2.0 * self._reach / (_BEHIND - 1)
        shape = (LEVELS, _SPEEDS, _BEHIND, 3, len(MOVES))
        self.felt: Array = np.full((*shape, len(DEPTHS)), -np.inf)
        """Greatest d (1 + lambda v)^(2/3) from each of DEPTHS on, m."""
        self.sink: Array = np.full((LEVELS, *shape[2:]), -np.inf)
        """Furthest that the tip sinks by itself, m."""
        self._fill(lags.tolist())
        self.steep = (1.0 + bounds.damping * (bounds.speed + MAXIMUM_SPEED)) ** _POWER

    def _fill(self, lags: list[float]) -> None:
        bounds = self.bounds
        speeds = -bounds.speed + self._speed_step * np.arange(_SPEEDS, dtype=np.float64)
        behind: Array = -self._reach + self._lag_step * np.arange(_BEHIND, dtype=np.float64)
        time: Array = SUBSTEP * np.arange(1.0, round(_UNTIL / SUBSTEP) + 1.0)
        rise, rising = surface(bounds, speeds, len(time))
        felt, sinks = np.full_like(self.felt[0], -np.inf), np.full_like(self.sink[0], -np.inf)
        for quick, slow in itertools.pairwise(lags):
            # An arm as quick as this cannot be further behind, nor further ahead.
            most = MAXIMUM_SPEED * slow + bounds.arm_error + self._lag_step
            rows = np.flatnonzero(np.abs(behind) <= most)
            for pending, move in itertools.product(range(3), range(len(MOVES))):
                for late in {0.0, bounds.latency}:
                    sink = self._sink(time, behind[rows], pending, MOVES[move], late, quick, slow)
                    sinking = np.diff(sink, axis=1, prepend=0.0) / SUBSTEP
                    furthest = np.maximum(sink.max(axis=1), 0.0) + bounds.arm_error
                    at = (rows, pending, move)
                    sinks[at] = np.maximum(sinks[at], furthest)
                    for row in range(_SPEEDS):
                        closing = np.maximum(rising[row] + sinking, 0.0)
                        more = (1.0 + bounds.damping * closing) ** _POWER
                        grown = (rise[row] + sink + bounds.arm_error) * more
                        for place, depth in enumerate(DEPTHS):
                            worst = (grown + depth * more).max(axis=1)
                            cell = (row, rows, pending, move, place)
                            felt[cell] = np.maximum(felt[cell], worst)
            for level, slowest in enumerate(self.levels):
                if slow <= slowest * 1.0001:
                    self.felt[level], self.sink[level] = felt, sinks
        # Further behind or ahead than any arm of a range can be: as the furthest of it.
        np.maximum.accumulate(self.felt, axis=2, out=self.felt)
        np.maximum.accumulate(self.sink, axis=1, out=self.sink)
        for far in reversed(range(_BEHIND - 1)):
            for here, next_one in (
                (self.felt[:, :, far], self.felt[:, :, far + 1]),
                (self.sink[:, far], self.sink[:, far + 1]),
            ):
                np.copyto(here, next_one, where=here == -np.inf)

    def _sink(
        self,
        time: Array,
        behind: Array,
        pending: int,
        move: float,
        late: float,
        quick: float,
        slow: float,
    ) -> Array:
        """Return how far the tip is deeper than now at most, shape (behind, time), m."""
        begins = late
        sink = np.where(
            behind[:, None] > 0.0,
            behind[:, None] * (1.0 - np.exp(-time / quick)),
            behind[:, None] * (1.0 - np.exp(-time / slow)),
        )
        if late > 0.0:
            held = (0.0, FINE_STEP, COARSE_STEP)[pending]
            sink = sink + ramp(time, held, quick, held / MAXIMUM_SPEED)
        if move < 0.0:
            sink = sink + ramp(time - begins, -move, quick, -move / MAXIMUM_SPEED)
        elif move > 0.0:
            sink = sink - ramp(time - begins, move, slow, TICK)
        # The next action begins one tick after this one at the latest.
        back = time - TICK - self.bounds.latency
        return sink - ramp(back, MAXIMUM_SPEED * _UNTIL, slow, _UNTIL)

    def places(self, speed: Number, behind: Number) -> tuple[Number, Number]:
        """Return rows of the tables, rounded to the safe side, for numbers or arrays alike."""
        fast = (speed + self.bounds.speed) / self._speed_step
        far = (behind + self._reach) / self._lag_step
        if isinstance(fast, np.ndarray) or isinstance(far, np.ndarray):
            return (
                np.clip(np.ceil(fast - 1e-9), 0, _SPEEDS - 1).astype(np.intp),
                np.clip(np.ceil(far - 1e-9), 0, _BEHIND - 1).astype(np.intp),
            )
        return (
            min(max(math.ceil(fast - 1e-9), 0), _SPEEDS - 1),
            min(max(math.ceil(far - 1e-9), 0), _BEHIND - 1),
        )

    def reached(
        self, level: Number, fast: Number, far: Number, pending: Number, move: int, depth: Number
    ) -> Number:
        """
        Return the greatest d (1 + lambda v)^(2/3) that can come about, m, for numbers or arrays.

        :param level: of the arm's lag.
        :param fast: as :meth:`places` says, and `far`.
        :param move: place in MOVES.
        :param depth: greatest at present, m.
        """
        if isinstance(depth, float):
            row = self._row(level, fast, far, pending, move)
            place = min(max(bisect_right(DEPTHS, depth), 1), len(DEPTHS) - 1)
            low, high = DEPTHS[place - 1], DEPTHS[place]
            share = (depth - low) / (high - low)
            share = share if share > 0.0 else 0.0
            beyond = depth - DEPTHS[-1]
            first, second = self.felt.item(row + place - 1), self.felt.item(row + place)
            found = first + min(share, 1.0) * (second - first)
            return found + beyond * self.steep if beyond > 0.0 else found
        places = np.clip(np.searchsorted(DEPTHS, depth, side='right'), 1, len(DEPTHS) - 1)
        ends = np.array(DEPTHS)
        low, high = ends[places - 1], ends[places]
        share = np.clip((depth - low) / (high - low), 0.0, 1.0)
        first = self.felt[level, fast, far, pending, move, places - 1]
        second = self.felt[level, fast, far, pending, move, places]
        return first + share * (second - first) + np.maximum(depth - ends[-1], 0.0) * self.steep

    @staticmethod
    def _row(level: int, fast: int, far: int, pending: int, move: int) -> int:
        """Return where a row of DEPTHS begins in the table."""
        place = ((level * _SPEEDS + fast) * _BEHIND + far) * 3 + pending
        return (place * len(MOVES) + move) * len(DEPTHS)

    def sinks(self, level: Number, far: Number, pending: Number, move: int) -> Number:
        """Return how far the tip sinks at most, m."""
        if isinstance(far, int):
            place = (level * _BEHIND + far) * 3 + pending
            return self.sink.item(place * len(MOVES) + move)
        return self.sink[level, far, pending, move]


@lru_cache(maxsize=64)
def excursion(bounds: Bounds) -> Excursion:
    """Return the tables for some bounds, made once."""
    return Excursion(bounds)
