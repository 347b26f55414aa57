# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""Plots of a run as PNG: success, learning, epsilon, force on one patient, what was selected."""

from pathlib import Path

from fdrl_ros.experiments.intervals import Interval
from fdrl_ros.experiments.plots.drawing import draw_curve, drawing
from fdrl_ros.experiments.reports.assessment import Assessment
from fdrl_ros.experiments.reports.text_table import NOT_PRIVATE
from fdrl_ros.surgery.gym.actions import TICK
from matplotlib.axes import Axes
from matplotlib.ticker import MaxNLocator
import numpy as np

SIZE = (7.0, 4.4)


def draw_all(found: Assessment, directory: Path) -> list[Path]:
    """
    Draw every plot that there are numbers for.

    :returns: the files.
    :raises OSError: if a file cannot be written.
    """
    directory.mkdir(exist_ok=True)
    plots = {'success': success, 'force': force}
    if found.learning:
        plots['learning'] = learning
    if found.rounds:
        plots['epsilon'] = epsilon
    if any(each.chosen for each in found.evaluations.values()):
        plots['selection'] = selection
    words = '' if found.plan.federation.noise == 'secure' else NOT_PRIVATE
    for name, draw in plots.items():
        with drawing(directory / f'{name}.png', SIZE, words) as figure:
            draw(found, figure.subplots())
    return [directory / f'{name}.png' for name in plots]


def success(found: Assessment, axes: Axes) -> None:
    """Draw the success of every policy with its 95 % interval."""
    scores = [each.score for each in found.evaluations.values()]
    values, low, high = (
        np.array([score[name] for score in scores])
        for name in ('success', 'success_low', 'success_high')
    )
    places, errors = np.arange(len(scores))[::-1], np.maximum([values - low, high - values], 0.0)
    axes.barh(places, values, color='tab:blue', xerr=errors, error_kw={'capsize': 3})
    axes.set_yticks(places, list(found.evaluations))
    axes.set_xlim(0.0, 1.0)
    axes.set_xlabel('success with 95 % interval (Wilson)')
    axes.set_title(f'{scores[0]["patients"]} unseen patients of all hospitals')


def learning(found: Assessment, axes: Axes) -> None:
    """Draw the success of the global policy after each round."""
    rounds = [each[0] for each in found.learning]
    points: list[Interval] = [
        {'mean': mean, 'low': low, 'high': high, 'values': []}
        for _, mean, low, high in found.learning
    ]
    draw_curve(axes, rounds, points, 'tab:blue', 'global policy with 95 % interval')
    axes.set_xlabel('round; 0 is the public start')
    axes.set_ylabel('success')
    axes.set_ylim(0.0, 1.05)
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    count = found.plan.evaluation.round_patients
    axes.set_title(f'Learning, on {count} unseen patients of all hospitals')
    axes.legend(loc='lower right')


def epsilon(found: Assessment, axes: Axes) -> None:
    """Draw what each hospital has spent after each round."""
    rounds = [0, *(note.round for note in found.rounds)]
    for number, name in enumerate(found.epsilon):
        spent = [0.0, *(note.epsilon.get(name, np.nan) for note in found.rounds)]
        axes.plot(rounds, spent, 'os^v<>D'[number % 7] + '-', alpha=0.7, label=name)
    privacy = found.plan.privacy
    axes.axhline(privacy.budget, color='tab:red', linestyle='--', label='budget')
    axes.set_xlabel('round')
    axes.set_ylabel(f'epsilon (delta {privacy.delta:g}, unit: {privacy.unit})')
    axes.set_ylim(bottom=0.0)
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    axes.set_title('Privacy spent')
    axes.legend()


def force(found: Assessment, axes: Axes) -> None:
    """Draw the force on one patient under several policies."""
    for name, forces in found.profile.items():
        axes.plot(np.arange(1, len(forces) + 1) * TICK, forces, label=name)
    name, limit = found.profiled
    axes.axhline(limit, color='tab:red', linestyle='--', label='force limit')
    axes.set_xlabel('time, s')
    axes.set_ylabel('greatest normal force in a tick, N')
    axes.set_title(f'Force on patient {name}')
    axes.legend()


def selection(found: Assessment, axes: Axes) -> None:
    """Draw how often the selector took each policy."""
    chosen = next(each.chosen for each in found.evaluations.values() if each.chosen)
    names, total = sorted(chosen, key=lambda name: chosen[name]), sum(chosen.values())
    axes.barh(names, [chosen[name] / total for name in names], color='tab:green')
    axes.set_xlabel('share of ticks')
    axes.set_title('What the selector chose')
