# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""
SAR-RARP50: suturing in prostatectomies, video at 60 Hz, a mask a second.

What was read of the layout: github.com/surgical-vision/SAR_RARP50-evaluation, the owners' toolkit
(folders, names by number of the frame in the video, extraction of pictures at 10 or 1 Hz,
classes).
"""

from itertools import pairwise
from pathlib import Path
from typing import Final

from fdrl_ros.segmentation.readers.mask_code import MaskCode
from fdrl_ros.segmentation.readers.video import (
    folders_named,
    Found,
    numbers_in,
    Picture,
    pictures_in,
    Split,
    Video,
)
from fdrl_ros.surgery.render.parts import BACKGROUND, JAW, SHAFT, WRIST

EXPECTED: Final = (
    'train1/, train2/ and test/ with video_NN/, of which each has segmentation/ and rgb/'
)

VIDEO_RATE: Final = 60
MASK_STEP: Final = 60
"""Frames of the video from one mask to the next."""

CODE: Final = MaskCode(
    {0: BACKGROUND, 1: JAW, 2: WRIST, 3: SHAFT} | dict.fromkeys(range(4, 10), 0)
)
"""Background too: needle, thread, suction tool, needle holder, clamps, catheter."""


def find(root: Path, rate: float) -> Found:
    """Find the videos below a folder with their extracted pictures; test/ holds the test set."""
    videos, faults = [], []
    for folder in folders_named(root, r'video_\d+(_\d+)?'):
        split: Split = 'testing' if folder.parent.name == 'test' else 'training'
        pictures, masks = pictures_in(folder / 'rgb'), pictures_in(folder / 'segmentation')
        if not pictures:
            hint = 'extract them: rarptk unpack, of the SAR-RARP50 toolkit'
            faults.append(f'{folder / "rgb"}: no pictures; {hint}')
            continue
        if not masks:
            faults.append(f'{folder / "segmentation"}: no masks')
            continue
        named = {name: numbers_in(path) for name, path in (pictures | masks).items()}
        if not all(named.values()):
            faults.append(f'{folder}: expected names by number of the frame, as 000000060.png')
            continue
        for name in sorted(masks.keys() - pictures.keys()):
            faults.append(f'{folder / "rgb" / name}: missing, the frame of {masks[name]}')
        times = {name: numbers[-1] for name, numbers in named.items()}
        labelled = [times[name] for name in masks]
        for name in sorted(pictures.keys() - masks.keys()):
            if labelled[0] < times[name] < labelled[-1] and times[name] % MASK_STEP == 0:
                faults.append(f'{folder / "segmentation" / name}: missing, the mask of a second')
        steps = pairwise(times[name] for name in pictures)
        step = min((after - before for before, after in steps), default=MASK_STEP)
        frames = tuple(
            Picture(path, (masks[name],) if name in masks else ())
            for name, path in pictures.items()
        )
        made = Video(f'{split}/{folder.name}', split, VIDEO_RATE / max(step, 1), frames, CODE)
        videos.append(made.sampled(rate))
    return Found(tuple(videos), tuple(faults))
