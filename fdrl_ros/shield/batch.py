# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""The shield of many robots that do one procedure: the same formulas, with arrays."""

from typing import NamedTuple

from fdrl_ros.shield.action_bounds import Fields, Guard
from fdrl_ros.shield.damage import DamageMeter
from fdrl_ros.shield.settings import ShieldSettings
from fdrl_ros.shield.shield import COARSE_UP, LADDERS, LAST
from fdrl_ros.surgery.gym.actions import ACTION_COUNT, DISPLACEMENTS, TICK
from fdrl_ros.surgery.gym.state import INDEX
import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
_LADDERS = np.array([each + (COARSE_UP,) * (6 - len(each)) for each in LADDERS])
_COLUMNS = [INDEX[f'goal_error_{each}'] for each in 'xyz'] + [
    INDEX[each] for each in ('lag', 'force', 'force_limit', 'jaw', 'grasped')
]


class Verdicts(NamedTuple):
    """
    What is carried out on n tables; see :class:`fdrl_ros.shield.shield.Verdict`.

    :param usual: under the usual bounds, for every action, shape (ACTION_COUNT, n), N.
    :param hard: under the wide bounds, as `usual`.
    """

    actions: NDArray[np.intp]
    usual: Array
    hard: Array


class BatchShield:
    """
    The shield of n robots.

    :param settings: of each.
    :param procedure: that all of them do.
    :param count: n.
    """

    def __init__(self, settings: ShieldSettings, procedure: str, count: int) -> None:
        self.settings = settings
        self.guard = Guard(settings, procedure, np.zeros(count))
        self.damage = DamageMeter(np.zeros(count))
        self._procedure, self._ticks = procedure, 0

    def review(self, values: Array, asked: NDArray[np.intp]) -> Verdicts:
        """
        Return what to do in n states instead of the actions asked for.

        :param values: states one tick after those before, in units, shape (n, STATE_SIZE).
        :param asked: numbers of actions, shape (n,).
        """
        guard, now = self.guard, Fields(*values.T[_COLUMNS])
        self.damage.add(now.force, self._procedure, self._ticks * TICK)
        guard.look(now, self.damage.total, TICK if self._ticks else 0.0)
        self._ticks += 1
        found = [guard.prospects(each) for each in range(ACTION_COUNT)]
        hard, usual = (
            np.array([np.broadcast_to(each[place], asked.shape) for each in found])
            for place in range(2)
        )
        vetoed = np.array(
            [
                np.broadcast_to(each.stops | each.presses | each.harms | each.leaves, asked.shape)
                for each in found
            ]
        )
        leaves = [np.broadcast_to(found[each].leaves, asked.shape) for each in LAST]
        actions = np.select([~each for each in leaves], LAST, LAST[-1])
        rows = np.arange(len(asked))
        for step in reversed(range(_LADDERS.shape[1])):
            tried = _LADDERS[asked, step]
            allowed = ~vetoed[tried, rows]
            actions[allowed] = tried[allowed]
        if not self.settings.active:
            actions = asked.copy()
        guard.act(*DISPLACEMENTS[actions].T)
        return Verdicts(actions, usual, hard)

    def keep(self, rows: NDArray[np.intp]) -> None:
        """Keep only some robots, in the order given."""
        self.guard.keep(rows)
        self.damage.keep(rows)
