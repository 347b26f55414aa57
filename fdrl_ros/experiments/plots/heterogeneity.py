# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""Plot of what heterogeneity does: distance, success at home and elsewhere, and the loss."""

from pathlib import Path
from typing import Any

from fdrl_ros.experiments.reports.table import DISCLAIMER
from fdrl_ros.experiments.studies.distance import LEANING
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
import numpy as np

SIZE = (11.0, 4.2)
DOTS = 130
STYLES = ('-', '--', ':', '-.', (0, (1, 3)))
"""Of the lines of what hospitals differ in."""


def draw_heterogeneity(summary: dict[str, Any], path: Path) -> None:
    """
    Draw the curves over H with their 95 % intervals.

    :param summary: as :func:`fdrl_ros.experiments.studies.heterogeneity_summary.summarise` returns
        it.
    :raises OSError: if the file cannot be written.
    """
    figure = Figure(SIZE, layout='constrained')
    FigureCanvasAgg(figure)
    left, middle, right = figure.subplots(1, 3)
    levels, curves, quantities = summary['levels'], summary['curves'], summary['quantities']
    for name, style in zip(LEANING, STYLES, strict=True):
        means = [each['mean'] for each in quantities[name]['at']]
        left.plot(levels, means, linestyle=style, color='gray', linewidth=1.0, label=name)
    _curve(left, levels, curves['distance'], 'tab:blue', 'mean of these')
    _curve(left, levels, curves['mix'], 'tab:orange', 'procedures, total variation')
    left.set_title("Distance between hospitals' patients")
    left.set_ylabel('Wasserstein-1, in spreads at H = 1')
    left.set_ylim(0.0, 1.55 * curves['distance']['at'][-1]['mean'])
    _curve(middle, levels, curves['home'], 'tab:green', 'at home')
    _curve(middle, levels, curves['elsewhere'], 'tab:red', 'in other hospitals')
    middle.set_title("Success of one hospital's own policy")
    middle.set_ylabel('success on unseen patients')
    middle.set_ylim(0.0, 1.02)
    _curve(right, levels, curves['loss'], 'tab:purple', 'at home minus elsewhere')
    right.axhline(0.0, color='gray', linewidth=0.8)
    right.set_title('Success lost abroad')
    right.set_ylabel('difference in success')
    for axes in (left, middle, right):
        axes.set_xlabel('heterogeneity H')
        axes.set_xticks(levels)
    for axes, place in ((left, 'upper left'), (middle, 'lower left'), (right, 'upper left')):
        axes.legend(fontsize=7, loc=place)
    seeds = len(summary['seeds'])
    done = summary['settings']['federation']['procedures']
    figure.supxlabel(
        f'Means over {seeds} seeds with 95 % intervals; policies do {done}. {DISCLAIMER}',
        fontsize=7,
        color='dimgray',
    )
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=DOTS)


def _curve(
    axes: Axes, levels: list[float], curve: dict[str, Any], colour: str, label: str
) -> None:
    means, low, high = (
        np.array([each[name] for each in curve['at']], np.float64)
        for name in ('mean', 'low', 'high')
    )
    axes.plot(levels, means, 'o-', color=colour, label=label)
    # One seed has no interval: its ends are NaN and nothing is filled.
    axes.fill_between(levels, low, high, color=colour, alpha=0.2)
