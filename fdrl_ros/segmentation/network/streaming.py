# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""Segment a live video frame by frame; what was computed of earlier frames is used again."""

from dataclasses import dataclass
import math

from fdrl_ros.errors import RecordsError
from fdrl_ros.segmentation.network.segmenter import MULTIPLE, Segmenter
import numpy as np
from numpy.typing import NDArray
import torch

INTERVAL = 0.2
"""Between two frames of a clip, s."""

SPACING = 0.01
"""Between two frames that are kept, s, at least: it bounds memory, at any rate of the camera."""


def use_one_thread() -> None:
    """Let PyTorch compute in one thread: more of them only take the processors of others."""
    torch.set_num_threads(1)


@dataclass(frozen=True, eq=False)
class Segmented:
    """
    What a segmenter makes of one frame.

    :param labels: the likeliest of PARTS in each pixel, (H, W), uint8.
    :param probabilities: of each of PARTS, (4, H, W), float32.
    """

    labels: NDArray[np.uint8]
    probabilities: NDArray[np.float32]


class Stream:
    """
    A video that goes on.

    With each frame go those of the video that are nearest to 0.6, 0.4 and 0.2 s earlier; where
    the video is shorter, its first one takes their place. A step back in time, a gap longer than
    0.6 s or another size of the frames begins a new video.

    Frames of any size are padded below and on the right with their last row and column, to sides
    that are multiples of 32; what is found there is cut off.

    :param text: the site's vector, shape (text,).
    :raises RecordsError: if the text has another length than the segmenter's.
    """

    def __init__(self, segmenter: Segmenter, text: NDArray[np.float32]) -> None:
        expected = (segmenter.settings.text,)
        if text.shape != expected or not np.isfinite(text).all():
            raise RecordsError(f'text vector {text.shape}: expected finite numbers {expected}')
        self._segmenter = segmenter
        weight = next(segmenter.parameters())
        self._text = torch.tensor(text, dtype=weight.dtype, device=weight.device)[None]
        self._earlier = segmenter.frames - 1 if segmenter.temporal is not None else 0
        self._past: list[tuple[float, torch.Tensor]] = []
        self._newest, self._size = -math.inf, (0, 0)

    @property
    def kept(self) -> int:
        """Number of earlier frames whose maps are kept."""
        return len(self._past)

    def begin_anew(self) -> None:
        """Forget earlier frames, as when the camera was moved to another patient."""
        self._past, self._newest = [], -math.inf

    @torch.inference_mode()
    def segment(self, frame: NDArray[np.uint8], stamp: float) -> Segmented:
        """
        Segment the next frame.

        :param frame: shape (H, W, 3), uint8, RGB.
        :param stamp: when it was taken, s.
        :raises RecordsError: if frame or stamp cannot be used; the video goes on without it.
        """
        if frame.dtype != np.uint8 or frame.ndim != 3 or frame.shape[2] != 3 or not frame.size:
            words = f'{frame.dtype} {frame.shape}'
            raise RecordsError(f'frame {words}: expected uint8 (height, width, 3)')
        height, width = frame.shape[:2]
        if not math.isfinite(stamp):
            raise RecordsError(f'frame at {stamp} s: expected a finite time')
        beyond = (0, -height % MULTIPLE), (0, -width % MULTIPLE), (0, 0)
        picture = torch.from_numpy(np.pad(frame, beyond, 'edge')).to(self._text.device)
        current = self._segmenter.features(picture.permute(2, 0, 1)[None] / 255.0)
        self._go_on(stamp, (height, width), current)
        maps = [
            min(self._past, key=lambda each: abs(each[0] - wanted))[1]
            for wanted in self._wanted(stamp)
        ]
        logits = self._segmenter.segment_maps([*maps, current], self._text)[0]
        logits = logits[:, :height, :width]
        return Segmented(likeliest(logits).cpu().numpy(), logits.softmax(0).cpu().numpy())

    def _wanted(self, stamp: float) -> list[float]:
        """Return when the earlier frames of a clip should have been taken, s."""
        return [stamp - INTERVAL * number for number in range(self._earlier, 0, -1)]

    def _go_on(self, stamp: float, size: tuple[int, int], current: torch.Tensor) -> None:
        """Keep a frame's map, and forget those that no later frame can need."""
        length = INTERVAL * self._earlier
        if stamp <= self._newest or stamp - self._newest > length or size != self._size:
            self.begin_anew()
        self._newest, self._size = stamp, size
        if not self._past or stamp - self._past[-1][0] >= SPACING:
            self._past.append((stamp, current))
        while len(self._past) > 1 and self._past[1][0] <= stamp - length:
            del self._past[0]


def likeliest(logits: torch.Tensor) -> torch.Tensor:
    """
    Return the number of the greatest of each pixel's logits, (H, W), uint8.

    It is what argmax finds, in a fifth of the time: each part that is not the greatest yet
    counts one.

    :param logits: (parts, H, W).
    """
    greatest = logits.amax(0)
    below = logits[0] < greatest
    labels = below.to(torch.uint8)
    for part in logits[1:-1]:
        below &= part < greatest
        labels += below
    return labels
