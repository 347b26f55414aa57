# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""What a motion command must be before the arm sees it: finite, whole, named, within limits."""

from collections.abc import Sequence
import math

from fdrl_ros.surgery.arm.kinematics import JAW, JAW_LIMITS, JOINTS, LOWER, UPPER, Vector
from fdrl_ros.surgery.arm.operating_state import CommandError
from fdrl_ros.surgery.arm.rotations import from_quaternion
import numpy as np

UNIT_TOLERANCE = 1e-2
"""How far from 1 the length of a quaternion may be."""

FARTHEST = 1.0
"""Greatest coordinate of a pose, m: no such arm reaches farther."""

_SLACK = 1e-9
_LIMITS = dict(zip(JOINTS, zip(LOWER.tolist(), UPPER.tolist(), strict=True), strict=True))


def _ordered(names: Sequence[str], values: Sequence[float], known: Sequence[str]) -> list[float]:
    """Return the values in the order of the joints: named, numbered from "0" on, or unnamed."""
    if len(values) != len(known):
        raise CommandError(f'{len(values)} positions: expected {len(known)} ({", ".join(known)})')
    numbers = [str(each) for each in range(len(known))]
    for accepted in (known, numbers):
        if sorted(names) == sorted(accepted):
            return [values[list(names).index(each)] for each in accepted]
    if names:
        raise CommandError(
            f'joints {list(names)!r}: expected {", ".join(known)}; or "0" to '
            f'"{len(known) - 1}"; or no names'
        )
    return list(values)


def _within(name: str, value: float, low: float, high: float) -> float:
    if not low - _SLACK <= value <= high + _SLACK:  # so that NaN is refused
        raise CommandError(f'{name} = {value!r}: expected {low:g} to {high:g}')
    return min(max(value, low), high)


def checked_joints(names: Sequence[str], positions: Sequence[float]) -> Vector:
    """
    Read joint positions.

    :param names: of JOINTS in any order, "0" to "5", or none.
    :param positions: rad and m.
    :returns: in the order of JOINTS, shape (6,).
    :raises CommandError: if they are not six within the limits, by these names.
    """
    values = _ordered(names, positions, JOINTS)
    return np.array(
        [_within(n, v, *_LIMITS[n]) for n, v in zip(JOINTS, values, strict=True)], np.float64
    )


def checked_jaw(names: Sequence[str], positions: Sequence[float]) -> float:
    """
    Read an opening of the jaw.

    :param names: "jaw", "0", or none.
    :param positions: one, rad.
    :raises CommandError: if it is not one within the limits.
    """
    return _within(JAW, _ordered(names, positions, (JAW,))[0], *JAW_LIMITS)


def checked_pose(
    position: Sequence[float], quaternion: Sequence[float]
) -> tuple[tuple[float, float, float], Vector]:
    """
    Read a pose of the tip in the base frame; whether the arm reaches it is not asked here.

    :param position: x, y, z, m.
    :param quaternion: x, y, z, w.
    :returns: position and rotation matrix.
    :raises CommandError: if a coordinate is no number or beyond any arm, or the quaternion is not
        of length 1.
    """
    if len(position) != 3 or not all(abs(each) <= FARTHEST for each in position):
        raise CommandError(
            f'position {tuple(position)!r}: expected three metres within {FARTHEST:g}'
        )
    length = math.hypot(*quaternion)
    if len(quaternion) != 4 or not abs(length - 1.0) <= UNIT_TOLERANCE:
        raise CommandError(
            f'orientation {tuple(quaternion)!r}: expected a quaternion of length 1, not '
            f'{length:.3g}'
        )
    x, y, z = position
    qx, qy, qz, qw = (each / length for each in quaternion)
    return (float(x), float(y), float(z)), from_quaternion((qx, qy, qz, qw))
