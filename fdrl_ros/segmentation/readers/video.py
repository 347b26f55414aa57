# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""Videos as files of pictures and masks, and the clips that are read from them on demand."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
import math
from pathlib import Path
import re
from typing import Literal, overload

from fdrl_ros.errors import errors_named, RecordsError, SettingError
from fdrl_ros.segmentation.clip import Clip
from fdrl_ros.segmentation.readers.mask_code import MaskCode
from fdrl_ros.surgery.render.parts import BACKGROUND, UNLABELLED
import numpy as np
from numpy.typing import NDArray
from PIL import Image

Split = Literal['training', 'testing']
"""As the owners of the videos split them."""

Box = tuple[int, int, int, int]

RATE = 5.0
"""Frames a second by default: 0.2 s from one to the next, as in FedST."""

_PICTURES = ('.png', '.jpg', '.jpeg', '.bmp')
_OF_PICTURES = r'left_frames|right_frames|labels|ground_truth|rgb|segmentations?|CASE\d+'
"""Folders of so many pictures that no other folder is looked for in them."""


@dataclass(frozen=True)
class Picture:
    """
    The file of a frame.

    :param masks: files of its labels, one for each instrument or one for all; where instruments
        overlap, the last one counts. Without any, nobody labelled the frame.
    """

    path: Path
    masks: tuple[Path, ...] = ()

    def read(
        self, code: MaskCode, crops: Mapping[tuple[int, int], Box], size: tuple[int, int] | None
    ) -> tuple[NDArray[np.uint8], NDArray[np.uint8]]:
        """
        Return frame and labels.

        Frames are resized by the mean over each new pixel's area, labels by the nearest pixel.

        :param crops: the part that counts of pictures of a size, by width and height: left, top,
            right and bottom.
        :param size: height and width to resize to; None keeps every pixel.
        :returns: shapes (height, width, 3) and (height, width), uint8.
        :raises RecordsError: if a file cannot be read, sizes differ or a label is unknown.
        """
        image = _load(self.path)
        whole = image.size
        image = image.convert('RGB').crop(crops.get(whole, (0, 0, *whole)))
        shape = image.size if size is None else (size[1], size[0])
        frame = np.asarray(image.resize(shape, Image.Resampling.BOX))
        if not self.masks:
            return frame, np.full(frame.shape[:2], UNLABELLED, np.uint8)
        labels = np.zeros(frame.shape[:2], np.uint8)
        for path in self.masks:
            mask = _load(path)
            with errors_named(RecordsError, str(path)):
                if mask.size != whole:
                    words = '{} x {} pixels: expected {} x {}'.format(*mask.size, *whole)
                    raise RecordsError(f'{words}, as {self.path.name}')
                mask = mask.crop(crops.get(whole, (0, 0, *whole)))
                own = code.labels(mask.resize(shape, Image.Resampling.NEAREST))
            np.copyto(labels, own, where=own != BACKGROUND)
        return frame, labels


@dataclass(frozen=True)
class Video:
    """
    The files of a video, in the order of time.

    :param name: unique among the videos that are found together.
    :param rate: frames a second.
    :param code: what the pixels of its masks mean.
    :param crops: as :meth:`Picture.read` takes them.
    """

    name: str
    split: Split
    rate: float
    frames: tuple[Picture, ...]
    code: MaskCode
    crops: Mapping[tuple[int, int], Box] = field(default_factory=dict)

    def sampled(self, rate: float) -> 'Video':
        """
        Return the video with fewer frames a second, at least as many as asked for if it has them.

        Where only some frames are labelled, evenly, all of those are kept.
        """
        labelled = [number for number, each in enumerate(self.frames) if each.masks]
        step = max(1, int(self.rate / rate + 1e-9))
        first = 0
        if 0 < len(labelled) < len(self.frames):
            gap = math.gcd(*np.diff(labelled).tolist()) or len(self.frames)
            step = max(each for each in range(1, min(step, gap) + 1) if gap % each == 0)
            first = labelled[0] % step
        return replace(self, rate=self.rate / step, frames=self.frames[first::step])


@dataclass(frozen=True)
class Found:
    """Videos below a folder, and everything that the names of files tell to be wrong."""

    videos: tuple[Video, ...] = ()
    faults: tuple[str, ...] = ()


class VideoClips(Sequence[Clip]):
    """
    Clips of videos, one each, whose frames are read when they are asked for.

    :param size: height and width, or the side of a square, to resize to; None keeps the size.
    """

    def __init__(self, videos: Sequence[Video], size: int | tuple[int, int] | None = None) -> None:
        self.size = (size, size) if isinstance(size, int) else size
        if self.size is not None and min(self.size) < 1:
            raise SettingError('size', size, 'at least 1 pixel')
        self.videos = tuple(videos)

    def __len__(self) -> int:
        """Return the number of clips."""
        return len(self.videos)

    @overload
    def __getitem__(self, index: int) -> Clip: ...

    @overload
    def __getitem__(self, index: slice) -> 'VideoClips': ...

    def __getitem__(self, index: int | slice) -> 'Clip | VideoClips':
        """Read a whole clip, or choose some without reading them."""
        if isinstance(index, slice):
            return VideoClips(self.videos[index], self.size)
        return self.read(index)

    def read(self, index: int, start: int = 0, stop: int | None = None) -> Clip:
        """
        Read some frames of a clip.

        :param start: the first of them; negative from the end, as in a slice.
        :param stop: the one after the last.
        :raises RecordsError: if there are none, or one cannot be read.
        """
        video = self.videos[index]
        read = [each.read(video.code, video.crops, self.size) for each in video.frames[start:stop]]
        if not read:
            of = len(video.frames)
            raise RecordsError(f'{video.name}: no frame from {start} to {stop}, of {of} frames')
        frames = [frame for frame, _ in read]
        if len({frame.shape for frame in frames}) > 1:
            raise RecordsError(f'{video.name}: frames of different sizes: choose a size')
        return Clip(
            video.name, np.stack(frames), np.stack([labels for _, labels in read]), video.rate
        )


def folders_named(root: Path, pattern: str) -> Iterator[Path]:
    """Yield the folders below a root whose names match, sorted; not those within them."""
    for folder in sorted(filter(Path.is_dir, _visible(root)), key=in_order):
        if re.fullmatch(pattern, folder.name):
            yield folder
        elif not re.fullmatch(_OF_PICTURES, folder.name):
            yield from folders_named(folder, pattern)


def pictures_in(folder: Path) -> dict[str, Path]:
    """Return the pictures of a folder by name, in the order of the numbers in their names."""
    if not folder.is_dir():
        return {}
    files = [each for each in _visible(folder) if each.suffix.lower() in _PICTURES]
    return {each.name: each for each in sorted(files, key=in_order)}


def in_order(path: Path) -> list[str | int]:
    """Return a key that sorts names, with the numbers in them as numbers."""
    words = re.split(r'(\d+)', path.name)
    return [int(each) if odd % 2 else each for odd, each in enumerate(words)]


def numbers_in(path: Path) -> list[int]:
    """Return the numbers in the name of a file or folder."""
    return [int(each) for each in re.findall(r'\d+', path.stem)]


def _visible(folder: Path) -> Iterator[Path]:
    """Yield what is in a folder, without what operating systems hide in it."""
    for each in folder.iterdir():
        if not each.name.startswith('.') and each.name != '__MACOSX':
            yield each


def _load(path: Path) -> Image.Image:
    """Read a picture whole."""
    try:
        with Image.open(path) as image:
            image.load()
    except (OSError, SyntaxError, ValueError, Image.DecompressionBombError) as error:
        raise RecordsError(f'{path}: no readable picture: {error}') from error
    return image
