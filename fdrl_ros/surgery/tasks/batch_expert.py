# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""
The expert of :mod:`fdrl_ros.surgery.tasks.expert` for every operation of a batch at once.

It sees the float32 states of now, as the expert of one operation does.
"""

from fdrl_ros.surgery.gym.actions import ACTION_COUNT, DISPLACEMENTS, TICK
from fdrl_ros.surgery.gym.batch import BatchSurgery
from fdrl_ros.surgery.gym.state import INDEX, unscale
from fdrl_ros.surgery.patient.batch_events import Array
from fdrl_ros.surgery.tasks.expert import FIRST, FORCE_MARGIN, FORCE_PENALTY, RESOLUTION, TOLD
from fdrl_ros.surgery.tasks.task import excess, Prospect
from fdrl_ros.surgery.tissue.contact import contact_force
import numpy as np

_MOVES: Array = DISPLACEMENTS.T[:, :, None]
_SINKING: Array = -_MOVES[2] / TICK
_TOLD: Array = TOLD[:, None]


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
        x, y, z = (seen[FIRST + axis] + planned[axis] + _MOVES[axis] for axis in range(3))
        told = np.where(np.isnan(_TOLD), seen[INDEX['jaw_target']], _TOLD)
        aimed = task.tissue.surface(reached)[0]
        cost = task.remaining(Prospect(x, y, z, aimed, reached, jaw, told, grasped, done))
        tissue, depth = batch.tissue, task.tissue.rest + breath[-2] - z
        force = contact_force(tissue.stiffness[rows], tissue.damping[rows], depth, _SINKING)
        if stack.kind.rigid:
            force = force + np.hypot(*task.resistance(grasped, x, y, z))
        over = excess(force, FORCE_MARGIN * batch.rules.limit[rows])
        costs[:, rows] = cost + FORCE_PENALTY * over
    return np.round(costs.T, RESOLUTION)
