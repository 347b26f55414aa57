# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""
The whole arm over the patient in a PyBullet client of its own, for pictures: nothing moves here.

Drawn by PyBullet's software renderer: no display and no GPU needed. One client serves picture
after picture.
"""

from collections.abc import Sequence
from dataclasses import dataclass
import math
from pathlib import Path
import tempfile
import weakref
import xml.etree.ElementTree as ElementTree

from fdrl_ros.env.arm import forward, JAW, JOINTS, Point
from fdrl_ros.env.bullet import pybullet
from fdrl_ros.env.description import read_description
from fdrl_ros.env.shapes import arc, Mesh, organ, tube, turn_from_z
from fdrl_ros.env.view import tissue_colour, View
from fdrl_ros.errors import ResourceError
from fdrl_ros.resources import resource
import numpy as np
from numpy.typing import NDArray

BASE_HEIGHT = 0.26
"""Height of the remote centre above the table (the joint base_joint of the URDF), m."""

_STEEL, _GOLD, _BLACK, _RUBBER = (
    (0.80, 0.82, 0.86),
    (0.98, 0.80, 0.10),
    (0.12, 0.05, 0.05),
    (0.20, 0.45, 0.85),
)
_PALE, _GREEN = (0.93, 0.90, 0.80), (0.15, 0.75, 0.30)
_NEEDLE, _RING = (0.006, 0.0006), (0.004, 0.0012)  # radius of the arc, of the tube, m
_PEG_RADIUS = 0.0015
_UPRIGHT = (0.0, 0.0, 0.0, 1.0)


@dataclass(frozen=True)
class Shot:
    """
    One picture.

    :param rgb: shape (height, width, 3), uint8.
    :param buffer: of depth, 0 at the near plane and 1 at the far one, shape (height, width).
    :param links: name of the link in each pixel as an index into Stage.links; -1 elsewhere.
    """

    rgb: NDArray[np.uint8]
    buffer: NDArray[np.float32]
    links: NDArray[np.int32]


class Stage:
    """
    The arm, the patient and what :class:`~fdrl_ros.env.view.View` names.

    :param hidden: links of the URDF that are left out.
    :param urdf: of the arm; urdf/psm.urdf unless told otherwise.
    :raises ResourceError: if the URDF is missing or broken, or lacks the jaw.
    """

    def __init__(self, hidden: Sequence[str] = (), urdf: Path | None = None) -> None:
        path = urdf or resource('urdf/psm.urdf')
        root = read_description(path)
        for link in root.findall('link'):
            if link.get('name') in ('organ', *hidden):  # the organ is drawn with its dent
                for visual in link.findall('visual'):
                    link.remove(visual)
        self.client: int = pybullet.connect(pybullet.DIRECT)
        if self.client < 0:
            raise ResourceError('PyBullet gives no further client: close unused pictures')
        self.close = weakref.finalize(self, pybullet.disconnect, self.client)
        with tempfile.TemporaryDirectory() as folder:
            file = Path(folder) / 'stage.urdf'
            file.write_bytes(ElementTree.tostring(root))
            try:
                self.body: int = pybullet.loadURDF(
                    str(file),
                    [0.0, 0.0, -BASE_HEIGHT],
                    useFixedBase=True,
                    physicsClientId=self.client,
                )
            except pybullet.error as problem:
                self.close()
                raise ResourceError(f'{path}: PyBullet cannot load the arm: {problem}') from None
        self.links: list[str] = []
        self._places: dict[str, int] = {}
        for index in range(pybullet.getNumJoints(self.body, self.client)):
            info = pybullet.getJointInfo(self.body, index, self.client)
            self._places[info[1].decode()] = index
            self.links.append(info[12].decode())
        for each in (JAW, f'{JAW}_mirror'):
            if each not in self._places:
                self.close()
                raise ResourceError(f'{path}: expected a joint {each}')
        self._things: list[int] = []
        self._drawn: object = None

    def pose(self, joints: Sequence[float], jaw: float) -> None:
        """
        Put the arm there.

        :param joints: six, rad and m.
        :param jaw: angle between the fingers, rad.
        """
        places = dict(zip(JOINTS, joints, strict=True))
        places[JAW], places[f'{JAW}_mirror'] = jaw, jaw / 2.0
        for name, value in places.items():
            pybullet.resetJointState(self.body, self._places[name], value, 0.0, self.client)

    def show(self, view: View, joints: Sequence[float]) -> None:
        """Put organ and things there; the tip of these joints dents the organ."""
        tip, _axes = forward(joints)
        depth = max(0.0, view.surface - tip[2])
        dent = [round(each, 4) for each in (tip[0], tip[1], depth)] if depth else []
        if (view, dent) == self._drawn:
            return
        for each in self._things:
            pybullet.removeBody(each, self.client)
        self._things = []
        dents = [(dent[0], dent[1], dent[2], view.radius)] if dent else []
        self._mesh(organ(dents), tissue_colour(view.damage), (0.0, 0.0, view.surface))
        if view.cut is not None:
            self._draw_cut(view.cut, view.cut_done, view.surface)
        for x, y, top in view.pegs:
            self._rod((x, y, view.surface - 0.002), (x, y, top), _PEG_RADIUS, _PALE)
        if view.object is not None:
            self._draw_object(view.object, view.ring)
        if view.waypoint is not None:
            self._ball(view.waypoint, 0.0012, _GREEN)
        self._drawn = view, dent

    def arrow(self, start: Point, way: Point) -> None:
        """Draw an arrow until the next change of what is shown, m."""
        end = tuple(a + b for a, b in zip(start, way, strict=True))
        self._rod(start, (end[0], end[1], end[2]), 0.0012, _GOLD)
        self._ball((end[0], end[1], end[2]), 0.0026, _GOLD)
        self._drawn = None

    def shoot(
        self,
        eye: Point,
        look: Point,
        width: int,
        height: int,
        field_of_view: float,
        near: float,
        far: float,
        light: Point = (-0.4, -0.7, 1.0),
    ) -> Shot:
        """
        Take a picture.

        :param eye: where the camera is, in the arm's base frame, m.
        :param look: what is in the middle of the picture, m.
        :param field_of_view: from top to bottom, rad.
        :param near: nearest that is seen, m.
        :param far: farthest that is seen, m.
        :param light: where it comes from, as a direction.
        """
        image = pybullet.getCameraImage(
            width,
            height,
            pybullet.computeViewMatrix(eye, look, (0.0, 0.0, 1.0)),
            pybullet.computeProjectionMatrixFOV(
                math.degrees(field_of_view), width / height, near, far
            ),
            lightDirection=light,
            shadow=0,
            renderer=pybullet.ER_TINY_RENDERER,
            flags=pybullet.ER_SEGMENTATION_MASK_OBJECT_AND_LINKINDEX,
            physicsClientId=self.client,
        )
        rgba = np.asarray(image[2], np.uint8).reshape(height, width, 4)
        mask = np.asarray(image[4], np.int32).reshape(height, width)
        ours = (mask >= 0) & (mask & 0xFFFFFF == self.body)
        return Shot(
            rgba[:, :, :3].copy(),
            np.asarray(image[3], np.float32).reshape(height, width),
            np.where(ours, (mask >> 24) - 1, -1).astype(np.int32),
        )

    def _draw_cut(self, line: tuple[Point, Point], done: float, surface: float) -> None:
        start, end = (np.array([x, y, surface]) for x, y, _z in line)
        front = start + (end - start) * max(0.0, min(1.0, done))
        for first, last, colour in ((start, front, _BLACK), (front, end, _PALE)):
            if np.linalg.norm(last - first) > 1e-4:
                self._rod(tuple(first.tolist()), tuple(last.tolist()), 0.0006, colour)

    def _draw_object(self, at: Point, ring: bool) -> None:
        radius, thickness = _RING if ring else _NEEDLE
        path = arc(radius, 2.0 * math.pi if ring else math.pi)
        if ring:
            self._mesh(tube(path, thickness), _RUBBER, at)
        else:  # held in the middle of the arc
            self._mesh(tube(path - path[len(path) // 2], thickness), _STEEL, at)

    def _mesh(self, mesh: Mesh, colour: tuple[float, float, float], at: Point) -> None:
        self._body(
            pybullet.createVisualShape(
                pybullet.GEOM_MESH,
                vertices=mesh.vertices.tolist(),
                indices=mesh.indices.tolist(),
                normals=mesh.normals.tolist(),
                rgbaColor=(*colour, 1.0),
                physicsClientId=self.client,
            ),
            at,
            _UPRIGHT,
        )

    def _ball(self, at: Point, radius: float, colour: tuple[float, float, float]) -> None:
        self._body(
            pybullet.createVisualShape(
                pybullet.GEOM_SPHERE,
                radius=radius,
                rgbaColor=(*colour, 1.0),
                physicsClientId=self.client,
            ),
            at,
            _UPRIGHT,
        )

    def _rod(
        self, start: Point, end: Point, radius: float, colour: tuple[float, float, float]
    ) -> None:
        way = np.subtract(end, start)
        x, y, z = ((np.add(start, end)) / 2.0).tolist()
        self._body(
            pybullet.createVisualShape(
                pybullet.GEOM_CYLINDER,
                radius=radius,
                length=float(np.linalg.norm(way)),
                rgbaColor=(*colour, 1.0),
                physicsClientId=self.client,
            ),
            (x, y, z),
            turn_from_z((float(way[0]), float(way[1]), float(way[2]))),
        )

    def _body(self, shape: int, at: Point, turn: tuple[float, float, float, float]) -> None:
        self._things.append(
            pybullet.createMultiBody(
                baseMass=0.0,
                baseVisualShapeIndex=shape,
                basePosition=at,
                baseOrientation=turn,
                physicsClientId=self.client,
            )
        )
