# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""
Closed-form kinematics of a dVRK-like patient-side manipulator through its remote centre.

Modified DH parameters of the dVRK PSM with a large needle driver (SIRK PSM.json). The base
frame has its origin in the remote centre of motion (RCM): z up, the shaft along -z at zero.
:func:`forward` and :func:`inverse` take plain floats and check no more than limits;
:func:`forward_kinematics` and :func:`inverse_kinematics` refuse whatever is no pose.
"""

from collections.abc import Sequence
import math

from fdrl_ros.errors import StateError
from fdrl_ros.runtime.ranges import is_within
import numpy as np
from numpy.typing import ArrayLike, NDArray

Vector = NDArray[np.float64]
Point = tuple[float, float, float]
Axes = tuple[Point, Point, Point]
"""A rotation matrix as its three columns."""
Joints = tuple[float, float, float, float, float, float]

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
_OVERSHOOT = 0.01
"""How far beyond its limit a measured joint may be and still be one of this arm, rad or m."""

_NO_NUMBERS = bool, np.bool_, str, bytes
_TURN = 2.0 * math.pi
_MOST_TURN = 1e6


class UnreachableError(StateError):
    """The arm cannot take this pose."""


def _checked(joints: Joints, asked: object) -> Joints:
    for name, value, low, high in zip(JOINTS, joints, _LOWER, _UPPER, strict=True):
        if not low - _SLACK <= value <= high + _SLACK:
            raise UnreachableError(
                f'pose {asked} needs {name} = {value:.4f}: expected {low:g} to {high:g}'
            )
    return joints


def _numbers(values: object, count: int, what: str) -> list[float]:
    """
    Return so many numbers as plain floats.

    :raises StateError: if they are not, or one is not finite.
    """
    if type(values) is np.ndarray and values.dtype == np.float64 and values.ndim == 1:
        numbers = values.tolist()  # the fast path
    else:
        try:
            numbers = [
                math.nan if isinstance(value, _NO_NUMBERS) else float(value)
                for value in values  # type: ignore[attr-defined]
            ]
        except (TypeError, ValueError, OverflowError):
            numbers = []
    if len(numbers) != count or not all(map(math.isfinite, numbers)):
        words = {3: 'three', 6: 'six'}
        raise StateError(f'{what} {values!r}: expected {words[count]} finite numbers')
    return numbers


def checked_point(position: object) -> Point:
    """
    Return a point as plain floats.

    :raises StateError: if it is not three finite numbers.
    """
    x, y, z = _numbers(position, 3, 'position')
    return x, y, z


def checked_joints(joints: object) -> Joints:
    """
    Return six joints as plain floats.

    :raises UnreachableError: if one is beyond its limit.
    :raises StateError: if they are not six finite numbers.
    """
    yaw, pitch, insertion, roll, wrist_pitch, wrist_yaw = _numbers(joints, 6, 'joints')
    return _checked((yaw, pitch, insertion, roll, wrist_pitch, wrist_yaw), 'of these joints')


def forward(joints: Sequence[float]) -> tuple[Point, Axes]:
    """Return tip and axes of six joints, unchecked: the fast path of forward_kinematics."""
    sin, cos = math.sin, math.cos
    yaw, pitch, insertion, roll, wrist_pitch, wrist_yaw = joints
    sy, cy, sp, cp = sin(yaw), cos(yaw), sin(pitch), cos(pitch)
    sr, cr, sa, ca = sin(roll), cos(roll), sin(wrist_pitch), cos(wrist_pitch)
    sb, cb = sin(wrist_yaw), cos(wrist_yaw)
    tip, yaw_axis, side, approach = [], [], [], []
    for down, left, shaft in (
        (-sp * sy, -cy, cp * sy),
        (-cp, 0.0, -sp),
        (sp * cy, -sy, -cp * cy),
    ):
        across = down * cr + left * sr
        pitch_axis = left * cr - down * sr
        wrist = across * sa + shaft * ca
        ahead = wrist * cb - pitch_axis * sb
        yaw_axis.append(shaft * sa - across * ca)
        side.append(-wrist * sb - pitch_axis * cb)
        approach.append(ahead)
        tip.append(
            shaft * (insertion + INSERTION_TO_WRIST) + wrist * WRIST_LINK + ahead * TIP_LINK
        )
    x, y, z = tip
    (a, b, c), (d, e, f), (g, h, i) = yaw_axis, side, approach
    return (x, y, z), ((a, b, c), (d, e, f), (g, h, i))


def forward_kinematics(joints: ArrayLike) -> tuple[Vector, Vector]:
    """
    Return where the tool tip is for these joints.

    :param joints: yaw, pitch, insertion, roll, wrist pitch, wrist yaw; shape (6,), rad and m;
        0.01 beyond their limits at most, as measured ones may be.
    :returns: position, shape (3,), metres, and rotation matrix, shape (3, 3), in the base frame.
    :raises UnreachableError: if one is further beyond its limits.
    :raises StateError: if there are not six finite numbers.
    """
    values = _numbers(joints, 6, 'joints')
    limits = zip(values, _LOWER, _UPPER, strict=True)
    if not all(low - _OVERSHOOT <= value <= high + _OVERSHOOT for value, low, high in limits):
        raise UnreachableError(f'joints {values}: expected at least {_LOWER} and at most {_UPPER}')
    tip, axes = forward(values)
    return np.array(tip), np.array(axes).T


def inverse(tip: Point, axes: Axes, near_roll: float = 0.0) -> Joints:
    """
    Return the joints of a pose; the fast path of inverse_kinematics, for a true rotation.

    The shaft lies in the plane of the wrist's yaw axis and the RCM, which fixes the wrist up to
    its sign; wrist yaw and wrist pitch never pass a right angle, which fixes the signs.

    :param tip: metres.
    :param axes: the columns of the rotation.
    :param near_roll: of the rolls a full turn apart, take the one nearest to this, rad.
    :raises UnreachableError: if the pose is outside the joint limits, or in the RCM itself.
    """
    (ux, uy, uz), (vx, vy, vz), (ax, ay, az) = axes
    cx, cy, cz = tip[0] - TIP_LINK * ax, tip[1] - TIP_LINK * ay, tip[2] - TIP_LINK * az
    along = ux * cx + uy * cy + uz * cz
    wx, wy, wz = cx - along * ux, cy - along * uy, cz - along * uz
    length = math.sqrt(wx * wx + wy * wy + wz * wz)
    if length < 1e-9:
        raise UnreachableError(f'pose at {tip} leaves no direction for the wrist')
    # With the yaw axis -u and the side -v: the pitch axis is wrist x yaw axis.
    px, py, pz = uy * wz - uz * wy, uz * wx - ux * wz, ux * wy - uy * wx
    if px * vx + py * vy + pz * vz > 0.0:
        length = -length
    wx, wy, wz = wx / length, wy / length, wz / length
    px, py, pz = px / length, py / length, pz / length
    cx, cy, cz = cx - WRIST_LINK * wx, cy - WRIST_LINK * wy, cz - WRIST_LINK * wz
    reach = math.sqrt(cx * cx + cy * cy + cz * cz)
    if reach < 1e-9:
        raise UnreachableError(f'pose at {tip} puts the wrist into the remote centre')
    if cx * wx + cy * wy + cz * wz < 0.0:
        reach = -reach
    sx, sy, sz = cx / reach, cy / reach, cz / reach
    yaw = math.atan2(sx, -sz)
    level = math.hypot(sx, sz)
    pitch = math.atan2(-sy, level)
    sin_yaw, cos_yaw = (sx / level, -sz / level) if level > 0.0 else (0.0, 1.0)
    dx, dy, dz = sy * sin_yaw, -level, -sy * cos_yaw
    roll = math.atan2(-(dx * px + dy * py + dz * pz), -cos_yaw * px - sin_yaw * pz)
    wrist_pitch = math.atan2(
        math.cos(roll) * (dx * wx + dy * wy + dz * wz)
        - math.sin(roll) * (cos_yaw * wx + sin_yaw * wz),
        sx * wx + sy * wy + sz * wz,
    )
    wrist_yaw = math.atan2(-(vx * wx + vy * wy + vz * wz), -(vx * px + vy * py + vz * pz))
    roll += _TURN * round((near_roll - roll) / _TURN)
    joints = (yaw, pitch, reach - INSERTION_TO_WRIST, roll, wrist_pitch, wrist_yaw)
    return _checked(joints, tip)


def inverse_kinematics(position: ArrayLike, rotation: ArrayLike, near_roll: float = 0.0) -> Vector:
    """
    Return the joints that put the tool tip at a pose, in closed form.

    :param position: shape (3,), metres.
    :param rotation: rotation matrix, shape (3, 3).
    :param near_roll: of the rolls a full turn apart, take the one nearest to this, rad.
    :returns: joints, shape (6,).
    :raises UnreachableError: if the pose is outside the joint limits, or in the RCM itself.
    :raises StateError: on numbers that are not finite, or a matrix that is no rotation.
    """
    tip = checked_point(position)
    try:
        matrix = np.asarray(rotation, np.float64)
    except (TypeError, ValueError, OverflowError):
        matrix = np.zeros(0)
    if matrix.shape != (3, 3) or not _is_rotation(*matrix.T.tolist()):
        raise StateError(f'rotation {rotation!r}: expected a rotation matrix of finite numbers')
    if not is_within(near_roll, -_MOST_TURN, _MOST_TURN):
        raise StateError(f'near_roll {near_roll!r}: expected a finite angle')
    u, v, approach = matrix.T.tolist()
    return np.array(inverse(tip, (u, v, approach), near_roll))


def _is_rotation(x: Point, y: Point, z: Point) -> bool:
    """Say whether columns have length 1 and right angles, the third being first x second."""
    errors = (
        x[0] * x[0] + x[1] * x[1] + x[2] * x[2] - 1.0,
        y[0] * y[0] + y[1] * y[1] + y[2] * y[2] - 1.0,
        x[0] * y[0] + x[1] * y[1] + x[2] * y[2],
        x[1] * y[2] - x[2] * y[1] - z[0],
        x[2] * y[0] - x[0] * y[2] - z[1],
        x[0] * y[1] - x[1] * y[0] - z[2],
    )
    return all(abs(error) <= 1e-6 for error in errors)  # false for what is not a number, too


def straight_joints(x: float, y: float, z: float) -> Point:
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


def bent_joints(point: Point, wrist: Point) -> Joints:
    """
    Return the joints that put the tip at a point with a wrist that is bent already.

    Where limits are in the way, the joints are as near as they allow.

    :param point: metres.
    :param wrist: roll, wrist pitch and wrist yaw, rad.
    """
    straight_down, _axes = forward((0.0, 0.0, -INSERTION_TO_WRIST, *wrist))
    # There the axes of frame 3 of the DH chain point against y, x and z of the base.
    left, down, along = (-number for number in straight_down)
    x, y, z = point
    depth = math.sqrt(max(0.0, x * x + y * y + z * z - down * down - left * left))
    radius = math.hypot(down, depth)
    pitch = math.asin(max(-1.0, min(1.0, -y / max(radius, 1e-9)))) - math.atan2(down, depth)
    level = math.cos(pitch) * depth - math.sin(pitch) * down
    yaw = math.atan2(x, -z) + math.atan2(left, level)
    insertion = depth - along - INSERTION_TO_WRIST
    return (
        max(_LOWER[0], min(_UPPER[0], yaw)),
        max(_LOWER[1], min(_UPPER[1], pitch)),
        max(_LOWER[2], min(_UPPER[2], insertion)),
        *wrist,
    )
