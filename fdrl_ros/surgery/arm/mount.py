# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""Where an arm stands, and how its frames are named: for several arms in one tree of frames."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
import math
import re
import xml.etree.ElementTree as ElementTree

from fdrl_ros.errors import SettingError
from fdrl_ros.resources import resource
from fdrl_ros.settings import setting, Settings
from fdrl_ros.surgery.arm.description import fixed_pose, read_description
from fdrl_ros.surgery.arm.kinematics import Vector
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

_NAME = re.compile(r'[A-Za-z][A-Za-z0-9_]*(/[A-Za-z][A-Za-z0-9_]*)*')
_PREFIX = re.compile(r'([A-Za-z][A-Za-z0-9_]*/)*([A-Za-z][A-Za-z0-9_]*)?')


@dataclass(frozen=True)
class Mount(Settings):
    """Names of an arm's frames and joints, and where its operating room stands."""

    frame_prefix: str = setting(
        '',
        'put before the names of all frames and joints in URDF, /tf and messages, such as left_; '
        'empty: each robot has a tree of frames of its own',
    )
    base_frame: str = setting(
        '', "frame in which the room stands; empty: the room's own frame `world` is the root"
    )
    base_pose: str = setting(
        '0 0 0 0 0 0',
        'where the room stands in base_frame: x y z in m, roll pitch yaw in rad',
    )

    def __post_init__(self) -> None:
        """Refuse names that are none and a pose that is none."""
        super().__post_init__()
        if not _PREFIX.fullmatch(self.frame_prefix):
            expected = 'letters, digits and _, a letter first, such as left_'
            raise SettingError('frame_prefix', self.frame_prefix, expected)
        if self.base_frame and not _NAME.fullmatch(self.base_frame):
            raise SettingError('base_frame', self.base_frame, 'the name of a frame, such as map')
        numbers = self._numbers()
        if len(numbers) != 6 or not all(map(math.isfinite, numbers)):
            raise SettingError(
                'base_pose', self.base_pose, 'six finite numbers: x y z roll pitch yaw'
            )
        if any(numbers) and not self.base_frame:
            raise SettingError('base_pose', self.base_pose, 'a base_frame with it')

    def _numbers(self) -> list[float]:
        try:
            return [float(word) for word in self.base_pose.split()]
        except ValueError:
            return []

    def frame(self, name: str) -> str:
        """Return the full name of a frame or joint of the URDF."""
        return f'{self.frame_prefix}{name}'

    def description(self) -> str:
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
            numbers = self._numbers()
            place, turn = (' '.join(map(repr, each)) for each in (numbers[:3], numbers[3:]))
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
        return fixed_pose(ElementTree.fromstring(self.description()), self.frame(BASE))

    def in_base_link(
        self, frame: str, position: Sequence[float], quaternion: Quaternion
    ) -> tuple[Sequence[float], Quaternion]:
        """
        Return a pose, given in the arm's base_link or in base_frame, in base_link.

        :param frame: name of the frame that it is given in; empty for base_link.
        :param position: x, y, z, m.
        :param quaternion: x, y, z, w.
        :raises CommandError: if it is in another frame.
        """
        base = self.frame(BASE)
        if frame in ('', base):
            return position, quaternion
        if frame != self.base_frame:
            known = f'{base!r} or {self.base_frame!r}' if self.base_frame else f'{base!r}'
            raise CommandError(f'a pose in {frame!r}: expected one in {known}, or in no frame')
        at, turned = self.remote_centre
        rotation = turned.T @ from_quaternion(quaternion)
        moved = turned.T @ (np.array(position) - at)
        return moved.tolist(), to_quaternion(rotation)
