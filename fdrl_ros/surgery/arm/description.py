# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""
The moving chain out of the arm's URDF: all six joints, or the three that move a straight wrist.

With three joints, what is beyond the insertion is one body: mass, centre and inertia added up by
the parallel-axis theorem. Physics steps it more than twice as fast.
"""

from dataclasses import dataclass
from functools import lru_cache
import math
from pathlib import Path
import xml.etree.ElementTree as ElementTree

from fdrl_ros.errors import ResourceError
from fdrl_ros.surgery.arm.kinematics import JOINTS, Vector
import numpy as np

_TIP = 'tool_tip'
_ROOT = 'base_link'
_INERTIA = ('ixx', 'ixy', 'ixz', 'iyy', 'iyz', 'izz')


def read_description(path: Path) -> ElementTree.Element:
    """
    Read a URDF that holds the arm.

    :raises ResourceError: if it is missing or broken, or lacks a joint of the arm.
    """
    try:
        root = ElementTree.parse(path).getroot()
    except (OSError, ElementTree.ParseError) as problem:
        raise ResourceError(f'{path}: expected the URDF of the arm: {problem}') from problem
    found = {joint.get('name') for joint in root.findall('joint')}
    missing = [name for name in (*JOINTS, f'{_TIP}_joint') if name not in found]
    if root.tag != 'robot' or missing:
        raise ResourceError(
            f'{path}: expected a URDF with the joints {", ".join(JOINTS)} and {_TIP}_joint, '
            f'found none named {", ".join(missing) or "robot"}'
        )
    return root


def numbers(element: ElementTree.Element | None, name: str, default: str) -> Vector:
    """Return the numbers of an attribute."""
    return np.array([float(word) for word in text(element, name, default).split()])


def text(element: ElementTree.Element | None, name: str, default: str) -> str:
    """Return an attribute of an element that may be missing."""
    return default if element is None else element.get(name, default)


def origin(element: ElementTree.Element) -> tuple[Vector, Vector]:
    """Return translation (m) and rotation of a joint, an inertial or a visual element."""
    found = element.find('origin')
    roll, pitch, yaw = numbers(found, 'rpy', '0 0 0').tolist()
    (cr, sr), (cp, sp), (cy, sy) = (
        (math.cos(angle), math.sin(angle)) for angle in (roll, pitch, yaw)
    )
    about_x = np.array([[1, 0, 0], [0, cr, -sr], [0, sr, cr]])
    about_y = np.array([[cp, 0, sp], [0, 1, 0], [-sp, 0, cp]])
    about_z = np.array([[cy, -sy, 0], [sy, cy, 0], [0, 0, 1]])
    return numbers(found, 'xyz', '0 0 0'), about_z @ about_y @ about_x


def fixed_pose(root: ElementTree.Element, link: str) -> tuple[Vector, Vector]:
    """
    Return where a link is in the root of a URDF, over joints that do not move.

    :returns: shape (3,), m, and its turn, shape (3, 3).
    """
    joints = {text(each.find('child'), 'link', ''): each for each in root.findall('joint')}
    at, turned = np.zeros(3), np.eye(3)
    while link in joints:
        shift, turn = origin(joints[link])
        at, turned = shift + turn @ at, turn @ turned
        link = text(joints[link].find('parent'), 'link', '')
    return at, turned


@dataclass(frozen=True)
class _Mass:
    """Mass (kg), centre (m) and inertia about the centre (kg m^2) in some frame."""

    mass: float
    centre: Vector
    inertia: Vector

    @classmethod
    def of(cls, link: ElementTree.Element) -> '_Mass':
        inertial = link.find('inertial')
        if inertial is None:
            return cls(0.0, np.zeros(3), np.zeros((3, 3)))
        found = inertial.find('inertia')
        xx, xy, xz, yy, yz, zz = (float(text(found, name, '0')) for name in _INERTIA)
        centre, turn = origin(inertial)
        inertia = turn @ np.array([[xx, xy, xz], [xy, yy, yz], [xz, yz, zz]]) @ turn.T
        return cls(float(text(inertial.find('mass'), 'value', '0')), centre, inertia)

    def carried(self, shift: Vector, turn: Vector) -> '_Mass':
        """Return the same mass seen from the frame that holds ours at a shift and turn."""
        return _Mass(self.mass, shift + turn @ self.centre, turn @ self.inertia @ turn.T)

    def __add__(self, other: '_Mass') -> '_Mass':
        mass = self.mass + other.mass
        centre = (self.mass * self.centre + other.mass * other.centre) / (mass or 1.0)
        return _Mass(mass, centre, self._about(centre) + other._about(centre))

    def _about(self, point: Vector) -> Vector:
        arm = self.centre - point
        return self.inertia + self.mass * (arm @ arm * np.eye(3) - np.outer(arm, arm))

    def link(self, name: str) -> str:
        """Return a link of this mass, without a shape, as URDF."""
        centre = ' '.join(map(repr, self.centre.tolist()))
        (xx, xy, xz), (_yx, yy, yz), (_zx, _zy, zz) = self.inertia.tolist()
        moments = zip(_INERTIA, (xx, xy, xz, yy, yz, zz), strict=True)
        inertia = ' '.join(f'{axes}="{moment!r}"' for axes, moment in moments)
        return (
            f'<link name="{name}"><inertial><origin xyz="{centre}"/>'
            f'<mass value="{self.mass!r}"/><inertia {inertia}/></inertial></link>'
        )


_NOTHING = _Mass(0.0, np.zeros(3), np.zeros((3, 3)))


@lru_cache(maxsize=8)
def chain_description(path: Path, straight: bool) -> str:
    """
    Return the URDF of the moving chain alone, without shapes.

    :param path: of the whole arm's URDF.
    :param straight: fold what is beyond the insertion into one link.
    :raises ResourceError: if the file is missing or broken.
    """
    whole = read_description(path)
    links = {link.get('name'): link for link in whole.findall('link')}
    joints = {joint.get('name'): joint for joint in whole.findall('joint')}
    chain = [joints[name] for name in (*JOINTS, f'{_TIP}_joint')]
    try:
        masses = [_Mass.of(links[text(joint.find('child'), 'link', '')]) for joint in chain]
        if straight:
            for joint in reversed(chain[3:]):
                masses[-2:] = [masses[-2] + masses[-1].carried(*origin(joint))]
            chain = chain[:3]
    except (KeyError, ValueError) as problem:
        raise ResourceError(
            f'{path}: expected links with masses and origins: {problem!r}'
        ) from problem
    parts = [_NOTHING.link(_ROOT)]
    for joint, mass in zip(chain, masses, strict=True):
        parts.append(mass.link(text(joint.find('child'), 'link', '')))
        parts.append(ElementTree.tostring(joint, 'unicode'))
    return f'<robot name="chain">{"".join(parts)}</robot>'
