# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""
Tissue as textures: heights, colours, gloss and slopes, made once for a scene.

All is made of smooth random fields and of vessels that branch. Nothing here depends on the
machine: sums are element by element, and no function but the square root is called.
"""

from collections.abc import Sequence
from dataclasses import dataclass
import math

from fdrl_ros.surgery.render.style import SceneStyle
import numpy as np
from numpy.typing import NDArray

Field = NDArray[np.float32]

EXTENT = 0.26
"""Width of the square of tissue that a scene has, m."""

_GRAIN, _CLOUD = 128, 64
_FINE_PITCH = 0.0002  # metres of one number of the fine relief
_BLOOD = (0.17, 0.006, 0.006)


@dataclass(frozen=True, eq=False)
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
    :param looks: red, green, blue, gloss, two slopes, weight of the fine relief; (n, n, 8).
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


def field(rng: np.random.Generator, size: int, cells: int) -> Field:
    """
    Draw a smooth random field that repeats at its edges: a cubic B-spline over random numbers.

    :param cells: random numbers along each side.
    :returns: shape (size, size), within 0 to 1, mostly 0.2 to 0.8.
    """
    grid = rng.random((cells, cells), np.float32)
    place = np.arange(size, dtype=np.float32) * np.float32(cells / size)
    below = place.astype(np.int64)
    x = place - below.astype(np.float32)
    y = np.float32(1.0) - x
    weights = (
        y * y * y / 6,
        (3 * x * x * x - 6 * x * x + 4) / 6,
        (3 * y * y * y - 6 * y * y + 4) / 6,
        x * x * x / 6,
    )
    index = [(below + shift) % cells for shift in (-1, 0, 1, 2)]
    rows = sum(w[:, None] * grid[i] for w, i in zip(weights, index, strict=True))
    assert isinstance(rows, np.ndarray)
    columns = np.ascontiguousarray(rows.T)
    found = sum(w[:, None] * columns[i] for w, i in zip(weights, index, strict=True))
    return np.asarray(found, np.float32)


def rough(rng: np.random.Generator, size: int, cells: int, octaves: int) -> Field:
    """Draw a sum of fields, each twice as fine and half as strong, about 0 to 1 around 0.5."""
    found, weight, whole = np.zeros((size, size), np.float32), 1.0, 0.0
    for octave in range(octaves):
        found += np.float32(weight) * field(rng, size, cells << octave)
        whole, weight = whole + weight, weight / 2
    return found / np.float32(whole)


def step(values: Field, low: float, high: float) -> Field:
    """Return 0 below `low`, 1 above `high`, and a smooth way between."""
    x = np.clip((values - np.float32(low)) / np.float32(high - low), 0.0, 1.0)
    return np.asarray(x * x * (3 - 2 * x), np.float32)


def share_of(values: Field, share: float, soft: float) -> Field:
    """Return 1 where a field is highest, on about a share of its area, and 0 elsewhere."""
    if share <= 0.0:
        return np.zeros_like(values)
    some = np.sort(values[::8, ::8].ravel())
    edge = float(some[max(0, min(len(some) - 1, int((1.0 - share) * len(some))))])
    return step(values, edge - soft, edge + soft)


def slopes(heights: Field, pitch: float) -> tuple[Field, Field]:
    """Return the slopes of heights along x (columns) and y (rows)."""
    along = np.zeros_like(heights)
    across = np.zeros_like(heights)
    along[:, 1:-1] = (heights[:, 2:] - heights[:, :-2]) / np.float32(2 * pitch)
    across[1:-1] = (heights[2:] - heights[:-2]) / np.float32(2 * pitch)
    return along, across


def branches(
    rng: np.random.Generator, count: int
) -> list[tuple[float, float, float, float, float]]:
    """
    Draw vessels that wind and branch.

    :returns: pieces: start x and y, end x and y and radius, all as shares of the square's width.
    """
    pieces: list[tuple[float, float, float, float, float]] = []
    for _ in range(count):
        x, y, turn = rng.random(), rng.random(), rng.random() * 2 * math.pi
        going = [(x, y, turn, 0.0015 + 0.0024 * rng.random(), 26)]
        while going:
            x, y, turn, radius, left = going.pop()
            bend = 0.0
            while left > 0 and radius > 0.0006:
                bend = 0.7 * bend + 0.45 * (rng.random() - 0.5)
                turn += bend
                to_x, to_y = x + 0.016 * math.cos(turn), y + 0.016 * math.sin(turn)
                pieces.append((x, y, to_x, to_y, radius))
                x, y, left = to_x, to_y, left - 1
                if rng.random() < 0.16:
                    side = 1.0 if rng.random() < 0.5 else -1.0
                    way = turn + side * (0.5 + 0.5 * rng.random())
                    going.append((x, y, way, 0.65 * radius, int(0.8 * left)))
                    radius *= 0.88
    return pieces


def vessels_of(rng: np.random.Generator, size: int, count: int) -> tuple[Field, Field]:
    """Return where vessels are, 0 to 1, and how high they stand, in their radius."""
    cover, rise = np.zeros((size, size), np.float32), np.zeros((size, size), np.float32)
    for x, y, to_x, to_y, radius in branches(rng, count):
        ends = np.array([[x, y], [to_x, to_y]]) * (size - 1)
        wide = radius * (size - 1)
        low = np.maximum(np.floor(ends.min(axis=0) - wide - 2).astype(int), 0)
        high = np.minimum(np.ceil(ends.max(axis=0) + wide + 3).astype(int), size)
        if (low >= high).any():
            continue
        columns = np.arange(low[0], high[0], dtype=np.float32) - np.float32(ends[0, 0])
        rows = (np.arange(low[1], high[1], dtype=np.float32) - np.float32(ends[0, 1]))[:, None]
        dx, dy = (ends[1] - ends[0]).astype(np.float32)
        share = np.clip((columns * dx + rows * dy) / (dx * dx + dy * dy), 0.0, 1.0)
        far = np.sqrt((columns - share * dx) ** 2 + (rows - share * dy) ** 2)
        patch = np.clip((np.float32(wide) - far) / np.float32(max(0.5 * wide, 0.8)) + 0.4, 0, 1)
        window = np.s_[low[1] : high[1], low[0] : high[0]]
        cover[window] = np.maximum(cover[window], patch)
        round_top = np.sqrt(np.maximum(1 - (far / np.float32(1.3 * wide)) ** 2, 0))
        rise[window] = np.maximum(rise[window], np.float32(radius) * round_top)
    return cover, rise


def _level(organ: Organ, place: Field, warp: Field) -> tuple[Field, Field, Field]:
    """Return where the organ is, how far the ground may be uneven, and its height, m."""
    x, y, z = (np.float32(each) for each in organ.axes)
    across = np.sqrt((place / x) ** 2 + (place[:, None] / y) ** 2)
    if organ.alone:
        top = z * np.sqrt(np.maximum(1 - across * across, 0))
        edge = z * np.sqrt(np.float32(1 - organ.level * organ.level))
        height = np.minimum(top - edge, 0) - z * step(across, 0.98, 1.0)
        return np.ones_like(across), np.zeros_like(across), height
    inside = 1 - step(across + np.float32(0.25) * (warp - np.float32(0.5)), 0.93, 1.03)
    hollow = np.float32(-0.012) * step(across, 0.76, 1.02) + np.float32(0.012) * step(
        across, 1.0, 1.6
    )
    wall = np.float32(0.07) * step(across, 1.3, 2.4)
    return inside, step(across, organ.level, 1.25), hollow + wall


def make_tissue(
    style: SceneStyle, seed: int | Sequence[int], size: int = 512, organ: Organ | None = None
) -> Tissue:
    """
    Make the tissue of a scene.

    :param seed: fixes every number.
    :param size: texels along each side.
    :param organ: what is level in the middle; tissue of hills and folds by default.
    """
    rng = np.random.default_rng(seed)
    pitch = EXTENT / (size - 1)
    warp = field(rng, size, 6)
    hills = rough(rng, size, 5, 2) - np.float32(0.5)
    crest = np.float32(7) * (rough(rng, size, 7, 2) + np.float32(0.2) * warp - np.float32(0.6))
    ridges = np.maximum(1 - crest * crest, 0) ** 2
    fat_field = rough(rng, size, 9, 2)
    lumps = field(rng, size, 72)
    spread = rough(rng, size, 11, 5)
    pool = rough(rng, size, 8, 2)
    pale = rough(rng, size, 24, 3)
    thin = field(rng, size, 40)
    cover, rise = vessels_of(rng, size, style.vessels)

    place = np.arange(size, dtype=np.float32) * np.float32(pitch) - np.float32(EXTENT / 2)
    if organ is not None:
        inside, rough_part, base = _level(organ, place, warp)
    else:
        inside = share_of(warp + np.float32(0.5) * hills + np.float32(0.15) * pale, 0.55, 0.03)
        rough_part = np.ones((size, size), np.float32)
        base = np.float32(3.0 * style.folds) * hills + np.float32(0.0015) * inside
    fat = share_of(fat_field + np.float32(0.10) * (lumps - np.float32(0.5)), style.fat_share, 0.02)
    fat = fat * (1 - np.float32(0.92) * inside)
    pool = pool - np.float32(0.4) * hills + np.float32(0.12) * (spread - np.float32(0.5))
    blood, level = share_of(pool, style.blood, 0.012), share_of(pool, style.blood, 0.06)
    cover = cover * (1 - np.float32(0.6) * fat)
    relief = (
        np.float32(style.folds) * ridges + fat * np.float32(0.0022) * (np.float32(0.4) + lumps)
    ) * rough_part + np.float32(0.5 * EXTENT) * rise * (
        np.float32(0.3) + np.float32(0.7) * rough_part
    )
    relief = relief + np.float32(0.0012) * (spread - np.float32(0.5))
    heights = base + relief * (1 - np.float32(0.7) * level)
    heights = np.ascontiguousarray(heights, np.float32)

    looks = np.empty((size, size, 8), np.float32)
    shade = 1 + np.float32(style.mottled) * (2 * spread - 1)
    lines = np.clip(1 - np.abs(2 * thin + np.float32(0.25) * pale - np.float32(1.12)) * 9, 0, 1)
    lines = np.float32(0.55 * min(1, style.vessels)) * lines * lines * step(pale, 0.42, 0.62)
    for k in range(3):
        organ_part = inside * np.float32(style.tissue[k]) + (1 - inside) * np.float32(
            style.around[k]
        )
        organ_part = organ_part * shade
        organ_part = (
            organ_part
            + (
                np.float32(style.fat[k]) * (np.float32(0.75) + np.float32(0.5) * lumps)
                - organ_part
            )
            * fat
        )
        threads = np.maximum(cover, lines * (1 - fat))
        organ_part = (
            organ_part + (np.float32(style.vessel[k]) - organ_part) * np.float32(0.85) * threads
        )
        looks[..., k] = (
            organ_part + (np.float32(_BLOOD[k]) - organ_part) * np.float32(0.92) * blood
        )
    wet = np.float32(style.wet) * (np.float32(0.45) + np.float32(1.1) * pale)
    looks[..., 3] = wet * (1 + np.float32(0.8) * blood + np.float32(0.3) * cover)
    along, down = slopes(heights, pitch)
    looks[..., 4], looks[..., 5] = along, down
    looks[..., 6] = (np.float32(0.6) + np.float32(0.5) * fat) * (1 - np.float32(0.8) * blood)
    looks[..., 7] = 0
    fine = np.zeros((_GRAIN, _GRAIN, 4), np.float32)
    grain = rough(rng, _GRAIN, 16, 3)
    fine[..., 0] = 2 * grain - 1
    fine[..., 1] = (np.roll(grain, -1, 1) - np.roll(grain, 1, 1)) * np.float32(4)
    fine[..., 2] = (np.roll(grain, -1, 0) - np.roll(grain, 1, 0)) * np.float32(4)
    smoke = np.zeros((_CLOUD, _CLOUD, 4), np.float32)
    smoke[..., 0] = 2 * rough(rng, _CLOUD, 6, 3) - 1
    red, green, blue = (float(each) for each in looks[::16, ::16, :3].reshape(-1, 3).mean(axis=0))
    return Tissue(heights, looks, fine, smoke, (red, green, blue))
