# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""
The shield: replace every action that could lead beyond a hard limit.

The shield reads the states that policies see, and asks no policy. A vetoed action is replaced by
the first allowed action of its ladder: the same direction in a fine step, staying, up in a fine
step, up in a coarse step. Every prediction continues with coarse steps up, so that an allowed
action always leaves this way out, as far up as the workspace goes.
"""

from copy import copy
from dataclasses import dataclass
from enum import StrEnum
import math
from typing import NamedTuple, Self

from fdrl_ros.errors import StateError
from fdrl_ros.shield.action_bounds import (
    ActionBounds,
    Consequences,
    displacement_of,
    StateReadings,
)
from fdrl_ros.shield.damage import DamageMeter
from fdrl_ros.shield.excursion import JITTER
from fdrl_ros.shield.retreat import Vector
from fdrl_ros.shield.settings import ShieldSettings
from fdrl_ros.surgery.gym.actions import ACTION_COUNT, ACTIONS, DISPLACEMENTS, STAY, TICK
from fdrl_ros.surgery.gym.state import INDEX, OPERATION_SIZE, PROCEDURE_NAMES
import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]

FINE_UP, COARSE_UP = 11, 5
_FINER = 6
"""Number of a fine step less that of the coarse step in the same direction."""

_COLUMNS = [INDEX[f'goal_error_{each}'] for each in 'xyz'] + [
    INDEX[each] for each in ('lag', 'force', 'force_limit', 'jaw', 'grasped')
]


class Veto(StrEnum):
    """Why an action was replaced: a fixed vocabulary; empty where it was carried out."""

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
"""Of each action: itself and its replacements, in the order in which they are tried."""

LAST: tuple[int, ...] = (COARSE_UP, FINE_UP, STAY)
"""Actions where nothing is allowed: up, except out of the workspace, where there is no tissue."""

_LADDERS = np.array([each + (COARSE_UP,) * (6 - len(each)) for each in LADDERS])


@dataclass(frozen=True)
class ShieldDecision:
    """
    The action that is carried out, and why.

    :param action: that is carried out.
    :param asked: that was asked for.
    :param veto: why the action asked for is not carried out.
    :param usual_force: greatest force that the action can lead to under the usual bounds, N.
    :param wide_force: the same under the wide bounds, N.
    """

    action: int
    asked: int
    veto: Veto
    usual_force: float
    wide_force: float


class Shield:
    """
    The shield of one robot.

    :param settings: its limits and assumptions.
    """

    def __init__(self, settings: ShieldSettings | None = None) -> None:
        self.settings = settings or ShieldSettings()
        # Their tables take a second to compute: here, not in the first state.
        self._fresh = {each: ActionBounds(self.settings, each) for each in PROCEDURE_NAMES}
        self._bounds: ActionBounds | None = None
        self._procedure = ''
        self._updated = -math.inf

    def reset(self) -> None:
        """Forget the case."""
        self._bounds = None

    def branch(self) -> Self:
        """Return a copy whose updates and decisions leave no trace in this shield."""
        other = copy(self)
        other._bounds = self._bounds and self._bounds.branch()
        return other

    def update(self, values: np.ndarray, procedure: str, now: float, damage: float = 0.0) -> None:
        """
        Take in a state.

        :param values: in units, shape (STATE_SIZE,) or (OPERATION_SIZE,).
        :param procedure: its name.
        :param now: seconds of the clock that stamps states.
        :param damage: of the case so far, see :class:`DamageMeter`, N s.
        :raises SettingError: if there is no such procedure.
        """
        if self._bounds is None or procedure != self._procedure:
            fresh = self._fresh.get(procedure)
            self._bounds = fresh.branch() if fresh else ActionBounds(self.settings, procedure)
            self._procedure, self._updated = procedure, -math.inf
        read = values[:OPERATION_SIZE].tolist()
        elapsed = now - self._updated
        interval = elapsed if abs(elapsed - TICK) <= JITTER else 0.0
        readings = StateReadings(*[read[each] for each in _COLUMNS])
        self._bounds.update(readings, damage, interval, elapsed < TICK - JITTER)
        self._updated = now

    def decide(
        self, asked: int, holding: bool = False, away: Vector | None = None
    ) -> ShieldDecision:
        """
        Return the action to carry out in the newest state: the one asked for, or a replacement.

        :param asked: number of an action.
        :param holding: whether the robot holds: then the procedure's limit counts in any case.
        :param away: along the shaft away from the tissue, where a robot that holds is drawn back.
        :raises StateError: before the first state.
        """
        bounds = self._bounds
        if bounds is None:
            raise StateError('the shield has seen no state yet')
        if not self.settings.active:
            bounds.record_move(*ACTIONS[asked].displacement)
            return ShieldDecision(asked, asked, Veto.NONE, math.nan, math.nan)
        action, found = asked, bounds.consequences(asked, holding, away)
        veto = _veto_of(found)
        if veto is not Veto.NONE:
            action, found = _replacement(bounds, asked, holding, away)
        bounds.record_move(*displacement_of(action, holding, away))
        if action == asked:
            veto = Veto.NONE
        return ShieldDecision(action, asked, veto, found.usual_force, found.wide_force)


def _replacement(
    bounds: ActionBounds, asked: int, holding: bool, away: Vector | None
) -> tuple[int, Consequences]:
    """Return the replacement of a vetoed action, and its consequences."""
    for each in LADDERS[asked][1:]:
        found = bounds.consequences(each, holding, away)
        if _veto_of(found) is Veto.NONE:
            return each, found
    for each in LAST:
        found = bounds.consequences(each, holding, away)
        if not found.leaves_workspace:
            break
    return each, found


def _veto_of(found: Consequences) -> Veto:
    if found.leaves_workspace:
        return Veto.WORKSPACE
    if found.passes_hard_stop:
        return Veto.HARD_STOP
    if found.passes_force_limit:
        return Veto.FORCE
    return Veto.DAMAGE if found.passes_damage_limit else Veto.NONE


class BatchDecisions(NamedTuple):
    """
    Decisions on n tables; see :class:`ShieldDecision`.

    :param actions: that are carried out, shape (n,).
    :param usual_force: under the usual bounds, for every action, shape (ACTION_COUNT, n), N.
    :param wide_force: under the wide bounds, as `usual_force`.
    """

    actions: NDArray[np.intp]
    usual_force: Array
    wide_force: Array


class BatchShield:
    """
    The shield of n robots that perform one procedure: the same bounds over arrays.

    :param settings: of each.
    :param procedure: of all of them.
    :param count: n.
    """

    def __init__(self, settings: ShieldSettings, procedure: str, count: int) -> None:
        self.settings = settings
        self.bounds = ActionBounds(settings, procedure, np.zeros(count))
        self.damage = DamageMeter(np.zeros(count))
        self._procedure, self._ticks = procedure, 0

    def review(self, values: Array, asked: NDArray[np.intp]) -> BatchDecisions:
        """
        Take in n states and return the actions to carry out in them.

        :param values: states one tick after those before, in units, shape (n, STATE_SIZE).
        :param asked: numbers of actions, shape (n,).
        """
        bounds, now = self.bounds, StateReadings(*values.T[_COLUMNS])
        self.damage.add(now.force, self._procedure, self._ticks * TICK)
        bounds.update(now, self.damage.total, TICK if self._ticks else 0.0)
        self._ticks += 1
        # Each field over all actions, shape (ACTION_COUNT, n).
        found = Consequences(
            *(
                np.array([np.broadcast_to(each, asked.shape) for each in field])
                for field in zip(*map(bounds.consequences, range(ACTION_COUNT)), strict=True)
            )
        )
        vetoed = (
            found.passes_hard_stop
            | found.passes_force_limit
            | found.passes_damage_limit
            | found.leaves_workspace
        )
        actions = np.select(list(~found.leaves_workspace[list(LAST)]), LAST, LAST[-1])
        rows = np.arange(len(asked))
        for step in reversed(range(_LADDERS.shape[1])):
            tried = _LADDERS[asked, step]
            allowed = ~vetoed[tried, rows]
            actions[allowed] = tried[allowed]
        if not self.settings.active:
            actions = asked.copy()
        bounds.record_move(*DISPLACEMENTS[actions].T)
        return BatchDecisions(actions, found.usual_force, found.wide_force)

    def select(self, rows: NDArray[np.intp]) -> None:
        """Keep only some robots, in the order given."""
        self.bounds.select(rows)
        self.damage.select(rows)
