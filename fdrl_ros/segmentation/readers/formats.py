# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""The formats of real video that can be read, and how videos are found and opened."""

from collections import Counter
from collections.abc import Callable, Mapping
import math
from pathlib import Path
from typing import Final, NamedTuple

from fdrl_ros.errors import os_errors_as, RecordsError, SettingError
from fdrl_ros.segmentation.clip_files import ABOUT
from fdrl_ros.segmentation.readers import endovis2017, endovis2018, grasp, sar_rarp50
from fdrl_ros.segmentation.readers.video import Found, RATE, Split, VideoClips


class Layout(NamedTuple):
    """
    How the owners lay a collection out.

    :param expected: in words, for who has another folder.
    :param find: finds its videos below a folder, at most so many frames a second as needed.
    """

    expected: str
    find: Callable[[Path, float], Found]


FORMATS: Final[Mapping[str, Layout]] = {
    'endovis2017': Layout(endovis2017.EXPECTED, endovis2017.find),
    'endovis2018': Layout(endovis2018.EXPECTED, endovis2018.find),
    'sar_rarp50': Layout(sar_rarp50.EXPECTED, sar_rarp50.find),
    'grasp': Layout(grasp.EXPECTED, grasp.find),
}

AUTO: Final = 'auto'
"""Whichever collection is there."""


def find_videos(root: Path, form: str = AUTO, rate: float = RATE) -> tuple[str, Found]:
    """
    Find the videos below a folder.

    :param form: a name in FORMATS, or AUTO.
    :param rate: frames a second to thin videos to; those with fewer stay as they are.
    :returns: name of the collection, and what was found.
    :raises SettingError: on an unknown name, or a rate that is none.
    :raises RecordsError: if the folder holds nothing of that collection, or several.
    """
    if form not in (AUTO, *FORMATS):
        raise SettingError('format', form, f'one of {", ".join((AUTO, *FORMATS))}')
    if not (math.isfinite(rate) and rate > 0.0):
        raise SettingError('rate', rate, 'above 0 Hz')
    if not root.is_dir():
        raise RecordsError(f'{root}: no such folder')
    if (root / ABOUT).exists():
        raise RecordsError(
            f'{root} holds made-up clips: `fdrl video show` and ClipFiles read those, and '
            '`fdrl video make` draws damaged ones anew'
        )
    tried = {name: each for name, each in FORMATS.items() if form in (name, AUTO)}
    with os_errors_as(RecordsError, f'cannot read {root}'):
        found = {name: each.find(root, rate) for name, each in tried.items()}
    there = {name: each for name, each in found.items() if each.videos or each.faults}
    if not there:
        inside = ', '.join(sorted(each.name for each in root.iterdir())[:5]) or 'nothing'
        wanted = '; '.join(f'{name}: {each.expected}' for name, each in tried.items())
        raise RecordsError(f'{root}: there is {inside}: expected {wanted}')
    if len(there) > 1:
        raise RecordsError(f'{root}: looks like {" and ".join(there)}: say which format it is')
    ((name, only),) = there.items()
    count = Counter(each.name for each in only.videos)
    twice = [f'{root}: {each} is there {count[each]} times' for each in count if count[each] > 1]
    empty = [f'{each.name}: no frames' for each in only.videos if not each.frames]
    faults = (*only.faults, *twice, *empty)
    return name, Found(only.videos, faults)


def open_videos(
    root: Path,
    form: str = AUTO,
    *,
    split: Split | None = None,
    size: int | tuple[int, int] | None = None,
    rate: float = RATE,
) -> VideoClips:
    """
    Open a collection; frames are read when they are asked for.

    :param split: only the owners' training or test set.
    :param size: as :class:`VideoClips` takes it.
    :param rate: as :func:`find_videos` takes it.
    :raises RecordsError: if it is none, a file is missing, or there is nothing of that split.
    """
    _, found = find_videos(root, form, rate)
    if found.faults:
        more = f' (and {len(found.faults) - 1} more)' if len(found.faults) > 1 else ''
        raise RecordsError(f'{found.faults[0]}{more}: `fdrl video check {root}` lists all')
    videos = [each for each in found.videos if split in (None, each.split)]
    if not videos:
        raise RecordsError(f'{root}: no {split} videos')
    return VideoClips(videos, size)
