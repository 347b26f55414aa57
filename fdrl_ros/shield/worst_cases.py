# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""
What can be true of tissue, surface and arm over some ticks.

These are extreme combinations of the bounds, and values between them. Whatever the shield infers
has to hold it, see :mod:`fdrl_ros.shield.proof`.
"""

from dataclasses import dataclass, fields
from typing import Self

from fdrl_ros.shield.depth_tables import Bounds, JITTER, MOVES, POWER
from fdrl_ros.surgery.gym.actions import MAXIMUM_SPEED, SUBSTEPS, TICK
from fdrl_ros.surgery.scalar_or_array import Array
import numpy as np

TICKS, LONG = 2, 6
"""Of each history at a corner, and between corners."""

_SPEEDING = ((1.0, 0.0), (-1.0, 0.0), (0.0, 1.0), (0.0, -1.0))
"""Gain of speed in a tick, and how far its mean is off its ends', as shares of what can be."""


@dataclass(frozen=True)
class ContactHistories:
    """
    Consistent histories; moments are the first one and the end of each tick.

    :param kappa: of the tissue, shape (n,), as what follows unless said, N^(2/3)/m.
    :param damping: of the tissue, s/m.
    :param lag: of the arm, s.
    :param speeds: of the surface upwards, shape (moments, n), m/s.
    :param depths: of the tip below the surface, shape (moments, n), m.
    :param heights: of the tip, the surface being at 0 at the last moment, shape (moments, n), m.
    :param behind: height of the tip above its set-point, shape (moments, n), m.
    :param due: moves downwards not yet carried out at each moment, shape (moments, n), m.
    :param moves: asked for in each tick, shape (ticks, n), m upwards.
    :param intervals: from each moment to the next, about a tick, s.
    """

    kappa: Array
    damping: Array
    lag: Array
    speeds: Array
    depths: Array
    heights: Array
    behind: Array
    due: Array
    moves: Array
    intervals: tuple[float, ...]

    def cells(self) -> dict[str, Array]:
        """Return what tells the histories apart, by name: tissue, arm and the last moment."""
        now = {name: getattr(self, f'{name}s')[-1] for name in ('speed', 'depth')}
        now |= {'behind': self.behind[-1], 'due': self.due[-1]}
        return {'kappa': self.kappa, 'damping': self.damping, 'lag': self.lag} | now

    def sample(self, count: int | None, seed: int = 0) -> Self:
        """Return some of them, drawn without replacement; all if there is no count."""
        if count is None or count >= len(self.kappa):
            return self
        rows = np.random.default_rng(seed).choice(len(self.kappa), count, replace=False)
        arrays = {each.name: getattr(self, each.name) for each in fields(self)[:-1]}
        return type(self)(
            **{name: each[..., rows] for name, each in arrays.items()}, intervals=self.intervals
        )


def corner_histories(
    bounds: Bounds, kappas: tuple[float, float], limit: float, intervals: tuple[float, ...]
) -> ContactHistories:
    """
    Return truths at all corners of what may differ.

    :param kappas: least and greatest.
    :param limit: greatest force, N.
    :param intervals: from each moment to the next, TICKS of them, s.
    """
    reach = MAXIMUM_SPEED * bounds.slowest
    coarse, late = (MOVES[0], 0.0, MOVES[-1]), 0.5 * bounds.latency / TICK
    last = [(move, 0.0) for move in MOVES] + [(MOVES[0], late), (MOVES[1], late)]
    axes = (
        np.array(kappas),
        np.array([0.0, bounds.damping]),
        np.array([bounds.quickest, bounds.slowest]),
        bounds.speed * np.array([-1.0, 0.0, 1.0]),
        reach * np.array([-1.0, 0.0, 1.0]),
        limit**POWER * np.array([-0.002, 0.02, 0.2, 1.0]),
        np.arange(3.0),
        np.arange(float(len(last))),
        *[np.arange(float(len(_SPEEDING)))] * TICKS,
    )
    columns = [each.ravel() for each in np.meshgrid(*axes, indexing='ij')]
    first, second = (each.astype(np.intp) for each in columns[6:8])
    ways = [np.array(_SPEEDING)[each.astype(np.intp)].T for each in columns[8:]]
    moves = np.array([np.array(coarse)[first], np.array(last)[second, 0]])
    lates = np.array([np.zeros(len(first)), np.array(last)[second, 1]])
    return _consistent_histories(bounds, columns[:6], np.array(ways), moves, lates, intervals)


def random_histories(
    bounds: Bounds, kappas: tuple[float, float], limit: float, count: int, seed: int
) -> ContactHistories:
    """
    Return truths drawn from all that may be.

    :param count: how many are drawn; some are left out, as their surfaces would be too fast.
    :param seed: of the draw; the intervals between states are drawn with it too.
    """
    rng, ticks = np.random.default_rng(seed), LONG
    intervals = tuple((TICK + rng.uniform(-JITTER, JITTER, ticks)).tolist())
    reach = MAXIMUM_SPEED * bounds.slowest
    low, high = np.log(kappas)
    columns = [
        np.exp(rng.uniform(low, high, count)),
        rng.uniform(0.0, bounds.damping, count),
        np.exp(rng.uniform(np.log(bounds.quickest), np.log(bounds.slowest), count)),
        rng.uniform(-bounds.speed, bounds.speed, count),
        rng.uniform(-reach, reach, count),
        limit**POWER * rng.uniform(-0.002, 1.0, count),
    ]
    ways = rng.choice([-1.0, 0.0, 1.0], (ticks, 2, count)) * rng.random((ticks, 2, count)) ** 0.2
    moves = np.array(MOVES)[rng.integers(0, len(MOVES), (ticks, count))]
    lates = rng.choice([0.0, 1.0], (ticks, count)) * rng.random((ticks, count))
    return _consistent_histories(
        bounds, columns, ways, moves, lates * bounds.latency / TICK, intervals
    )


def _consistent_histories(
    bounds: Bounds,
    columns: list[Array],
    ways: Array,
    moves: Array,
    lates: Array,
    intervals: tuple[float, ...],
) -> ContactHistories:
    """
    Let surfaces and arms go their ways, and leave out what is faster than it can be.

    :param columns: kappa, damping, lag; speed and lag of the tip at first; kappa d at last.
    :param ways: gain and bulge of the surface's speed in each tick, shape (ticks, 2, n).
    :param lates: when a move begins, as a share of a tick, shape (ticks, n).
    :param intervals: from each moment to the next, s.
    """
    kappa, damping, lag, speed, behind, contact = columns
    fine = np.abs(behind) <= MAXIMUM_SPEED * lag
    speeds, surface = [speed], [0.0 * speed]
    for time, (gained, bulge) in zip(intervals, ways, strict=True):
        gain = bounds.acceleration * time
        before, speed = speed, speed + gain * gained
        most = 0.5 * gain * (1.0 - np.abs(gained))
        fine &= np.maximum(before, speed) + most * np.maximum(bulge, 0.0) <= bounds.speed + 1e-12
        fine &= np.minimum(before, speed) + most * np.minimum(bulge, 0.0) >= -bounds.speed - 1e-12
        mean = 0.5 * (before + speed) + 0.25 * gain * (1.0 - gained**2) * bulge
        speeds.append(speed)
        surface.append(surface[-1] + mean * time)
    tip, owed = 0.0 * behind, 0.0 * behind
    tips, lagging, due = [tip], [behind], [owed]
    for time, move, late in zip(intervals, moves, lates, strict=True):
        part = time / SUBSTEPS
        left, stride = np.exp(-part / lag), MAXIMUM_SPEED * part
        begin, told = late * TICK, np.zeros(len(late), np.bool_)
        for step in range(SUBSTEPS):
            starts = ~told & (begin <= step * part + 1e-12)
            owed, told = np.where(starts, move, owed), told | starts
            way = np.clip(owed, -stride, stride)
            following = behind * left - way / part * lag * (1.0 - left)
            tip = tip + following - behind + way
            owed, behind = owed - way, following
        # One that would begin at the very end does so in the next tick.
        owed = owed + np.where(told, 0.0, move)
        tips.append(tip)
        lagging.append(behind)
        # Without latency the next move takes the place of the rest of this one at once.
        due.append(np.maximum(-owed, 0.0) if bounds.latency else 0.0 * owed)
    heights = np.array(tips) - tips[-1] - contact / kappa
    depths = np.array(surface) - surface[-1] - heights
    speed, depth, high, behind, owed = (
        np.array(each)[:, fine] for each in (speeds, depths, heights, lagging, due)
    )
    tissue, owes = (kappa[fine], damping[fine]), (behind, owed)
    return ContactHistories(
        *tissue, lag[fine], speed, depth, high, *owes, moves[:, fine], intervals
    )
