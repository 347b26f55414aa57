# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""
Proof of the shield by exhaustion, of its own code against the worst that bounds let happen.

Two claims make it. *Sight*: what the shield takes to be possible after a tick holds what is true
(stiffness, depth, speed of the surface, lag of the arm). *Tables*: no surface, no arm and no
latency within bounds leads beyond what the tables say, if the tip is drawn back as the shield does
where it allows nothing. Together: what is allowed keeps the limit, and so does what follows.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
import itertools
from typing import Any

from fdrl_ros.env.actions import MAXIMUM_SPEED, SUBSTEP, TICK
from fdrl_ros.env.judging import HARD_STOP
from fdrl_ros.env.procedures import procedure_named
from fdrl_ros.env.tissue import contact_force, contact_stiffness
from fdrl_ros.selector.excursion import (
    Bounds,
    DEPTHS,
    DUE,
    excursion,
    followed,
    LEVELS,
    MOVES,
    sink,
    surface,
)
from fdrl_ros.selector.prediction import Prediction
from fdrl_ros.selector.shield_settings import ShieldSettings
from fdrl_ros.selector.sight import Glance, Sight
import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
Report = Callable[[int, int], None]

_POWER = 2.0 / 3.0
_STEPS = 168
_TIME: Array = SUBSTEP * np.arange(1.0, _STEPS + 1.0)
_SLACK = 1e-9
_UP = MOVES[-1]


@dataclass(frozen=True)
class Finding:
    """
    What came of a claim.

    :param claim: in a few words.
    :param cells: how many were checked.
    :param margin: least by which the shield is on the safe side, in the unit of what is claimed.
    :param failure: the cell in which it is furthest on the other side; empty if there is none.
    """

    claim: str
    cells: int
    margin: float
    failure: dict[str, float]

    @property
    def holds(self) -> bool:
        """Say whether the claim holds in every cell."""
        return not self.failure


def _quiet(done: int, total: int) -> None:
    """Tell nobody."""


def check_tables(
    taken: Bounds,
    world: Bounds | None = None,
    back: float = _UP,
    fine: int = 4,
    report: Report = _quiet,
) -> Finding:
    """
    Check every entry of the tables against the worst surface and arm there are.

    Speeds and lags are rounded up to the rows of the tables, so the ends of a row stand for all
    of it; between two depths of the tables what can come about is convex, so theirs do too.

    :param taken: bounds that the shield takes for granted.
    :param world: bounds that surface and arm keep to; the same by default.
    :param back: what is done where nothing is allowed, m upwards a tick.
    :param fine: into how many spans each range of lags is cut, and four times as many the swing.
    :param report: called with what is done, and of how much.
    """
    truth, tables = world or taken, excursion(taken)
    speeds, behind = tables.speeds, tables.behind
    rise, rising = surface(truth, np.minimum(speeds, truth.speed), _STEPS, 16 * fine)
    lags = np.geomspace(truth.quickest, truth.slowest, LEVELS * fine + 1).tolist()
    least, where, cells = np.inf, {}, 0
    for done, (quick, slow) in enumerate(itertools.pairwise(lags)):
        level = max(
            (each for each in range(LEVELS) if tables.levels[each] >= slow - 1e-9), default=0
        )
        rows = np.flatnonzero(np.abs(behind) <= MAXIMUM_SPEED * slow + truth.arm_error)
        for place, due, late in itertools.product(
            range(len(MOVES)), range(len(DUE)), {0.0, truth.latency}
        ):
            sunk, fast = sink(
                truth,
                _TIME,
                behind[rows],
                (quick, slow),
                DUE[due],
                MOVES[place],
                late,
                back,
                1.001,
            )
            # A shield that knows of no latency expects nothing that is still to come.
            expected = due if taken.latency > 0.0 else 0
            for row in range(len(speeds)):
                more = (1.0 + truth.damping * np.maximum(rising[row] + fast, 0.0)) ** _POWER
                grown = (rise[row] + sunk + truth.arm_error) * more
                for number, depth in enumerate(DEPTHS):
                    total = grown + depth * more
                    true = np.maximum(total, total / more).max(axis=1)
                    margins = tables.felt[level, row, rows, expected, place, number] - true
                    cells += len(rows)
                    worst = int(margins.argmin())
                    if margins[worst] < least:
                        least = float(margins[worst])
                        where = {
                            'short': -least,
                            'speed': float(speeds[row]),
                            'behind': float(behind[rows[worst]]),
                            'lag': slow,
                            'due': DUE[due],
                            'move': MOVES[place],
                            'late': late,
                            'depth': depth,
                        }
        report(done + 1, len(lags) - 1)
    return Finding('tables', cells, least, where if least < -_SLACK else {})


@dataclass(frozen=True)
class _Truths:
    """Consistent truths, one for each cell, before and after a tick: arrays of shape (n,)."""

    kappa: Array
    damping: Array
    lag: Array
    speeds: tuple[Array, Array]
    depths: tuple[Array, Array]
    behind: tuple[Array, Array]
    move: Array


def _truths(bounds: Bounds, kappas: tuple[float, float], limit: float, fine: int) -> _Truths:
    """Return truths at all corners, and at `fine` places between, of what may differ."""
    gain, reach = bounds.acceleration * TICK, MAXIMUM_SPEED * bounds.slowest
    axes = (
        np.geomspace(*kappas, 2 + fine),
        np.array([0.0, 0.5 * bounds.damping, bounds.damping]),
        np.geomspace(bounds.quickest, bounds.slowest, 2 + fine),
        np.linspace(-bounds.speed, bounds.speed, 3 + fine),
        gain * np.linspace(-1.0, 1.0, 3),
        np.linspace(-reach, reach, 3 + 2 * (fine // 2)),
        np.linspace(-0.002, 1.0, 6 + 2 * fine) * limit**_POWER,
        np.array(MOVES),
    )
    grid = np.meshgrid(*axes, indexing='ij')
    kappa, damping, lag, speed, gained, behind, contact, move = (each.ravel() for each in grid)
    before = speed - gained
    keep = (np.abs(before) <= bounds.speed) & (np.abs(behind) <= MAXIMUM_SPEED * lag)
    kappa, damping, lag, speed, gained, behind, contact, move, before = (
        each[keep] for each in (kappa, damping, lag, speed, gained, behind, contact, move, before)
    )
    spans = np.abs(move) / MAXIMUM_SPEED
    share = np.zeros_like(lag)
    for each in np.unique(spans):
        rows = spans == each
        share[rows] = [float(followed(np.array([TICK]), one, float(each))[0]) for one in lag[rows]]
    now = behind * np.exp(-TICK / lag) - move * (1.0 - share)
    sunk = behind - now - move
    depth = contact / kappa
    depths = depth - (0.5 * (before + speed) * TICK + sunk), depth
    return _Truths(kappa, damping, lag, (before, speed), depths, (behind, now), move)


def check_sight(
    settings: ShieldSettings,
    procedure: str,
    wide: bool,
    world: Bounds | None = None,
    fine: int = 2,
) -> Finding:
    """
    Check that what the shield takes to be possible holds what is true, wherever that can be.

    Every truth is looked at with the sensor off to both sides, before and after a tick.

    :param settings: of the shield.
    :param procedure: its name.
    :param wide: whether under the wide bounds, or the usual ones.
    :param world: bounds that the truth keeps to; those of the shield by default.
    :param fine: how many places between the ends of each range.
    """
    chosen = procedure_named(procedure)
    taken = settings.wide() if wide else settings.usual()
    truth, limit = world or taken, HARD_STOP if wide else chosen.force_limit
    ends = [
        float(contact_stiffness(each, chosen.contact_radius) ** _POWER)
        for each in (truth.softest, truth.stiffest)
    ]
    prediction = Prediction(taken, chosen.contact_radius)
    some = _truths(truth, (ends[0], ends[1]), limit, fine)
    least, where, cells = np.inf, {}, 0
    for off in ((-1.0, -1.0), (-1.0, 1.0), (1.0, -1.0), (1.0, 1.0)):
        margins = _margins(some, prediction, procedure, truth, off)
        for name, margin in margins.items():
            cells += len(margin)
            worst = int(margin.argmin())
            if margin[worst] < least:
                least = float(margin[worst])
                where = {
                    f'short of {name}': -least,
                    'kappa': float(some.kappa[worst]),
                    'damping': float(some.damping[worst]),
                    'lag': float(some.lag[worst]),
                    'speed': float(some.speeds[1][worst]),
                    'speed_before': float(some.speeds[0][worst]),
                    'depth': float(some.depths[1][worst]),
                    'behind': float(some.behind[0][worst]),
                    'move': float(some.move[worst]),
                }
    return Finding(f'sight: {procedure}', cells, least, where if least < -1e-7 else {})


def _margins(
    some: _Truths, prediction: Prediction, procedure: str, truth: Bounds, off: tuple[float, float]
) -> dict[str, Array]:
    """Return by how much each bound of the shield holds the truth, as a share of its size."""
    stiffness = some.kappa**1.5
    quick = [np.clip(each / some.lag, -MAXIMUM_SPEED, MAXIMUM_SPEED) for each in some.behind]
    forces = [
        contact_force(stiffness, some.damping, depth, speed + tip)
        for depth, speed, tip in zip(some.depths, some.speeds, quick, strict=True)
    ]
    nothing = np.zeros_like(some.kappa)
    sight = Sight((prediction,), procedure, nothing)
    base = sight.height_of(nothing)
    # The surface is at its middle now, and where it was planned.
    rise = 0.5 * (some.speeds[0] + some.speeds[1]) * TICK
    heights = [-some.depths[0] - rise - base, -some.depths[1] - base]
    errors = [high - behind for high, behind in zip(heights, some.behind, strict=True)]
    seen: Any = None
    for step, known in ((0, False), (1, True)):
        force = forces[step] + off[step] * truth.force_error
        glance = Glance(force, some.behind[step], errors[step], nothing)
        _, seen, outlook = sight.look(glance, known, nothing < 1.0)[0]
        sight.move(-some.move)
    slowest = np.array(prediction.excursion.levels)[seen.level]
    contact = np.minimum(outlook.contact, -outlook.stiffest * outlook.room)
    inside = np.maximum(some.depths[1], 0.0)
    return {
        'stiffest': outlook.stiffest / some.kappa - 1.0,
        'contact': np.maximum(outlook.contact, contact) - some.kappa * inside,
        'speed': (outlook.speed - some.speeds[1]) / truth.speed,
        'lag': slowest / some.lag - 1.0,
        'room': -some.depths[1] - outlook.room,
    }


def proofs(
    settings: ShieldSettings, procedures: tuple[str, ...], fine: int, report: Report = _quiet
) -> Iterator[tuple[str, float, Finding]]:
    """
    Check both claims for both limits.

    :param fine: as :func:`check_tables` and :func:`check_sight` take it.
    :returns: of each: which bounds, and the limit that it is of, N (0 for all).
    """
    for word, bounds in (('wide', settings.wide()), ('usual', settings.usual())):
        yield word, 0.0, check_tables(bounds, fine=fine, report=report)
    for name in procedures:
        yield 'wide', HARD_STOP, check_sight(settings, name, True, fine=fine)
        limit = procedure_named(name).force_limit
        yield 'usual', limit, check_sight(settings, name, False, fine=fine)
