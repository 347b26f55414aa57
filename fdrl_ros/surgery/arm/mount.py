# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""Where an arm stands, and how its frames are named: for several arms in one tree of frames."""

from dataclasses import dataclass
from functools import cached_property
import xml.etree.ElementTree as ElementTree

from fdrl_ros.resources import resource
from fdrl_ros.surgery.arm.description import fixed_pose, read_description
from fdrl_ros.surgery.arm.kinematics import Point, Vector
from fdrl_ros.surgery.arm.operating_state import CommandError
from fdrl_ros.surgery.arm.readings import BASE
from fdrl_ros.surgery.arm.rotations import from_quaternion, Quaternion, to_quaternion
import numpy as np

ROOT = 'world'
"""Root of the URDF: the floor point below the trocar, at the height of the table."""

_NAMING = {
    'link': ('name',),
    'joint': ('name',),
    'mimic': ('joint',),
    'parent': ('link',),
    'child': ('link',),
}
"""Elements of a URDF and their attributes that name links or joints."""


@dataclass(frozen=True)
class Mount:
    """
    Where an arm stands, under which names.

    :param frame_prefix: before the names of all frames and joints of the URDF.
    :param base_frame: in which the room stands; empty for none.
    :param base_pose: of the room in it: x, y, z, m; roll, pitch, yaw, rad.
    """

    frame_prefix: str = ''
    base_frame: str = ''
    base_pose: tuple[float, ...] = (0.0, 0.0, 0.0, 0.0, 0.0, 0.0)

    @property
    def base_link(self) -> str:
        """Name of the arm's own frame, whose origin is the remote centre."""
        return self.frame(BASE)

    def frame(self, name: str) -> str:
        """Return the full name of a frame or joint of the URDF."""
        return f'{self.frame_prefix}{name}'

    def urdf(self) -> str:
        """
        Return the URDF of arm and patient with these names, standing there.

        :raises ResourceError: if the installed URDF is missing or broken.
        """
        root = read_description(resource('urdf/psm.urdf'))
        for element in root.iter():
            for key in _NAMING.get(element.tag, ()):
                element.set(key, self.frame(element.get(key, '')))
        root.set('name', self.frame(root.get('name', '')))
        if self.base_frame:
            pose = self.base_pose
            place, turn = (' '.join(map(repr, each)) for each in (pose[:3], pose[3:]))
            joint = (
                f'<joint name="{self.frame("mount")}" type="fixed"><parent '
                f'link="{self.base_frame}"/><child link="{self.frame(ROOT)}"/>'
                f'<origin xyz="{place}" rpy="{turn}"/></joint>'
            )
            root.insert(0, ElementTree.fromstring(joint))
            root.insert(0, ElementTree.fromstring(f'<link name="{self.base_frame}"/>'))
        return ElementTree.tostring(root, 'unicode')

    @cached_property
    def remote_centre(self) -> tuple[Vector, Vector]:
        """Where base_link is in the root of the tree: shape (3,), m, and its turn, (3, 3)."""
        return fixed_pose(ElementTree.fromstring(self.urdf()), self.base_link)

    def pose_in_base_link(
        self, frame: str, position: Point, quaternion: Quaternion
    ) -> tuple[Point, Quaternion]:
        """
        Return a pose, given in base_link or in base_frame, in base_link.

        :param frame: name of the frame that it is given in; empty for base_link.
        :param position: m.
        :param quaternion: x, y, z, w.
        :raises CommandError: if it is in another frame.
        """
        if self._is_base_link(frame, 'a pose'):
            return position, quaternion
        at, turned = self.remote_centre
        rotation = turned.T @ from_quaternion(quaternion)
        x, y, z = (turned.T @ (np.array(position) - at)).tolist()
        return (x, y, z), to_quaternion(rotation)

    def twist_in_base_link(self, frame: str, linear: Point, angular: Point) -> tuple[Point, Point]:
        """
        Return velocities of the tip, given in base_link or in base_frame, in base_link.

        :param linear: m/s.
        :param angular: rad/s.
        :raises CommandError: if they are in another frame.
        """
        if self._is_base_link(frame, 'a velocity'):
            return linear, angular
        _, turned = self.remote_centre
        (x, y, z), (p, q, r) = ((turned.T @ np.array(each)).tolist() for each in (linear, angular))
        return (x, y, z), (p, q, r)

    def _is_base_link(self, frame: str, what: str) -> bool:
        if frame in ('', self.base_link):
            return True
        if not self.base_frame or frame != self.base_frame:
            known = ' or '.join(map(repr, filter(None, (self.base_link, self.base_frame))))
            raise CommandError(f'{what} in {frame!r}: expected one in {known}, or in no frame')
        return False
