# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""
The shield: no action is carried out that could lead beyond a hard limit.

It knows nothing but the states that policies see, and asks no policy. What replaces a vetoed
action is the first on its ladder that is allowed: the same way in a fine step, staying, up in a
fine step, up in a coarse one. Every prediction goes on with coarse steps up, so that those are
what may follow whatever was allowed, as far up as the workspace goes.
"""

from copy import copy
from dataclasses import dataclass
from enum import StrEnum
import math
from typing import Self

from fdrl_ros.errors import StateError
from fdrl_ros.shield.action_bounds import Fields, Guard, Prospects, way_of
from fdrl_ros.shield.excursion import JITTER
from fdrl_ros.shield.retreat import Vector
from fdrl_ros.shield.settings import ShieldSettings
from fdrl_ros.surgery.gym.actions import ACTION_COUNT, ACTIONS, STAY, TICK
from fdrl_ros.surgery.gym.state import INDEX, OPERATION_SIZE, PROCEDURE_NAMES
import numpy as np

FINE_UP, COARSE_UP = 11, 5
_FINER = 6
"""How much higher the number of a fine step is than that of the coarse one its way."""

_COLUMNS = [INDEX[f'goal_error_{each}'] for each in 'xyz'] + [
    INDEX[each] for each in ('lag', 'force', 'force_limit', 'jaw', 'grasped')
]


class Veto(StrEnum):
    """Why an action was not carried out: a fixed vocabulary; empty where it was."""

    NONE = ''
    HARD_STOP = 'hard_stop'
    FORCE = 'force'
    DAMAGE = 'damage'
    WORKSPACE = 'workspace'


def _ladder(action: int) -> tuple[int, ...]:
    steps = [action]
    if action < _FINER:
        steps.append(action + _FINER)
    return tuple(dict.fromkeys((*steps, STAY, FINE_UP, COARSE_UP)))


LADDERS: tuple[tuple[int, ...], ...] = tuple(_ladder(each) for each in range(ACTION_COUNT))
"""
Of each action: itself and what replaces it, in the order in which they are tried. Where none is
allowed it is the first of LAST that does not leave the workspace.
"""

LAST: tuple[int, ...] = (COARSE_UP, FINE_UP, STAY)
"""What is done where nothing is allowed: up, except out of the workspace, where no tissue is."""


@dataclass(frozen=True)
class Verdict:
    """
    What is carried out, and why.

    :param action: that is carried out.
    :param asked: that was asked for.
    :param veto: why the action asked for is not carried out.
    :param force: greatest force that the action carried out can lead to under the usual bounds, N.
    :param worst: the same under the wide bounds, N.
    """

    action: int
    asked: int
    veto: Veto
    force: float
    worst: float


class Shield:
    """
    The shield of one robot.

    :param settings: what it keeps and takes for granted.
    """

    def __init__(self, settings: ShieldSettings | None = None) -> None:
        self.settings = settings or ShieldSettings()
        # What their predictions look up takes a second to make: here, not in the first state.
        self._fresh = {each: Guard(self.settings, each) for each in PROCEDURE_NAMES}
        self._guard: Guard | None = None
        self._procedure = ''
        self._seen = -math.inf

    def reset(self) -> None:
        """Forget the case."""
        self._guard = None

    def aside(self) -> Self:
        """Return one that knows the same; what it is asked leaves no trace in this one."""
        other = copy(self)
        other._guard = self._guard and self._guard.aside()
        return other

    def look(self, values: np.ndarray, procedure: str, now: float, damage: float = 0.0) -> None:
        """
        Take in a state.

        :param values: in units, shape (STATE_SIZE,) or (OPERATION_SIZE,).
        :param procedure: its name.
        :param now: seconds of the clock that stamps states.
        :param damage: of the case so far, see :class:`DamageMeter`, N s.
        :raises SettingError: if there is no such procedure.
        """
        if self._guard is None or procedure != self._procedure:
            fresh = self._fresh.get(procedure)
            self._guard = Guard(self.settings, procedure) if fresh is None else fresh.aside()
            self._procedure, self._seen = procedure, -math.inf
        read = values[:OPERATION_SIZE].tolist()
        gone = now - self._seen
        interval = gone if abs(gone - TICK) <= JITTER else 0.0
        self._guard.look(
            Fields(*[read[each] for each in _COLUMNS]), damage, interval, gone < TICK - JITTER
        )
        self._seen = now

    def choose(self, asked: int, holding: bool = False, away: Vector | None = None) -> Verdict:
        """
        Return what to do instead of an action, or the action itself, in the state seen last.

        :param asked: the number of an action.
        :param holding: whether the robot holds: then the procedure's limit counts in any case.
        :param away: along the shaft away from the tissue, where a robot that holds is drawn back.
        :raises StateError: before the first state.
        """
        guard = self._guard
        if guard is None:
            raise StateError('the shield has seen no state yet')
        if not self.settings.active:
            guard.act(*ACTIONS[asked].displacement)
            return Verdict(asked, asked, Veto.NONE, math.nan, math.nan)
        action, found = asked, guard.prospects(asked, holding, away)
        veto = _reason(found)
        if veto is not Veto.NONE:
            action, found = _instead(guard, asked, holding, away)
        guard.act(*way_of(action, holding, away))
        if action == asked:
            veto = Veto.NONE
        return Verdict(action, asked, veto, found.usual, found.hard)

    def keep(
        self,
        values: np.ndarray,
        procedure: str,
        now: float,
        away: Vector | None = None,
        damage: float = 0.0,
    ) -> Verdict:
        """Return how to keep the tip: staying, or up where that could lead beyond a limit."""
        return self.review(values, procedure, STAY, now, True, away, damage)

    def review(
        self,
        values: np.ndarray,
        procedure: str,
        asked: int,
        now: float,
        holding: bool = False,
        away: Vector | None = None,
        damage: float = 0.0,
    ) -> Verdict:
        """
        Take in a state and return what to do in it instead of an action, or the action itself.

        The parameters are those of :meth:`look` and :meth:`choose`.
        """
        self.look(values, procedure, now, damage)
        return self.choose(asked, holding, away)


def _instead(
    guard: Guard, asked: int, holding: bool, away: Vector | None
) -> tuple[int, Prospects]:
    """Return what replaces an action, and what it can lead to."""
    for each in LADDERS[asked][1:]:
        found = guard.prospects(each, holding, away)
        if _reason(found) is Veto.NONE:
            return each, found
    for each in LAST:
        found = guard.prospects(each, holding, away)
        if not found.leaves:
            break
    return each, found


def _reason(found: Prospects) -> Veto:
    if found.leaves:
        return Veto.WORKSPACE
    if found.stops:
        return Veto.HARD_STOP
    if found.presses:
        return Veto.FORCE
    return Veto.DAMAGE if found.harms else Veto.NONE
