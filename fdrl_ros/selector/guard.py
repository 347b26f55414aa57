# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""
What each action can lead to in one procedure: force, damage, a way out of the workspace.

The formulas of the shield, for one robot (floats) or for many (arrays of one shape).
"""

from copy import copy
from typing import Any, NamedTuple, Self

from fdrl_ros.env.actions import ACTIONS, COARSE_STEP, MAXIMUM_SPEED, TICK
from fdrl_ros.env.constants import constant
from fdrl_ros.env.judging import ABOVE, HARD_STOP, LATERAL
from fdrl_ros.env.procedures import procedure_named
from fdrl_ros.selector.either import choose, least, most, Number
from fdrl_ros.selector.excursion import MOVES
from fdrl_ros.selector.prediction import Outlook, Prediction, Seen
from fdrl_ros.selector.shield_settings import ShieldSettings
from fdrl_ros.selector.sight import Glance, Sight

_MOVE = [MOVES.index(each.displacement[2]) for each in ACTIONS]
"""Place in MOVES of each action."""

_DEEPEST = constant('patient.thickness_low')
_MARGIN = 0.003
"""Kept to the bounds of the workspace besides, m: a move that is still to come."""

_AWAY = {
    'incision': (constant('incision.length_high') + 0.001,) * 2,
    'needle_pass': (0.0, constant('needle_pass.way_high')),
    'peg_transfer': (0.0, constant('peg_transfer.way_high')),
    'follow': (constant('follow.radius'),) * 2,
}
"""How far aside of the goal the waypoint can be, before and after the grasp, m."""

_TOP, _PLAY = constant('peg_transfer.peg'), constant('peg_transfer.play')
_SPRING, _PICK = constant('peg_transfer.spring'), constant('peg_transfer.pick_tolerance')
_CLOSING = 0.8
"""Opening of the jaw from which two ticks do not close it."""
_TAUT = _SPRING * (2.0**0.5 * _PICK - _PLAY)
"""Pull of a ring that was just grasped as far off its peg as it can be, N."""


class Fields(NamedTuple):
    """The numbers of a state that a guard reads, in their units; see STATE_FIELDS."""

    error_x: Number
    error_y: Number
    error_z: Number
    lag: Number
    force: Number
    force_limit: Number
    jaw: Number
    grasped: Number


class Prospects(NamedTuple):
    """
    What an action can lead to.

    :param hard: greatest force under the wide bounds, N.
    :param usual: greatest force under the usual bounds, N.
    :param stops: whether the hard stop can be passed.
    :param presses: whether the procedure's force limit can be passed.
    :param harms: whether the damage of the case can pass its limit.
    :param leaves: whether the tip can leave the workspace.
    """

    hard: Number
    usual: Number
    stops: Number
    presses: Number
    harms: Number
    leaves: Number


class Guard:
    """
    One procedure on one patient, or on many.

    :param settings: of the shield.
    :param procedure: its name.
    :param like: 0.0 for one robot, zeros of shape (n,) for n of them.
    """

    def __init__(self, settings: ShieldSettings, procedure: str, like: Number = 0.0) -> None:
        chosen = procedure_named(procedure)
        self.settings = settings
        self.predictions = tuple(
            Prediction(bounds, chosen.contact_radius)
            for bounds in (settings.wide(), settings.usual())
        )
        self.sight = Sight(self.predictions, procedure, like)
        self._warn = chosen.warn_force
        self._rings = procedure == 'peg_transfer'
        self._rides = procedure == 'follow'
        self._away = _AWAY.get(procedure, (0.0, 0.0))
        self._decay = 2.718281828459045 ** (-TICK / settings.slowest)
        self._furthest = MAXIMUM_SPEED * settings.slowest
        self._zero = like
        self._aside = (like, like)
        """How far the tip is aside of its set-point at most, x and y, m."""
        self._pending = (like, like)
        self._held: Number = like > 1.0
        self.damage: Number = like
        """Of the case so far, N s."""
        self._seen: list[tuple[Prediction, Seen, Outlook]] = []

    def look(self, now: Fields, known: bool = True) -> None:
        """
        Take in a state.

        :param known: whether the last one was just one tick before.
        """
        self._now = now
        held = self._ringed(2.0 * COARSE_STEP) if self._rings else self._zero > 1.0
        free = (held | self._held) ^ True  # of rings, since the last state
        self._held = held
        self._seen = self.sight.look(
            Glance(now.force, now.lag, now.error_z, now.grasped), known, free
        )
        self.damage = self.damage + TICK * most(now.force - self._warn, self._zero)

    def prospects(self, action: int, holding: bool = False) -> Prospects:
        """
        Return what an action can lead to from the state that was seen last.

        :param holding: whether the robot holds, and keeps the procedure's own limit in any case.
        """
        settings, now = self.settings, self._now
        dx, dy, dz = ACTIONS[action].displacement
        (aside_x, aside_y), (due_x, due_y) = self._aside, self._pending
        far_x, far_y = aside_x + due_x + abs(dx), aside_y + due_y + abs(dy)
        way, longer = aside_x + aside_y + (abs(dx) + abs(dy)), far_x + far_y
        (wide, seen, outlook), (other, its, own) = self._seen
        hard = wide.force(seen, outlook, _MOVE[action], longer)
        usual = other.force(its, own, _MOVE[action], way)
        if self._rings:
            hard = self._pulled(hard, longer, COARSE_STEP - dz)
            usual = self._pulled(usual, way, -dz)
        harm = self.damage + 2.0 * TICK * most(usual - self._warn, self._zero)
        return Prospects(
            hard,
            usual,
            hard > HARD_STOP,
            (usual > now.force_limit) & (settings.keep_limit or holding),
            harm > settings.damage_limit,
            self._leaves(now.error_x, dx, far_x)
            | self._leaves(now.error_y, dy, far_y)
            | self._leaves_height(dz),
        )

    def act(self, dx: Number, dy: Number, dz: Number) -> None:
        """Take in the move of the set-point that is going to be carried out, m."""
        self.sight.move(-dz)
        self._pending = (abs(dx), abs(dy))
        self._aside = (
            least(self._aside[0] * self._decay + abs(dx), self._furthest + self._zero),
            least(self._aside[1] * self._decay + abs(dy), self._furthest + self._zero),
        )

    def aside(self) -> Self:
        """Return one that knows the same and goes its own way."""
        other = copy(self)
        other.sight = self.sight.aside()
        return other

    def keep(self, rows: Any) -> None:
        """Keep only some of many robots, in the order given."""
        self._aside = (self._aside[0][rows], self._aside[1][rows])
        self._pending = (self._pending[0][rows], self._pending[1][rows])
        self._zero, self._held = self._zero[rows], self._held[rows]
        self.damage = self.damage[rows]
        self.sight.keep(rows)

    def _ringed(self, down: float) -> Number:
        """Say where a ring can pull: held, or soon grasped, and below its peg after a way down."""
        now = self._now
        low = least(now.error_z, now.error_z + now.lag) - down < _TOP
        reach = _PICK + 2.0 * COARSE_STEP + self._furthest
        near = (abs(now.error_x) < reach) & (abs(now.error_y) < reach)
        closing = (now.jaw > 0.0) & (now.jaw <= _CLOSING)
        return low & ((now.grasped > 0.0) | (near & closing))

    def _pulled(self, force: Number, way: Number, down: float) -> Number:
        """Add to a force (N) what a ring can pull after a way sideways and one down, m."""
        now, settings = self._now, self.settings
        off = 2.0 * settings.arm_error  # sideways, on both axes
        pull = _SPRING * (way + off) + choose(now.grasped > 0.0, self._zero, _TAUT + self._zero)
        felt = now.force + settings.force_error
        ringed = self._ringed(max(down, 0.0) + settings.arm_error)
        return choose(ringed, most(force, felt) + pull, force)

    def _leaves(self, error: Number, move: float, far: Number) -> Number:
        """Say where a move sideways goes further out than the workspace is sure to be."""
        after = abs(error + move)
        away = choose(self._now.grasped > 0.0, self._away[1], self._away[0])
        return (after + far + away > LATERAL) & (after > abs(error))

    def _leaves_height(self, move: float) -> Number:
        """Say where a move up or down goes out of the workspace, or through the organ."""
        after = self.sight.height - self._now.lag + move
        if move > 0.0:
            swing = 0.5 * self.settings.swing if self._rides else 0.0
            return after > ABOVE - _MARGIN - swing
        return (after < _MARGIN - _DEEPEST) & (move < 0.0)
