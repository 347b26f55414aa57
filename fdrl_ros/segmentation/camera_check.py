# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""Whether a camera shows anything: no picture, the same again, darkness, or a covered lens."""

from dataclasses import dataclass
from enum import StrEnum
import math

from fdrl_ros.errors import RecordsError
from fdrl_ros.settings import setting, Settings
import numpy as np
from numpy.typing import NDArray

CELLS = 16
"""Cells on each side of a picture, whose mean brightness tells a scene from a covered lens."""

PATIENCE = 1.5
"""Periods of the camera after which a picture is missed: pictures do not come to the ms."""


class CameraFault(StrEnum):
    """Why nothing can be seen: a fixed vocabulary for messages and diagnostics."""

    NO_PICTURE = 'no_picture'
    FROZEN = 'frozen'
    DARK = 'dark'
    COVERED = 'covered'
    UNUSABLE = 'unusable'


@dataclass(frozen=True)
class CameraSettings(Settings):
    """What pictures of a working camera in a patient are like."""

    rate: float = setting(
        10.0,
        'pictures that the camera takes; after 1.5 periods without one it is dead',
        limits=(0.5, 120.0),
        unit='1/s',
    )
    repeats: int = setting(
        2,
        'pictures in a row, equal in each pixel, that a frozen camera sends; 0 checks nothing',
        limits=(0, 1000),
    )
    dark: float = setting(
        20.0, 'mean brightness below which it is dark, of 255', limits=(0.0, 255.0)
    )
    uneven: float = setting(
        2.0,
        'mean second difference between the brightness of cells, a sixteenth of the picture each '
        'way, below which the lens is covered, of 255',
        limits=(0.0, 255.0),
    )

    @property
    def period(self) -> float:
        """Time between two pictures, s."""
        return 1.0 / self.rate


class CameraCheck:
    """
    Judges the pictures of one camera, one after the other.

    Times are seconds of one clock; one that was set back begins anew.
    """

    def __init__(self, settings: CameraSettings, now: float) -> None:
        self._settings = settings
        self._before: NDArray[np.uint8] | None = None
        self._equal = 0
        self._came = now

    def overdue(self, now: float) -> bool:
        """Tell whether a picture is missed."""
        if now < self._came:
            self._came = now
        return now - self._came > PATIENCE * self._settings.period

    def note_arrival(self, now: float) -> None:
        """Take in that a picture came, whether it can be used or not."""
        self._came = now

    def check(self, picture: NDArray[np.uint8]) -> CameraFault | None:
        """
        Return what is wrong with a picture; None if it shows something.

        :param picture: shape (height, width, 3), uint8; it is kept and must not change.
        :raises RecordsError: if it is smaller than its cells.
        """
        settings, before = self._settings, self._before
        same = before is not None and np.array_equal(picture, before)
        self._equal = self._equal + 1 if same else 1
        self._before = picture
        cells = cell_brightness(picture)
        if cells.mean() < settings.dark:
            return CameraFault.DARK
        if unevenness(cells) < settings.uneven:
            return CameraFault.COVERED
        if settings.repeats and self._equal >= max(settings.repeats, 2):
            return CameraFault.FROZEN
        return None


def cell_brightness(picture: NDArray[np.uint8]) -> NDArray[np.float64]:
    """
    Return the mean brightness of each cell of a picture, shape (CELLS, CELLS), 0 to 255.

    :param picture: shape (height, width, 3), uint8.
    :raises RecordsError: if it is smaller than its cells.
    """
    height, width = picture.shape[:2]
    if min(height, width) < CELLS:
        raise RecordsError(f'picture of {height} x {width} pixels: expected {CELLS} at least')
    rows, columns = (np.linspace(0, side, CELLS + 1).astype(int) for side in (height, width))
    colours = picture.reshape(height, width * 3)
    sums = np.add.reduceat(colours, 3 * columns[:-1], axis=1, dtype=np.uint32)
    sums = np.add.reduceat(sums, rows[:-1], axis=0)
    sizes = 3.0 * np.outer(np.diff(rows), np.diff(columns))
    return np.asarray(sums / sizes)


def unevenness(cells: NDArray[np.float64]) -> float:
    """
    Return the mean absolute second difference between cells, down and across.

    Noise of the sensor, a colour and a light that falls off towards the edge leave little of it,
    whatever is in front of the lens.
    """
    differences = [np.abs(np.diff(cells, 2, axis=axis)).mean() for axis in (0, 1)]
    return math.fsum(differences) / 2.0
