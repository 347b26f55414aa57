# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""
EndoVis 2017, the Robotic Instrument Segmentation Challenge: porcine videos at 2 Hz.

What was read of the layout: the challenge's page Data at
endovissub2017-roboticinstrumentsegmentation.grand-challenge.org (rate, crop, split, parts) and
github.com/ternaus/robot-surgery-segmentation (folders and values of the training set). That the
published labels of the test set have the values 30, 100 and 255 (200: ultrasound probe) is known
from the code of several users, not from its owners.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Final

from fdrl_ros.segmentation.readers.mask_code import MaskCode
from fdrl_ros.segmentation.readers.video import (
    Box,
    folders_named,
    Found,
    Picture,
    pictures_in,
    Split,
    Video,
)
from fdrl_ros.surgery.render.parts import BACKGROUND, JAW, SHAFT, WRIST

EXPECTED: Final = (
    'instrument_dataset_N/ with left_frames/ and ground_truth/*_labels/ (training) or '
    'PartsSegmentation/ (testing)'
)

FRAMES_RATE: Final = 2.0

CODES: Final[dict[Split, MaskCode]] = {
    'training': MaskCode({0: BACKGROUND, 10: SHAFT, 20: WRIST, 30: JAW}),
    'testing': MaskCode({0: BACKGROUND, 30: SHAFT, 100: WRIST, 255: JAW, 200: BACKGROUND}),
}

CROPS: Final[dict[tuple[int, int], Box]] = {(1920, 1080): (320, 28, 1600, 1052)}
"""The camera's picture within a frame of the video."""


def find(root: Path, rate: float) -> Found:
    """Find the sequences below a folder; those of the same number may lie in several folders."""
    videos, faults = [], []
    folders = list(folders_named(root, r'instrument_dataset_\d+'))
    for folder in folders:
        pictures = pictures_in(folder / 'left_frames')
        if not pictures:
            if not (folder / 'left_frames').is_dir() and _parts_of(folder) is not None:
                continue  # labels of a test sequence, whose frames lie elsewhere
            faults.append(f'{folder / "left_frames"}: no pictures')
            continue
        split: Split = 'training'
        masks = list(_instruments(folder))
        if not masks:
            split = 'testing'
            same = [folder, *(each for each in folders if each.name == folder.name)]
            masks = [each for each in map(_parts_of, same) if each is not None][:1]
        if not masks:
            faults.append(
                f'{folder}: no labels: expected ground_truth/*_labels or PartsSegmentation'
            )
            continue
        frames = []
        for name, picture in pictures.items():
            missing = [each / name for each in masks if not (each / name).is_file()]
            faults += [f'{each}: missing, the mask of {picture}' for each in missing]
            if not missing:
                frames.append(Picture(picture, tuple(each / name for each in masks)))
        name = f'{split}/{folder.name}'
        made = Video(name, split, FRAMES_RATE, tuple(frames), CODES[split], CROPS)
        videos.append(made.sampled(rate))
    return Found(tuple(videos), tuple(faults))


def _instruments(folder: Path) -> Iterator[Path]:
    """Yield the masks of each robotic instrument; others, as probes, are no instrument here."""
    for each in sorted((folder / 'ground_truth').glob('*_labels')):
        if 'Other' not in each.name:
            yield each


def _parts_of(folder: Path) -> Path | None:
    """Return the folder of the masks of a test sequence, if it is here."""
    for each in (folder, folder / 'gt', folder / 'ground_truth'):
        if (each / 'PartsSegmentation').is_dir():
            return each / 'PartsSegmentation'
    return None
