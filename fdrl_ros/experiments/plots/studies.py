# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""
Plots of studies: the audit of epsilon, what heterogeneity does, and what privacy costs.

Every one is a PNG that says below what its numbers are, and that they are simulated.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from fdrl_ros.experiments.json_file import Json
from fdrl_ros.experiments.reports.table import DISCLAIMER
from fdrl_ros.experiments.studies.distance import LEANING
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
import numpy as np

DOTS = 130
AUDIT_STYLES = {
    'claimed': ('_', 'black', 'claimed by the accountant'),
    'gaussian': ('s', 'tab:orange', 'proven if noise is isotropic and Gaussian'),
    'bound': ('o', 'tab:blue', 'proven, whatever the mechanism is'),
    'attainable': ('x', 'gray', 'mean proof on a flawless mechanism'),
}
"""Marker, colour and words of each number."""


@contextmanager
def drawing(path: Path, size: tuple[float, float], words: str) -> Iterator[Figure]:
    """
    Draw a figure into a PNG file.

    :param words: below it, before the disclaimer.
    :raises OSError: if the file cannot be written.
    """
    figure = Figure(size, layout='constrained')
    FigureCanvasAgg(figure)
    yield figure
    figure.supxlabel(f'{words} {DISCLAIMER}', fontsize=7, color='dimgray')
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=DOTS)


def draw_audit(summary: Json, path: Path) -> None:
    """
    Draw what was claimed and what was proven.

    :param summary: as :func:`fdrl_ros.experiments.studies.audit.run_audit` returns it.
    :raises OSError: if the file cannot be written.
    """
    parts, chosen = summary['parts'], summary['settings']['audit']
    words = (
        f'{parts[0]["canaries"]} canaries among {parts[0]["patients"]} patients, confidence '
        f'{100.0 * (1.0 - chosen["failure"]):g} % a seed.'
    )
    with drawing(path, (11.0, 4.2), words) as figure:
        left, right = figure.subplots(1, 2)
        places = np.arange(len(parts))
        for name, (marker, colour, label) in AUDIT_STYLES.items():
            values = [each[name] for each in parts]
            left.plot(
                *(places, values, marker),
                color=colour,
                label=label,
                markersize=14 if marker == '_' else 6,
                markeredgewidth=2,
            )
        left.set_xticks(places, [str(each['seed']) for each in parts])
        left.set_xlabel('seed')
        left.set_ylabel(f'epsilon at delta = {parts[0]["delta"]:g}')
        left.set_ylim(0.0, 1.35 * max(each[name] for each in parts for name in AUDIT_STYLES))
        left.set_title('Epsilon, claimed and proven')
        left.legend(fontsize=7, loc='upper left')
        scores = parts[0]['scores']
        edges = np.array(scores['edges'])
        for name, colour in (('others', 'tab:gray'), ('members', 'tab:red')):
            right.stairs(scores[name], edges, fill=True, alpha=0.5, color=colour, label=name)
        right.set_xlabel('log of how much likelier a member is (nats)')
        right.set_ylabel('canaries')
        right.set_title(f'Scores of canaries, seed {parts[0]["seed"]}')
        right.legend(fontsize=7)


QUANTITY_STYLES = ('-', '--', ':', '-.', (0, (1, 3)))
"""Of the lines of what hospitals differ in."""


def draw_heterogeneity(summary: Json, path: Path) -> None:
    """
    Draw the curves over H with their 95 % intervals.

    :param summary: as :func:`fdrl_ros.experiments.studies.heterogeneity_summary.summarise` returns
        it.
    :raises OSError: if the file cannot be written.
    """
    words = (
        f'Means over {len(summary["seeds"])} seeds with 95 % intervals; policies do '
        f'{summary["settings"]["federation"]["procedures"]}.'
    )
    with drawing(path, (11.0, 4.2), words) as figure:
        left, middle, right = figure.subplots(1, 3)
        levels, curves, quantities = summary['levels'], summary['curves'], summary['quantities']
        for name, style in zip(LEANING, QUANTITY_STYLES, strict=True):
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


def _curve(axes: Axes, levels: list[float], curve: Json, colour: str, label: str) -> None:
    means, low, high = (
        np.array([each[name] for each in curve['at']], np.float64)
        for name in ('mean', 'low', 'high')
    )
    axes.plot(levels, means, 'o-', color=colour, label=label)
    # One seed has no interval: its ends are NaN and nothing is filled.
    axes.fill_between(levels, low, high, color=colour, alpha=0.2)


def draw_utility(summary: Json, path: Path) -> None:
    """
    Draw success with its 95 % interval against epsilon.

    :param summary: as :func:`fdrl_ros.experiments.studies.utility.summarise` returns it.
    :raises OSError: if the file cannot be written.
    """
    words = f'Means over {len(summary["seeds"])} seeds with 95 % intervals.'
    if not summary['private']:
        words = f'NOT PRIVATE: noise of a seed. {words}'
    with drawing(path, (6.4, 4.2), words) as figure:
        axes = figure.subplots()
        colours = {'public': 'tab:blue', 'random': 'tab:orange'}
        for number, (start, row) in enumerate(summary['results'].items()):
            names = list(reversed(row))
            found = [row[name]['success'] for name in names]
            places = [index + 0.08 * (number - 0.5) for index in range(len(names))]
            means = [each['mean'] for each in found]
            low, high = (
                [each['mean'] if each[end] is None else each[end] for each in found]
                for end in ('low', 'high')
            )
            ends = np.array([np.subtract(means, low), np.subtract(high, means)])
            axes.errorbar(
                places, means, ends, color=colours[start], capsize=3, label=f'{start} start'
            )
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
