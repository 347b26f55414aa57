# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""Labels drawn over frames, and clips as pictures for people."""

from collections.abc import Sequence
from pathlib import Path
from typing import Final

from fdrl_ros.errors import os_errors_as, SettingError, StoreError
from fdrl_ros.segmentation.clip import Clip
from fdrl_ros.surgery.render.parts import BACKGROUND, UNLABELLED
import numpy as np
from numpy.typing import NDArray
from PIL import Image

COLOURS: Final = ((0, 0, 0), (60, 140, 255), (60, 255, 90), (255, 210, 40))
"""Of background, shaft, wrist and jaw: red, green, blue."""

_SHARE = 128  # of 256 that a part's colour has
_UNKNOWN = (255, 0, 255)
MOVING = ('.gif', '.webp')


def overlay(frame: NDArray[np.uint8], labels: NDArray[np.integer]) -> NDArray[np.uint8]:
    """
    Return a frame with the colours of its parts over it.

    :param frame: shape (height, width, 3), uint8.
    :param labels: by number, shape (height, width).
    """
    table = np.full((UNLABELLED + 1, 3), _UNKNOWN, np.uint16)
    table[: len(COLOURS)] = COLOURS
    mixed = (frame * np.uint16(256 - _SHARE) + table[labels] * np.uint16(_SHARE)) >> 8
    return np.where((labels == BACKGROUND)[..., None], frame, mixed).astype(np.uint8)


def pair(clip: Clip, index: int) -> NDArray[np.uint8]:
    """Return a frame above the same with its labels, shape (2 * height, width, 3)."""
    frame = clip.frames[index]
    return np.concatenate([frame, overlay(frame, clip.labels[index])])


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
        rows.append(np.concatenate([pair(clip, index) for index in chosen], axis=1))
    _save(path, [np.concatenate(rows)], 0)


def write_moving(path: Path, clip: Clip) -> None:
    """
    Write a moving picture of a clip, frames beside their labels.

    :param path: ends in .gif or .webp.
    :raises StoreError: if it cannot be written.
    """
    frames = [
        np.concatenate([frame, overlay(frame, labels)], axis=1)
        for frame, labels in zip(clip.frames, clip.labels, strict=True)
    ]
    _save(path, frames, round(1000 / clip.rate))


def _save(path: Path, pictures: Sequence[NDArray[np.uint8]], duration: int) -> None:
    images = [Image.fromarray(each) for each in pictures]
    more = {'save_all': True, 'append_images': images[1:], 'duration': duration, 'loop': 0}
    with os_errors_as(StoreError, f'cannot write {path}'):
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            images[0].save(path, **(more if len(images) > 1 else {}))
        except ValueError:
            raise SettingError(
                'save', str(path), 'a file that ends in .png, .gif or .webp'
            ) from None
