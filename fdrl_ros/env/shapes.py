# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""Meshes for pictures: an organ with a dent where it is pressed, and bent tubes."""

from dataclasses import dataclass
import math

from fdrl_ros.env.arm import Point
import numpy as np
from numpy.typing import NDArray

LENGTH, WIDTH = 0.160, 0.120
"""Of the organ, along x and y, m."""

_THICKNESS = 0.060
_FLAT = 0.70  # share of the organ, from its middle, that is as level as the contact law says
_GRID = 41


@dataclass(frozen=True)
class Mesh:
    """Corners (n, 3) and normals (n, 3) in m, and triangles as indices (3 m,)."""

    vertices: NDArray[np.float64]
    normals: NDArray[np.float64]
    indices: NDArray[np.int64]


def _sheet(points: NDArray[np.float64], inside: NDArray[np.float64] | None = None) -> Mesh:
    """
    Return the mesh of a grid of points, shape (rows, columns, 3).

    :param inside: points that normals look away from, of a shape that broadcasts; else upwards.
    """
    rows, columns, _ = points.shape
    normals = np.cross(np.gradient(points, axis=1), np.gradient(points, axis=0))
    outwards = np.array([0.0, 0.0, 1.0]) if inside is None else points - inside
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


def organ(dents: list[tuple[float, float, float, float]]) -> Mesh:
    """
    Return the upper side of an organ, its top at z = 0, dented as a half-space would be.

    :param dents: x, y, depth and radius of what presses, m; under a sphere the surface follows
        d exp(-r^2 / 2 a^2) with a = sqrt(R d), near enough for a picture.
    """
    share = np.linspace(-1.0, 1.0, _GRID)
    across = np.sign(share) * np.abs(share) ** 1.3  # finer in the middle
    x, y = np.meshgrid(across * LENGTH / 2, across * WIDTH / 2, indexing='ij')
    far = np.maximum(np.abs(across[:, None]), np.abs(across[None, :]))
    circle = np.hypot(across[:, None], across[None, :]) + 1e-12
    x, y = x * far / circle * 1.0, y * far / circle * 1.0  # the square grid becomes an ellipse
    away = np.clip((far - _FLAT) / (1.0 - _FLAT), 0.0, 1.0)
    z = _THICKNESS * (np.sqrt(1.0 - 0.999 * away**2) - 1.0)
    for at_x, at_y, depth, radius in dents:
        if depth > 0.0:
            spread = max(radius * depth, 1e-6)
            z -= depth * np.exp(-((x - at_x) ** 2 + (y - at_y) ** 2) / (2.0 * spread))
    return _sheet(np.stack([x, y, z], axis=2))


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
