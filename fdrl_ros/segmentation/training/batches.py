# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""Batches of short clips for training: a labelled frame, and three before it."""

from collections.abc import Sequence
from dataclasses import dataclass

from fdrl_ros.errors import RecordsError
from fdrl_ros.segmentation.clip import Clip, history
from fdrl_ros.segmentation.readers.video import VideoClips
from fdrl_ros.segmentation.training.settings import SiteSettings
from fdrl_ros.surgery.render.parts import UNLABELLED
import numpy as np
from numpy.typing import NDArray
import torch
from torch.nn import functional


@dataclass(frozen=True)
class Batch:
    """
    Clips for one step.

    :param frames: shape (clips, frames, 3, height, width), float32 in [0, 1], the oldest first.
    :param labels: of the newest frames, shape (clips, height, width), int64.
    """

    frames: torch.Tensor
    labels: torch.Tensor

    def to(self, device: torch.device) -> 'Batch':
        """Return the batch on a device."""
        return Batch(self.frames.to(device), self.labels.to(device))


def as_input(frames: NDArray[np.uint8]) -> torch.Tensor:
    """
    Turn frames into what the network takes.

    :param frames: shape (..., height, width, 3).
    :returns: shape (..., 3, height, width), float32 in [0, 1].
    """
    moved = np.ascontiguousarray(np.moveaxis(frames, -1, -3))
    return torch.from_numpy(moved).to(torch.float32) / 255.0


def _labelled(clips: Sequence[Clip], number: int) -> tuple[list[int], tuple[int, ...]]:
    """Return the numbers of a clip's labelled frames, and height and width of its frames."""
    if isinstance(clips, VideoClips):
        size = clips.read(number, 0, 1).labels.shape[1:]
        frames = clips.videos[number].frames
        return [at for at, each in enumerate(frames) if each.masks], size
    labels = clips[number].labels
    known = (labels != UNLABELLED).any(axis=(1, 2))
    return np.flatnonzero(known).tolist(), labels.shape[1:]


class Sampler:
    """Draws batches of a site's clips, each turned and scaled as a whole."""

    def __init__(self, clips: Sequence[Clip], settings: SiteSettings, frames: int) -> None:
        """
        Take the clips of a site.

        :param clips: of videos in files only what is drawn is read, and a frame with a mask
            counts as labelled.
        :param frames: of each clip for the network: 1 without the temporal module.
        :raises RecordsError: if no frame is labelled, or sizes differ.
        """
        self._clips, self._settings, self._frames = clips, settings, frames
        self._index, sizes = [], set()
        for number in range(len(clips)):
            labelled, size = _labelled(clips, number)
            self._index += [(number, newest) for newest in labelled]
            sizes.add(size)
        if not self._index:
            raise RecordsError('no clip to train on that has a labelled frame')
        if len(sizes) > 1:
            raise RecordsError(f'clips of sizes {sorted(sizes)}: expected one size')

    def draw(self, rng: np.random.Generator) -> Batch:
        """
        Draw a batch of labelled frames, each with those before it.

        :param rng: the same one gives the same batch.
        :raises RecordsError: if a file cannot be read.
        """
        chosen = rng.integers(len(self._index), size=self._settings.batch)
        frames, labels = [], []
        for number, newest in (self._index[each] for each in chosen):
            read, known = self._read(number, newest)
            frames.append(as_input(read))
            labels.append(torch.from_numpy(known.astype(np.float32)))
        pictures, parts = torch.stack(frames), torch.stack(labels)
        return Batch(*self._moved(pictures, parts, rng))

    def _read(self, number: int, newest: int) -> tuple[NDArray[np.uint8], NDArray[np.uint8]]:
        """Return a frame of a clip after those before it, and its labels."""
        numbers = history(newest, self._frames)
        if isinstance(self._clips, VideoClips):
            first = int(numbers[0])
            clip = self._clips.read(number, first, newest + 1)
            numbers = numbers - first
        else:
            clip = self._clips[number]
        return clip.frames[numbers], clip.labels[numbers[-1]]

    def _moved(
        self, frames: torch.Tensor, labels: torch.Tensor, rng: np.random.Generator
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Turn and scale each clip; what comes from outside of the picture is UNLABELLED."""
        count, length, _, height, width = frames.shape
        angles = np.radians(self._settings.rotation) * rng.uniform(-1.0, 1.0, count)
        scales = 1.0 + self._settings.scale * rng.uniform(-1.0, 1.0, count)
        cos, sin, aspect = np.cos(angles), np.sin(angles), width / height
        rows = np.zeros((count, 2, 3), np.float32)
        rows[:, 0, 0], rows[:, 0, 1] = cos / scales, -sin / (scales * aspect)
        rows[:, 1, 0], rows[:, 1, 1] = sin * aspect / scales, cos / scales
        places = functional.affine_grid(
            torch.from_numpy(rows), [count, 1, height, width], align_corners=False
        )
        moved = functional.grid_sample(
            frames.flatten(1, 2), places, padding_mode='reflection', align_corners=False
        )
        # Labels are moved by 1, so that 0 means outside.
        found = functional.grid_sample(
            labels[:, None] + 1.0, places, mode='nearest', align_corners=False
        )[:, 0].to(torch.int64)
        parts = torch.where(found == 0, UNLABELLED, found - 1)
        return moved.reshape(count, length, 3, height, width), parts
