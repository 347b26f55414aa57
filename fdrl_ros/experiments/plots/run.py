# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""Plots of a run as PNG: success, learning, epsilon, force on one patient, what was selected."""

from collections.abc import Callable
from pathlib import Path

from fdrl_ros.experiments.reports.assessment import Assessment
from fdrl_ros.experiments.reports.table import DISCLAIMER, NOT_PRIVATE
from fdrl_ros.surgery.gym.actions import TICK
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator
import numpy as np

SIZE = (7.0, 4.4)
DOTS = 150


def draw_all(found: Assessment, directory: Path) -> list[Path]:
    """
    Draw every plot that there are numbers for.

    :returns: the files.
    :raises OSError: if a file cannot be written.
    """
    directory.mkdir(exist_ok=True)
    drawn = []
    for name, draw in PLOTS.items():
        figure = Figure(SIZE, layout='constrained')
        FigureCanvasAgg(figure)
        if not draw(found, figure):
            continue
        words = DISCLAIMER
        if found.plan.federation.noise != 'secure':
            words = f'{NOT_PRIVATE}\n{words}'
        figure.supxlabel(words, fontsize=7, color='dimgray')
        path = directory / f'{name}.png'
        figure.savefig(path, dpi=DOTS)
        drawn.append(path)
    return drawn


def success(found: Assessment, figure: Figure) -> bool:
    """Draw the success of every policy with its 95 % interval."""
    axes = figure.subplots()
    scores = [each.score for each in found.evaluations.values()]
    values = np.array([each.success for each in scores])
    low = values - [each.success_low for each in scores]
    high = np.array([each.success_high for each in scores]) - values
    places = np.arange(len(scores))[::-1]
    errors = np.maximum([low, high], 0.0)
    axes.barh(places, values, color='tab:blue', xerr=errors, error_kw={'capsize': 3})
    axes.set_yticks(places, list(found.evaluations))
    axes.set_xlim(0.0, 1.0)
    axes.set_xlabel('success with 95 % interval (Wilson)')
    axes.set_title(f'{scores[0].patients} unseen patients of all hospitals')
    return True


def learning(found: Assessment, figure: Figure) -> bool:
    """Draw the success of the global policy after each round."""
    if not found.learning:
        return False
    axes = figure.subplots()
    rounds, values, low, high = np.array(found.learning, dtype=np.float64).T
    axes.fill_between(rounds, low, high, alpha=0.2, label='95 % interval')
    axes.plot(rounds, values, 'o-', label='global policy')
    axes.set_xlabel('round; 0 is the public start')
    axes.set_ylabel('success')
    axes.set_ylim(0.0, 1.05)
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    axes.set_title(
        f'Learning, on {found.plan.evaluation.round_patients} unseen patients of all hospitals'
    )
    axes.legend(loc='lower right')
    return True


def epsilon(found: Assessment, figure: Figure) -> bool:
    """Draw what each hospital has spent after each round."""
    if not found.rounds:
        return False
    axes = figure.subplots()
    rounds = [0, *(each.round for each in found.rounds)]
    for number, name in enumerate(found.epsilon):
        spent = [0.0, *(each.epsilon.get(name, np.nan) for each in found.rounds)]
        axes.plot(rounds, spent, 'os^v<>D'[number % 7] + '-', alpha=0.7, label=name)
    privacy = found.plan.privacy
    axes.axhline(privacy.budget, color='tab:red', linestyle='--', label='budget')
    axes.set_xlabel('round')
    axes.set_ylabel(f'epsilon (delta {privacy.delta:g}, unit: {privacy.unit})')
    axes.set_ylim(bottom=0.0)
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    axes.set_title('Privacy spent')
    axes.legend()
    return True


def force(found: Assessment, figure: Figure) -> bool:
    """Draw the force on one patient under several policies."""
    axes = figure.subplots()
    for name, forces in found.profile.items():
        axes.plot(np.arange(1, len(forces) + 1) * TICK, forces, label=name)
    name, limit = found.profiled
    axes.axhline(limit, color='tab:red', linestyle='--', label='force limit')
    axes.set_xlabel('time, s')
    axes.set_ylabel('greatest normal force in a tick, N')
    axes.set_title(f'Force on patient {name}')
    axes.legend()
    return True


def selection(found: Assessment, figure: Figure) -> bool:
    """Draw how often the selector took each policy."""
    rows = {name: each.chosen for name, each in found.evaluations.items() if each.chosen}
    if not rows:
        return False
    axes = figure.subplots()
    chosen = next(iter(rows.values()))
    names = sorted(chosen, key=lambda name: chosen[name])
    total = sum(chosen.values())
    axes.barh(names, [chosen[name] / total for name in names], color='tab:green')
    axes.set_xlabel('share of ticks')
    axes.set_title('What the selector chose')
    return True


PLOTS: dict[str, Callable[[Assessment, Figure], bool]] = {
    'success': success,
    'learning': learning,
    'epsilon': epsilon,
    'force': force,
    'selection': selection,
}
