# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""
The organ as a camera sees it: an ellipsoid cut level at the top, dented where it is pressed.

Cast ray by ray in closed form but for the dent, which is marched through: PyBullet keeps the
memory of every mesh that it is given, and a dent is a new mesh in every picture.
"""

from dataclasses import dataclass
import math

from fdrl_ros.surgery.arm.kinematics import Vector
from fdrl_ros.surgery.render.view import tissue_colour
import numpy as np
from numpy.typing import NDArray

Grid = NDArray[np.float32]

AXES = (0.080, 0.060, 0.050)
"""Half axes of the ellipsoid, m."""

LEVEL = 0.70
"""Share of its length and width that is level, as the contact law takes all of it to be."""

_SUNK = AXES[2] * math.sqrt(1.0 - LEVEL**2)  # centre of the ellipsoid below the level top, m
_STEPS = 16
_REACH = 3.5  # spreads from its middle beyond which a dent is nothing
_FADE = 0.006  # metres over which the shading of the edge is rounded
_AMBIENT, _DIFFUSE, _SHINE = 0.35, 0.60, 0.30
_VEINS = ((310.0, 170.0, 0.4), (-190.0, 340.0, 2.1), (90.0, -420.0, 4.0))


@dataclass(frozen=True)
class Dent:
    """
    What presses on the organ.

    :param x: of its middle, m.
    :param y: of its middle, m.
    :param depth: below the untouched surface, m.
    :param radius: of what presses; the surface follows d exp(-r^2 / 2 a^2) with a^2 = R d, m.
    """

    x: float
    y: float
    depth: float
    radius: float

    @property
    def spread(self) -> float:
        """Return a, m."""
        return math.sqrt(max(self.radius * self.depth, 1e-8))

    def fall(self, x: Grid, y: Grid) -> Grid:
        """Return how far the surface is below the untouched one, m."""
        square = (x - self.x) ** 2 + (y - self.y) ** 2
        return np.asarray(self.depth * np.exp(-square / (2.0 * self.spread**2)), np.float32)


def cast(eye: Vector, rays: Grid, surface: float, dent: Dent | None = None) -> Grid:
    """
    Return where rays first meet the organ.

    :param eye: where they start, m, shape (3,); above the organ, or beside it.
    :param rays: their directions, shape (3, n).
    :param surface: height of the untouched top, m.
    :returns: the multiple of each ray, infinite without a hit, shape (n,).
    """
    half = np.array(AXES)
    start = ((eye - (0.0, 0.0, surface - _SUNK)) / half).astype(np.float32)
    x, y, z = (ray * np.float32(1.0 / half) for ray, half in zip(rays, AXES, strict=True))
    a = x * x + y * y + z * z
    b = start[0] * x + start[1] * y + start[2] * z
    root = b * b - a * np.float32(start @ start - 1.0)
    hits = np.nonzero(root > 0.0)[0]
    a, b, root = a[hits], b[hits], np.sqrt(root[hits])
    first, last = (-b - root) / a, (root - b) / a
    slant = rays[2, hits]
    with np.errstate(divide='ignore'):
        top = np.where(slant < 0.0, np.float32(surface - eye[2]) / slant, np.float32(np.inf))
    if eye[2] > surface:
        first = np.maximum(first, top)
    met = (first > 0.0) & (first < last)
    distance = np.full(rays.shape[1], np.inf, np.float32)
    distance[hits[met]] = first[met]
    if dent is not None and dent.depth > 0.0 and eye[2] > surface:
        _march(eye, rays, surface, dent, hits[met & (first == top)], distance)
    return distance


def _march(
    eye: Vector, rays: Grid, surface: float, dent: Dent, level: NDArray[np.int64], distance: Grid
) -> None:
    """Move the hits on the level top that are over a dent down to its ground, in place."""
    start = eye.astype(np.float32)[:, None]
    at_x, at_y = start[:2] + rays[:2, level] * distance[level]
    ray = rays[:, level]
    reach = _REACH * dent.spread + np.hypot(ray[0], ray[1]) / -ray[2] * np.float32(dent.depth)
    near = np.hypot(at_x - np.float32(dent.x), at_y - np.float32(dent.y)) < reach
    chosen, ray = level[near], ray[:, near]
    begin, length = distance[chosen], np.float32(dent.depth) / -ray[2]
    gap = dent.fall(at_x[near], at_y[near])  # how far the ray is above the ground
    going = gap > 1e-6
    chosen, ray, gap = chosen[going], ray[:, going], gap[going]
    begin, length = begin[going], length[going]
    from_x, from_y = start[:2] + ray[:2] * begin
    way_x, way_y = ray[:2] * length
    into = np.zeros(len(chosen), np.float32)
    for step in range(1, _STEPS + 1):
        share = np.float32(step / _STEPS)
        now = dent.fall(from_x + way_x * share, from_y + way_y * share) - dent.depth * share
        # All of a step above the ground, the part of it before the ray meets it, or nothing.
        above = np.where(now > 0.0, np.float32(1.0), gap / np.maximum(gap - now, 1e-9))
        into += np.where(gap > 0.0, above, np.float32(0.0))
        gap = np.where(gap > 0.0, now, np.float32(-1.0))
    distance[chosen] = begin + length * into / np.float32(_STEPS)


def normals_at(points: Grid, surface: float, dent: Dent | None = None) -> Grid:
    """Return the normals of the organ at points on it, shape (3, n)."""
    x, y, z = points
    depth = np.float32(surface) - z
    nx, ny = x / AXES[0] ** 2, y / AXES[1] ** 2
    nz = np.maximum(z - np.float32(surface - _SUNK), 0.0) / AXES[2] ** 2
    steep = np.sqrt(nx * nx + ny * ny + nz * nz) + 1e-9
    share = np.hypot(x / AXES[0], y / AXES[1]) / LEVEL
    level = np.clip((1.0 - share) * (AXES[1] * LEVEL / _FADE), 0.0, 1.0)
    level = np.where(share < 1.0, 0.4 + 0.6 * level, 0.0)  # from round to level at the edge
    nx, ny = (1.0 - level) * nx / steep, (1.0 - level) * ny / steep
    nz = (1.0 - level) * nz / steep + level
    if dent is not None and dent.depth > 0.0:
        slope = np.where(share < 1.0, depth, 0.0) / np.float32(dent.spread**2)
        nx = nx - slope * (x - np.float32(dent.x))
        ny = ny - slope * (y - np.float32(dent.y))
    return np.asarray(np.stack([nx, ny, nz]) / np.sqrt(nx * nx + ny * ny + nz * nz), np.float32)


def paint(points: Grid, normals: Grid, towards: Vector, eye: Vector, damage: float) -> Grid:
    """
    Return the colour of tissue in light, 0 to 255, shape (n, 3).

    :param towards: the light, shape (3,).
    :param damage: done to it, N s.
    """
    light = (towards / np.linalg.norm(towards)).astype(np.float32)
    view = eye.astype(np.float32)[:, None] - points
    half = view / (np.sqrt(np.sum(view * view, axis=0)) + np.float32(1e-9)) + light[:, None]
    glance = np.sum(half * normals, axis=0) / np.sqrt(np.sum(half * half, axis=0))
    shine = np.maximum(glance, 0.0)
    for _ in range(5):
        shine = shine * shine
    x, y, _z = points
    grain = [np.sin(np.float32(a) * x + np.float32(b) * y + np.float32(c)) for a, b, c in _VEINS]
    bright = light[0] * normals[0] + light[1] * normals[1] + light[2] * normals[2]
    bright = _AMBIENT + _DIFFUSE * np.maximum(bright, 0.0)
    bright *= 1.0 + 0.01 * (grain[0] + grain[1] + grain[2])
    colour = np.array(tissue_colour(damage), np.float32) * np.float32(320.0)
    painted = bright[:, None] * colour + (np.float32(255.0 * _SHINE) * shine)[:, None]
    return np.asarray(np.clip(painted, 0.0, 255.0), np.float32)
