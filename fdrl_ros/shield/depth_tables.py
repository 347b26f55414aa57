# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""
How much deeper the tip can get, and how fast, before a retraction that begins in time has worked.

Surface and arm are taken at their worst within bounds: the surface rises as fast as it can, what
sinks does so with the quickest arm, and what rises with the slowest.
"""

from dataclasses import dataclass
from functools import lru_cache
import itertools
import math
from typing import NamedTuple

from fdrl_ros.errors import SettingError
from fdrl_ros.shield.retreat import RISE
from fdrl_ros.surgery.gym.actions import COARSE_STEP, FINE_STEP, MAXIMUM_SPEED, SUBSTEP, TICK
from fdrl_ros.surgery.scalar_or_array import Array, Number
import numpy as np

POWER = 2.0 / 3.0
"""Of a force: that is linear in depth (Hertz)."""

MOVES = (-COARSE_STEP, -FINE_STEP, 0.0, FINE_STEP, COARSE_STEP)
"""What an action can add to the height of the set-point, m."""

DUE = (0.0, FINE_STEP, COARSE_STEP)
"""Moves downwards that may still have to be carried out, m."""

DEPTHS = (-0.03, -0.015, -0.005, 0.0, 0.005, 0.015, 0.04, 0.15)
"""Depths at present that the tables hold, m; between them lies a chord, which is never below."""

JITTER = 0.1 * TICK
"""How far two states can be off one tick and still be taken for neighbours, s."""

LEVELS = 8
"""How many ranges of the arm's lag there are tables for, each up to less than the one before."""

_UNTIL = 0.7
_LAGS = LEVELS + 1
_SPEEDS, _BEHIND = 25, 33


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
    :param position_error: greatest error of the tip's measured height, m.
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
    position_error: float = 0.0

    def __post_init__(self) -> None:
        """
        Refuse bounds that contradict each other.

        :raises SettingError: on them.
        """
        if not 0.0 < self.softest <= self.stiffest:
            raise SettingError('stiffest', self.stiffest, f'at least {self.softest:g} Pa')
        if not 0.0 < self.quickest <= self.slowest:
            raise SettingError('slowest', self.slowest, f'at least {self.quickest:g} s')
        # In a tick, as long as it can be, the surface changes its speed as well.
        speeds = self.speed + MAXIMUM_SPEED + 0.5 * self.acceleration * (TICK + JITTER)
        if self.damping * speeds >= 0.9:
            raise SettingError(
                'damping',
                self.damping,
                f'less than {0.9 / speeds:.3g} s/m, by the speeds and accelerations there can be',
            )


def share_followed(time: Array, lag: float, span: float) -> Array:
    """
    Return which share of an even move of its set-point a tip has followed.

    :param time: since the set-point began to move, s; nothing moves before 0.
    :param lag: of the arm, s.
    :param span: time that the set-point takes, s; 0 for a leap.
    """
    going = np.clip(time, 0.0, span)
    after = np.exp(-np.maximum(time - span, 0.0) / lag)
    if span == 0.0:
        return 1.0 - after
    share: Array = (going - lag * (1.0 - np.exp(-going / lag)) * after) / span
    return share


def surface_rise(
    bounds: Bounds, speeds: Array, steps: int, spans: int = 16
) -> tuple[Array, Array]:
    """
    Return the greatest rise (m) and the greatest speed (m/s) of the surface after each sub-step.

    A surface that breathes, h = A f sin(theta), is within half its swing of its middle and no
    faster than surge + rate sqrt(swing^2 / 4 - h^2): one that is fast is near its middle, and
    rises half its swing more at the most.

    :param speeds: greatest at present, m/s, shape (n,).
    :param spans: into how many the swing is cut; each is taken at its worst.
    :returns: both of shape (n, steps).
    """
    half = 0.5 * bounds.swing
    edges = np.linspace(-half, half, spans + 1)
    low, high = edges[:-1], edges[1:]
    # A surface that is fast is not far from its middle.
    nearest = np.maximum(np.maximum(low, -high), 0.0)
    fastest = bounds.surge + bounds.rate * np.sqrt(half * half - nearest * nearest)
    speed = np.where(speeds[:, None] <= fastest + 1e-12, speeds[:, None], -np.inf)
    rise = np.where(np.isfinite(speed), 0.0, -np.inf)
    rises, rising = np.empty((2, len(speeds), steps))
    for step in range(steps):
        speed = np.minimum(speed + bounds.acceleration * SUBSTEP, bounds.speed)
        nearest = np.maximum(np.maximum(low + rise, -(high + rise)), 0.0)
        nearest = np.minimum(np.where(np.isfinite(rise), nearest, 0.0), half)
        room = np.sqrt(half * half - nearest * nearest)
        speed = np.minimum(speed, bounds.surge + bounds.rate * room)
        rise = np.minimum(rise + speed * SUBSTEP, half - low)
        rises[:, step] = rise.max(axis=1)
        rising[:, step] = speed.max(axis=1)
    return rises, rising


class Motion(NamedTuple):
    """
    Moves of the set-point that are carried out from now on.

    :param due: move downwards that is still to be carried out, m.
    :param move: that is chosen, m upwards; of a way up only RISE of it counts.
    :param late: when it begins, s.
    :param back: move upwards in each tick from the next action on, which begins a tick after
        this one, the next state being late too, and as late as it can, m.
    """

    due: float
    move: float
    late: float
    back: float = MOVES[-1]


def tip_sinking(
    bounds: Bounds,
    time: Array,
    behind: Array,
    lags: tuple[float, float],
    motion: Motion,
    extra: float = 1.02,
) -> tuple[Array, Array]:
    """
    Return how far (m) and how fast (m/s) the tip sinks at most, shape (behind, time).

    :param bounds: of the arm.
    :param behind: height of the tip above its set-point, m.
    :param lags: least and greatest lag of the arm, s: each part is taken at its worst.
    :param motion: of the set-point.
    :param extra: by how much the speed between two lags can be above that of both.
    """
    due, move, late, back = motion
    parts: list[tuple[float, Number, float]] = [(0.0, behind[:, None], 0.0)]
    if move > 0.0:  # a robot that holds goes up along its shaft
        move *= RISE
    back *= RISE
    if late > 0.0 and due > 0.0:
        parts.append((0.0, due, due / MAXIMUM_SPEED))
    if move != 0.0:
        parts.append((late, -move, -move / MAXIMUM_SPEED if move < 0.0 else TICK))
    ticks = math.ceil(_UNTIL / TICK)
    if back > 0.0:
        parts.append((TICK + JITTER + bounds.latency, -back * ticks, TICK * ticks))
    sunk, fast = np.zeros((2, len(behind), len(time)))
    for begin, way, span in parts:
        ends = [way * share_followed(time - begin, lag, span) for lag in lags]
        sunk += np.maximum(*ends)
        speeds = [np.diff(each, axis=-1, prepend=0.0) / SUBSTEP for each in ends]
        fastest = np.maximum(*speeds)
        fast += np.where(fastest > 0.0, extra * fastest, fastest)
    return sunk, fast


class DepthTables:
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
        self.reach = MAXIMUM_SPEED * bounds.slowest + 2.0 * bounds.arm_error
        self.speed_step = 2.0 * bounds.speed / (_SPEEDS - 1)
        self.lag_step = 2.0 * self.reach / (_BEHIND - 1)
        self.speeds: Array = -bounds.speed + self.speed_step * np.arange(float(_SPEEDS))
        """Of the surface, one for each row of the tables, m/s."""
        self.behind: Array = -self.reach + self.lag_step * np.arange(float(_BEHIND))
        """Lag of the tip, one for each row of the tables, m."""
        shape = (LEVELS, _SPEEDS, _BEHIND, 3, len(MOVES))
        self.felt: Array = np.full((*shape, len(DEPTHS)), -np.inf)
        """Greatest d (1 + lambda v)^(2/3) from each of DEPTHS on, m."""
        self.sink: Array = np.full((LEVELS, *shape[2:]), -np.inf)
        """Furthest that the tip sinks by itself, m."""
        self._fill(lags.tolist())
        self.steep = (1.0 + bounds.damping * (bounds.speed + MAXIMUM_SPEED)) ** POWER

    def _fill(self, lags: list[float]) -> None:
        bounds = self.bounds
        speeds, behind = self.speeds, self.behind
        time: Array = SUBSTEP * np.arange(1.0, round(_UNTIL / SUBSTEP) + 1.0)
        rise, rising = surface_rise(bounds, speeds, len(time))
        felt, sinks = np.full_like(self.felt[0], -np.inf), np.full_like(self.sink[0], -np.inf)
        for quick, slow in itertools.pairwise(lags):
            # An arm as quick as this cannot be further behind, nor further ahead.
            most = MAXIMUM_SPEED * slow + bounds.arm_error + self.lag_step
            rows = np.flatnonzero(np.abs(behind) <= most)
            for pending, move in itertools.product(range(3), range(len(MOVES))):
                for late in {0.0, bounds.latency}:
                    sunk, sinking = tip_sinking(
                        bounds,
                        time,
                        behind[rows],
                        (quick, slow),
                        Motion(DUE[pending], MOVES[move], late),
                    )
                    furthest = np.maximum(sunk.max(axis=1), 0.0) + bounds.arm_error
                    at = (rows, pending, move)
                    sinks[at] = np.maximum(sinks[at], furthest)
                    for row in range(_SPEEDS):
                        closing = np.maximum(rising[row] + sinking, 0.0)
                        more = (1.0 + bounds.damping * closing) ** POWER
                        grown = (rise[row] + sunk + bounds.arm_error) * more
                        for place, depth in enumerate(DEPTHS):
                            total = grown + depth * more
                            worst = np.maximum(total, total / more).max(axis=1)
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

    def places(self, speed: Number, behind: Number) -> tuple[Number, Number]:
        """Return rows of the tables, rounded to the safe side."""
        fast = (speed + self.bounds.speed) / self.speed_step
        far = (behind + self.reach) / self.lag_step
        return (
            np.clip(np.ceil(fast - 1e-9), 0, _SPEEDS - 1).astype(np.intp),
            np.clip(np.ceil(far - 1e-9), 0, _BEHIND - 1).astype(np.intp),
        )

    def reached(
        self, level: Number, fast: Number, far: Number, pending: Number, move: int, depth: Number
    ) -> Number:
        """
        Return the greatest d (1 + lambda v)^(2/3) that can come about, m.

        :param level: of the arm's lag.
        :param fast: as :meth:`places` says, and `far`.
        :param move: place in MOVES.
        :param depth: greatest at present, m.
        """
        places = np.clip(np.searchsorted(DEPTHS, depth, side='right'), 1, len(DEPTHS) - 1)
        ends = np.array(DEPTHS)
        low, high = ends[places - 1], ends[places]
        share = np.clip((depth - low) / (high - low), 0.0, 1.0)
        first = self.felt[level, fast, far, pending, move, places - 1]
        second = self.felt[level, fast, far, pending, move, places]
        return first + share * (second - first) + np.maximum(depth - ends[-1], 0.0) * self.steep


@lru_cache(maxsize=64)
def depth_tables(bounds: Bounds) -> DepthTables:
    """Return the tables for some bounds, made once."""
    return DepthTables(bounds)
