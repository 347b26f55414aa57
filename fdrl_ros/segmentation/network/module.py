# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""The segmenter as the module of a plan: observations in, scores of each pixel's parts out."""

from collections.abc import Sequence
import math

from fdrl_ros.errors import PolicyError
from fdrl_ros.segmentation.clip import HISTORY
from fdrl_ros.segmentation.network.segmenter import Segmenter
from fdrl_ros.segmentation.network.sizes import SegmenterSettings
from fdrl_ros.segmentation.observation import MIDDLE, pixels_of, STEP
from fdrl_ros.segmentation.text import LENGTH
from fdrl_ros.surgery.render.parts import PARTS
import numpy as np
import torch


class Tiny(Segmenter):
    """The size `tiny`."""

    size = 'tiny'

    def __init__(self, shape: Sequence[int], outputs: int) -> None:
        """
        Take the sizes of a task.

        :param shape: of an observation of :mod:`fdrl_ros.segmentation.observation`.
        :param outputs: parts to tell apart.
        :raises PolicyError: if these are not the four that a segmenter knows.
        :raises RecordsError: if no observation has this shape.
        """
        if outputs != len(PARTS):
            raise PolicyError(f'{outputs} classes: a segmenter tells apart {", ".join(PARTS)}')
        # PyTorch's own generator is seeded by whoever builds a module for a plan.
        seed = int(torch.empty((), dtype=torch.int64).random_(2**62))
        super().__init__(SegmenterSettings(self.size), np.random.default_rng(seed))
        self.pixels = pixels_of(math.prod(shape))

    def forward(self, observations: torch.Tensor) -> torch.Tensor:  # type: ignore[override]
        """
        Return logits of the newest frames, (n, 4, pixels, pixels).

        :param observations: (n, *shape), bytes divided by 255.
        """
        return super().forward(*self.unpacked(observations))

    def unpacked(self, observations: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Return clips, (n, HISTORY, 3, pixels, pixels), and text vectors, (n, LENGTH)."""
        flat, side = observations.flatten(1), self.pixels
        frames = flat[:, :-LENGTH].unflatten(1, (HISTORY, side, side, 3))
        text = (flat[:, -LENGTH:] * 255.0 - MIDDLE) * STEP
        return frames.permute(0, 1, 4, 2, 3), text


class B0(Tiny):
    """The size `b0`."""

    size = 'b0'
