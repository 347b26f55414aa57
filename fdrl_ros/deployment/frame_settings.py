# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""What the frames of an arm are called, and where its operating room stands: as settings."""

from __future__ import annotations

from dataclasses import dataclass
import math
import re
from typing import TYPE_CHECKING

from fdrl_ros.errors import SettingError
from fdrl_ros.settings import setting, Settings

if TYPE_CHECKING:
    from fdrl_ros.surgery.arm.mount import Mount

_NAME = re.compile(r'[A-Za-z][A-Za-z0-9_]*(/[A-Za-z][A-Za-z0-9_]*)*')
_PREFIX = re.compile(r'([A-Za-z][A-Za-z0-9_]*/)*([A-Za-z][A-Za-z0-9_]*)?')


@dataclass(frozen=True)
class FrameSettings(Settings):
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
            expected = 'six finite numbers: x y z roll pitch yaw'
            raise SettingError('base_pose', self.base_pose, expected)
        if any(numbers) and not self.base_frame:
            raise SettingError('base_pose', self.base_pose, 'a base_frame with it')

    def _numbers(self) -> list[float]:
        try:
            return [float(word) for word in self.base_pose.split()]
        except ValueError:
            return []

    def mount(self) -> Mount:
        """Return what these settings make of the arm."""
        # The world and its kinematics, which servers do without.
        from fdrl_ros.surgery.arm.mount import Mount

        return Mount(self.frame_prefix, self.base_frame, tuple(self._numbers()))
