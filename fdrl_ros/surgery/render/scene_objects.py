# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""
The things of a procedure as bodies of a PyBullet client: pegs, cut, object, waypoint, arrow.

PyBullet keeps the memory of meshes and balls that are removed, so these are made once and
moved; rods are made anew.
"""

import math

from fdrl_ros.surgery.arm.kinematics import Point
from fdrl_ros.surgery.arm.pybullet_client import pybullet
from fdrl_ros.surgery.render.shapes import arc, Mesh, tube, turn_from_z
from fdrl_ros.surgery.render.view import View
import numpy as np

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


class Things:
    """
    What is there besides arm, patient and organ.

    :param client: of PyBullet.
    """

    def __init__(self, client: int) -> None:
        self._client = client
        self._kept: dict[str, int] = {}
        self._rods: list[int] = []

    def show(self, view: View) -> None:
        """Put there what is in a view and nothing else."""
        for each in self._rods:
            pybullet.removeBody(each, self._client)
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
            return int(
                pybullet.createVisualShape(
                    pybullet.GEOM_SPHERE,
                    radius=radius,
                    rgbaColor=(*colour, 1.0),
                    physicsClientId=self._client,
                )
            )
        if name == 'ring':
            radius, thickness = _RING
            return self._mesh(tube(arc(radius, 2.0 * math.pi), thickness), _RUBBER)
        radius, thickness = _NEEDLE
        path = arc(radius, math.pi)
        return self._mesh(tube(path - path[len(path) // 2], thickness), _STEEL)  # held there

    def _mesh(self, mesh: Mesh, colour: Colour) -> int:
        return int(
            pybullet.createVisualShape(
                pybullet.GEOM_MESH,
                vertices=mesh.vertices.tolist(),
                indices=mesh.indices.tolist(),
                normals=mesh.normals.tolist(),
                rgbaColor=(*colour, 1.0),
                physicsClientId=self._client,
            )
        )

    def _rod(self, start: Point, end: Point, radius: float, colour: Colour) -> None:
        first, last = np.array(start), np.array(end)
        length = float(np.linalg.norm(last - first))
        if length < 1e-4:
            return
        shape = pybullet.createVisualShape(
            pybullet.GEOM_CYLINDER,
            radius=radius,
            length=length,
            rgbaColor=(*colour, 1.0),
            physicsClientId=self._client,
        )
        x, y, z = (last - first).tolist()
        middle = ((first + last) / 2.0).tolist()
        self._rods.append(self._body(shape, middle, turn_from_z((x, y, z))))

    def _body(self, shape: int, at: Point, turn: tuple[float, float, float, float]) -> int:
        return int(
            pybullet.createMultiBody(
                baseMass=0.0,
                baseVisualShapeIndex=shape,
                basePosition=at,
                baseOrientation=turn,
                physicsClientId=self._client,
            )
        )
