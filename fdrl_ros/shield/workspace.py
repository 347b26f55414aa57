# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""The workspace around the goal, as states show it: by the way to a waypoint beside that goal."""

from fdrl_ros.shield.settings import ShieldSettings
from fdrl_ros.surgery.constants import constant
from fdrl_ros.surgery.gym.state import INDEX
from fdrl_ros.surgery.tasks.outcome import ABOVE, LATERAL
from fdrl_ros.surgery.tasks.procedures import TRAITS
import numpy as np

_SWING = 0.5 * ShieldSettings().swing
_DEEPEST = constant('patient.thickness_high')
_X, _Y, _Z, _LAG, _GRASPED = (
    INDEX[each] for each in ('goal_error_x', 'goal_error_y', 'goal_error_z', 'lag', 'grasped')
)


def has_left(values: np.ndarray, procedure: str) -> bool:
    """
    Tell whether the tip has surely left the workspace: a critical error (C_t of FDRL Eq. 10).

    A state tells the way to a waypoint, and that can lie anywhere within a known distance of the
    goal, around which the workspace is: a breach by less than both together is not reported.
    Sideways it goes by the set-point, which the tip follows; up and down by the tip.

    :param values: a state in units, shape (STATE_SIZE,) or (OPERATION_SIZE,).
    :param procedure: its name.
    """
    read = values.item
    grasped = read(_GRASPED) > 0.0
    traits = TRAITS[procedure]
    away, swing = traits.aside[grasped], _SWING if traits.rides else 0.0
    height = read(_Z) + read(_LAG) + traits.heights[grasped]
    aside = max(abs(read(_X)), abs(read(_Y)))
    return aside > LATERAL + away or not -_DEEPEST - swing <= height <= ABOVE + swing
