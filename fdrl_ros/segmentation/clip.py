# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""Video clips with the instrument's parts labelled, collections of them, and a frame's history."""

from collections.abc import Sequence
from dataclasses import dataclass

from fdrl_ros.errors import RecordsError
from fdrl_ros.surgery.render.parts import PARTS, UNLABELLED
import numpy as np
from numpy.typing import ArrayLike, NDArray

HISTORY = 4
"""Frames that a clip for the network holds: the newest, and three before, 0.2 s apart."""


@dataclass(frozen=True, eq=False)
class Clip:
    """
    Successive frames of one video.

    :param name: unique in its collection, such as `seq_1` or `site_a/0007`.
    :param frames: shape (frames, height, width, 3), uint8, RGB.
    :param labels: one of PARTS by number, or UNLABELLED, in each pixel, shape (frames, height,
        width), uint8.
    :param rate: frames a second.
    :raises RecordsError: if shapes, types or labels do not fit.
    """

    name: str
    frames: NDArray[np.uint8]
    labels: NDArray[np.uint8]
    rate: float

    def __post_init__(self) -> None:
        """Refuse what does not fit."""
        frames, labels = self.frames, self.labels
        if frames.dtype != np.uint8 or frames.ndim != 4 or frames.shape[3] != 3:
            words = f'frames {frames.dtype} {frames.shape}: expected uint8 (frames, y, x, 3)'
            raise RecordsError(f'clip {self.name}: {words}')
        if labels.dtype != np.uint8 or labels.shape != frames.shape[:3]:
            words = f'labels {labels.dtype} {labels.shape} do not fit frames {frames.shape}'
            raise RecordsError(f'clip {self.name}: {words}')
        unknown = set(np.unique(labels).tolist()) - {*range(len(PARTS)), UNLABELLED}
        if unknown:
            known = f'0 to {len(PARTS) - 1}, or {UNLABELLED}'
            raise RecordsError(f'clip {self.name}: labels {sorted(unknown)}: expected {known}')
        if not (np.isfinite(self.rate) and self.rate > 0.0):
            raise RecordsError(f'clip {self.name}: rate {self.rate}: expected one above 0 Hz')


Clips = Sequence[Clip]
"""A collection, whose clips may be read or drawn only when they are asked for."""


def history(newest: ArrayLike, count: int = HISTORY) -> NDArray[np.int64]:
    """
    Return the numbers of frames and of those before them; the first one is repeated before it.

    :param newest: of each clip for the network, any shape.
    :returns: the oldest first, shape (..., count).
    """
    earlier = np.arange(count - 1, -1, -1)
    return np.maximum(0, np.asarray(newest, np.int64)[..., None] - earlier)
