# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""
Closed-form kinematics of a dVRK-like patient-side manipulator through its remote centre.

Modified DH parameters of the dVRK PSM with a large needle driver (SIRK PSM.json). The base
frame has its origin in the remote centre of motion (RCM): z up, the shaft along -z at zero.
"""

from collections.abc import Sequence
import math

from fdrl_ros.errors import StateError
import numpy as np
from numpy.typing import ArrayLike, NDArray

Vector = NDArray[np.float64]

JOINTS = ('yaw', 'pitch', 'insertion', 'roll', 'wrist_pitch', 'wrist_yaw')
JAW = 'jaw'
LOWER: Vector = np.array([-1.5708, -0.7854, 0.0, -4.538, -1.2217, -1.3963])
UPPER: Vector = np.array([1.5708, 0.7854, 0.240, 4.538, 1.2217, 1.3963])
HOME: Vector = np.array([0.0, 0.0, 0.12, 0.0, 0.0, 0.0])
JAW_LIMITS = (-0.349, 1.396)
EFFORT: Vector = np.array([3.32, 3.32, 9.88, 0.36, 0.36, 0.36])
"""Most that each joint gives, N m and N for insertion."""
for _each in (LOWER, UPPER, HOME, EFFORT):
    _each.setflags(write=False)

INSERTION_TO_WRIST = 0.4162 - 0.4318
"""Wrist pitch axis along the shaft from the RCM at zero insertion, metres."""
WRIST_LINK = 0.0091
"""Wrist pitch axis to wrist yaw axis, metres."""
TIP_LINK = 0.0102
"""Wrist yaw axis to tool tip, metres."""
STRAIGHT = INSERTION_TO_WRIST + WRIST_LINK + TIP_LINK
"""Tip along the shaft from the RCM at zero insertion and a straight wrist, metres."""

_LOWER, _UPPER = LOWER.tolist(), UPPER.tolist()
_SLACK = 1e-9


class UnreachableError(StateError):
    """The arm cannot take this pose."""


def within_limits(joints: ArrayLike) -> bool:
    """Say whether all six joints are finite and within their limits."""
    values = np.asarray(joints, np.float64)
    return bool(np.all((values >= LOWER - _SLACK) & (values <= UPPER + _SLACK)))


def _checked(joints: Sequence[float], asked: object) -> Sequence[float]:
    for name, value, low, high in zip(JOINTS, joints, _LOWER, _UPPER, strict=True):
        if not low - _SLACK <= value <= high + _SLACK:
            raise UnreachableError(
                f'pose {asked} needs {name} = {value:.4f}: expected {low:g} to {high:g}'
            )
    return joints


def _dot(a: Sequence[float], b: Sequence[float]) -> float:
    return a[0] * b[0] + a[1] * b[1] + a[2] * b[2]


def _cross(a: Sequence[float], b: Sequence[float]) -> list[float]:
    return [
        a[1] * b[2] - a[2] * b[1],
        a[2] * b[0] - a[0] * b[2],
        a[0] * b[1] - a[1] * b[0],
    ]


def _orthonormal(x: Sequence[float], y: Sequence[float], z: Sequence[float]) -> bool:
    error = max(
        abs(_dot(x, x) - 1.0),
        abs(_dot(y, y) - 1.0),
        abs(_dot(x, y)),
        *(abs(a - b) for a, b in zip(_cross(x, y), z, strict=True)),
    )
    return error <= 1e-6


def _shaft_rotation(yaw: float, pitch: float) -> Vector:
    """Return frame 3 of the DH chain: x, y and the shaft as columns."""
    sin_yaw, cos_yaw = math.sin(yaw), math.cos(yaw)
    sin_pitch, cos_pitch = math.sin(pitch), math.cos(pitch)
    return np.array(
        [
            [-sin_pitch * sin_yaw, -cos_yaw, cos_pitch * sin_yaw],
            [-cos_pitch, 0.0, -sin_pitch],
            [sin_pitch * cos_yaw, -sin_yaw, -cos_pitch * cos_yaw],
        ]
    )


def forward_kinematics(joints: ArrayLike) -> tuple[Vector, Vector]:
    """
    Return where the tool tip is for these joints.

    :param joints: yaw, pitch, insertion, roll, wrist pitch, wrist yaw; shape (6,), rad and m.
    :returns: position, shape (3,), metres, and rotation matrix, shape (3, 3), in the base frame.
    :raises StateError: if there are not six finite numbers.
    """
    values = np.asarray(joints, np.float64)
    if values.shape != (6,) or not np.isfinite(values).all():
        raise StateError(f'joints {joints!r}: expected six finite numbers')
    yaw, pitch, insertion, roll, wrist_pitch, wrist_yaw = values.tolist()
    shaft = _shaft_rotation(yaw, pitch)
    cos_roll, sin_roll = math.cos(roll), math.sin(roll)
    across = shaft[:, 0] * cos_roll + shaft[:, 1] * sin_roll
    pitch_axis = shaft[:, 1] * cos_roll - shaft[:, 0] * sin_roll
    wrist = across * math.sin(wrist_pitch) + shaft[:, 2] * math.cos(wrist_pitch)
    yaw_axis = np.cross(pitch_axis, wrist)
    side = wrist * math.sin(wrist_yaw) + pitch_axis * math.cos(wrist_yaw)
    approach = np.cross(yaw_axis, side)
    position = (
        shaft[:, 2] * (insertion + INSERTION_TO_WRIST) + wrist * WRIST_LINK + approach * TIP_LINK
    )
    return position, np.column_stack((-yaw_axis, -side, approach))


def inverse_kinematics(position: ArrayLike, rotation: ArrayLike, near_roll: float = 0.0) -> Vector:
    """
    Return the joints that put the tool tip at a pose, in closed form.

    The shaft lies in the plane of the wrist's yaw axis and the RCM, which fixes the wrist.

    :param position: shape (3,), metres.
    :param rotation: rotation matrix, shape (3, 3).
    :param near_roll: of the rolls a full turn apart, take the one nearest to this, rad.
    :returns: joints, shape (6,).
    :raises UnreachableError: if the pose is outside the joint limits, or in the RCM itself.
    :raises StateError: on numbers that are not finite, or a matrix that is no rotation.
    """
    tip = np.asarray(position, np.float64)
    matrix = np.asarray(rotation, np.float64)
    if tip.shape != (3,) or not np.isfinite(tip).all():
        raise StateError(f'position {position!r}: expected three finite numbers')
    if matrix.shape != (3, 3) or not np.isfinite(matrix).all():
        raise StateError(f'rotation {rotation!r}: expected a 3 x 3 matrix of finite numbers')
    x_axis, y_axis, approach = matrix.T.tolist()
    if not _orthonormal(x_axis, y_axis, approach):
        raise StateError(f'rotation {rotation!r}: expected a rotation matrix')
    yaw_axis, side = [-each for each in x_axis], [-each for each in y_axis]
    centre = [at - TIP_LINK * each for at, each in zip(tip.tolist(), approach, strict=True)]
    along = _dot(yaw_axis, centre)
    wrist = [at - along * each for at, each in zip(centre, yaw_axis, strict=True)]
    length = math.sqrt(_dot(wrist, wrist))
    if length < 1e-6:
        raise UnreachableError(f'pose at {tip.tolist()} leaves no direction for the wrist')
    wrist = [each / length for each in wrist]
    pitch_axis = _cross(wrist, yaw_axis)
    centre = [at - WRIST_LINK * each for at, each in zip(centre, wrist, strict=True)]
    reach = math.sqrt(_dot(centre, centre))
    if reach < 1e-6:
        raise UnreachableError(f'pose at {tip.tolist()} puts the wrist into the remote centre')
    shaft = [each / reach for each in centre]
    yaw = math.atan2(shaft[0], -shaft[2])
    pitch = math.asin(max(-1.0, min(1.0, -shaft[1])))
    down = [-math.sin(pitch) * math.sin(yaw), -math.cos(pitch), math.sin(pitch) * math.cos(yaw)]
    left = [-math.cos(yaw), 0.0, -math.sin(yaw)]
    roll = math.atan2(-_dot(down, pitch_axis), _dot(left, pitch_axis))
    turn = 2 * math.pi
    roll += turn * round((near_roll - roll) / turn)
    across = math.cos(roll) * _dot(down, wrist) + math.sin(roll) * _dot(left, wrist)
    wrist_pitch = math.atan2(across, _dot(shaft, wrist))
    wrist_yaw = math.atan2(_dot(side, wrist), _dot(side, pitch_axis))
    joints = (yaw, pitch, reach - INSERTION_TO_WRIST, roll, wrist_pitch, wrist_yaw)
    return np.array(_checked(joints, tip.tolist()))


def straight_joints(x: float, y: float, z: float) -> tuple[float, float, float]:
    """
    Return yaw, pitch and insertion that put the tip at a point, the wrist staying straight.

    :raises UnreachableError: if the point is outside the joint limits.
    """
    reach = math.sqrt(x * x + y * y + z * z)
    if not 1e-6 < reach < math.inf:
        raise UnreachableError(f'point ({x}, {y}, {z}) cannot be reached')
    yaw = math.atan2(x, -z)
    pitch = math.asin(-y / reach)
    insertion = reach - STRAIGHT
    if not (
        _LOWER[0] <= yaw <= _UPPER[0]
        and _LOWER[1] <= pitch <= _UPPER[1]
        and _LOWER[2] <= insertion <= _UPPER[2]
    ):
        _checked((yaw, pitch, insertion, 0.0, 0.0, 0.0), (x, y, z))
    return yaw, pitch, insertion
