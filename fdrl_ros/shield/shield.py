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
import math
from typing import Self

from fdrl_ros.errors import StateError
from fdrl_ros.shield.action_bounds import (
    ActionBounds,
    Consequences,
    displacement_of,
    StateReadings,
    Veto,
)
from fdrl_ros.shield.damage import DamageMeter
from fdrl_ros.shield.depth_tables import JITTER
from fdrl_ros.shield.retreat import Vector
from fdrl_ros.shield.settings import ShieldSettings
from fdrl_ros.surgery.gym.actions import ACTION_COUNT, STAY, TICK
from fdrl_ros.surgery.gym.state import INDEX, OPERATION_SIZE, PROCEDURE_NAMES
import numpy as np
from numpy.typing import NDArray

__all__ = ['BatchShield', 'Shield', 'ShieldDecision', 'Veto']

FINE_UP, COARSE_UP = 11, 5
_FINER = 6
"""Number of a fine step less that of the coarse step in the same direction."""

_COLUMNS = [INDEX[f'goal_error_{axis}'] for axis in 'xyz'] + [
    INDEX[name] for name in ('lag', 'force', 'force_limit', 'jaw', 'grasped')
]

REPLACEMENTS: tuple[tuple[int, ...], ...] = tuple(
    tuple(dict.fromkeys((*finer, STAY, FINE_UP, COARSE_UP)))
    for finer in ((each, each + _FINER * (each < _FINER)) for each in range(ACTION_COUNT))
)
"""Of each action: itself and its replacements, in the order in which they are tried."""

LAST_RESORTS: tuple[int, ...] = (COARSE_UP, FINE_UP, STAY)
"""Actions where nothing is allowed: up, except out of the workspace, where there is no tissue."""


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
    :param procedures: names of those that it will see.
    """

    def __init__(
        self,
        settings: ShieldSettings | None = None,
        procedures: tuple[str, ...] = PROCEDURE_NAMES,
    ) -> None:
        self.settings = settings or ShieldSettings()
        # Their tables take a second to compute: here, not in the first state.
        self._fresh = {each: ActionBounds(self.settings, each) for each in procedures}
        self.bounds: ActionBounds | None = None
        """Of the case under way; None before its first state."""
        self._procedure = ''
        self._updated = -math.inf

    def reset(self) -> None:
        """Forget the case."""
        self.bounds = None

    def branch(self) -> Self:
        """Return a copy whose updates and decisions leave no trace in this shield."""
        other = copy(self)
        other.bounds = self.bounds and self.bounds.branch()
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
        if self.bounds is None or procedure != self._procedure:
            fresh = self._fresh.get(procedure)
            self.bounds = fresh.branch() if fresh else ActionBounds(self.settings, procedure)
            self._procedure, self._updated = procedure, -math.inf
        read = values[:OPERATION_SIZE].tolist()
        elapsed = now - self._updated
        interval = elapsed if abs(elapsed - TICK) <= JITTER else 0.0
        readings = StateReadings(*[read[each] for each in _COLUMNS])
        self.bounds.update(readings, damage, interval, elapsed < TICK - JITTER)
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
        bounds = self.bounds
        if bounds is None:
            raise StateError('the shield has seen no state yet')
        if not self.settings.active:
            bounds.record_move(*displacement_of(asked, False, None))
            return ShieldDecision(asked, asked, Veto.NONE, math.nan, math.nan)
        action, found = asked, bounds.consequences(asked, holding, away)
        veto = found.veto
        if veto:
            action, found = _replacement(bounds, asked, holding, away)
        bounds.record_move(*displacement_of(action, holding, away))
        if action == asked:
            veto = Veto.NONE
        return ShieldDecision(action, asked, veto, found.usual_force, found.wide_force)

    def consequences(self) -> list[Consequences]:
        """Return what each action can lead to from the newest state, if there is one."""
        bounds = self.bounds
        return (
            [] if bounds is None else [bounds.consequences(each) for each in range(ACTION_COUNT)]
        )


def _replacement(
    bounds: ActionBounds, asked: int, holding: bool, away: Vector | None
) -> tuple[int, Consequences]:
    """Return the replacement of a vetoed action, and its consequences."""
    for each in REPLACEMENTS[asked][1:]:
        found = bounds.consequences(each, holding, away)
        if not found.veto:
            return each, found
    for each in LAST_RESORTS:
        found = bounds.consequences(each, holding, away)
        if found.veto is not Veto.WORKSPACE:
            break
    return each, found


class BatchShield:
    """
    The shields of n robots that perform one procedure, and the damage of their cases.

    :param settings: of each.
    :param procedure: of all of them.
    :param count: n.
    """

    def __init__(self, settings: ShieldSettings, procedure: str, count: int) -> None:
        fresh = Shield(settings, (procedure,))
        self.shields = [fresh.branch() for _ in range(count)]
        self.damage = DamageMeter(np.zeros(count))
        self._procedure, self._ticks = procedure, 0

    def review(self, values: NDArray[np.float64], asked: NDArray[np.intp]) -> list[ShieldDecision]:
        """
        Take in n states and return the decisions in them.

        :param values: states one tick after those before, in units, shape (n, STATE_SIZE).
        :param asked: numbers of actions, shape (n,).
        """
        procedure, now = self._procedure, self._ticks * TICK
        self._ticks += 1
        self.damage.add(values[:, INDEX['force']], procedure, now)
        decisions = []
        for row, shield in enumerate(self.shields):
            shield.update(values[row], procedure, now, self.damage.total.item(row))
            decisions.append(shield.decide(int(asked[row])))
        return decisions

    def wide_forces(self) -> NDArray[np.float64]:
        """Return the greatest force under the wide bounds of each action, shape (n, 15), N."""
        found = [[each.wide_force for each in shield.consequences()] for shield in self.shields]
        return np.array(found)

    def select(self, rows: NDArray[np.intp]) -> None:
        """Keep only some robots, in the order given."""
        self.shields = [self.shields[row] for row in rows]
        self.damage.select(rows)
