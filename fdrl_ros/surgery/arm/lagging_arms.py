# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""
The kinematic arms of many operations: the 12 sub-steps of a discrete action at once.

Such an arm feels no force, and its set-point s is at the last target when a tick begins, so its
way is known: p_k = s_0 + (p_0 - s_0) r^k + the lagged response to the set-point's ramp. That is
the law of :class:`fdrl_ros.surgery.arm.kinematic_arm.KinematicArm`, solved for a whole tick.
The last axis of every array is the patient.
"""

from fdrl_ros.surgery.arm.kinematic_arm import response
from fdrl_ros.surgery.arm.kinematics import Point, straight_joints
from fdrl_ros.surgery.gym.actions import (
    ACTIONS,
    COARSE_STEP,
    DISPLACEMENTS,
    FINE_STEP,
    MAXIMUM_SPEED,
    SUBSTEP,
    SUBSTEPS,
)
from fdrl_ros.surgery.scalar_or_array import Array, PerPatient, Rows
import numpy as np

MOVES: Array = np.ascontiguousarray(DISPLACEMENTS.T)
"""What each action adds to a set-point, shape (3, 15), m."""

_SIGNS: Array = np.sign(MOVES)
_LENGTHS = (0.0, FINE_STEP, COARSE_STEP)
_KINDS: Rows = np.array([_LENGTHS.index(max(map(abs, action.displacement))) for action in ACTIONS])
_STEPS: Array = np.arange(1.0, SUBSTEPS + 1.0)
_RAMPS: Array = np.minimum(_STEPS[:, None] * MAXIMUM_SPEED * SUBSTEP, _LENGTHS[1:])
"""How far a set-point has gone after each sub-step, on each of the two ways, shape (12, 2), m."""

# Sub-steps from sub-step j (columns 0 to 12) to sub-step i (rows 1 to 12); what was ahead is lost.
_ELAPSED: Array = np.subtract.outer(_STEPS, np.arange(SUBSTEPS + 1.0))
_ELAPSED[_ELAPSED < 0.0] = np.inf

# A straight wrist reaches every point of this box: most set-points need no closer look.
LOW: Array = np.array([[-0.08], [-0.08], [-0.20]])
HIGH: Array = np.array([[0.08], [0.08], [-0.09]])


def refuse_unreachable(points: Array) -> None:
    """
    Refuse points, shape (3, n), that a straight wrist cannot reach.

    :raises UnreachableError: on the first such point.
    """
    if not ((points >= LOW) & (points <= HIGH)).all():
        for x, y, z in points.T.tolist():
            straight_joints(x, y, z)


class LaggingArms(PerPatient):
    """
    The arms of n operations.

    :param count: n.
    """

    def __init__(self, count: int) -> None:
        self.target: Array = np.zeros((3, count))
        """Where the set-point is after the action, m."""
        self.tip: Array = np.zeros((3, count))
        self._decay: Array = np.ones((SUBSTEPS, count))
        self._responses: Array = np.zeros((len(_LENGTHS), SUBSTEPS, count))
        self._begin = self._behind = self._sign = self.tip
        self._ramp = self._decay

    def put(self, row: int, start: Point, lag: float) -> None:
        """Put a tip at rest, and set the time constant of its lag, s."""
        self.target[:, row] = self.tip[:, row] = start
        share = response(lag)
        left = (1.0 - share) ** _ELAPSED
        self._decay[:, row] = left[:, 0]
        self._responses[1:, :, row] = share * (left[:, 1:] @ _RAMPS).T

    def move(self, actions: Rows, target: Array) -> tuple[Array, Array]:
        """
        Go to the targets that actions ask for.

        :returns: height of the tip (m) and its speed upwards (m/s), shapes (12, n).
        """
        last, self._begin, self.target = self.tip, self.target, target
        self._behind = last - self._begin
        self._sign = _SIGNS.take(actions, axis=1)
        self._ramp = self._responses[_KINDS.take(actions), :, np.arange(len(actions))].T
        self.tip = self._begin + self._behind * self._decay[-1] + self._sign * self._ramp[-1]
        heights = self.way(2)
        speeds = np.empty_like(heights)
        np.subtract(heights[0], last[2], out=speeds[0])
        np.subtract(heights[1:], heights[:-1], out=speeds[1:])
        speeds /= SUBSTEP
        return heights, speeds

    def way(self, axis: int) -> Array:
        """Return where the tip was along an axis in the last move, shape (12, n), m."""
        return self._begin[axis] + self._behind[axis] * self._decay + self._sign[axis] * self._ramp
