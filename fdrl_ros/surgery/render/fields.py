# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""Random fields over a square, of which tissue is made: hills, patches, vessels that branch."""

import math

import numpy as np
from numpy.typing import NDArray

Field = NDArray[np.float32]

Piece = tuple[float, float, float, float, float]
"""Of a vessel: start x and y, end x and y, and radius, as shares of the square's width."""

_PIECE = 0.016  # length of a piece, as a share of the square's width
_BRANCHES = 0.16  # chance of a branch at its end
_THINNEST, _THIN, _THICK = 0.0006, 0.0015, 0.0039  # radii, as shares of the square's width


def field(rng: np.random.Generator, size: int, cells: int) -> Field:
    """
    Draw a smooth field that repeats at its edges: a cubic B-spline over random numbers.

    :param cells: random numbers along each side.
    :returns: shape (size, size), within 0 to 1, mostly 0.2 to 0.8.
    """
    grid = rng.random((cells, cells), np.float32)
    place = np.arange(size, dtype=np.float32) * (cells / size)
    below = place.astype(np.int64)
    x = place - below.astype(np.float32)
    y = 1 - x
    weights = (
        y * y * y / 6,
        (3 * x * x * x - 6 * x * x + 4) / 6,
        (3 * y * y * y - 6 * y * y + 4) / 6,
        x * x * x / 6,
    )
    nodes = [(below + shift) % cells for shift in (-1, 0, 1, 2)]
    for _ in range(2):  # along one side, then the other
        grid = sum(
            (w[:, None] * grid[node] for w, node in zip(weights, nodes, strict=True)),
            np.zeros((size, grid.shape[1]), np.float32),
        )
        grid = np.ascontiguousarray(grid.T)
    return grid.T


def rough(rng: np.random.Generator, size: int, cells: int, octaves: int) -> Field:
    """Draw a sum of fields, each twice as fine and half as strong as the one before."""
    found = np.zeros((size, size), np.float32)
    for octave in range(octaves):
        found += 0.5**octave * field(rng, size, cells << octave)
    return found / (2 - 0.5 ** (octaves - 1))


def step(values: Field, low: float, high: float) -> Field:
    """Return 0 below `low`, 1 above `high`, and a smooth way between."""
    x = np.clip((values - low) / (high - low), 0, 1)
    return np.asarray(x * x * (3 - 2 * x), np.float32)


def patches(values: Field, share: float, soft: float) -> Field:
    """Return 1 where a field is highest, on about a share of its area, and 0 elsewhere."""
    if share <= 0.0:
        return np.zeros_like(values)
    some = np.sort(values[::8, ::8].ravel())
    edge = float(some[min(len(some) - 1, int((1.0 - min(share, 1.0)) * len(some)))])
    return step(values, edge - soft, edge + soft)


def slopes(heights: Field, pitch: float) -> tuple[Field, Field]:
    """
    Return the slopes of heights along x (columns) and y (rows); none at the edges.

    :param pitch: distance of neighbours, in the unit of heights.
    """
    along, down = np.zeros_like(heights), np.zeros_like(heights)
    along[:, 1:-1] = (heights[:, 2:] - heights[:, :-2]) / (2 * pitch)
    down[1:-1] = (heights[2:] - heights[:-2]) / (2 * pitch)
    return along, down


def branches(rng: np.random.Generator, count: int) -> list[Piece]:
    """Draw vessels that wind and branch."""
    pieces: list[Piece] = []
    for _ in range(count):
        x, y, turn, thick = (float(each) for each in rng.random(4))
        going = [(x, y, 2 * math.pi * turn, _THIN + (_THICK - _THIN) * thick, 26)]
        while going:
            x, y, turn, radius, left = going.pop()
            bend = 0.0
            while left > 0 and radius > _THINNEST:
                bend = 0.7 * bend + 0.45 * (float(rng.random()) - 0.5)
                turn += bend
                to_x, to_y = x + _PIECE * math.cos(turn), y + _PIECE * math.sin(turn)
                pieces.append((x, y, to_x, to_y, radius))
                x, y, left = to_x, to_y, left - 1
                if rng.random() < _BRANCHES:
                    side = math.copysign(0.5 + 0.5 * float(rng.random()), rng.random() - 0.5)
                    going.append((x, y, turn + side, 0.65 * radius, int(0.8 * left)))
                    radius *= 0.88
    return pieces


def vessels(rng: np.random.Generator, size: int, count: int) -> tuple[Field, Field]:
    """Return where vessels are, 0 to 1, and how high they stand as a share of the width."""
    cover, rise = np.zeros((size, size), np.float32), np.zeros((size, size), np.float32)
    for x, y, to_x, to_y, share in branches(rng, count):
        start, end = np.array([x, y]) * (size - 1), np.array([to_x, to_y]) * (size - 1)
        radius = share * (size - 1)
        low = np.maximum(np.floor(np.minimum(start, end) - radius - 2).astype(int), 0)
        high = np.minimum(np.ceil(np.maximum(start, end) + radius + 3).astype(int), size)
        if (low >= high).any():
            continue
        columns = np.arange(low[0], high[0]) - start[0]
        rows = (np.arange(low[1], high[1]) - start[1])[:, None]
        way_x, way_y = end - start
        along = np.clip((columns * way_x + rows * way_y) / (way_x * way_x + way_y * way_y), 0, 1)
        far = np.sqrt((columns - along * way_x) ** 2 + (rows - along * way_y) ** 2)
        window = np.s_[low[1] : high[1], low[0] : high[0]]
        covered = np.clip((radius - far) / max(0.5 * radius, 0.8) + 0.4, 0, 1)
        cover[window] = np.maximum(cover[window], covered)
        top = share * np.sqrt(np.maximum(1 - (far / (1.3 * radius)) ** 2, 0))
        rise[window] = np.maximum(rise[window], top)
    return cover, rise
