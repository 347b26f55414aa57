# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""Plots of a run as PNG: success, learning, returns by hospital, epsilon, and the task's own."""

from collections.abc import Callable
from functools import partial
from pathlib import Path

from fdrl_ros.experiments.intervals import Interval
from fdrl_ros.experiments.plots.drawing import (
    BLUE,
    draw_curve,
    draw_points,
    drawing,
    LIMIT,
    style_of,
)
from fdrl_ros.experiments.reports.assessment import Assessment
from fdrl_ros.experiments.reports.names import reader_name
from fdrl_ros.experiments.reports.text_table import NOT_PRIVATE
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator
import numpy as np

SIZE = (7.0, 4.4)
_ASIDE = 0.06  # rounds between the points of two hospitals that spent the same


def draw_all(found: Assessment, directory: Path) -> list[Path]:
    """
    Draw every plot that there are numbers for.

    :returns: the files.
    :raises OSError: if a file cannot be written.
    """
    directory.mkdir(exist_ok=True)
    plots: dict[str, Callable[[Figure], None]] = {
        'success': lambda figure: success(found, figure.subplots()),
        **{name: partial(_alone, draw) for name, draw in found.extras.plots.items()},
    }
    if found.learning:
        plots['learning'] = partial(learning, found)
    if found.rounds:
        plots['epsilon'] = lambda figure: epsilon(found, figure.subplots())
    if 'hospital' in found.groups():
        plots['hospitals'] = lambda figure: hospitals(found, figure.subplots())
    words = '' if found.plan.federation.noise == 'secure' else NOT_PRIVATE
    for name, draw in plots.items():
        with drawing(directory / f'{name}.png', SIZE, words) as figure:
            draw(figure)
    for pictured in found.extras.pictures:
        pictured(directory)
    return [directory / f'{name}.png' for name in plots]


def _alone(draw: Callable[[Axes], None], figure: Figure) -> None:
    draw(figure.subplots())


def success(found: Assessment, axes: Axes) -> None:
    """Draw the success of every policy with its 95 % interval."""
    names = list(found.evaluations)
    scores = [found.evaluations[name].score for name in names]
    for place, (name, score) in enumerate(zip(names, scores, strict=True)):
        mean, low, high = (
            100.0 * score[each] for each in ('success', 'success_low', 'success_high')
        )
        ends = [[max(mean - low, 0.0)], [max(high - mean, 0.0)]]
        axes.errorbar([mean], [place], xerr=ends, linestyle='none', **style_of(name))
        axes.annotate(
            f'{mean:.0f} %',
            (mean, place),
            (0, 6),
            textcoords='offset points',
            ha='center',
            fontsize=7,
        )
    axes.set_yticks(range(len(names)), [reader_name(name) for name in names])
    axes.set_ylim(len(names) - 0.5, -0.6)
    axes.set_xlim(-3.0, 103.0)
    axes.set_xlabel('success, % of patients, with 95 % interval (Wilson)')
    axes.set_title(f'{scores[0]["patients"]} unseen patients of all hospitals')


def learning(found: Assessment, figure: Figure) -> None:
    """Draw each learned score of the global policy after each round, in a panel of its own."""
    names, scores = found.evaluator.learned, found.evaluator.scores
    rounds = [each[0] for each in found.learning]
    count = found.plan.evaluation.round_patients
    panels = figure.subplots(1, len(names), squeeze=False)[0]
    for place, (name, axes) in enumerate(zip(names, panels, strict=True)):
        points: list[Interval] = [
            {'mean': mean, 'low': low, 'high': high, 'values': []}
            for mean, low, high in (row[1 + 3 * place : 4 + 3 * place] for row in found.learning)
        ]
        draw_curve(axes, rounds, points, BLUE, 'global policy with 95 % interval')
        axes.set_xlabel('round; 0 is the public start')
        axes.set_ylabel(scores[name].heading)
        if name == 'success':
            axes.set_ylim(0.0, 1.05)
        axes.xaxis.set_major_locator(MaxNLocator(integer=True))
        axes.legend(loc='lower right' if len(names) == 1 else 'best')
    title = f'Learning, on {count} unseen patients of all hospitals'
    panels[0].set_title(title) if len(names) == 1 else figure.suptitle(title)


def hospitals(found: Assessment, axes: Axes) -> None:
    """Draw the mean total reward of each policy in each hospital, with its 95 % interval."""
    groups = found.groups()['hospital']
    places, rows = np.arange(len(groups)), found.compared_rows()
    for number, name in enumerate(rows):
        points: list[Interval] = [
            {
                'mean': row[name]['mean_total'],
                'low': row[name]['mean_total_low'],
                'high': row[name]['mean_total_high'],
                'values': [],
            }
            for row in groups.values()
        ]
        shift = 0.6 * ((number + 0.5) / len(rows) - 0.5)
        style = {'linestyle': 'none', 'label': reader_name(name), **style_of(name)}
        draw_points(axes, places + shift, points, fmt='', **style)
    axes.set_xticks(places, [reader_name(each) for each in groups])
    axes.set_ylabel('total reward with 95 % interval')
    axes.set_title('Unseen patients of each hospital')
    axes.figure.legend(loc='outside right upper')


def epsilon(found: Assessment, axes: Axes) -> None:
    """Draw what each hospital has spent after each round, and at home where it went on there."""
    rounds = [0, *(note.round for note in found.rounds)]
    whole, at_home = found.epsilon, bool(found.plan.home.epochs)
    count = len(whole)
    for number, (name, last) in enumerate(whole.items()):
        spent = [0.0, *(note.epsilon.get(name, np.nan) for note in found.rounds)]
        places = [each + _ASIDE * (number - (count - 1) / 2) for each in rounds]
        if at_home:
            spent.append(last)
            places.append(places[-1] + 1)
        axes.plot(places, spent, '-', label=reader_name(name), **style_of(name))
    axes.set_xticks([*rounds, *([rounds[-1] + 1] if at_home else [])])
    if at_home:
        axes.set_xticklabels([*map(str, rounds), 'home'])
    elif len(rounds) > 12:
        axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    privacy = found.plan.privacy
    axes.axhline(privacy.budget, **LIMIT)
    axes.annotate(
        f'budget {privacy.budget:g}',
        (rounds[-1], privacy.budget),
        (0, 3),
        fontsize=8,
        textcoords='offset points',
        ha='right',
        color=LIMIT['color'],
    )
    axes.set_xlabel('after round; home: fine-tuned on own records' if at_home else 'after round')
    axes.set_ylabel(f'epsilon of a {privacy.unit} (delta {privacy.delta:g})')
    axes.set_ylim(0.0, 1.12 * max(privacy.budget, *whole.values()))
    axes.set_title('Privacy spent by each hospital')
    axes.legend(loc='lower right')
