# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""Rotations as matrices, quaternions and rotation vectors: what trajectories and twists need."""

from collections.abc import Sequence
import math

import numpy as np
from numpy.typing import NDArray

Vector = NDArray[np.float64]
Quaternion = tuple[float, float, float, float]


def from_quaternion(quaternion: Quaternion) -> Vector:
    """
    Return the matrix of a unit quaternion.

    :param quaternion: x, y, z, w.
    :returns: shape (3, 3).
    """
    x, y, z, w = quaternion
    return np.array(
        [
            [1 - 2 * (y * y + z * z), 2 * (x * y - z * w), 2 * (x * z + y * w)],
            [2 * (x * y + z * w), 1 - 2 * (x * x + z * z), 2 * (y * z - x * w)],
            [2 * (x * z - y * w), 2 * (y * z + x * w), 1 - 2 * (x * x + y * y)],
        ]
    )


def to_quaternion(rotation: Vector) -> Quaternion:
    """
    Return the unit quaternion of a rotation matrix, by its largest component.

    :param rotation: shape (3, 3).
    :returns: x, y, z, w.
    """
    return quaternion_of(rotation.tolist())


def quaternion_of(rows: Sequence[Sequence[float]]) -> Quaternion:
    """
    Return the same of a matrix that is no array.

    :param rows: three of three numbers.
    """
    (a, b, c), (d, e, f), (g, h, i) = rows
    squares = (1 + a - e - i, 1 - a + e - i, 1 - a - e + i, 1 + a + e + i)
    largest = max(range(4), key=squares.__getitem__)
    root = 2.0 * math.sqrt(squares[largest])
    x, y, z, w = (
        (root * root / 4, d + b, c + g, h - f),
        (d + b, root * root / 4, h + f, c - g),
        (c + g, h + f, root * root / 4, d - b),
        (h - f, c - g, d - b, root * root / 4),
    )[largest]
    return x / root, y / root, z / root, w / root


def rotation_vector(rotation: Vector) -> Vector:
    """
    Return axis times angle of a rotation matrix.

    :param rotation: shape (3, 3).
    :returns: shape (3,), rad, no longer than pi.
    """
    x, y, z, w = to_quaternion(rotation)
    axis = np.array([x, y, z])
    sine = float(np.linalg.norm(axis))
    if sine < 1e-12:
        return 2.0 * axis
    angle = 2.0 * math.atan2(sine, abs(w))
    return axis * (math.copysign(angle, w) / sine)


def from_rotation_vector(vector: Vector) -> Vector:
    """
    Return the matrix that turns about a vector by its length.

    :param vector: shape (3,), rad.
    """
    angle = float(np.linalg.norm(vector))
    if angle < 1e-12:
        return np.eye(3)
    x, y, z = (math.sin(angle / 2) / angle * vector).tolist()
    return from_quaternion((x, y, z, math.cos(angle / 2)))


def angle_between(first: Vector, second: Vector) -> float:
    """Return the angle that turns one rotation matrix into another, rad."""
    return float(np.linalg.norm(rotation_vector(first.T @ second)))
