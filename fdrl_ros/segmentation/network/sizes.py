# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""What segmenters are made of: sizes, windows and settings, readable without PyTorch."""

from dataclasses import dataclass

from fdrl_ros.errors import SettingError


@dataclass(frozen=True)
class EncoderSize:
    """
    Sizes of the four stages, which work at strides 4, 8, 16 and 32.

    :param widths: channels.
    :param depths: blocks.
    :param heads: heads of a block's attention.
    :param expansions: hidden units of the feed-forward layer for each channel.
    """

    widths: tuple[int, int, int, int]
    depths: tuple[int, int, int, int]
    heads: tuple[int, int, int, int] = (1, 2, 5, 8)
    expansions: tuple[int, int, int, int] = (8, 8, 4, 4)


@dataclass(frozen=True)
class Windows:
    """
    Which part of each map a window of the current one attends to.

    The three tuples begin with the oldest map and end with the current one.

    :param size: side of a window, s, elements of the map.
    :param pooling: side of the square that becomes one context token, p.
    :param fields: side of the square around a window that its tokens come from, r.
    :raises SettingError: if a field holds no token.
    """

    size: int = 4
    pooling: tuple[int, ...] = (4, 2, 1, 1)
    fields: tuple[int, ...] = (16, 12, 6, 6)

    def __post_init__(self) -> None:
        """Refuse what does not fit."""
        if self.size < 1 or min(self.pooling) < 1 or len(self.pooling) != len(self.fields):
            raise SettingError('windows', self, 'sizes from 1, as many fields as poolings')
        if min(self.tokens) < 1:
            raise SettingError('windows.fields', self.fields, f'at least {self.pooling}')

    @property
    def maps(self) -> int:
        """Number of maps, T."""
        return len(self.pooling)

    @property
    def tokens(self) -> list[int]:
        """Tokens on a side of each map's field: r / p, rounded down."""
        return [field // pool for field, pool in zip(self.fields, self.pooling, strict=True)]

    @property
    def context(self) -> int:
        """Context tokens of a window."""
        return sum(side * side for side in self.tokens)


SMALL_MAPS = Windows()
"""For maps of about 16 x 16, as frames of 128 x 128 have at stride 8: smaller than the paper's."""

WIDE_MAPS = Windows(7, (7, 4, 2, 1), (49, 20, 6, 7))
"""Those of the paper."""


@dataclass(frozen=True)
class Size:
    """
    Sizes of a whole segmenter.

    :param hidden: channels in which the stages of the encoder are added.
    :param width: channels C of the map F.
    :param heads: of the temporal attention.
    """

    encoder: EncoderSize
    hidden: int
    width: int
    heads: int
    windows: Windows = SMALL_MAPS


SIZES = {
    'tiny': Size(EncoderSize((16, 32, 64, 128), (2, 2, 2, 1), (1, 1, 2, 4)), 64, 128, 4),
    'b0': Size(EncoderSize((32, 64, 160, 256), (2, 2, 2, 2)), 128, 1120, 35),
    'b2': Size(EncoderSize((64, 128, 320, 512), (3, 4, 6, 3)), 256, 1120, 35, WIDE_MAPS),
}
"""
Sizes by name; the encoders b0 and b2 are those of the published weights.

With about a thousand channels the channel network is a third of b0, as in the paper, where a round
without queries and channel network takes 12.69 of 19.71 MB.
"""


@dataclass(frozen=True)
class SegmenterSettings:
    """
    What a segmenter is made of.

    :param size: one of SIZES.
    :param temporal: whether earlier frames count.
    :param channels: whether text weighs the channels.
    :param text: length of a text vector.
    :raises SettingError: if the size is unknown or the text has no length.
    """

    size: str = 'tiny'
    temporal: bool = True
    channels: bool = True
    text: int = 512

    def __post_init__(self) -> None:
        """Refuse what does not fit."""
        if self.size not in SIZES:
            raise SettingError('size', self.size, f'one of {", ".join(SIZES)}')
        if self.text < 1:
            raise SettingError('text', self.text, 'at least 1')
