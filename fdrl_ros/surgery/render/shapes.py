# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""Shapes that pictures are made of: rods with round ends, cylinders, balls and boxes."""

from collections.abc import Sequence
from dataclasses import dataclass

from fdrl_ros.surgery.arm.kinematics import Point
from fdrl_ros.surgery.render.parts import BACKGROUND
import numpy as np
from numpy.typing import NDArray

Colour = tuple[float, float, float]

ROD, CYLINDER, BOX = range(3)
"""Kinds of shapes, by the numbers of native/kernels.h."""

_SHAPE = np.dtype(
    [
        ('start', '<f8', 3),
        ('end', '<f8', 3),
        ('first', '<f8'),
        ('last', '<f8'),
        ('turn', '<f8', 9),
        ('colour', '<f4', 3),
        ('metal', '<f4'),
        ('gloss', '<f4'),
        ('stain', '<f4'),
        ('kind', '<i4'),
        ('label', '<i4'),
        ('shades', '<i4'),
        ('marks', '<i4'),
    ],
    align=True,
)
_UPRIGHT = (1.0, 0.0, 0.0, 0.0, 1.0, 0.0, 0.0, 0.0, 1.0)


@dataclass(frozen=True)
class Material:
    """
    What a surface looks like.

    :param colour: red, green, blue of its light, linear, 0 to 1.
    :param metal: how far it mirrors what is around, 0 to 1.
    :param gloss: of its highlights.
    :param stain: share of it that blood covers, 0 to 1.
    """

    colour: Colour
    metal: float = 0.0
    gloss: float = 0.1
    stain: float = 0.0


@dataclass(frozen=True)
class Shape:
    """
    One shape.

    :param material: of its surface.
    :param start: middle of the ball, or of the flat end, that it begins with; of a box, m.
    :param end: of what it ends with; half sizes of a box, m.
    :param first: radius at the start, m.
    :param last: radius at the end, m; a cylinder has the first.
    :param label: one of PARTS by number.
    :param kind: ROD, CYLINDER or BOX.
    :param turn: directions of a box's sides, one after the other.
    :param shades: it keeps light from the tissue.
    :param marks: it is drawn over the picture, not there: no light falls on it.
    """

    material: Material
    start: Point
    end: Point
    first: float = 0.0
    last: float = 0.0
    label: int = BACKGROUND
    kind: int = ROD
    turn: tuple[float, ...] = _UPRIGHT
    shades: bool = False
    marks: bool = False


def packed(shapes: Sequence[Shape]) -> NDArray[np.void]:
    """Return shapes as native/kernels.h has them, shape (n,)."""
    rows = [
        (
            each.start,
            each.end,
            each.first,
            each.last,
            each.turn,
            each.material.colour,
            each.material.metal,
            each.material.gloss,
            each.material.stain,
            each.kind,
            each.label,
            each.shades,
            each.marks,
        )
        for each in shapes
    ]
    return np.array(rows, _SHAPE)
