# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""An instrument as shapes: shaft, wrist and two fingers where the arm's kinematics has them."""

from collections.abc import Sequence
from dataclasses import dataclass
import math

from fdrl_ros.surgery.arm.kinematics import forward, Point, TIP_LINK, WRIST_LINK
from fdrl_ros.surgery.render.parts import JAW, SHAFT, WRIST
from fdrl_ros.surgery.render.shapes import Material, Shape

SHAFT_RADIUS = 0.004
"""Of the shaft, m, as urdf/psm.urdf has it."""

_BEGINS = 0.0035  # metres of the pitch axis that the shaft ends before
_PRONG, _PRONGS_APART = 0.0014, 0.0023  # radius, and offset along the axis they hold, m
_BODY = (0.0027, 0.0023)  # radii of the link between the two axes, m
_PIN = (0.0013, 0.0030)  # radius and half length of the yaw axis, m
_KNUCKLE, _MIDDLE, _END = 0.0018, 0.0014, 0.0007  # radii of a finger, m
_BENT = 0.45  # share of a finger at which it is bowed outwards
_BOW = 0.0006  # how far, m
_ABREAST = 0.0008  # metres of a closed finger beside the middle


@dataclass(frozen=True)
class Build:
    """
    How an instrument is made.

    :param shaft: its surface; `wrist` and `jaw` likewise.
    :param fingers: length of the fingers, times that of the URDF.
    :param thickness: of the fingers, times the usual one.
    :param width: of the whole instrument, times the usual one.
    """

    shaft: Material
    wrist: Material
    jaw: Material
    fingers: float = 1.0
    thickness: float = 1.0
    width: float = 1.0


def _sum(point: Point, *steps: tuple[float, Point]) -> Point:
    x, y, z = point
    for length, (dx, dy, dz) in steps:
        x, y, z = x + length * dx, y + length * dy, z + length * dz
    return x, y, z


def instrument(
    joints: Sequence[float], jaw: float, build: Build, centre: Point = (0.0, 0.0, 0.0)
) -> list[Shape]:
    """
    Return the shapes of an instrument.

    :param joints: six, rad and m.
    :param jaw: angle between the fingers, rad.
    :param centre: remote centre of its arm, m.
    """
    tip, (yaw_axis, side, approach) = forward(joints)
    pitch, yaw = joints[4], joints[5]
    zero = (0.0, 0.0, 0.0)
    wrist = _sum(zero, (math.cos(yaw), approach), (-math.sin(yaw), side))
    pitch_axis = _sum(zero, (-math.sin(yaw), approach), (-math.cos(yaw), side))
    shaft = _sum(zero, (math.cos(pitch), wrist), (math.sin(pitch), yaw_axis))
    hinge = _sum(centre, (1.0, tip), (-TIP_LINK, approach))
    elbow = _sum(hinge, (-WRIST_LINK, wrist))
    wide = build.width
    end = _sum(elbow, (-_BEGINS, shaft))
    back = _sum(end, (-0.30, shaft))
    radius = SHAFT_RADIUS * wide
    made = [
        Shape(build.shaft, back, end, radius, radius, SHAFT, shades=True),
        Shape(build.wrist, elbow, hinge, _BODY[0] * wide, _BODY[1] * wide, WRIST, shades=True),
    ]
    for sign in (-1.0, 1.0):
        apart = sign * _PRONGS_APART * wide
        prong = _PRONG * wide
        root = _sum(end, (0.6 * _BEGINS, shaft), (apart, pitch_axis))
        top = _sum(elbow, (apart, pitch_axis))
        made.append(Shape(build.wrist, root, top, prong, prong, WRIST))
        root = _sum(elbow, (0.45 * WRIST_LINK, wrist), (apart, yaw_axis))
        top = _sum(hinge, (apart, yaw_axis))
        made.append(Shape(build.wrist, root, top, prong, prong, WRIST))
    pin = _PIN[1] * wide
    ends = _sum(hinge, (-pin, yaw_axis)), _sum(hinge, (pin, yaw_axis))
    made.append(Shape(build.wrist, *ends, _PIN[0] * wide, _PIN[0] * wide, WRIST))
    length = TIP_LINK * build.fingers
    for sign in (-1.0, 1.0):
        turn = sign * jaw / 2.0
        ahead = _sum(zero, (math.cos(turn), approach), (math.sin(turn), side))
        out = _sum(zero, (sign * math.cos(turn), side), (-sign * math.sin(turn), approach))
        base = _sum(hinge, (_ABREAST, out))
        bow = _sum(hinge, (_BENT * length, ahead), (_ABREAST + _BOW, out))
        knuckle, middle, last = (each * build.thickness for each in (_KNUCKLE, _MIDDLE, _END))
        top = _sum(hinge, (length - last, ahead), (0.6 * last, out))
        made.append(Shape(build.jaw, base, bow, knuckle, middle, JAW, shades=True))
        made.append(Shape(build.jaw, bow, top, middle, last, JAW, shades=True))
    return made
