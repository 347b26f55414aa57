# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""
The whole arm over the patient in a PyBullet client of its own, for pictures: nothing moves here.

Arm and objects are drawn by PyBullet's software renderer, the organ by ray casting
(:mod:`fdrl_ros.surgery.render.organ`): no display and no GPU needed. One client serves picture
after picture.
"""

from collections.abc import Sequence
from dataclasses import dataclass
import math
from pathlib import Path
import xml.etree.ElementTree as ElementTree

from fdrl_ros.errors import ResourceError, StateError
from fdrl_ros.resources import resource
from fdrl_ros.surgery.arm.description import read_description
from fdrl_ros.surgery.arm.kinematics import forward, JAW, JOINTS, Point
from fdrl_ros.surgery.arm.pybullet_client import PhysicsClient, pybullet
from fdrl_ros.surgery.render.camera import Camera
from fdrl_ros.surgery.render.organ import cast, Dent, normals_at, paint
from fdrl_ros.surgery.render.scene_objects import SceneObjects
from fdrl_ros.surgery.render.view import View
import numpy as np
from numpy.typing import NDArray

BASE_HEIGHT = 0.26
"""Height of the remote centre above the table (the joint base_joint of the URDF), m."""

_FARTHEST = 0.99999
_WITHIN = 0.03
"""How far behind its surface along the view something still shines through the organ, m."""


@dataclass(frozen=True)
class Rendering:
    """
    One picture.

    :param rgb: shape (height, width, 3), uint8.
    :param depth: along the view, shape (height, width), m; infinite where nothing is.
    :param links: the link in each pixel as an index into Renderer.links; -1 elsewhere.
    """

    rgb: NDArray[np.uint8]
    depth: NDArray[np.float32]
    links: NDArray[np.int32]


class Renderer(PhysicsClient):
    """
    The arm, the patient and what :class:`~fdrl_ros.surgery.render.view.View` names.

    :param hidden: links of the URDF that are left out.
    :param urdf: of the arm; urdf/psm.urdf unless told otherwise.
    :raises ResourceError: if the URDF is missing or broken, or lacks the jaw.
    """

    def __init__(self, hidden: Sequence[str] = (), urdf: Path | None = None) -> None:
        path = urdf or resource('urdf/psm.urdf')
        root = read_description(path)
        for link in root.findall('link'):
            if link.get('name') in ('organ', *hidden):  # the organ is cast with its dent
                for visual in link.findall('visual'):
                    link.remove(visual)
            for shape in link.findall('collision'):  # PyBullet draws it where nothing is visual
                link.remove(shape)
        super().__init__('renderer')
        self.body = self.load(
            ElementTree.tostring(root, 'unicode'), path, basePosition=[0.0, 0.0, -BASE_HEIGHT]
        )
        self.links: list[str] = []
        self._places: dict[str, int] = {}
        for index in range(pybullet.getNumJoints(self.body, self.client)):
            info = pybullet.getJointInfo(self.body, index, self.client)
            self._places[info[1].decode()] = index
            self.links.append(info[12].decode())
        for joint in (JAW, f'{JAW}_mirror'):
            if joint not in self._places:
                self.close()
                raise ResourceError(f'{path}: expected a joint {joint}')
        self._objects = SceneObjects(self.client)
        self._view: View | None = None
        self._dent: Dent | None = None

    def show(self, joints: Sequence[float], jaw: float, view: View) -> None:
        """
        Put the arm, the organ and the objects there; a tip in the organ dents it.

        :param joints: six, rad and m.
        :param jaw: angle between the fingers, rad.
        :raises StateError: if the renderer is closed.
        """
        if not self._disconnect.alive:  # its objects have the number of the client too
            raise StateError.closed('renderer')
        tip, _axes = forward(joints)
        depth = view.surface - tip[2]
        self._dent = Dent(tip[0], tip[1], depth, view.radius) if depth > 0.0 else None
        if view != self._view:
            self._objects.show(view)
            self._view = view
        places = dict(zip(JOINTS, joints, strict=True))
        places[JAW], places[f'{JAW}_mirror'] = jaw, jaw / 2.0
        for name, value in places.items():
            pybullet.resetJointState(self.body, self._places[name], value, 0.0, self.client)

    def render(self, camera: Camera, light: Point, clear: float = 0.0) -> Rendering:
        """
        Take a picture of what was shown last.

        :param light: where it comes from, as a direction.
        :param clear: how much of what is just within the organ shines through it, 0 to 1.
        :raises StateError: if the renderer is closed.
        """
        width, height, near, far = camera.width, camera.height, camera.near, camera.far
        image = pybullet.getCameraImage(
            width,
            height,
            pybullet.computeViewMatrix(camera.eye, camera.look, (0.0, 0.0, 1.0)),
            pybullet.computeProjectionMatrixFOV(
                math.degrees(camera.field_of_view), width / height, near, far
            ),
            lightDirection=light,
            shadow=0,
            renderer=pybullet.ER_TINY_RENDERER,
            flags=pybullet.ER_SEGMENTATION_MASK_OBJECT_AND_LINKINDEX,
            physicsClientId=self.client,
        )
        rgb = np.asarray(image[2], np.uint8).reshape(-1, 4)[:, :3].copy()
        buffer = np.asarray(image[3], np.float64).ravel()
        mask = np.asarray(image[4], np.int32).ravel()
        depth = (far * near / (far - (far - near) * buffer)).astype(np.float32)
        depth[buffer > _FARTHEST] = np.inf
        ours = (mask >= 0) & (mask & 0xFFFFFF == self.body)
        found = Rendering(rgb, depth, np.where(ours, (mask >> 24) - 1, -1).astype(np.int32))
        if self._view is not None:
            self._add_organ(found, self._view, camera, light, clear)
        shape = (height, width)
        return Rendering(rgb.reshape(*shape, 3), depth.reshape(shape), found.links.reshape(shape))

    def _add_organ(
        self, found: Rendering, view: View, camera: Camera, light: Point, clear: float
    ) -> None:
        """Put the organ into a flat picture where it is the nearest, in place."""
        eye, rgb, depth = np.array(camera.eye), found.rgb, found.depth
        distance = cast(eye, camera.rays, view.surface, self._dent)
        seen = np.nonzero((distance < depth) & (distance > camera.near))[0]
        within = depth[seen] - distance[seen] < _WITHIN
        depth[seen], found.links[seen] = distance[seen], -1
        points = eye.astype(np.float32)[:, None] + camera.rays[:, seen] * distance[seen]
        normals = normals_at(points, view.surface, self._dent)
        share = (clear * within)[:, None]
        organ = paint(points, normals, np.array(light), eye, view.damage)
        rgb[seen] = (organ + share * (rgb[seen].astype(np.float32) - organ)).astype(np.uint8)
