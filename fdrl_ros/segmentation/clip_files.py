# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""Made-up clips in a directory: one file a clip, and `clips.json`, which says what they are."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass, fields
import io
import json
from pathlib import Path
from typing import Any, overload
import zipfile

from fdrl_ros.errors import errors_named, os_errors_as, RecordsError, SettingError, StoreError
from fdrl_ros.runtime.durable import exclusive, write_whole
from fdrl_ros.runtime.progress import Caller, NOBODY, Progress
from fdrl_ros.runtime.ranges import check_whole
from fdrl_ros.segmentation.clip import Clip
from fdrl_ros.segmentation.scenes import check_site, site_clip
from fdrl_ros.surgery.render.parts import PARTS
import numpy as np

ABOUT = 'clips.json'
_FORMAT = 'fdrl_ros clips 1'
_BROKEN = OSError, ValueError, KeyError, EOFError, zipfile.BadZipFile


@dataclass(frozen=True)
class Drawn:
    """
    What clips of a site are, as :func:`~fdrl_ros.segmentation.scenes.site_clip` takes it.

    :param site: A, B, C, D, E or synthetic.
    :param clips: how many.
    :param frames: of each.
    :param size: width and height, pixels.
    :param rate: frames a second.
    :param seed: of all of them.
    """

    site: str
    clips: int
    frames: int
    size: int
    rate: float
    seed: int


def clip_path(directory: Path, number: int) -> Path:
    """Return the file of a clip."""
    return directory / f'{number:05d}.npz'


def make_clips(directory: Path, drawn: Drawn, caller: Caller = NOBODY) -> 'ClipFiles':
    """
    Draw clips into a directory; those that are there already, and can be read, are kept.

    :raises SettingError: on clips that cannot be drawn.
    :raises StoreError: if the directory holds other clips or cannot be written, or another
        process writes there.
    :raises TrainingStopped: as soon as the caller says so; the same call goes on from there.
    """
    check_whole('clips', drawn.clips, 1, 100_000)
    surgery = check_site(drawn.site).surgery
    about = {'format': _FORMAT, 'parts': list(PARTS), 'surgery': surgery, **asdict(drawn)}
    with os_errors_as(StoreError, f'cannot write into {directory}'):
        directory.mkdir(parents=True, exist_ok=True)
    with exclusive(directory):
        path = directory / ABOUT
        if path.exists():
            there = _read_about(directory)
            if there != drawn:
                words = ' '.join(f'--{name} {each}' for name, each in asdict(there).items())
                raise StoreError(f'{directory} holds other clips: {words}; take another directory')
        else:
            write_whole(path, (json.dumps(about, indent=2) + '\n').encode())
        for number in range(drawn.clips):
            caller.check()
            try:
                _read_clip(directory, drawn, number)
            except RecordsError:
                _write_clip(directory, drawn, number)
            caller.report(Progress('draw', f'site {drawn.site}', number + 1, drawn.clips))
    return ClipFiles(directory)


def _write_clip(directory: Path, drawn: Drawn, number: int) -> None:
    clip = site_clip(
        drawn.site,
        drawn.seed,
        number,
        frames=drawn.frames,
        size=drawn.size,
        rate=drawn.rate,
    )
    file = io.BytesIO()
    np.savez(file, frames=clip.frames, labels=clip.labels, rate=clip.rate, name=clip.name)
    write_whole(clip_path(directory, number), file.getvalue())


def _read_clip(directory: Path, drawn: Drawn, number: int) -> Clip:
    """
    Read a clip.

    :raises RecordsError: if its file is missing or damaged, or is not what `clips.json` says.
    """
    path = clip_path(directory, number)
    try:
        with np.load(path, allow_pickle=False) as file:
            frames, labels = file['frames'], file['labels']
            name, rate = str(file['name']), float(file['rate'])
    except _BROKEN as problem:
        words = f'{path} cannot be read: {problem!r}'
        raise RecordsError(f'{words}: `fdrl video make` draws it anew') from problem
    with errors_named(RecordsError, str(path)):
        clip = Clip(name, frames, labels, rate)
    shape = (drawn.frames, drawn.size, drawn.size)
    if labels.shape != shape or rate != drawn.rate:
        raise RecordsError(f'{path}: {labels.shape} at {rate} Hz: expected {shape}')
    return clip


def _read_about(directory: Path) -> Drawn:
    path = directory / ABOUT
    with os_errors_as(RecordsError, f'{path} cannot be read'):
        text = path.read_bytes()
    try:
        about: dict[str, Any] = json.loads(text)
        if about['format'] != _FORMAT or about['parts'] != list(PARTS):
            raise ValueError('of another format')
        drawn = Drawn(**{each.name: about[each.name] for each in fields(Drawn)})
        check_whole('clips', drawn.clips, 1, 100_000)
    except (ValueError, KeyError, TypeError, SettingError) as problem:
        raise RecordsError(f'{path}: expected what `fdrl video make` writes: {problem}') from None
    return drawn


class ClipFiles(Sequence[Clip]):
    """
    The clips of a directory, each read when it is asked for.

    :param directory: that :func:`make_clips` wrote.
    :raises RecordsError: if it is no such directory, or a clip is missing.
    """

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.drawn = _read_about(directory)
        for number in range(self.drawn.clips):
            if not clip_path(directory, number).exists():
                words = f'{number} of {self.drawn.clips} clips are there'
                raise RecordsError(f'{directory}: {words}: `fdrl video make` goes on from here')

    def __len__(self) -> int:
        """Return how many clips there are."""
        return self.drawn.clips

    @overload
    def __getitem__(self, index: int) -> Clip: ...

    @overload
    def __getitem__(self, index: slice) -> list[Clip]: ...

    def __getitem__(self, index: int | slice) -> Clip | list[Clip]:
        """
        Read a clip, or several.

        :raises RecordsError: if a file is damaged, or is not what `clips.json` says.
        """
        if isinstance(index, slice):
            return [self[each] for each in range(*index.indices(len(self)))]
        number = range(len(self))[index]
        return _read_clip(self.directory, self.drawn, number)
