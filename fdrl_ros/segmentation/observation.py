# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""
A segmenter's input as the flat bytes of an observation: frames, then the site's text vector.

A number of the text vector is a byte: STEP times what the byte is above MIDDLE, so it is off by
half of STEP at most.
"""

from typing import Final

from fdrl_ros.errors import RecordsError
from fdrl_ros.segmentation.clip import HISTORY
from fdrl_ros.segmentation.text import LENGTH
import numpy as np
from numpy.typing import NDArray

MIDDLE: Final = 128
"""The byte of 0."""

STEP: Final = 0.001
"""Of two neighbouring bytes: vectors of length 1 have far smaller numbers than 127 steps."""

_FRAME = HISTORY * 3  # bytes of a pixel


def observation_size(pixels: int) -> int:
    """Return the bytes of an observation of square frames."""
    return _FRAME * pixels**2 + LENGTH


def pixels_of(size: int) -> int:
    """
    Return the sides of the frames in an observation.

    :param size: bytes of an observation.
    :raises RecordsError: if no frames have this size.
    """
    pixels = round((max(0, size - LENGTH) / _FRAME) ** 0.5)
    if not pixels or observation_size(pixels) != size:
        raise RecordsError(
            f'observations of {size} bytes: expected {HISTORY} square frames and {LENGTH} more'
        )
    return pixels


def packed(frames: NDArray[np.uint8], text: NDArray[np.float32]) -> NDArray[np.uint8]:
    """
    Return an observation, shape (size,), uint8.

    :param frames: the oldest first, shape (HISTORY, pixels, pixels, 3), RGB.
    :param text: the site's vector, shape (LENGTH,).
    :raises RecordsError: if a number of the text is too large for a byte.
    """
    steps = np.rint(np.asarray(text, np.float64) / STEP)
    if not np.abs(steps).max() < MIDDLE:
        most = (MIDDLE - 1) * STEP
        raise RecordsError(f'text vector with {np.abs(text).max():g}: expected at most {most:g}')
    return np.concatenate([frames.reshape(-1), (steps + MIDDLE).astype(np.uint8)])
