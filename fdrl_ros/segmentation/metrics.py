# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""
Dice, IoU, HD95 and ASSD of each part of the instrument, frame by frame.

Dice and IoU come from one confusion matrix a frame, distances from SciPy's distance transform;
tests compare all four with MONAI's. Pixels that nobody labelled count for nothing: they are taken
out of both masks. What is undefined is NaN: every
measure of a part that is absent from prediction and labels, and the distances of a part that is
absent from one of them, whose Dice and IoU are 0. Means are over defined values.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from fdrl_ros.errors import RecordsError
from fdrl_ros.surgery.render.parts import BACKGROUND, PARTS, UNLABELLED
import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import ndimage

OVERLAPS: Final = ('dice', 'iou')
"""Measures of overlap, 0 to 1."""

DISTANCES: Final = ('hd95', 'assd')
"""
Measures of distance in pixels: the 95th percentile of the distances from edge to edge, the
greater of both directions, and the mean of the distances of both directions.
"""

INSTRUMENT: Final = 'instrument'
"""The one part of a binary evaluation: any part of an instrument."""

_KINDS = len(PARTS)


@dataclass(frozen=True, eq=False)
class PartScores:
    """
    Measures of each frame and part.

    :param parts: their names, without the background.
    :param measures: of each measure's name the values, NaN where undefined, shape (frames, parts).
    """

    parts: tuple[str, ...]
    measures: Mapping[str, NDArray[np.float64]]

    def __len__(self) -> int:
        """Return the number of frames."""
        return len(self.measures['dice'])

    def mean(self, measure: str) -> NDArray[np.float64]:
        """Return each part's mean over the frames where it is defined, NaN if nowhere."""
        return _defined_mean(self.measures[measure])

    def undefined(self, measure: str) -> NDArray[np.int64]:
        """Return in how many frames the measure of each part is undefined."""
        return np.isnan(self.measures[measure]).sum(axis=0)

    def overall(self, measure: str) -> float:
        """Return the mean of the means of the parts that have one; NaN if none has."""
        return float(_defined_mean(self.mean(measure)))


def evaluate(
    predicted: ArrayLike, labels: ArrayLike, *, distances: bool = False, binary: bool = False
) -> PartScores:
    """
    Compare predicted parts with labels.

    :param predicted: a part's number in each pixel, shape (frames, height, width).
    :param labels: a part's number, or UNLABELLED, in each pixel, of the same shape.
    :param distances: measure HD95 and ASSD too, which takes several times as long.
    :param binary: compare instrument with background, whatever the part.
    :raises RecordsError: if shapes differ, or a number is no part's.
    """
    guess = _parts('predicted', predicted, ())
    truth = _parts('labels', labels, (UNLABELLED,))
    if guess.shape != truth.shape or guess.ndim != 3:
        words = 'expected two of the same shape (frames, height, width)'
        raise RecordsError(f'predicted {guess.shape}, labels {truth.shape}: {words}')
    parts: tuple[str, ...] = PARTS[1:]
    if binary:
        parts = (INSTRUMENT,)
        guess = (guess != BACKGROUND).astype(np.uint8)
        truth = np.where(truth == UNLABELLED, truth, truth != BACKGROUND).astype(np.uint8)
    matrix = confusion(guess, truth)[:, : len(parts) + 1, : len(parts) + 1]
    both = np.diagonal(matrix, axis1=1, axis2=2)[:, 1:].astype(np.float64)
    either = (matrix.sum(axis=1) + matrix.sum(axis=2))[:, 1:] - both
    with np.errstate(invalid='ignore'):  # 0 / 0: absent from both
        measures = {'dice': 2.0 * both / (both + either), 'iou': both / either}
    if distances:
        guess = np.where(truth == UNLABELLED, BACKGROUND, guess)
        columns = [_distances(guess == part, truth == part) for part in range(1, len(parts) + 1)]
        for name, values in zip(DISTANCES, zip(*columns, strict=True), strict=True):
            measures[name] = np.stack(values, axis=1)
    return PartScores(parts, measures)


def confusion(predicted: NDArray[np.uint8], labels: NDArray[np.uint8]) -> NDArray[np.int64]:
    """
    Count the labelled pixels of each frame by label and prediction.

    :param predicted: parts' numbers, shape (frames, height, width).
    :param labels: parts' numbers or UNLABELLED, of the same shape.
    :returns: shape (frames, labels, predictions).
    """
    code = np.minimum(labels, _KINDS) * np.uint8(_KINDS) + predicted
    length = (_KINDS + 1) * _KINDS  # the last row is what nobody labelled
    counts = [np.bincount(frame.ravel(), minlength=length) for frame in code]
    return np.array(counts, np.int64).reshape(-1, _KINDS + 1, _KINDS)[:, :_KINDS]


def edge_distances(
    one: NDArray[np.bool_], other: NDArray[np.bool_]
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """
    Return the distance of each pixel on the edge of a mask to the nearest on the other's.

    A pixel is on the edge if one of its four neighbours is outside of the mask or the picture.

    :param one: where a part is, shape (height, width); not empty, as the other.
    :returns: from the first to the second, and back, in pixels.
    """
    either = one | other
    rows, columns = (np.flatnonzero(either.any(axis=axis)) for axis in (1, 0))
    box = np.s_[rows[0] : rows[-1] + 1, columns[0] : columns[-1] + 1]
    edges = [mask[box] & ~ndimage.binary_erosion(mask[box]) for mask in (one, other)]
    away = [ndimage.distance_transform_edt(~edge) for edge in edges]
    return away[1][edges[0]], away[0][edges[1]]


def _distances(
    guess: NDArray[np.bool_], truth: NDArray[np.bool_]
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return HD95 and ASSD of one part in each frame, NaN where it is absent from a mask."""
    hd95, assd = np.full((2, len(guess)), np.nan)
    for number in np.flatnonzero(guess.any(axis=(1, 2)) & truth.any(axis=(1, 2))):
        both = edge_distances(guess[number], truth[number])
        hd95[number] = max(np.percentile(distances, 95.0) for distances in both)
        assd[number] = np.concatenate(both).mean()
    return hd95, assd


def _parts(name: str, values: ArrayLike, others: tuple[int, ...]) -> NDArray[np.uint8]:
    """Return parts' numbers as bytes, or refuse what is none."""
    array = np.asarray(values)
    if array.dtype.kind not in 'iu':
        raise RecordsError(f'{name} {array.dtype}: expected whole numbers')
    strange = array[(array < 0) | (array >= _KINDS)]
    unknown = set(np.unique(strange).tolist()) - {*others}
    if unknown:
        known = ', or '.join([f'0 to {_KINDS - 1}', *map(str, others)])
        raise RecordsError(f'{name} {sorted(unknown)}: expected {known}')
    return array.astype(np.uint8, copy=False)


def _defined_mean(values: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the mean over the first axis of what is not NaN, NaN where nothing is."""
    defined = ~np.isnan(values)
    with np.errstate(invalid='ignore'):
        mean: NDArray[np.float64] = np.where(defined, values, 0.0).sum(axis=0) / defined.sum(
            axis=0
        )
    return mean
