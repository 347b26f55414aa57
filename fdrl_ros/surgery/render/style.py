# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""What an operation looks like through one hospital's endoscope: tissue, light, smoke, camera."""

from dataclasses import dataclass

from fdrl_ros.runtime.ranges import check_number
from fdrl_ros.surgery.render.shapes import Colour, Material

_STEEL = Material((0.52, 0.53, 0.56), metal=0.9, gloss=0.9)
_BLACK = Material((0.035, 0.036, 0.042), metal=0.1, gloss=0.45)


@dataclass(frozen=True)
class SceneStyle:
    """
    A look. Colours are linear, 0 to 1; amounts are 0 for none of it.

    :param tissue: colour of the organ.
    :param around: colour of the tissue around it.
    :param fat: colour of fat.
    :param vessel: colour of vessels.
    :param fat_share: of the tissue that is under fat, about.
    :param vessels: large vessels in the picture's tissue.
    :param blood: share of the tissue that is under blood, about.
    :param mottled: how much colour varies from place to place.
    :param folds: height of folds, m.
    :param relief: steepness of the fine relief.
    :param wet: gloss of tissue.
    :param stain: share of instruments that blood covers.
    :param power: of the lamp.
    :param ambient: light from all sides, as a share of the lamp's.
    :param beside: how far the lamp is to the right of the eye, and above it, m.
    :param fall: distance at which the lamp's light is as strong as `power` says, m; 0: everywhere.
    :param wrap: how far light reaches around tissue, which it shines through.
    :param shadow: how dark shadows are.
    :param smoke: how dense it is.
    :param smoke_colour: of it.
    :param vignette: how dark corners are.
    :param soft: blur of the lens, 0 to 1.
    :param fringe: share by which red is drawn larger than green and blue smaller.
    :param barrel: by how much the lens widens the corners; 0 for a pinhole.
    :param gain: white balance: red, green, blue.
    :param saturation: of colours; 1 leaves them.
    :param noise: of the sensor, standard deviation of dark pixels, of 1.
    :param nothing: colour of where nothing is.
    :param shaft: surface of the instruments' shafts; `wrist` and `jaw` likewise.
    :raises SettingError: if an amount is negative or above what can be drawn.
    """

    tissue: Colour = (0.40, 0.085, 0.060)
    around: Colour = (0.52, 0.17, 0.125)
    fat: Colour = (0.78, 0.52, 0.17)
    vessel: Colour = (0.20, 0.012, 0.014)
    fat_share: float = 0.25
    vessels: int = 6
    blood: float = 0.03
    mottled: float = 0.5
    folds: float = 0.004
    relief: float = 0.6
    wet: float = 0.75
    stain: float = 0.15
    power: float = 1.6
    ambient: float = 0.10
    beside: tuple[float, float] = (0.006, 0.006)
    fall: float = 0.08
    wrap: float = 0.25
    shadow: float = 0.75
    smoke: float = 0.0
    smoke_colour: Colour = (0.55, 0.53, 0.52)
    vignette: float = 0.35
    soft: float = 0.4
    fringe: float = 0.002
    barrel: float = 0.0
    gain: Colour = (1.0, 1.0, 1.0)
    saturation: float = 1.0
    noise: float = 0.012
    nothing: Colour = (0.030, 0.008, 0.007)
    shaft: Material = _BLACK
    wrist: Material = _STEEL
    jaw: Material = _STEEL

    def __post_init__(self) -> None:
        """Refuse amounts that cannot be drawn."""
        shares = 'fat_share blood mottled wet stain shadow smoke soft wrap ambient noise relief'
        for name in shares.split():
            check_number(name, getattr(self, name), 0.0, 4.0)
        check_number('folds', self.folds, 0.0, 0.02)
        check_number('barrel', self.barrel, -0.3, 0.5)
        check_number('fall', self.fall, 0.0, 10.0)
