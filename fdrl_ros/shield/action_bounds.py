# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""Bounds on what each action can lead to: force, damage, a way out of the workspace."""

from copy import copy
from enum import StrEnum
from functools import cache
from typing import NamedTuple, Self

from fdrl_ros.shield.contact_estimator import ContactEstimator, ContactReading
from fdrl_ros.shield.depth_tables import MOVES
from fdrl_ros.shield.prediction import compiled_prediction, ContactBounds, ContactState, Prediction
from fdrl_ros.shield.retreat import retreat, Vector
from fdrl_ros.shield.settings import ShieldSettings
from fdrl_ros.surgery.constants import constant
from fdrl_ros.surgery.gym.actions import ACTIONS, COARSE_STEP, MAXIMUM_SPEED, TICK
from fdrl_ros.surgery.tasks.outcome import ABOVE, HARD_STOP, LATERAL
from fdrl_ros.surgery.tasks.procedures import procedure_named, TRAITS

_MOVE = [MOVES.index(each.displacement[2]) for each in ACTIONS]
"""Place in MOVES of each action."""

_DEEPEST = constant('patient.thickness_low')
_MARGIN = 0.003
"""Further distance to the bounds of the workspace, m, for one move that is still to come."""

_SLACK = 1e-5
"""Tolerance of a set-point, m: messages round their numbers."""
_HARMING = 8.0 * TICK
"""How long a force that is predicted counts as damage, s: about till the tip is drawn back."""
_CLOSING = 0.8
"""Opening of the jaw from which two ticks do not close it."""


class Veto(StrEnum):
    """Why an action was replaced: a fixed vocabulary; empty where it was carried out."""

    NONE = ''
    HARD_STOP = 'hard_stop'
    FORCE = 'force'
    DAMAGE = 'damage'
    WORKSPACE = 'workspace'


class StateReadings(NamedTuple):
    """The numbers of a state that the bounds read, in their units; see STATE_FIELDS."""

    error_x: float
    error_y: float
    error_z: float
    lag: float
    force: float
    force_limit: float
    jaw: float
    grasped: float


class Ring(NamedTuple):
    """
    A ring on its peg, with the numbers of its procedure.

    :param top: how far a ring must be lifted off its peg, m.
    :param play: how far it moves on its peg before it pulls at it, m.
    :param spring: of a ring against its peg, N/m.
    :param pick: how far off a ring the jaw can be, each axis, when it grasps it, m.
    :param taut: pull of a ring that was just grasped as far off its peg as it can be, N.
    """

    top: float
    play: float
    spring: float
    pick: float
    taut: float


@cache
def _ring_of(procedure: str) -> Ring | None:
    """Return the ring of a procedure; None if it has none."""
    traits = TRAITS[procedure]
    if not traits.pegs:
        return None
    top, play, spring, pick = (
        traits.numbers[name] for name in ('peg', 'play', 'spring', 'pick_tolerance')
    )
    return Ring(top, play, spring, pick, spring * (2.0**0.5 * pick - play))


class LateralReach:
    """
    How far the tip can be aside of its set-point along one axis.

    :param furthest: that the tip can be behind, m.
    :param still: whether the waypoint goes nowhere, so that its error tells of the set-point.
    """

    def __init__(self, furthest: float, still: bool) -> None:
        self._furthest, self._still = furthest, still
        self.aside = 0.0
        """At most, m."""
        self.due = 0.0
        """Moves of the set-point that may still be to come, m."""
        self.way = 0.0
        """How far the tip went since the last state at most, m."""
        self.moved = 0.0
        """How far the set-point is going to move, m."""
        self._last: tuple[float, float] | None = None

    def update(
        self, error: float, grasped: float, known: bool, decay: float, soon: bool = False
    ) -> None:
        """
        Take in a state.

        :param error: of the set-point from the waypoint, m.
        :param grasped: 1 if the jaw holds the object: then the waypoint is another.
        :param known: whether the last state was just one tick before.
        :param decay: share of its lag that the arm kept since then at most.
        :param soon: whether the last state was less than a tick before.
        """
        asked = went = self.due + self.moved
        due = asked if soon else self.moved
        if self._still and (known or soon) and self._last is not None:
            before, held = self._last
            if (held > 0.5) == (grasped > 0.5):
                gone = abs(error - before)
                # Of two moves at once, one can have undone the other.
                went = gone if self.due <= _SLACK else asked
                due = max(asked - gone, 0.0)
        self.due = due
        self.way = self.aside + went
        self.aside = min(self.aside * decay + went, self._furthest)
        self.moved, self._last = 0.0, (error, grasped)


class Consequences(NamedTuple):
    """
    What an action can lead to.

    :param veto: the limit that it can lead beyond.
    :param usual_force: greatest force under the usual bounds, N.
    :param wide_force: greatest force under the wide bounds, N.
    """

    veto: Veto
    usual_force: float
    wide_force: float


def displacement_of(action: int, holding: bool, away: Vector | None) -> Vector:
    """Return how far an action moves the set-point, m; see :meth:`ActionBounds.consequences`."""
    way = ACTIONS[action].displacement
    return retreat(way[2], away) if holding and way[2] > 0.0 else way


class ActionBounds:
    """
    Bounds for one procedure on one patient.

    :param settings: of the shield.
    :param procedure: its name.
    """

    def __init__(self, settings: ShieldSettings, procedure: str) -> None:
        chosen = procedure_named(procedure)
        self.settings = settings
        predictions = tuple(
            compiled_prediction(bounds, chosen.contact_radius)
            for bounds in (settings.wide_bounds(), settings.usual_bounds())
        )
        self.estimator = ContactEstimator(predictions, procedure)
        self._warn = chosen.warn_force
        traits = TRAITS[procedure]
        self._ring, self._rides, self._away = _ring_of(procedure), traits.rides, traits.aside
        furthest, still = MAXIMUM_SPEED * settings.slowest, not any(self._away)
        self._sides = (LateralReach(furthest, still), LateralReach(furthest, still))
        self._held = False
        self._damage = 0.0
        self._seen: list[tuple[Prediction, ContactState, ContactBounds]] = []

    def update(
        self, now: StateReadings, damage: float, interval: float = TICK, soon: bool = False
    ) -> None:
        """
        Take in a state.

        :param damage: of the case so far, N s.
        :param interval: since the last state, s; 0 if that was not about one tick before.
        :param soon: whether it was less than that before.
        """
        self._now, self._damage = now, damage
        estimator = self.estimator
        decay = 1.0 if soon else estimator.decay(interval or TICK)
        for side, error in zip(self._sides, (now.error_x, now.error_y), strict=True):
            side.update(error, now.grasped, interval > 0.0, decay, soon)
        strayed = self._sides[0].way + self._sides[1].way
        held = self._ring is not None and self._ring_can_pull(self._ring, 2.0 * COARSE_STEP)
        free = not (held or self._held)  # of rings, since the last state
        self._held = held
        reading = ContactReading(now.force, now.lag, now.error_z, now.grasped)
        self._seen = estimator.update(reading, interval, free, strayed, soon)

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
        ring = self._ring
        if ring is not None:
            hard = self._with_ring_pull(ring, hard, longer, COARSE_STEP - dz)
            usual = self._with_ring_pull(ring, usual, way, -dz)
        drawn = holding and dz > 0.0  # then it may leave sideways rather than press on
        leaves = self._leaves_sideways(now.error_x, dx, far_x) or self._leaves_sideways(
            now.error_y, dy, far_y
        )
        if self._leaves_height(dz) or (leaves and not drawn):
            veto = Veto.WORKSPACE
        elif hard > HARD_STOP:
            veto = Veto.HARD_STOP
        elif usual > now.force_limit and (settings.keep_limit or holding):
            veto = Veto.FORCE
        elif (
            usual > self._warn
            and self._damage + _HARMING * (usual - self._warn) > settings.damage_limit
        ):
            veto = Veto.DAMAGE
        else:
            veto = Veto.NONE
        return Consequences(veto, usual, hard)

    def record_move(self, dx: float, dy: float, dz: float) -> None:
        """Take in the move of the set-point that is going to be carried out, m."""
        self.estimator.record_move(-dz)
        self._sides[0].moved, self._sides[1].moved = abs(dx), abs(dy)

    def branch(self) -> Self:
        """Return an independent copy."""
        other = copy(self)
        other.estimator = self.estimator.branch()
        other._sides = (copy(self._sides[0]), copy(self._sides[1]))
        return other

    def _ring_can_pull(self, ring: Ring, down: float) -> bool:
        """Say whether a ring can pull: held or soon grasped, and below its peg then."""
        now = self._now
        down += self.settings.position_error
        if not min(now.error_z, now.error_z + now.lag) - down < ring.top:
            return False
        reach = ring.pick + 2.0 * COARSE_STEP + MAXIMUM_SPEED * self.settings.slowest
        near = abs(now.error_x) < reach and abs(now.error_y) < reach
        return now.grasped > 0.0 or (near and 0.0 < now.jaw <= _CLOSING)

    def _with_ring_pull(self, ring: Ring, force: float, way: float, down: float) -> float:
        """Add to a force (N) what a ring can pull after a way sideways and one down, m."""
        now, settings = self._now, self.settings
        if not self._ring_can_pull(ring, max(down, 0.0) + settings.arm_error):
            return force
        off = 2.0 * settings.arm_error  # sideways, on both axes
        held, high = now.grasped > 0.0, now.error_z + now.lag
        pull = ring.spring * (way + off) + (0.0 if held else ring.taut)
        # A ring above its peg pulls at nothing now: lowered beside it, by all that it is off.
        if held and high > ring.top - settings.arm_error - settings.position_error:
            beside = (now.error_x * now.error_x + now.error_y * now.error_y) ** 0.5 - ring.play
            pull = max(pull, ring.spring * (beside + way + off))
        return max(force, now.force + settings.force_error) + pull

    def _leaves_sideways(self, error: float, move: float, far: float) -> bool:
        """Say whether a move sideways goes further out than the workspace is sure to be."""
        after = abs(error + move)
        return after + far + self._away[self._now.grasped > 0.0] > LATERAL and after > abs(error)

    def _leaves_height(self, move: float) -> bool:
        """Say whether a move up or down goes out of the workspace, or through the organ."""
        after = self.estimator.height - self._now.lag + move
        if move > 0.0:
            swing = 0.5 * self.settings.swing if self._rides else 0.0
            return after > ABOVE - _MARGIN - swing
        return after < _MARGIN - _DEEPEST and move < 0.0
