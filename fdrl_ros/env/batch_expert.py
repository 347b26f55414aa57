# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""
The expert of :mod:`fdrl_ros.env.expert` for every operation of a batch at once.

It sees the float32 states of now, as the expert of one operation does.
"""

from fdrl_ros.env.actions import ACTION_COUNT, ACTIONS, DISPLACEMENTS, TICK
from fdrl_ros.env.batch import BatchSurgery
from fdrl_ros.env.batch_events import Array, Rows
from fdrl_ros.env.expert import FORCE_MARGIN, FORCE_PENALTY
from fdrl_ros.env.state import INDEX, unscale
from fdrl_ros.env.tasks.task import excess, Prospect
import numpy as np

_RESOLUTION = 7  # decimals of a metre, as the one expert rounds
_FIRST = INDEX['goal_error_x']
_MOVES: Array = DISPLACEMENTS.T[:, :, None]
_SINKING: Array = -_MOVES[2] / TICK
_TOLD: Array = np.array([[np.nan if each.jaw is None else float(each.jaw)] for each in ACTIONS])


def expert_costs(batch: BatchSurgery) -> Array:
    """
    Predict the remaining cost one tick after each action, with a penalty on force.

    :returns: costs, shape (n, 15), metres; as one expert after the other says, but for rounding.
    """
    values = unscale(batch.states()).T
    breaths, _rises, _factors = batch.motion()
    now = batch.ticks * TICK
    later = now + batch.tissue.ahead[-1]
    costs: Array = np.empty((ACTION_COUNT, len(now)))
    for stack in batch.tasks.stacks():
        task, rows = stack.ready(), stack.rows
        seen, time, reached = values.take(rows, axis=1), now.take(rows), later.take(rows)
        breath = breaths.take(rows, axis=1)
        task.tissue.known = [(time, breath[0]), (reached, breath[-1])]
        done, grasped, jaw = (seen[INDEX[each]] for each in ('done', 'grasped', 'jaw'))
        planned = task.waypoint(grasped, done, time)
        x, y, z = (seen[_FIRST + axis] + planned[axis] + _MOVES[axis] for axis in range(3))
        told = np.where(np.isnan(_TOLD), seen[INDEX['jaw_target']], _TOLD)
        aimed = task.tissue.surface(reached)[0]
        cost = task.remaining(Prospect(x, y, z, aimed, reached, jaw, told, grasped, done))
        force = _pressing(batch, rows, task.tissue.rest + breath[-2] - z)
        if stack.kind.rigid:
            force = force + np.hypot(*task.resistance(grasped, x, y, z))
        over = excess(force, FORCE_MARGIN * batch.rules.limit[rows])
        costs[:, rows] = cost + FORCE_PENALTY * over
    return np.round(costs.T, _RESOLUTION)


def _pressing(batch: BatchSurgery, rows: Rows, depth: Array) -> Array:
    """Return the force of tissue on set-points at depths, N, where the moves have got to them."""
    tissue, pressed = batch.tissue, np.maximum(depth, 0.0)
    return (
        tissue.stiffness[rows]
        * pressed
        * np.sqrt(pressed)
        * (1.0 + tissue.damping[rows] * _SINKING)
    )
