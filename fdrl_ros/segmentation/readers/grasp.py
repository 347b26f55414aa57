# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""
GraSP: whole prostatectomies at 30 or 1 Hz, a mask about every 35 s, without parts.

What was read of the layout: the README of github.com/BCV-Uniandes/GraSP (folders, names of the
annotations) and its loader of COCO files. What the pixels of a mask mean is not documented there:
every value but 0 is taken to be an instrument. Parts are unknown, so instruments are UNLABELLED:
from these frames a model learns what is no instrument, and nothing of parts. Suction tools and
laparoscopic graspers are instruments too, other than in the other collections.
"""

from collections.abc import Iterator
import json
from pathlib import Path
from typing import Final

from fdrl_ros.errors import RecordsError
from fdrl_ros.segmentation.readers.mask_code import MaskCode
from fdrl_ros.segmentation.readers.video import Found, Picture, Split, Video
from fdrl_ros.surgery.render.parts import BACKGROUND, UNLABELLED

EXPECTED: Final = (
    'frames/CASENNN/ and annotations/ with segmentations/CASENNN/, grasp_short-term_train.json '
    'and grasp_short-term_test.json'
)

RATES: Final = {9: 30.0, 5: 1.0}
"""Frames a second by the number of digits in the names of the pictures."""

HISTORY: Final = 4
"""Frames of a clip: a labelled one and those before it."""

SPLITS: Final[dict[str, Split]] = {'train': 'training', 'test': 'testing'}


def find(root: Path, rate: float, instrument: int = UNLABELLED) -> Found:
    """
    Find the labelled frames of all cases, each with the frames before it as one clip.

    :param instrument: the label of every instrument; for a comparison of instrument with
        background alone, any part's number does.
    """
    videos: list[Video] = []
    faults: list[str] = []
    bases = (root, root / 'GraSP_30fps', root / 'GraSP_1fps')
    base = next((each for each in bases if (each / 'annotations').is_dir()), None)
    if base is None:
        return Found()
    for needed in (base / 'frames', base / 'annotations' / 'segmentations'):
        if not needed.is_dir():
            return Found(faults=(f'{needed}: no such folder',))
    code = MaskCode({0: BACKGROUND} | dict.fromkeys(range(1, 256), instrument))
    for word, split in SPLITS.items():
        table = base / 'annotations' / f'grasp_short-term_{word}.json'
        try:
            images = json.loads(table.read_text('utf-8'))['images']
            names = sorted({str(each['file_name']) for each in images})
        except (OSError, ValueError, TypeError, KeyError) as error:
            faults.append(f'{table}: no COCO file with images: {error!r}')
            continue
        for name in names:
            path = base / 'frames' / name
            try:
                videos.append(_clip(path, base, split, code, rate))
            except RecordsError as error:
                faults.append(str(error))
    return Found(tuple(videos), tuple(faults))


def _clip(path: Path, base: Path, split: Split, code: MaskCode, rate: float) -> Video:
    """Return a labelled frame with those before it, as far as there are any."""
    if not path.is_relative_to(base / 'frames'):
        raise RecordsError(f'{path}: expected a frame below {base / "frames"}')
    within = path.relative_to(base / 'frames').with_suffix('')
    mask = base / 'annotations' / 'segmentations' / within.with_suffix('.png')
    native = RATES.get(len(path.stem))
    if native is None or not path.stem.isdecimal():
        raise RecordsError(f'{path}: expected a name of 9 digits (30 Hz) or 5 (1 Hz)')
    for file, what in ((path, 'the frame of a mask'), (mask, f'the mask of {path}')):
        if not file.is_file():
            raise RecordsError(f'{file}: missing, {what}')
    step = max(1, int(native / rate + 1e-9))
    frames = (*reversed([*_before(path, step)]), Picture(path, (mask,)))
    return Video(f'{split}/{within.as_posix()}', split, native / step, frames, code)


def _before(path: Path, step: int) -> Iterator[Picture]:
    """Yield frames before one, the latest first, up to the first that is missing."""
    for back in range(1, HISTORY):
        number = int(path.stem) - back * step
        earlier = path.with_stem(f'{number:0{len(path.stem)}d}')
        if number < 0 or not earlier.is_file():
            return
        yield Picture(earlier)
