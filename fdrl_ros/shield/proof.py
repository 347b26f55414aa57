# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""
Proof of the shield by exhaustion: its own code against the worst that its bounds permit.

Three claims make it. *Estimator*: what the shield takes to be possible after a tick includes what
is true (stiffness, depth, speed of the surface, lag of the arm). *Tables*: no surface, no arm and
no latency within bounds leads beyond the tables, if the tip is drawn back as the shield does where
it allows nothing. *Forces*: estimator and tables together bound the force of every move: the truth
continues with its own stiffness, damping and arm under the surface that rises fastest, and is
compared with the prediction from the readings so far, rounding and look-ups included. So an
allowed action keeps the limit, and so does what follows it.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
import itertools
import math

from fdrl_ros.errors import SettingError
from fdrl_ros.shield.contact_estimator import ContactEstimator, ContactReading
from fdrl_ros.shield.depth_tables import (
    Bounds,
    depth_tables,
    DEPTHS,
    DUE,
    JITTER,
    LEVELS,
    Motion,
    MOVES,
    POWER,
    surface_rise,
    tip_sinking,
)
from fdrl_ros.shield.prediction import ContactBounds, ContactState, Prediction
from fdrl_ros.shield.retreat import RISE
from fdrl_ros.shield.settings import ShieldSettings
from fdrl_ros.shield.worst_cases import ContactHistories, corner_histories, random_histories
from fdrl_ros.surgery.gym.actions import COARSE_STEP, MAXIMUM_SPEED, SUBSTEP, SUBSTEPS, TICK
from fdrl_ros.surgery.scalar_or_array import Array, Rows
from fdrl_ros.surgery.tasks.outcome import HARD_STOP
from fdrl_ros.surgery.tasks.procedures import procedure_named, TRAITS
from fdrl_ros.surgery.tissue.contact import contact_force, contact_stiffness
import numpy as np

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


def check_tables(
    taken: Bounds,
    world: Bounds | None = None,
    back: float = _UP,
    fine: int = 4,
    report: Report = lambda done, total: None,
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
    truth, tables = world or taken, depth_tables(taken)
    speeds, behind = tables.speeds, tables.behind
    rise, rising = surface_rise(truth, np.minimum(speeds, truth.speed), _STEPS, 16 * fine)
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
            sunk, fast = tip_sinking(
                truth,
                _TIME,
                behind[rows],
                (quick, slow),
                Motion(DUE[due], MOVES[place], late, back),
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


Errors = tuple[Array, Array]
"""Of measured force and height of the tip at each moment, as shares of the greatest there are."""


_OFF = ((1.0, 1.0, 1.0), (-1.0, -1.0, 1.0))
"""Of the sensors at each moment at corners, as shares of their errors; or the other way round."""


class ProofCase:
    """
    A shield's prediction for a procedure, and the truth that it is held against.

    :param settings: of the shield.
    :param procedure: its name.
    :param wide: whether under the wide bounds, or the usual ones.
    :param world: bounds that the truth keeps to; those of the shield by default.
    :param sample: how many histories are drawn of those at corners; all of them by default.
    """

    def __init__(
        self,
        settings: ShieldSettings,
        procedure: str,
        wide: bool,
        world: Bounds | None = None,
        sample: int | None = None,
    ) -> None:
        chosen = procedure_named(procedure)
        taken = settings.wide_bounds() if wide else settings.usual_bounds()
        self.procedure, self.truth, self._sample = procedure, world or taken, sample
        self.prediction = Prediction(taken, chosen.contact_radius)
        soft, stiff = (
            float(contact_stiffness(end, chosen.contact_radius) ** POWER)
            for end in (self.truth.softest, self.truth.stiffest)
        )
        limit = HARD_STOP if wide else chosen.force_limit
        self._range = self.truth, (soft, stiff), limit

    def corners(self, intervals: tuple[float, ...]) -> ContactHistories:
        """Return the histories at all corners, or a sample of them."""
        return corner_histories(*self._range, intervals).sample(self._sample)

    def drawn(self, seeds: int) -> Iterator[tuple[ContactHistories, list[Errors]]]:
        """Draw 5,000 histories between the corners for each seed, with errors of the sensors."""
        for seed in range(seeds):
            some = random_histories(*self._range, 5_000, seed)
            off, beside = np.random.default_rng(seed).uniform(-1.0, 1.0, (2, *some.speeds.shape))
            yield some, [(off, beside), (np.sign(off), np.sign(beside))]

    def estimate(
        self, some: ContactHistories, errors: Errors, low: float = 0.0
    ) -> tuple[ContactState, ContactBounds]:
        """
        Return what the shield sees of histories at their end, and what it takes to be possible.

        :param low: how far below the surface it was planned, m; at last it is at its middle.
        """
        stiffness, nothing = some.kappa**1.5, np.zeros_like(some.kappa)
        off, beside = errors
        estimator = ContactEstimator((self.prediction,), self.procedure, nothing)
        base = estimator.height_of(nothing)
        for step, speed in enumerate(some.speeds):
            behind = some.behind[step]
            tip = np.clip(behind / some.lag, -MAXIMUM_SPEED, MAXIMUM_SPEED)
            force = contact_force(stiffness, some.damping, some.depths[step], speed + tip)
            force = force + off[step] * self.truth.force_error
            lag = behind + beside[step] * self.truth.position_error
            error = some.heights[step] + low - base - behind
            interval = (0.0, *some.intervals)[step]
            reading = ContactReading(force, lag, error, nothing)
            _, seen, possible = estimator.update(reading, interval, nothing < 1.0)[0]
            if step < len(some.moves):
                estimator.record_move(-some.moves[step])
        return seen, possible

    def check_estimator(self, fine: int = 2) -> Finding:
        """
        Check that what the shield takes to be possible holds what is true, wherever that can be.

        Histories of two ticks at all corners are looked at with the sensor off to both sides at
        every moment, and longer ones between them with the sensor off by anything.

        :param fine: how many times 20,000 histories are drawn between the corners, with intervals
            of their own for each 5,000. With 0 the intervals at corners are ticks too.
        """
        tried = []
        for intervals, sides in _INTERVALS if fine else _INTERVALS[:1]:
            some = self.corners(intervals)
            ways = itertools.product((-1.0, 1.0), repeat=len(some.speeds))
            signs = [np.array(way)[:, None] for way in ways]
            tried.append((some, [(off, side * off) for off in signs for side in sides]))
        margins = Margins()
        for some, errors in itertools.chain(tried, self.drawn(4 * fine)):
            for each in errors:
                for name, margin in self._margins(some, each).items():
                    before = {'speed_before': some.speeds[-2], 'behind': some.behind[-2]}
                    cells = some.cells() | before | {'move': some.moves[-1]}
                    margins.add(margin, f'short of {name}', **cells)
        return margins.finding(f'estimator: {self.procedure}', 1e-7)

    def _margins(self, some: ContactHistories, errors: Errors) -> dict[str, Array]:
        """Return by how much each bound of the shield holds the truth, as a share of its size."""
        seen, possible = self.estimate(some, errors)
        prediction, truth = self.prediction, self.truth
        speed, depth, inside = some.speeds[-1], some.depths[-1], np.maximum(some.depths[-1], 0.0)
        # Of the kinds that this tissue can be of, one must allow for what it does.
        kind, contact = np.full((2, len(speed)), -np.inf)
        for (soft, stiff), (slow, fast, _) in zip(prediction.spans, possible.kinds, strict=True):
            own = (some.kappa >= soft * (1.0 - 1e-12)) & (some.kappa <= stiff * (1.0 + 1e-12))
            within = np.minimum(fast - speed, speed - slow) / truth.speed
            kind = np.where(own, np.maximum(kind, within), kind)
            most = prediction.greatest_contact(possible.high, slow, possible.sinking)
            contact = np.where(own, np.maximum(contact, most - some.kappa * inside), contact)
        slowest = np.array(prediction.tables.levels)[seen.level]
        return {
            'stiffest': possible.stiffest / some.kappa - 1.0,
            'softest': 1.0 - possible.softest / some.kappa,
            'kind': kind,
            'contact of its kind': contact,
            'contact': possible.contact - some.kappa * inside,
            'speed': (possible.speed - speed) / truth.speed,
            'lag': slowest / some.lag - 1.0,
            'room': -depth - seen.room,
            'due': np.array(DUE)[seen.pending] - some.due[-1] + _DUE_SLACK,
        }

    def check_forces(self, fine: int = 2) -> Finding:
        """
        Check that no force is above what the shield says of any move, if it goes up after it.

        :param fine: how many times 5,000 histories are drawn between the corners.
        """
        truth = self.truth
        # The plan is as far below the tissue as it can be: so nothing but its swing is in reserve.
        low = truth.registration - (0.0 if TRAITS[self.procedure].rides else 0.5 * truth.swing)
        shares = [side * np.array(each)[:, None] for each in _OFF for side in (1.0, -1.0)]
        both = [(off, off) for off in shares] + [(off, -off) for off in shares]
        corners = self.corners((TICK, TICK)), both
        margins = Margins()
        for some, errors in itertools.chain([corners], self.drawn(fine)):
            views = [self.estimate(some, each, low) for each in errors]
            speeds, rows = np.unique(some.speeds[-1], return_inverse=True)
            rises = surface_rise(truth, speeds, _STEPS)
            for place, move in enumerate(MOVES):
                true = np.max(
                    [
                        greatest_true_forces(some, truth, rises, rows, move, late)
                        for late in {0.0, truth.latency}
                    ],
                    axis=0,
                )
                for seen, possible in views:
                    said = self.prediction.force(seen, possible, place)
                    margins.add(said - true, 'short', said=said, move=move, **some.cells())
        return margins.finding(f'forces: {self.procedure}')


def greatest_true_forces(
    some: ContactHistories,
    truth: Bounds,
    rises: tuple[Array, Array],
    rows: Rows,
    move: float,
    late: float,
) -> Array:
    """
    Return the greatest force that comes of a move which the tip goes up after, N, shape (n,).

    :param rises: of the surface after each sub-step, m, and its speeds then, m/s; one line for
        each of its speeds now.
    :param rows: which of those lines is whose, shape (n,).
    :param move: m upwards; a robot that holds goes up by RISE of it.
    :param late: when it begins, s: until then the one before goes on.
    """
    (rise, rising), lag, behind = rises, some.lag, some.behind[-1]
    left = np.exp(-SUBSTEP / lag)
    owed = np.full_like(lag, -move if move < 0.0 else 0.0)
    before = some.due[-1].copy()
    begin, back = round(late / SUBSTEP), (TICK + JITTER + truth.latency) / SUBSTEP
    stride, up = MAXIMUM_SPEED * SUBSTEP, RISE / SUBSTEPS
    sunk, most = np.zeros_like(lag), np.zeros_like(lag)
    for step in range(_STEPS):
        if step + 1.0 > back:
            down = np.full_like(lag, -COARSE_STEP * up * min(step + 1.0 - back, 1.0))
        elif step < begin:
            down = np.minimum(before, stride)
            before = before - down
        elif move > 0.0:
            down = np.full_like(lag, -move * up if step < begin + SUBSTEPS else 0.0)
        else:
            down = np.minimum(owed, stride)
            owed = owed - down
        following = behind * left + down / SUBSTEP * lag * (1.0 - left)
        sunk, behind = sunk + behind - following + down, following
        closing = np.maximum(rising[rows, step] + behind / lag, 0.0)
        depth = np.maximum(some.depths[-1] + rise[rows, step] + sunk + truth.arm_error, 0.0)
        most = np.maximum(most, some.kappa * depth * (1.0 + some.damping * closing) ** POWER)
    force: Array = most**1.5
    return force


def proofs(
    settings: ShieldSettings, procedures: tuple[str, ...], fine: int, report: Report
) -> Iterator[tuple[str, float, Finding]]:
    """
    Check all three claims for both limits.

    :param fine: as each of them takes it.
    :returns: of each: which bounds, and the limit that it is of, N (0 for all).
    """
    for word, bounds in (('wide', settings.wide_bounds()), ('usual', settings.usual_bounds())):
        yield word, 0.0, check_tables(bounds, fine=fine, report=report)
    for name in procedures:
        for word, limit in (('wide', HARD_STOP), ('usual', procedure_named(name).force_limit)):
            proof = ProofCase(settings, name, word == 'wide')
            yield word, limit, proof.check_estimator(fine)
            yield word, limit, proof.check_forces(fine)
