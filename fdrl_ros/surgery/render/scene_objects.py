# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""
The objects of a procedure as bodies of a PyBullet client: pegs, cut, object, waypoint, arrow.

PyBullet keeps the memory of meshes and balls that are removed, so these are made once and
moved; rods are made anew.
"""

import math

from fdrl_ros.surgery.arm.kinematics import Point
from fdrl_ros.surgery.arm.pybullet_client import pybullet
from fdrl_ros.surgery.render.view import View
import numpy as np
from numpy.typing import NDArray

Colour = tuple[float, float, float]

_STEEL: Colour = (0.80, 0.82, 0.86)
_GOLD: Colour = (0.98, 0.80, 0.10)
_BLACK: Colour = (0.12, 0.05, 0.05)
_RUBBER: Colour = (0.20, 0.45, 0.85)
_PALE: Colour = (0.93, 0.90, 0.80)
_GREEN: Colour = (0.15, 0.75, 0.30)
_NEEDLE, _RING = (0.006, 0.0006), (0.004, 0.0012)  # radius of the arc, of the tube, m
_PEG_RADIUS, _CUT_RADIUS, _ARROW_RADIUS = 0.0015, 0.0006, 0.0012
_BALLS = {'waypoint': (0.0012, _GREEN), 'arrow': (0.0026, _GOLD)}
_SUNK = 0.002  # how deep a peg stands in the organ, m
_UPRIGHT = (0.0, 0.0, 0.0, 1.0)
_AWAY: Point = (0.0, 0.0, 50.0)
"""Where no camera sees that far."""


class SceneObjects:
    """
    Draws what is there besides arm, patient and organ.

    :param client: of PyBullet.
    """

    def __init__(self, client: int) -> None:
        self._client = client
        self._kept: dict[str, int] = {}
        self._rods: list[int] = []

    def show(self, view: View) -> None:
        """Put there what is in a view and nothing else."""
        for rod in self._rods:
            pybullet.removeBody(rod, self._client)
        self._rods = []
        if view.cut is not None:
            (x, y, _), (to_x, to_y, _), z = *view.cut, view.surface
            done = max(0.0, min(1.0, view.cut_done))
            front = (x + done * (to_x - x), y + done * (to_y - y), z)
            self._rod((x, y, z), front, _CUT_RADIUS, _BLACK)
            self._rod(front, (to_x, to_y, z), _CUT_RADIUS, _PALE)
        for x, y, top in view.pegs:
            self._rod((x, y, view.surface - _SUNK), (x, y, top), _PEG_RADIUS, _PALE)
        self._move('ring', view.object if view.ring else None)
        self._move('needle', None if view.ring else view.object)
        self._move('waypoint', view.waypoint)
        head = None
        if view.arrow is not None:
            (x, y, z), (way_x, way_y, way_z) = view.arrow
            head = (x + way_x, y + way_y, z + way_z)
            self._rod((x, y, z), head, _ARROW_RADIUS, _GOLD)
        self._move('arrow', head)

    def _move(self, name: str, place: Point | None) -> None:
        if name not in self._kept:
            if place is None:
                return
            self._kept[name] = self._body(self._shape(name), place, _UPRIGHT)
        pybullet.resetBasePositionAndOrientation(
            self._kept[name], place or _AWAY, _UPRIGHT, self._client
        )

    def _shape(self, name: str) -> int:
        if name in _BALLS:
            radius, colour = _BALLS[name]
            return self._visual(pybullet.GEOM_SPHERE, colour, radius=radius)
        radius, thickness = _RING if name == 'ring' else _NEEDLE
        path = arc(radius, 2.0 * math.pi if name == 'ring' else math.pi)
        if name == 'needle':
            path = path - path[len(path) // 2]  # held there
        vertices, normals, indices = (part.tolist() for part in tube(path, thickness))
        return self._visual(
            pybullet.GEOM_MESH,
            _RUBBER if name == 'ring' else _STEEL,
            vertices=vertices,
            normals=normals,
            indices=indices,
        )

    def _visual(self, kind: int, colour: Colour, **given: object) -> int:
        made: int = pybullet.createVisualShape(
            kind, rgbaColor=(*colour, 1.0), physicsClientId=self._client, **given
        )
        return made

    def _rod(self, start: Point, end: Point, radius: float, colour: Colour) -> None:
        first, last = np.array(start), np.array(end)
        length = float(np.linalg.norm(last - first))
        if length < 1e-4:
            return
        shape = self._visual(pybullet.GEOM_CYLINDER, colour, radius=radius, length=length)
        x, y, z = (last - first).tolist()
        middle = ((first + last) / 2.0).tolist()
        self._rods.append(self._body(shape, middle, turn_from_z((x, y, z))))

    def _body(self, shape: int, at: Point, turn: tuple[float, float, float, float]) -> int:
        made: int = pybullet.createMultiBody(
            baseVisualShapeIndex=shape,
            basePosition=at,
            baseOrientation=turn,
            physicsClientId=self._client,
        )
        return made


def tube(
    path: NDArray[np.float64], radius: float, sides: int = 10
) -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.int64]]:
    """
    Return the mesh of a round tube along points in the plane z = 0.

    :param path: shape (n, 2), m.
    :param radius: of the tube, m.
    :returns: corners and their normals, shape (m, 3), m; corners of triangles, flat.
    """
    middle = np.column_stack([path, np.zeros(len(path))])
    along = np.gradient(middle, axis=0)
    along /= np.linalg.norm(along, axis=1, keepdims=True)
    side = np.column_stack([-along[:, 1], along[:, 0], np.zeros(len(path))])
    turn = np.linspace(0.0, 2.0 * math.pi, sides + 1)[:, None]
    normals = np.cos(turn) * side[:, None] + np.sin(turn) * np.array([0.0, 0.0, 1.0])
    rows, columns, _ = normals.shape
    corner = (np.arange(rows - 1)[:, None] * columns + np.arange(columns - 1)).reshape(-1, 1)
    triangles = corner + [[0, 1, columns, 1, columns + 1, columns]]
    points = middle[:, None] + radius * normals
    return points.reshape(-1, 3), normals.reshape(-1, 3), triangles.ravel()


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
