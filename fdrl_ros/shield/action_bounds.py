# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""
Bounds on what each action can lead to: force, damage, a way out of the workspace.

The formulas of the shield, for one robot (floats) or for many (arrays of one shape).
"""

from copy import copy
from typing import NamedTuple, Self

from fdrl_ros.shield.contact_estimator import ContactEstimator, ContactReading
from fdrl_ros.shield.excursion import MOVES
from fdrl_ros.shield.prediction import compiled_prediction, ContactBounds, ContactState, Prediction
from fdrl_ros.shield.retreat import retreat, Vector
from fdrl_ros.shield.scalar_or_array import maximum, minimum, Number, where
from fdrl_ros.shield.settings import ShieldSettings
from fdrl_ros.shield.workspace import AWAY, RIDING
from fdrl_ros.surgery.constants import constant
from fdrl_ros.surgery.gym.actions import ACTIONS, COARSE_STEP, MAXIMUM_SPEED, TICK
from fdrl_ros.surgery.tasks.outcome import ABOVE, HARD_STOP, LATERAL
from fdrl_ros.surgery.tasks.procedures import procedure_named
import numpy as np
from numpy.typing import NDArray

_MOVE = [MOVES.index(each.displacement[2]) for each in ACTIONS]
"""Place in MOVES of each action."""

_DEEPEST = constant('patient.thickness_low')
_MARGIN = 0.003
"""Kept to the bounds of the workspace besides, m: a move that is still to come."""

_TOP, _PLAY = constant('peg_transfer.peg'), constant('peg_transfer.play')
_SPRING, _PICK = constant('peg_transfer.spring'), constant('peg_transfer.pick_tolerance')
_SLACK = 1e-5
"""Of a set-point, m: states come as numbers with a few digits."""
_HARMING = 8.0 * TICK
"""How long a force that is predicted counts as damage, s: about till the tip is drawn back."""
_CLOSING = 0.8
"""Opening of the jaw from which two ticks do not close it."""
_TAUT = _SPRING * (2.0**0.5 * _PICK - _PLAY)
"""Pull of a ring that was just grasped as far off its peg as it can be, N."""


class StateReadings(NamedTuple):
    """The numbers of a state that the bounds read, in their units; see STATE_FIELDS."""

    error_x: Number
    error_y: Number
    error_z: Number
    lag: Number
    force: Number
    force_limit: Number
    jaw: Number
    grasped: Number


class LateralReach:
    """
    How far the tip can be aside of its set-point along one axis.

    :param like: 0.0 for one robot, zeros of shape (n,) for n of them.
    :param furthest: that the tip can be behind, m.
    :param still: whether the waypoint goes nowhere, so that its error tells of the set-point.
    """

    def __init__(self, like: Number, furthest: float, still: bool) -> None:
        self._furthest, self._still = furthest, still
        self.aside: Number = like
        """At most, m."""
        self.due: Number = like
        """Moves of the set-point that may still be to come, m."""
        self.way: Number = like
        """How far the tip went since the last state at most, m."""
        self._moved: Number = like
        self._last: tuple[Number, Number] | None = None

    def update(
        self, error: Number, grasped: Number, known: bool, decay: Number, soon: bool = False
    ) -> None:
        """
        Take in a state.

        :param error: of the set-point from the waypoint, m.
        :param grasped: 1 if the jaw holds the object: then the waypoint is another.
        :param known: whether the last state was just one tick before.
        :param decay: share of its lag that the arm kept since then at most.
        :param soon: whether the last state was less than a tick before.
        """
        asked = went = self.due + self._moved
        due = asked if soon else self._moved
        if self._still and (known or soon) and self._last is not None:
            before, held = self._last
            same = (held > 0.5) == (grasped > 0.5)
            gone = abs(error - before)
            # Of two moves at once, one can have undone the other.
            went = where(same & (self.due <= _SLACK), gone, asked)
            due = where(same, maximum(asked - gone, 0.0 * error), due)
        self.due = due
        self.way = self.aside + went
        self.aside = minimum(self.aside * decay + went, self._furthest + 0.0 * error)
        self._moved, self._last = 0.0 * error, (error, grasped)

    def record_move(self, way: Number) -> None:
        """Take in how far the set-point is going to move, m."""
        self._moved = way

    def select(self, rows: NDArray[np.intp]) -> None:
        """Keep only some of many robots, in the order given."""
        self.aside, self.due, self.way = self.aside[rows], self.due[rows], self.way[rows]
        if isinstance(self._moved, np.ndarray):
            self._moved = self._moved[rows]
        if self._last is not None:
            self._last = (self._last[0][rows], self._last[1][rows])


class Consequences(NamedTuple):
    """
    What an action can lead to.

    :param wide_force: greatest force under the wide bounds, N.
    :param usual_force: greatest force under the usual bounds, N.
    :param passes_hard_stop: whether the hard stop can be passed.
    :param passes_force_limit: whether the procedure's force limit can be passed.
    :param passes_damage_limit: whether it can add damage, and that of the case pass its limit.
    :param leaves_workspace: whether the tip can leave the workspace.
    """

    wide_force: Number
    usual_force: Number
    passes_hard_stop: Number
    passes_force_limit: Number
    passes_damage_limit: Number
    leaves_workspace: Number


def displacement_of(action: int, holding: bool, away: Vector | None) -> Vector:
    """Return how far an action moves the set-point, m; see :meth:`ActionBounds.consequences`."""
    way = ACTIONS[action].displacement
    return retreat(way[2], away) if holding and way[2] > 0.0 else way


class ActionBounds:
    """
    Bounds for one procedure on one patient, or on many.

    :param settings: of the shield.
    :param procedure: its name.
    :param like: 0.0 for one robot, zeros of shape (n,) for n of them.
    """

    def __init__(self, settings: ShieldSettings, procedure: str, like: Number = 0.0) -> None:
        chosen = procedure_named(procedure)
        self.settings = settings
        of = compiled_prediction if isinstance(like, float) else Prediction
        self.predictions = tuple(
            of(bounds, chosen.contact_radius) for bounds in (settings.wide(), settings.usual())
        )
        self.estimator = ContactEstimator(self.predictions, procedure, like)
        self._warn = chosen.warn_force
        self._rings = procedure == 'peg_transfer'
        self._rides = procedure in RIDING
        self._away = AWAY[procedure]
        self._zero = like
        furthest, still = MAXIMUM_SPEED * settings.slowest, not any(self._away)
        self._sides = (LateralReach(like, furthest, still), LateralReach(like, furthest, still))
        self._held: Number = like > 1.0
        self.damage: Number = like
        """Of the case so far, as given with the newest state, N s."""
        self._seen: list[tuple[Prediction, ContactState, ContactBounds]] = []

    def update(
        self, now: StateReadings, damage: Number, interval: float = TICK, soon: bool = False
    ) -> None:
        """
        Take in a state.

        :param damage: of the case so far, N s.
        :param interval: since the last state, s; 0 if that was not about one tick before.
        :param soon: whether it was less than that before.
        """
        self._now, self.damage = now, damage
        estimator, known = self.estimator, interval > 0.0
        decay = 1.0 if soon else estimator.decay(interval or TICK)
        for side, error in zip(self._sides, (now.error_x, now.error_y), strict=True):
            side.update(error, now.grasped, known, decay, soon)
        strayed = self._sides[0].way + self._sides[1].way
        held = self._ringed(2.0 * COARSE_STEP) if self._rings else self._zero > 1.0
        free = (held | self._held) ^ True  # of rings, since the last state
        self._held = held
        self._seen = self.estimator.update(
            ContactReading(now.force, now.lag, now.error_z, now.grasped),
            interval,
            free,
            strayed,
            soon,
        )

    def consequences(
        self, action: int, holding: bool = False, away: Vector | None = None
    ) -> Consequences:
        """
        Return what an action can lead to from the newest state.

        :param holding: whether the robot holds, and keeps the procedure's own limit in any case.
        :param away: along the shaft away from the tissue, where a robot that holds is drawn back.
        """
        settings, now = self.settings, self._now
        dx, dy, dz = displacement_of(action, holding, away)
        x, y = self._sides
        far_x, far_y = x.aside + x.due + abs(dx), y.aside + y.due + abs(dy)
        way, longer = x.aside + y.aside + (abs(dx) + abs(dy)), far_x + far_y
        (wide, seen, possible), (other, its, own) = self._seen
        hard = wide.force(seen, possible, _MOVE[action], longer, HARD_STOP)
        usual = other.force(its, own, _MOVE[action], way, now.force_limit)
        if self._rings:
            hard = self._pulled(hard, longer, COARSE_STEP - dz)
            usual = self._pulled(usual, way, -dz)
        harm = self.damage + _HARMING * maximum(usual - self._warn, self._zero)
        leaves = self._leaves_height(dz)
        if not (holding and dz > 0.0):  # drawn back, it may leave sideways rather than press on
            leaves = (
                leaves
                | self._leaves(now.error_x, dx, far_x)
                | self._leaves(now.error_y, dy, far_y)
            )
        return Consequences(
            hard,
            usual,
            hard > HARD_STOP,
            (usual > now.force_limit) & (settings.keep_limit or holding),
            (usual > self._warn) & (harm > settings.damage_limit),
            leaves,
        )

    def record_move(self, dx: Number, dy: Number, dz: Number) -> None:
        """Take in the move of the set-point that is going to be carried out, m."""
        self.estimator.record_move(-dz)
        for side, move in zip(self._sides, (dx, dy), strict=True):
            side.record_move(abs(move))

    def branch(self) -> Self:
        """Return an independent copy."""
        other = copy(self)
        other.estimator = self.estimator.branch()
        other._sides = (copy(self._sides[0]), copy(self._sides[1]))
        return other

    def select(self, rows: NDArray[np.intp]) -> None:
        """Keep only some of many robots, in the order given."""
        for side in self._sides:
            side.select(rows)
        self._zero, self._held = self._zero[rows], self._held[rows]
        self.damage = self.damage[rows]
        self.estimator.select(rows)

    def _ringed(self, down: float) -> Number:
        """Say where a ring can pull: held, or soon grasped, and below its peg after a way down."""
        now = self._now
        down += self.settings.position_error
        low = minimum(now.error_z, now.error_z + now.lag) - down < _TOP
        reach = _PICK + 2.0 * COARSE_STEP + MAXIMUM_SPEED * self.settings.slowest
        near = (abs(now.error_x) < reach) & (abs(now.error_y) < reach)
        closing = (now.jaw > 0.0) & (now.jaw <= _CLOSING)
        return low & ((now.grasped > 0.0) | (near & closing))

    def _pulled(self, force: Number, way: Number, down: float) -> Number:
        """Add to a force (N) what a ring can pull after a way sideways and one down, m."""
        now, settings = self._now, self.settings
        off = 2.0 * settings.arm_error  # sideways, on both axes
        held, high = now.grasped > 0.0, now.error_z + now.lag
        pull = _SPRING * (way + off) + where(held, self._zero, _TAUT + self._zero)
        # A ring above its peg pulls at nothing now: lowered beside it, by all that it is off.
        above = held & (high > _TOP - settings.arm_error - settings.position_error)
        beside = (now.error_x * now.error_x + now.error_y * now.error_y) ** 0.5 - _PLAY
        pull = where(above, maximum(pull, _SPRING * (beside + way + off)), pull)
        felt = now.force + settings.force_error
        ringed = self._ringed(max(down, 0.0) + settings.arm_error)
        return where(ringed, maximum(force, felt) + pull, force)

    def _leaves(self, error: Number, move: float, far: Number) -> Number:
        """Say where a move sideways goes further out than the workspace is sure to be."""
        after = abs(error + move)
        away = where(self._now.grasped > 0.0, self._away[1], self._away[0])
        return (after + far + away > LATERAL) & (after > abs(error))

    def _leaves_height(self, move: float) -> Number:
        """Say where a move up or down goes out of the workspace, or through the organ."""
        after = self.estimator.height - self._now.lag + move
        if move > 0.0:
            swing = 0.5 * self.settings.swing if self._rides else 0.0
            return after > ABOVE - _MARGIN - swing
        return (after < _MARGIN - _DEEPEST) & (move < 0.0)
