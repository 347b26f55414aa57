# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""
Check of the shield by exhaustion, of its own code against the worst that bounds let happen.

Three claims make it. *Sight*: what the shield takes to be possible after a tick holds what is true
(stiffness, depth, speed of the surface, lag of the arm). *Tables*: no surface, no arm and no
latency within bounds leads beyond what the tables say, if the tip is drawn back as the shield does
where it allows nothing. *Joined*: no force is above what is said of a move by what was seen, see
:mod:`fdrl_ros.shield.joint_proof`. What is allowed keeps the limit, and so does what follows.
"""

from collections.abc import Callable
from dataclasses import dataclass
import itertools
import math
from typing import Any

from fdrl_ros.errors import SettingError
from fdrl_ros.shield.contact_estimator import Glance, Sight
from fdrl_ros.shield.excursion import (
    Bounds,
    DEPTHS,
    DUE,
    excursion,
    JITTER,
    LEVELS,
    MOVES,
    POWER,
    sink,
    surface,
)
from fdrl_ros.shield.prediction import Outlook, Prediction, Seen
from fdrl_ros.shield.settings import ShieldSettings
from fdrl_ros.shield.worst_cases import between, corners, signs, Truths
from fdrl_ros.surgery.gym.actions import MAXIMUM_SPEED, SUBSTEP, TICK
from fdrl_ros.surgery.tasks.outcome import HARD_STOP
from fdrl_ros.surgery.tasks.procedures import Procedure, procedure_named
from fdrl_ros.surgery.tissue.contact import contact_force, contact_stiffness
import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
Report = Callable[[int, int], None]

_STEPS = 168
_TIME: Array = SUBSTEP * np.arange(1.0, _STEPS + 1.0)
_INTERVALS = (
    ((TICK, TICK), (1.0, -1.0)),
    ((TICK - JITTER, TICK + JITTER), (1.0,)),
    ((TICK + JITTER, TICK - JITTER), (1.0,)),
)
"""
Between the states of histories at corners, s; and whether a position is off to the side that force
is off to, or to the other one.
"""
_SLACK = 1e-9
_UP = MOVES[-1]
_DUE_SLACK = 1.1e-5
"""Of a set-point, m: what the shield does not take for a move."""


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


class Margins:
    """Finds the least of many margins, and where it is: one that is no number is less than any."""

    def __init__(self) -> None:
        self._least, self._cells = math.inf, 0
        self._where: dict[str, float] = {}

    def add(self, margins: Array, short: str = 'short', **cells: Array | float) -> None:
        """
        Take in the margins of some cells.

        :param short: name of what a margin below 0 is short of.
        :param cells: what each of them is, or all of them are, by name.
        """
        self._cells += len(margins)
        worst = int(margins.argmin())
        if not (math.isnan(self._least) or margins[worst] >= self._least):
            self._least = float(margins[worst])
            self._where = {short: -self._least} | {
                name: float(np.broadcast_to(each, margins.shape)[worst])
                for name, each in cells.items()
            }

    def finding(self, claim: str, slack: float = _SLACK) -> Finding:
        """Return what came of a claim whose margins may be so far below 0 by rounding."""
        holds = self._least >= -slack
        return Finding(claim, self._cells, self._least, {} if holds else self._where)


def quiet(done: int, total: int) -> None:
    """Tell nobody."""


def check_tables(
    taken: Bounds,
    world: Bounds | None = None,
    back: float = _UP,
    fine: int = 4,
    report: Report = quiet,
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
    :raises SettingError: if fine is below 1.
    """
    if fine < 1:
        raise SettingError('fine', fine, 'at least 1: into so many spans each range is cut')
    truth, tables = world or taken, excursion(taken)
    speeds, behind = tables.speeds, tables.behind
    rise, rising = surface(truth, np.minimum(speeds, truth.speed), _STEPS, 16 * fine)
    lags = np.geomspace(truth.quickest, truth.slowest, LEVELS * fine + 1).tolist()
    margins = Margins()
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
                more = (1.0 + truth.damping * np.maximum(rising[row] + fast, 0.0)) ** POWER
                grown = (rise[row] + sunk + truth.arm_error) * more
                for number, depth in enumerate(DEPTHS):
                    total = grown + depth * more
                    true = np.maximum(total, total / more).max(axis=1)
                    margins.add(
                        tables.felt[level, row, rows, expected, place, number] - true,
                        speed=speeds[row],
                        behind=behind[rows],
                        lag=slow,
                        due=DUE[due],
                        move=MOVES[place],
                        late=late,
                        depth=depth,
                    )
        report(done + 1, len(lags) - 1)
    return margins.finding('tables')


def kappas_of(bounds: Bounds, procedure: Procedure) -> tuple[float, float]:
    """Return the least and greatest kappa under the instrument of a procedure, N^(2/3)/m."""
    soft, stiff = (
        float(contact_stiffness(each, procedure.contact_radius) ** POWER)
        for each in (bounds.softest, bounds.stiffest)
    )
    return soft, stiff


def check_sight(
    settings: ShieldSettings,
    procedure: str,
    wide: bool,
    world: Bounds | None = None,
    fine: int = 2,
) -> Finding:
    """
    Check that what the shield takes to be possible holds what is true, wherever that can be.

    Histories of two ticks at all corners are looked at with the sensor off to both sides at every
    moment, and longer ones between them with the sensor off by anything.

    :param settings: of the shield.
    :param procedure: its name.
    :param wide: whether under the wide bounds, or the usual ones.
    :param world: bounds that the truth keeps to; those of the shield by default.
    :param fine: how many times 20,000 histories are drawn between the corners, with intervals
        of their own for each 5,000. With 0 the intervals at corners are ticks too.
    """
    chosen = procedure_named(procedure)
    taken = settings.wide() if wide else settings.usual()
    truth, limit = world or taken, HARD_STOP if wide else chosen.force_limit
    kappas = kappas_of(truth, chosen)
    prediction = Prediction(taken, chosen.contact_radius)
    tried = []
    for intervals, sides in _INTERVALS if fine else _INTERVALS[:1]:
        some = corners(truth, kappas, limit, intervals)
        for each, side in itertools.product(signs(len(some.speeds)), sides):
            off = np.array(each)[:, None]
            tried.append((some, off, side * off))
    for seed in range(4 * fine):
        some = between(truth, kappas, limit, 5_000, seed)
        off, beside = np.random.default_rng(seed).uniform(-1.0, 1.0, (2, *some.speeds.shape))
        tried += [(some, off, beside), (some, np.sign(off), np.sign(beside))]
    margins = Margins()
    for some, off, beside in tried:
        found = _margins(some, prediction, procedure, truth, off, beside)
        for name, margin in found.items():
            margins.add(
                margin,
                f'short of {name}',
                kappa=some.kappa,
                damping=some.damping,
                lag=some.lag,
                speed=some.speeds[-1],
                speed_before=some.speeds[-2],
                depth=some.depths[-1],
                behind=some.behind[-2],
                move=some.moves[-1],
            )
    return margins.finding(f'sight: {procedure}', 1e-7)


def watched(
    some: Truths,
    prediction: Prediction,
    procedure: str,
    truth: Bounds,
    off: Array,
    beside: Array,
    low: float = 0.0,
) -> tuple[Seen, Outlook]:
    """
    Return what the shield sees of histories at their end, and what it takes to be possible.

    :param off: of the sensor of force at each moment, as a share of its error.
    :param beside: of the tip's measured height, likewise.
    :param low: how far below the surface it was planned, m; at last it is at its middle.
    """
    stiffness, nothing = some.kappa**1.5, np.zeros_like(some.kappa)
    sight = Sight((prediction,), procedure, nothing)
    base = sight.height_of(nothing)
    seen: Any = None
    outlook: Any = None
    for step, speed in enumerate(some.speeds):
        behind = some.behind[step]
        tip = np.clip(behind / some.lag, -MAXIMUM_SPEED, MAXIMUM_SPEED)
        force = contact_force(stiffness, some.damping, some.depths[step], speed + tip)
        force = force + off[step] * truth.force_error
        lag = behind + beside[step] * truth.position_error
        glance = Glance(force, lag, some.heights[step] + low - base - behind, nothing)
        _, seen, outlook = sight.look(glance, (0.0, *some.intervals)[step], nothing < 1.0)[0]
        if step < len(some.moves):
            sight.move(-some.moves[step])
    return seen, outlook


def _margins(
    some: Truths,
    prediction: Prediction,
    procedure: str,
    truth: Bounds,
    off: Array,
    beside: Array,
) -> dict[str, Array]:
    """
    Return by how much each bound of the shield holds the truth, as a share of its size.

    :param off: of the sensor of force at each moment, as a share of its error.
    :param beside: of the tip's measured height, likewise.
    """
    seen, outlook = watched(some, prediction, procedure, truth, off, beside)
    speed, depth, inside = some.speeds[-1], some.depths[-1], np.maximum(some.depths[-1], 0.0)
    # Of the kinds that this tissue can be of, one must allow for what it does.
    kind, contact = np.full((2, len(speed)), -np.inf)
    for (soft, stiff), (slow, fast, _) in zip(prediction.spans, outlook.kinds, strict=True):
        own = (some.kappa >= soft * (1.0 - 1e-12)) & (some.kappa <= stiff * (1.0 + 1e-12))
        within = np.minimum(fast - speed, speed - slow) / truth.speed
        kind = np.where(own, np.maximum(kind, within), kind)
        most = prediction.inside(outlook.high, slow, outlook.sinking)
        contact = np.where(own, np.maximum(contact, most - some.kappa * inside), contact)
    slowest = np.array(prediction.excursion.levels)[seen.level]
    return {
        'stiffest': outlook.stiffest / some.kappa - 1.0,
        'softest': 1.0 - outlook.softest / some.kappa,
        'kind': kind,
        'contact of its kind': contact,
        'contact': outlook.contact - some.kappa * inside,
        'speed': (outlook.speed - speed) / truth.speed,
        'lag': slowest / some.lag - 1.0,
        'room': -depth - seen.room,
        'due': np.array(DUE)[seen.pending] - some.due[-1] + _DUE_SLACK,
    }
