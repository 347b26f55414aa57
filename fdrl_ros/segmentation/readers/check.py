# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""Reading every frame of a collection, to count what is there and list all that is wrong."""

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
import os

from fdrl_ros.errors import RecordsError
from fdrl_ros.runtime.progress import Caller, NOBODY
from fdrl_ros.segmentation.readers.video import Found, Picture, Video
from fdrl_ros.surgery.render.parts import PARTS, UNLABELLED
import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True)
class Contents:
    """
    What a collection holds.

    :param clips: by split.
    :param frames: read without a fault.
    :param labelled: those of them with labels.
    :param pixels: of labelled frames, by the name of the part; also those that nobody labelled.
    :param faults: all that is wrong, each in a line.
    """

    clips: dict[str, int]
    frames: int
    labelled: int
    pixels: dict[str, int]
    faults: tuple[str, ...]


def check_videos(found: Found, caller: Caller = NOBODY) -> Contents:
    """
    Read every frame in full size.

    :raises TrainingStopped: if the caller stops it.
    """
    faults = list(found.faults)
    clips: dict[str, int] = {}
    frames = labelled = 0
    counts = np.zeros(UNLABELLED + 1, np.int64)
    threads = ThreadPoolExecutor(os.cpu_count())  # pictures are decoded in C
    try:
        for done, video in enumerate(found.videos, 1):
            clips[video.split] = clips.get(video.split, 0) + 1
            read = threads.map(partial(_pixels, video), video.frames)
            for picture, pixels in zip(video.frames, read, strict=True):
                caller.check()
                if isinstance(pixels, str):
                    faults.append(pixels)
                    continue
                frames += 1
                if picture.masks:
                    labelled += 1
                    counts += pixels
            caller.counter('video', 'clips')(done, len(found.videos))
    finally:
        threads.shutdown(cancel_futures=True)
    names = {**dict(enumerate(PARTS)), UNLABELLED: 'unlabelled'}
    pixels_of = {name: int(counts[number]) for number, name in names.items()}
    return Contents(clips, frames, labelled, pixels_of, tuple(faults))


def _pixels(video: Video, picture: Picture) -> NDArray[np.int64] | str:
    """Count the pixels of each label of a frame, or say what is wrong."""
    try:
        _, labels = picture.read(video.code, video.crops, None)
    except RecordsError as error:
        return str(error)
    return np.bincount(labels.ravel(), minlength=UNLABELLED + 1)
