# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""Arm, table and patient as shapes: the visual elements of the URDF where the joints put them."""

from collections.abc import Collection, Sequence
from functools import lru_cache
from pathlib import Path

from fdrl_ros.errors import ResourceError
from fdrl_ros.resources import resource
from fdrl_ros.surgery.arm.description import numbers, origin, read_description, text
from fdrl_ros.surgery.arm.kinematics import JAW, JOINTS, Vector
from fdrl_ros.surgery.arm.rotations import from_rotation_vector
from fdrl_ros.surgery.render.shapes import BOX, CYLINDER, Material, Shape
import numpy as np

BASE = 'base_link'

Pose = tuple[Vector, Vector]
"""Place, shape (3,), m, and rotation, shape (3, 3)."""

_GREY = '0.5 0.5 0.5 1'


class Room:
    """
    The URDF of arm and patient.

    :param path: urdf/psm.urdf by default.
    :raises ResourceError: if it is missing or broken, or lacks the jaw.
    """

    def __init__(self, path: Path | None = None) -> None:
        path = path or resource('urdf/psm.urdf')
        root = read_description(path)
        self._joints = root.findall('joint')
        names = {text(each, 'name', '') for each in self._joints}
        for joint in (JAW, f'{JAW}_mirror'):
            if joint not in names:
                raise ResourceError(f'{path}: expected a joint {joint}')
        colours = {
            text(each, 'name', ''): text(each.find('color'), 'rgba', _GREY)
            for each in root.findall('material')
        }
        self._shapes: list[tuple[str, Pose, Shape]] = []
        for link in root.findall('link'):
            for visual in link.findall('visual'):
                rgba = colours.get(text(visual.find('material'), 'name', ''), _GREY)
                red, green, blue = (float(word) ** 2 for word in rgba.split()[:3])
                surface = Material((red, green, blue), gloss=0.05)
                geometry = visual.find('geometry')
                if geometry is None or not len(geometry):
                    continue
                shape = _shape(surface, geometry[0].tag, geometry[0].attrib)
                self._shapes.append((text(link, 'name', ''), origin(visual), shape))

    def poses(self, joints: Sequence[float], jaw: float) -> dict[str, Pose]:
        """
        Return where the links are in the arm's base frame.

        :param joints: six, rad and m.
        :param jaw: angle between the fingers, rad.
        """
        values = dict(zip(JOINTS, joints, strict=True))
        values[JAW], values[f'{JAW}_mirror'] = jaw, jaw / 2.0
        found: dict[str, Pose] = {}
        waiting = list(self._joints)
        root = {text(each.find('parent'), 'link', '') for each in waiting} - {
            text(each.find('child'), 'link', '') for each in waiting
        }
        found.update({name: (np.zeros(3), np.eye(3)) for name in root})
        while waiting:
            left = []
            for joint in waiting:
                parent = text(joint.find('parent'), 'link', '')
                if parent not in found:
                    left.append(joint)
                    continue
                pose = _then(found[parent], origin(joint))
                value = values.get(text(joint, 'name', ''), 0.0)
                axis = value * numbers(joint.find('axis'), 'xyz', '1 0 0')
                move = (
                    (axis, np.eye(3))
                    if joint.get('type') == 'prismatic'
                    else (np.zeros(3), from_rotation_vector(axis))
                )
                found[text(joint.find('child'), 'link', '')] = _then(pose, move)
            if len(left) == len(waiting):
                raise ResourceError(f'links without a way to the root: {sorted(found)}')
            waiting = left
        at, turn = found[BASE]
        return {
            name: (turn.T @ (place - at), turn.T @ rotation)
            for name, (place, rotation) in found.items()
        }

    def shapes(
        self, joints: Sequence[float], jaw: float, hidden: Collection[str] = ()
    ) -> list[Shape]:
        """
        Return the visual elements in the arm's base frame.

        :param hidden: links that are left out.
        """
        poses = self.poses(joints, jaw)
        return [
            _moved(shape, _then(poses[link], within))
            for link, within, shape in self._shapes
            if link not in hidden
        ]


@lru_cache(maxsize=1)
def usual_room() -> Room:
    """Return the room of the installed URDF, read once."""
    return Room()


def _then(first: Pose, second: Pose) -> Pose:
    return first[0] + first[1] @ second[0], first[1] @ second[1]


def _shape(surface: Material, tag: str, sizes: dict[str, str]) -> Shape:
    """Return a visual element about its own origin."""
    if tag == 'box':
        x, y, z = (float(word) / 2.0 for word in sizes['size'].split())
        return Shape(surface, (0.0, 0.0, 0.0), (x, y, z), kind=BOX, shades=False)
    radius = float(sizes['radius'])
    half = float(sizes.get('length', '0')) / 2.0
    start, end = (0.0, 0.0, -half), (0.0, 0.0, half)
    if tag == 'sphere':
        return Shape(surface, start, start, radius, radius)
    return Shape(surface, start, end, radius, radius, kind=CYLINDER)


def _moved(shape: Shape, pose: Pose) -> Shape:
    """Return a shape of :func:`_shape` at a pose."""
    at, turn = pose

    def placed(point: tuple[float, float, float]) -> tuple[float, float, float]:
        x, y, z = (at + turn @ np.array(point)).tolist()
        return x, y, z

    end = shape.end if shape.kind == BOX else placed(shape.end)
    return Shape(
        shape.material,
        placed(shape.start),
        end,
        shape.first,
        shape.last,
        kind=shape.kind,
        turn=tuple(turn.T.ravel().tolist()),
    )
