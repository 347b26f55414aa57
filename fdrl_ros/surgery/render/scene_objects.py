# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""The objects of a procedure as shapes: pegs, cut, ring or needle, waypoint, arrow."""

from collections.abc import Sequence
import math

from fdrl_ros.surgery.arm.kinematics import Point
from fdrl_ros.surgery.render.shapes import Material, Shape
from fdrl_ros.surgery.render.view import View

_STEEL = Material((0.62, 0.64, 0.70), metal=0.9, gloss=1.0)
_RUBBER = Material((0.04, 0.16, 0.65), gloss=0.25)
_PALE = Material((0.80, 0.77, 0.60), gloss=0.15)
_BLACK = Material((0.015, 0.003, 0.003), gloss=0.1)
_GOLD = Material((0.95, 0.60, 0.01))
_GREEN = Material((0.02, 0.52, 0.08))
_NEEDLE, _RING = (0.006, 0.0006), (0.004, 0.0012)  # radius of the arc, of the rod, m
_PEG_RADIUS, _CUT_RADIUS, _ARROW_RADIUS = 0.0015, 0.0006, 0.0012
_WAYPOINT, _HEAD = 0.0012, 0.0026  # radii of balls, m
_SUNK = 0.002  # how deep a peg stands in the organ, m


def _rod(
    material: Material, start: Point, end: Point, radius: float, *, marks: bool = False
) -> Shape:
    return Shape(material, start, end, radius, radius, marks=marks, shades=not marks)


def _line(material: Material, points: Sequence[Point], radius: float) -> list[Shape]:
    return [_rod(material, a, b, radius) for a, b in zip(points, points[1:], strict=False)]


def arc(middle: Point, radius: float, first: float, last: float, pieces: int) -> list[Point]:
    """
    Return points of an arc in a level plane.

    :param radius: m.
    :param first: angle at which it begins, from the x axis, rad; `last` likewise.
    """
    turns = (first + (last - first) * index / pieces for index in range(pieces + 1))
    x, y, z = middle
    return [(x + radius * math.cos(turn), y + radius * math.sin(turn), z) for turn in turns]


def scene_objects(view: View) -> list[Shape]:
    """Return what is there besides arm, patient and organ."""
    made: list[Shape] = []
    if view.cut is not None:
        (x, y, _), (to_x, to_y, _), z = *view.cut, view.surface
        done = max(0.0, min(1.0, view.cut_done))
        front = (x + done * (to_x - x), y + done * (to_y - y), z)
        made += _line(_BLACK, [(x, y, z), front], _CUT_RADIUS)
        made += _line(_PALE, [front, (to_x, to_y, z)], _CUT_RADIUS)
    for x, y, top in view.pegs:
        made.append(_rod(_PALE, (x, y, view.surface - _SUNK), (x, y, top), _PEG_RADIUS))
    if view.object is not None and view.ring:
        made += _line(_RUBBER, arc(view.object, _RING[0], 0.0, 2.0 * math.pi, 16), _RING[1])
    elif view.object is not None:
        x, y, z = view.object  # held in the middle of the arc
        middle = (x, y - _NEEDLE[0], z)
        made += _line(_STEEL, arc(middle, _NEEDLE[0], 0.0, math.pi, 12), _NEEDLE[1])
    if view.waypoint is not None:
        made.append(_rod(_GREEN, view.waypoint, view.waypoint, _WAYPOINT, marks=True))
    if view.arrow is not None:
        (x, y, z), (way_x, way_y, way_z) = view.arrow
        head = (x + way_x, y + way_y, z + way_z)
        made.append(_rod(_GOLD, (x, y, z), head, _ARROW_RADIUS, marks=True))
        made.append(_rod(_GOLD, head, head, _HEAD, marks=True))
    return made
