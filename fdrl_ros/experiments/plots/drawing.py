# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""What all plots share: a PNG file with words below it, points and curves with intervals."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
import textwrap
from typing import Any

from fdrl_ros.experiments.intervals import Interval
from fdrl_ros.experiments.reports.text_table import DISCLAIMER
from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
import numpy as np
from numpy.typing import ArrayLike, NDArray

DOTS = 130
"""Of an inch."""

_LETTERS = 17
"""Of the words below a figure, in an inch."""


@contextmanager
def drawing(
    path: Path, size: tuple[float, float], words: str = '', suffixes: Sequence[str] = ('.png',)
) -> Iterator[Figure]:
    """
    Draw a figure into a file.

    :param suffixes: of the files, one for each form: '.png' or '.svg'.
    :param size: inches.
    :param words: below it, before the disclaimer.
    :raises OSError: if the file cannot be written.
    """
    figure = Figure(size, layout='constrained')
    FigureCanvasAgg(figure)
    yield figure
    lines = [*words.splitlines(), DISCLAIMER]
    width = int(_LETTERS * size[0])
    below = '\n'.join(textwrap.fill(line, width) for line in lines)
    figure.supxlabel(below, fontsize=7, color='dimgray')
    for suffix in suffixes:
        # An SVG is to be the same each time: without date and random names.
        metadata = {'Date': None} if suffix == '.svg' else None
        with rc_context({'svg.hashsalt': 'fdrl_ros', 'svg.fonttype': 'none'}):
            figure.savefig(path.with_suffix(suffix), dpi=DOTS, metadata=metadata)


def ends_of(found: Sequence[Interval]) -> tuple[NDArray[np.float64], NDArray[np.float64] | None]:
    """Return means, and how far intervals reach below and above; None if none has ends."""
    means, low, high = (
        np.array([each[name] for each in found], np.float64) for name in ('mean', 'low', 'high')
    )
    ends = np.abs([means - low, high - means])
    return means, None if np.isnan(ends).all() else ends


def draw_points(
    axes: Axes, places: ArrayLike, found: Sequence[Interval], factor: float = 1.0, **style: Any
) -> None:
    """
    Draw means with their intervals.

    :param factor: of means and intervals, such as 100 for percent.
    :param style: as Matplotlib's errorbar takes it.
    """
    means, ends = ends_of(found)
    ends = None if ends is None else factor * ends
    axes.errorbar(places, factor * means, ends, **{'fmt': 'o-', **style})


def draw_curve(
    axes: Axes, places: ArrayLike, found: Sequence[Interval], colour: str, label: str
) -> None:
    """Draw means as a line in the band of their intervals; a single seed has no band."""
    means, ends = ends_of(found)
    axes.plot(places, means, 'o-', color=colour, label=label)
    if ends is not None:
        axes.fill_between(places, means - ends[0], means + ends[1], color=colour, alpha=0.2)
