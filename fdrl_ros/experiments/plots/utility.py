# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""Plot of what privacy costs: success against epsilon, from each start."""

from pathlib import Path
from typing import Any

from fdrl_ros.experiments.reports.table import DISCLAIMER
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

SIZE = (6.4, 4.2)
DOTS = 130


def draw_utility(summary: dict[str, Any], path: Path) -> None:
    """
    Draw success with its 95 % interval against epsilon.

    :param summary: as :func:`fdrl_ros.experiments.studies.utility.summarise` returns it.
    :raises OSError: if the file cannot be written.
    """
    figure = Figure(SIZE, layout='constrained')
    FigureCanvasAgg(figure)
    axes = figure.subplots()
    colours = {'public': 'tab:blue', 'random': 'tab:orange'}
    for number, (start, row) in enumerate(summary['results'].items()):
        names = list(reversed(row))
        found = [row[name]['success'] for name in names]
        places = [index + 0.08 * (number - 0.5) for index in range(len(names))]
        means = [each['mean'] for each in found]
        known = [each if each['low'] is not None else {**each, **_point(each)} for each in found]
        ends = [
            [each['mean'] - each['low'] for each in known],
            [each['high'] - each['mean'] for each in known],
        ]
        axes.errorbar(places, means, ends, color=colours[start], capsize=3, label=f'{start} start')
        axes.axhline(
            summary['start'][start]['mean'],
            color=colours[start],
            linestyle=':',
            label=f'{start} start itself',
        )
        axes.set_xticks(range(len(names)), ['not private' if n == 'inf' else n for n in names])
    axes.set_xlabel(f'epsilon of a {summary["unit"]} at delta {summary["delta"]:g}')
    axes.set_ylabel('success on unseen patients')
    axes.set_ylim(0.0, 1.02)
    axes.legend(fontsize=8, loc='lower right')
    words = f'Means over {len(summary["seeds"])} seeds with 95 % intervals. {DISCLAIMER}'
    if not summary['private']:
        words = f'NOT PRIVATE: noise of a seed. {words}'
    figure.supxlabel(words, fontsize=7, color='dimgray')
    figure.savefig(path, dpi=DOTS)


def _point(found: dict[str, Any]) -> dict[str, float]:
    """Return the interval of one seed, which has none."""
    return {'low': found['mean'], 'high': found['mean']}
