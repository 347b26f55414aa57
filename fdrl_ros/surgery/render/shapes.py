# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""Meshes for pictures: bent tubes."""

from dataclasses import dataclass
import math

from fdrl_ros.surgery.arm.kinematics import Point
import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True)
class Mesh:
    """Corners (n, 3) and normals (n, 3) in m, and triangles as indices (3 m,)."""

    vertices: NDArray[np.float64]
    normals: NDArray[np.float64]
    indices: NDArray[np.int64]


def _sheet(points: NDArray[np.float64], inside: NDArray[np.float64]) -> Mesh:
    """
    Return the mesh of a grid of points, shape (rows, columns, 3).

    :param inside: points that normals look away from, of a shape that broadcasts.
    """
    rows, columns, _ = points.shape
    normals = np.cross(np.gradient(points, axis=1), np.gradient(points, axis=0))
    outwards = points - inside
    normals *= np.where(np.sum(normals * outwards, axis=2, keepdims=True) < 0.0, -1.0, 1.0)
    normals /= np.linalg.norm(normals, axis=2, keepdims=True) + 1e-15
    corner = (np.arange(rows - 1)[:, None] * columns + np.arange(columns - 1)).ravel()
    first = np.stack([corner, corner + 1, corner + columns], axis=1)
    second = np.stack([corner + 1, corner + columns + 1, corner + columns], axis=1)
    faces = np.concatenate([first, second])
    flat = points.reshape(-1, 3)
    a, b, c = (flat[faces[:, each]] for each in range(3))
    facing = np.sum(np.cross(b - a, c - a) * normals.reshape(-1, 3)[faces[:, 0]], axis=1)
    faces[facing < 0.0] = faces[facing < 0.0][:, ::-1]
    return Mesh(flat, normals.reshape(-1, 3), faces.ravel())


def tube(path: NDArray[np.float64], radius: float, sides: int = 10) -> Mesh:
    """
    Return a round tube along points in the plane z = 0.

    :param path: shape (n, 2), m.
    :param radius: of the tube, m.
    """
    middle = np.column_stack([path, np.zeros(len(path))])
    along = np.gradient(middle, axis=0)
    along /= np.linalg.norm(along, axis=1, keepdims=True)
    side = np.column_stack([-along[:, 1], along[:, 0], np.zeros(len(path))])
    angles = np.linspace(0.0, 2.0 * math.pi, sides + 1)
    ring = np.cos(angles)[None, :, None] * side[:, None] + np.sin(angles)[
        None, :, None
    ] * np.array([0.0, 0.0, 1.0])
    return _sheet(middle[:, None] + radius * ring, middle[:, None])


def arc(radius: float, turn: float, steps: int = 33) -> NDArray[np.float64]:
    """Return points of an arc of a circle about the origin, shape (steps, 2), m."""
    angles = np.linspace(0.0, turn, steps)
    return radius * np.column_stack([np.cos(angles), np.sin(angles)])


def turn_from_z(direction: Point) -> tuple[float, float, float, float]:
    """Return the quaternion x, y, z, w that turns the z axis into a direction."""
    x, y, z = np.divide(direction, np.linalg.norm(direction)).tolist()
    if z < -1.0 + 1e-9:
        return 1.0, 0.0, 0.0, 0.0
    root = math.sqrt(2.0 * (1.0 + z))
    return -y / root, x / root, 0.0, root / 2.0
