# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""
Frames of a URDF from the positions of its joints, as robot_state_publisher has them on /tf.

The message of /tf (tf2_msgs/TFMessage) is encoded here, since its package is often not installed.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
import math
import struct
import xml.etree.ElementTree as ElementTree

from fdrl_ros.errors import ResourceError
from fdrl_ros.surgery.arm.description import numbers, origin, text
from fdrl_ros.surgery.arm.kinematics import Vector
from fdrl_ros.surgery.arm.rotations import to_quaternion
import numpy as np

_SECOND = 1_000_000_000
_LITTLE_ENDIAN = b'\0\1\0\0'  # header of plain CDR
_TURNING = ('revolute', 'continuous')


@dataclass(frozen=True)
class Transform:
    """
    Where a frame is in another.

    :param translation: x, y, z, m.
    :param rotation: quaternion x, y, z, w.
    """

    parent: str
    child: str
    translation: tuple[float, float, float]
    rotation: tuple[float, float, float, float]


@dataclass(frozen=True)
class _Joint:
    """
    A joint of a URDF.

    :param source: joint whose position counts: its own, or that which it mimics.
    :param factor: by which that position is multiplied.
    :param offset: added to it.
    """

    kind: str
    parent: str
    child: str
    shift: Vector
    turn: Vector
    axis: Vector
    source: str
    factor: float = 1.0
    offset: float = 0.0

    @classmethod
    def of(cls, element: ElementTree.Element) -> '_Joint':
        """Read a joint."""
        axis = numbers(element.find('axis'), 'xyz', '1 0 0')
        mimic = element.find('mimic')
        return cls(
            text(element, 'type', 'fixed'),
            text(element.find('parent'), 'link', ''),
            text(element.find('child'), 'link', ''),
            *origin(element),
            axis / (float(np.linalg.norm(axis)) or 1.0),
            text(mimic, 'joint', text(element, 'name', '')),
            float(text(mimic, 'multiplier', '1')),
            float(text(mimic, 'offset', '0')),
        )

    def at(self, position: float) -> Transform:
        """Return the transform at a position of the joint that counts, rad or m."""
        value = self.factor * position + self.offset
        shift, turn = self.shift, self.turn
        if self.kind == 'prismatic':
            shift = shift + turn @ (value * self.axis)
        elif self.kind in _TURNING:
            turn = turn @ _about(self.axis, value)
        x, y, z = shift.tolist()
        return Transform(self.parent, self.child, (x, y, z), to_quaternion(turn))


class FrameTree:
    """
    The frames of a URDF.

    :param urdf: its text.
    :raises ResourceError: if it is none.
    """

    def __init__(self, urdf: str) -> None:
        try:
            joints = [_Joint.of(each) for each in ElementTree.fromstring(urdf).findall('joint')]
        except (ElementTree.ParseError, ValueError) as error:
            raise ResourceError(f'expected a URDF: {error}') from error
        self._fixed = [each for each in joints if each.kind == 'fixed']
        self._moving = [each for each in joints if each.kind != 'fixed']

    @property
    def joints(self) -> frozenset[str]:
        """Names of the joints whose positions it needs."""
        return frozenset(each.source for each in self._moving)

    def fixed(self) -> list[Transform]:
        """Return the transforms that never change."""
        return [each.at(0.0) for each in self._fixed]

    def moving(self, positions: Mapping[str, float]) -> list[Transform]:
        """Return the others, of those joints whose positions are given, rad or m."""
        return [
            each.at(positions[each.source]) for each in self._moving if each.source in positions
        ]


def transforms_message(stamp: int, transforms: Sequence[Transform]) -> bytes:
    """
    Return a tf2_msgs/TFMessage in CDR, as the middleware sends it.

    :param stamp: of all transforms, ns.
    """
    out = bytearray(struct.pack('<I', len(transforms)))
    for each in transforms:
        _align(out, 4)
        out += struct.pack('<iI', stamp // _SECOND, stamp % _SECOND)
        for name in (each.parent, each.child):
            _align(out, 4)
            encoded = name.encode() + b'\0'
            out += struct.pack('<I', len(encoded)) + encoded
        _align(out, 8)
        out += struct.pack('<7d', *each.translation, *each.rotation)
    return _LITTLE_ENDIAN + bytes(out)


def text_message(content: str) -> bytes:
    """Return a std_msgs/String in CDR, as that of `robot_description` is."""
    encoded = content.encode() + b'\0'
    return _LITTLE_ENDIAN + struct.pack('<I', len(encoded)) + encoded


def _align(out: bytearray, size: int) -> None:
    out += bytes(-len(out) % size)


def _about(axis: Vector, angle: float) -> Vector:
    """Return the rotation about a unit axis (Rodrigues), shape (3, 3)."""
    x, y, z = axis.tolist()
    skew = np.array([[0.0, -z, y], [z, 0.0, -x], [-y, x, 0.0]])
    return np.eye(3) + math.sin(angle) * skew + (1.0 - math.cos(angle)) * (skew @ skew)
