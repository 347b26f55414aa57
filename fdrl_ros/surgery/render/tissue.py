# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""Tissue as textures: heights, colours, gloss and slopes, made once for a scene."""

from collections.abc import Sequence
from dataclasses import dataclass

from fdrl_ros.surgery.render.fields import Field, field, patches, rough, slopes, step, vessels
from fdrl_ros.surgery.render.style import SceneStyle
import numpy as np

EXTENT = 0.26
"""Width of the square of tissue that a scene has, m."""
FINE_PITCH = 0.0002
"""Distance of two numbers of the fine relief, m."""

_GRAIN, _CLOUD = 128, 64  # sizes of the fine relief and of the smoke
_BLOOD = (0.17, 0.006, 0.006)
_LUMP, _EDGE, _UNEVEN = 0.0022, 0.0015, 0.0012  # heights of fat, an organ's edge, all tissue, m


@dataclass(frozen=True)
class Organ:
    """
    The organ that operations have: its top is level, as the contact law takes all of it to be.

    :param axes: half axes of its ellipsoid along x, y and z, m.
    :param level: share of its length and width that is level.
    :param alone: nothing is around it.
    """

    axes: tuple[float, float, float] = (0.080, 0.060, 0.050)
    level: float = 0.70
    alone: bool = False


@dataclass(frozen=True, eq=False)
class Tissue:
    """
    Textures of tissue, as native/kernels.h has them.

    :param heights: above the surface, shape (n, n), m.
    :param looks: red, green, blue, gloss, two slopes, weight of the fine relief, and room for
        one number, shape (n, n, 8).
    :param fine: the fine relief and its slopes, shape (128, 128, 4).
    :param smoke: shape (64, 64, 4).
    :param mean: colour that instruments mirror.
    """

    heights: Field
    looks: Field
    fine: Field
    smoke: Field
    mean: tuple[float, float, float]

    @property
    def pitch(self) -> float:
        """Return the width of a texel, m."""
        return EXTENT / (len(self.heights) - 1)


def make_tissue(
    style: SceneStyle, seed: int | Sequence[int], size: int = 512, organ: Organ | None = None
) -> Tissue:
    """
    Make the tissue of a scene.

    :param seed: fixes every number.
    :param size: texels along each side.
    :param organ: what is level in the middle; hills and folds everywhere by default.
    """
    rng = np.random.default_rng(seed)
    warp, hills = field(rng, size, 6), rough(rng, size, 5, 2) - 0.5
    crest = 7 * (rough(rng, size, 7, 2) + 0.2 * warp - 0.6)
    folds = np.maximum(1 - crest * crest, 0) ** 2
    fat, lumps = rough(rng, size, 9, 2), field(rng, size, 72)
    spots, pools = rough(rng, size, 11, 5), rough(rng, size, 8, 2)
    pale, threads = rough(rng, size, 24, 3), field(rng, size, 40)
    cover, rise = vessels(rng, size, style.vessels)

    if organ is not None:
        inside, uneven, ground = _level(organ, size, warp)
    else:
        inside = patches(warp + 0.5 * hills + 0.15 * pale, 0.55, 0.03)
        uneven, ground = np.ones_like(warp), 3 * style.folds * hills + _EDGE * inside
    fat = patches(fat + 0.10 * lumps, style.fat_share, 0.02) * (1 - 0.92 * inside)
    pools = pools - 0.4 * hills + 0.12 * spots
    blood, filled = (patches(pools, style.blood, soft) for soft in (0.012, 0.06))
    cover = cover * (1 - 0.6 * fat)

    relief = (style.folds * folds + _LUMP * fat * (0.4 + lumps)) * uneven
    relief = relief + 0.5 * EXTENT * rise * (0.3 + 0.7 * uneven) + _UNEVEN * (spots - 0.5)
    heights = np.ascontiguousarray(ground + relief * (1 - 0.7 * filled), np.float32)

    threads = np.clip(1 - np.abs(2 * threads + 0.25 * pale - 1.12) * 9, 0, 1) ** 2
    threads = 0.55 * min(1, style.vessels) * threads * step(pale, 0.42, 0.62) * (1 - fat)
    looks = np.zeros((size, size, 8), np.float32)
    for k in range(3):
        colour = style.around[k] + inside * (style.tissue[k] - style.around[k])
        colour = colour * (1 + style.mottled * (2 * spots - 1))
        colour = colour + fat * (style.fat[k] * (0.75 + 0.5 * lumps) - colour)
        colour = colour + 0.85 * np.maximum(cover, threads) * (style.vessel[k] - colour)
        looks[..., k] = colour + 0.92 * blood * (_BLOOD[k] - colour)
    looks[..., 3] = style.wet * (0.45 + 1.1 * pale) * (1 + 0.8 * blood + 0.3 * cover)
    looks[..., 4], looks[..., 5] = slopes(heights, EXTENT / (size - 1))
    looks[..., 6] = (0.6 + 0.5 * fat) * (1 - 0.8 * blood)

    fine = np.zeros((_GRAIN, _GRAIN, 4), np.float32)
    grain = rough(rng, _GRAIN, 16, 3)
    fine[..., 0] = 2 * grain - 1
    for k, axis in ((1, 1), (2, 0)):
        fine[..., k] = 4 * (np.roll(grain, -1, axis) - np.roll(grain, 1, axis))
    smoke = np.zeros((_CLOUD, _CLOUD, 4), np.float32)
    smoke[..., 0] = 2 * rough(rng, _CLOUD, 6, 3) - 1
    red, green, blue = looks[::16, ::16, :3].reshape(-1, 3).mean(axis=0).tolist()
    return Tissue(heights, looks, fine, smoke, (red, green, blue))


def _level(organ: Organ, size: int, warp: Field) -> tuple[Field, Field, Field]:
    """Return where the organ is, how far the ground may be uneven, and its height, m."""
    x, y, z = organ.axes
    place = np.arange(size, dtype=np.float32) * (EXTENT / (size - 1)) - EXTENT / 2
    across = np.sqrt((place / x) ** 2 + (place[:, None] / y) ** 2)
    if organ.alone:
        top = z * np.sqrt(np.maximum(1 - across * across, 0))
        sunk = z * (1 - organ.level * organ.level) ** 0.5
        height = np.minimum(top - sunk, 0) - z * step(across, 0.98, 1.0)
        return np.ones_like(across), np.zeros_like(across), height
    inside = 1 - step(across + 0.25 * (warp - 0.5), 0.93, 1.03)
    hollow = 0.012 * (step(across, 1.0, 1.6) - step(across, 0.76, 1.02))
    wall = 0.07 * step(across, 1.3, 2.4)
    return inside, step(across, organ.level, 1.25), hollow + wall
