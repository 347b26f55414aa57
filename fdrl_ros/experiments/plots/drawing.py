# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""
What all plots share: one style, and points and curves with intervals in a file with words below.

Colours are those of Okabe and Ito, which colour-blind people can tell. A policy has one colour and
one marker in every plot. Limits, budgets and chance are dashed in :data:`NEUTRAL`; data never are.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
import re
import textwrap
from typing import Any, Final

from cycler import cycler
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

BLACK, ORANGE, SKY, GREEN = '#000000', '#e69f00', '#56b4e9', '#009e73'
BLUE, RED, PURPLE = '#0072b2', '#d55e00', '#cc79a7'
COLOURS: Final = (BLUE, ORANGE, GREEN, PURPLE, SKY, RED, BLACK)
"""In the order in which plots without policies take them; their yellow is too pale for a line."""

NEUTRAL = '#6b6b6b'
"""Of limits and of what nobody learned; no policy that learned has it."""

MARKERS = 'os^vDP*X'
LIMIT: Final[dict[str, Any]] = {'color': NEUTRAL, 'linestyle': (0, (5, 3)), 'linewidth': 1.1}
"""Of a limit, a budget, a ceiling or chance."""

ZERO: Final[dict[str, Any]] = {'color': NEUTRAL, 'linewidth': 0.6}
"""Of the line at no difference."""

_STYLE: Final[Any] = {  # of matplotlib's own type of names
    'axes.axisbelow': True,
    'axes.edgecolor': '#8a8a8a',
    'axes.grid': True,
    'axes.prop_cycle': cycler(color=COLOURS),
    'axes.spines.right': False,
    'axes.spines.top': False,
    'axes.titlesize': 10,
    'axes.labelsize': 9,
    'errorbar.capsize': 2.5,
    'font.size': 9,
    'grid.color': '#ececec',
    'grid.linewidth': 0.6,
    'image.cmap': 'cividis',
    'legend.fontsize': 7.5,
    'legend.framealpha': 0.85,
    'lines.linewidth': 1.6,
    'lines.markersize': 5,
    'svg.fonttype': 'none',
    'svg.hashsalt': 'fdrl_ros',
    'xtick.labelsize': 8,
    'ytick.labelsize': 8,
}

_LETTERS = 17
"""Of the words below a figure, in an inch."""

POLICIES: Final = {
    'expert': (BLACK, 'D'),
    'controller': (BLACK, 'D'),
    'hindsight': (BLACK, 'D'),
    'pretrained': (ORANGE, 's'),
    'public_start': (ORANGE, 's'),
    'alone': (PURPLE, '^'),
    'global': (BLUE, 'o'),
    'home': (GREEN, 'v'),
    'federated': (GREEN, 'v'),
    'selector': (RED, 'P'),
    'best_single': (SKY, 'X'),
    'bandit': (PURPLE, '^'),
    'best_cumulative': (ORANGE, 's'),
    'global_or_hold': (GREEN, 'v'),
    'pooled': (SKY, 'X'),
    'cluster': (SKY, 'X'),
    'hold': ('#3f3f3f', '_'),
    'random': ('#8f8f8f', '*'),
    'untrained': ('#ababab', 'x'),
}
"""Colour and marker of each policy; in one plot all differ."""


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
    with rc_context(_STYLE):
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
            figure.savefig(path.with_suffix(suffix), dpi=DOTS, metadata=metadata)


def style_of(name: str) -> dict[str, Any]:
    """
    Return colour and marker of a policy, or of a hospital `hospital_N`, in every plot.

    :param name: as files have it; another name than those of :data:`POLICIES` is black.
    """
    if found := re.fullmatch(r'(?:alone_|local_|home_)?hospital_(\d+)', name):
        number = int(found[1]) - 1
        return {
            'color': COLOURS[number % len(COLOURS)],
            'marker': MARKERS[number % len(MARKERS)],
        }
    colour, marker = POLICIES.get(name, (BLACK, 'o'))
    return {'color': colour, 'marker': marker}


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
