# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""Clips as pictures for people: sheets of frames, and clips that move."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from fdrl_ros.errors import os_errors_as, SettingError, StoreError
from fdrl_ros.segmentation.clip import Clip
from fdrl_ros.segmentation.overlay import overlaid
import numpy as np
from numpy.typing import NDArray
from PIL import Image

MOVING = ('.gif', '.webp')
"""Endings of files that can move."""


def write_sheet(path: Path, clips: Sequence[Clip], columns: int) -> None:
    """
    Write a picture with one row of frames and one of labels for each clip.

    :param columns: frames of each clip, spread over it.
    :raises StoreError: if it cannot be written.
    :raises SettingError: if the name of the file has an ending that is no picture's.
    """
    rows = []
    for clip in clips:
        chosen = np.linspace(0, len(clip.frames) - 1, columns).round().astype(int)
        frames, labels = clip.frames[chosen], clip.labels[chosen]
        rows += [np.concatenate(each, axis=1) for each in (frames, overlaid(frames, labels))]
    _save(path, [np.concatenate(rows)], 0)


def write_moving(path: Path, clip: Clip) -> None:
    """
    Write a moving picture of a clip, frames beside their labels.

    :param path: ends in .gif or .webp.
    :raises StoreError: if it cannot be written.
    """
    frames = np.concatenate([clip.frames, overlaid(clip.frames, clip.labels)], axis=2)
    _save(path, list(frames), round(1000 / clip.rate))


def _save(path: Path, pictures: Sequence[NDArray[np.uint8]], duration: int) -> None:
    images = [Image.fromarray(each) for each in pictures]
    more: dict[str, Any] = {'duration': duration, 'loop': 0}
    more |= {'save_all': True, 'append_images': images[1:]}
    with os_errors_as(StoreError, f'cannot write {path}'):
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            images[0].save(path, **(more if len(images) > 1 else {}))
        except ValueError:
            raise SettingError(
                'save', str(path), 'a file that ends in .png, .gif or .webp'
            ) from None
