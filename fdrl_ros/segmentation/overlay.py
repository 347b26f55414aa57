# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""Labels drawn over frames: blue shaft, yellow wrist, red jaw."""

from typing import Final

from fdrl_ros.surgery.render.parts import PARTS
import numpy as np
from numpy.typing import NDArray

COLOURS: Final = np.array([(0, 0, 0), (80, 160, 255), (255, 220, 0), (255, 60, 60)], np.float32)
"""RGB of each of PARTS; the background has none."""

_SHARE = 0.55


def overlaid(frames: NDArray[np.uint8], labels: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """
    Draw labels over frames.

    :param frames: shape (..., height, width, 3).
    :param labels: shape (..., height, width); only the numbers of parts are drawn.
    :returns: shape (..., height, width, 3).
    """
    drawn = (labels > 0) & (labels < len(PARTS))
    colour = COLOURS[np.where(drawn, labels, 0)]
    share = np.where(drawn, np.float32(_SHARE), np.float32(0.0))[..., None]
    mixed: NDArray[np.uint8] = (frames * (1.0 - share) + colour * share).astype(np.uint8)
    return mixed
