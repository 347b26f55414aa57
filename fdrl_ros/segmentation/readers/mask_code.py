# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""What the pixels of a mask stand for: grey values or colours, and the part that each means."""

from collections.abc import Mapping
from dataclasses import dataclass

from fdrl_ros.errors import RecordsError
import numpy as np
from numpy.typing import NDArray
from PIL import Image

Colour = tuple[int, int, int]

_SHOWN = 5  # unknown values that an error names


@dataclass(frozen=True)
class MaskCode:
    """
    The part that each grey value or each colour of a mask means.

    :param parts: a part's number, or UNLABELLED, by grey value or by red, green and blue.
    """

    parts: Mapping[int, int] | Mapping[Colour, int]

    def labels(self, mask: Image.Image) -> NDArray[np.uint8]:
        """
        Return the label of each pixel, shape (height, width).

        :raises RecordsError: on a value that means nothing, or a colour where grey is expected.
        """
        coloured = isinstance(next(iter(self.parts)), tuple)
        values = _colours(mask) if coloured else _greys(mask)
        table = {_packed(value): part for value, part in self.parts.items()}
        known = np.array(sorted(table), np.int64)
        place = np.searchsorted(known, values).clip(max=len(known) - 1)
        strange = np.unique(values[known[place] != values]).tolist()
        if strange:
            words = [str(_unpacked(each) if coloured else each) for each in strange[:_SHOWN]]
            more = ' and more' if len(strange) > _SHOWN else ''
            names = [str(each) for each in self.parts]
            expected = ', '.join(names) if len(names) < 20 else f'{names[0]} to {names[-1]}'
            raise RecordsError(f'values {", ".join(words)}{more}: expected {expected}')
        found: NDArray[np.uint8] = np.array([table[value] for value in known], np.uint8)[place]
        return found


def _packed(value: int | Colour) -> int:
    """Return a colour as one number."""
    return value if isinstance(value, int) else value[0] << 16 | value[1] << 8 | value[2]


def _unpacked(value: int) -> Colour:
    """Return the colour of a number."""
    return value >> 16, value >> 8 & 255, value & 255


def _colours(mask: Image.Image) -> NDArray[np.int64]:
    """Return each pixel's colour as one number."""
    pixels = np.asarray(mask.convert('RGB')).astype(np.int64)
    return pixels[..., 0] << 16 | pixels[..., 1] << 8 | pixels[..., 2]


def _greys(mask: Image.Image) -> NDArray[np.int64]:
    """Return each pixel's grey value; a mask of three equal channels is grey too."""
    if mask.mode in ('P', 'PA', 'LA', 'RGBA', '1'):
        mask = mask.convert('L' if mask.mode in ('LA', '1') else 'RGB')
    pixels = np.asarray(mask)
    if pixels.ndim == 3:
        if (pixels != pixels[..., :1]).any():
            raise RecordsError('colours: expected grey values')
        pixels = pixels[..., 0]
    return pixels.astype(np.int64)
