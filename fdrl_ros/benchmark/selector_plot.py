# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""Pictures of the selector: what it earns beside others, and single operations over time."""

from pathlib import Path
from typing import Any

from fdrl_ros.benchmark.report import DISCLAIMER
from fdrl_ros.env.actions import ACTIONS, STAY, TICK
from fdrl_ros.env.episode import Episode
from fdrl_ros.env.state import INDEX, SCALES
from fdrl_ros.metrics import risk_terms
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
import numpy as np

DOTS = 130
WAYS = {'+z': 'up', '-z': 'down'}
BESIDE: dict[str, Any] = {'fontsize': 7, 'loc': 'upper left', 'bbox_to_anchor': (1.08, 1.0)}
"""Where the legend of a row stands."""

JAW = STAY
"""From this action on none is a move."""
ROWS = (
    'hold',
    'best_single',
    'bandit',
    'best_cumulative',
    'global',
    'global_or_hold',
    'selector',
    'hindsight',
)
COLOURS = (
    'silver',
    'tab:brown',
    'tab:purple',
    'tab:orange',
    'tab:blue',
    'tab:cyan',
    'tab:green',
    'black',
)


def draw_returns(summary: dict[str, Any], path: Path) -> None:
    """
    Draw mean return by H with 95 % intervals over seeds, and the selector's lead.

    :param summary: as :func:`fdrl_ros.benchmark.selector_summary.summarise` returns it.
    :raises OSError: if the file cannot be written.
    """
    figure = Figure((10.0, 4.2), layout='constrained')
    FigureCanvasAgg(figure)
    left, right = figure.subplots(1, 2)
    levels = summary['levels']
    for place, (name, colour) in enumerate(zip(ROWS, COLOURS, strict=True)):
        for axes, key in ((left, 'return'), (right, 'lead')):
            if axes is right and name in ('hold', 'selector'):
                continue
            at = [each['contenders'][name][key] for each in levels]
            where = [each['level'] + 0.012 * (place - 3.5) for each in levels]
            means = np.array([each['mean'] for each in at], np.float64)
            ends = np.array([[each['low'], each['high']] for each in at], np.float64).T
            bars = None if np.isnan(ends).any() else np.abs(ends - means)
            axes.errorbar(where, means, bars, fmt='o', color=colour, markersize=4, label=name)
    left.set_ylabel('mean discounted return J')
    left.set_title('Return on unseen patients')
    right.set_ylabel("selector's J minus theirs")
    right.set_title('Lead of the selector, paired by seed')
    right.axhline(0.0, color='gray', linewidth=0.8)
    for axes in (left, right):
        axes.set_xlabel('heterogeneity H')
        axes.set_xticks([each['level'] for each in levels])
        axes.legend(fontsize=7, loc='upper center', bbox_to_anchor=(0.5, -0.16), ncols=4)
    seeds = len(summary['seeds'])
    figure.supxlabel(
        f'Means over {seeds} seeds with 95 % intervals. {DISCLAIMER}', fontsize=7, color='dimgray'
    )
    figure.savefig(path, dpi=DOTS)


def draw_operation(
    episode: Episode, chosen: list[str], names: tuple[str, ...], path: Path
) -> None:
    """
    Draw one operation under the selector: state, chosen policy, action and risk over time.

    :param chosen: name of the policy at each tick.
    :param names: of all candidates.
    :raises OSError: if the file cannot be written.
    """
    figure = Figure((10.5, 7.8), layout='constrained')
    FigureCanvasAgg(figure)
    state, vitals, choice, action, risk = figure.subplots(
        5, 1, sharex=True, height_ratios=[1.5, 1.0, 1.2, 1.5, 1.0]
    )
    ticks = np.arange(len(episode.actions))
    time = ticks * TICK
    values = episode.states[:-1] * SCALES
    limit = episode.patient.procedure.force_limit
    height, force = 1e3 * values[:, INDEX['goal_error_z']], values[:, INDEX['force']]
    state.plot(time, height, color='tab:blue', label='height over the waypoint, mm')
    aside = 1e3 * np.hypot(values[:, INDEX['goal_error_x']], values[:, INDEX['goal_error_y']])
    state.plot(time, aside, color='tab:cyan', label='distance aside, mm')
    state.set_ylabel('mm')
    loads = state.twinx()
    loads.plot(time, force, color='tab:red', label='force, N')
    loads.axhline(limit, color='tab:red', linewidth=0.7, linestyle=':', label='force limit')
    loads.set_ylabel('N', color='tab:red')
    lines = [*state.get_lines(), *loads.get_lines()]
    state.legend(lines, [str(each.get_label()) for each in lines], **BESIDE)
    for name, colour in (
        ('mean_arterial_pressure', 'tab:purple'),
        ('heart_rate', 'tab:brown'),
        ('oxygen_saturation', 'tab:olive'),
    ):
        vitals.plot(time, values[:, INDEX[name]], color=colour, label=name.replace('_', ' '))
    vitals.legend(**BESIDE)
    vitals.set_ylabel('mmHg, 1/min, %')
    places = [names.index(each) for each in chosen]
    choice.step(time, places, where='post', color='tab:green')
    choice.set_yticks(range(len(names)), names, fontsize=7)
    choice.set_ylabel('policy')
    _actions(action, time, episode.actions)
    terms = risk_terms(episode.forces, episode.damages, episode.critical, limit)
    risk.plot(time, terms.total, color='tab:red')
    risk.set_ylabel('risk D_t')
    risk.set_ylim(0.0, max(0.25, 1.05 * float(terms.total.max())))
    risk.set_xlabel('time, s')
    _events(episode, (state, vitals, choice, action, risk))
    end = 'success' if episode.success else f'failure: {episode.failure or "time"}'
    figure.suptitle(
        f'{episode.patient.procedure.name}, {episode.patient.name}: {end}', fontsize=10
    )
    figure.supxlabel(DISCLAIMER, fontsize=7, color='dimgray')
    figure.savefig(path, dpi=DOTS)


def _actions(axes: Axes, time: np.ndarray, actions: np.ndarray) -> None:
    """Draw the way of each action, coarse moves larger than fine ones."""
    names = [each.name for each in ACTIONS]
    ways = [WAYS.get(each, each) for each in (name.split(' ', 1)[-1] for name in names)]
    ways[JAW:] = names[JAW:]
    shown = list(dict.fromkeys(ways))
    coarse = np.array([each.startswith('coarse') for each in names])[actions]
    rows = np.array([shown.index(each) for each in ways])[actions]
    for chosen, size, name in ((coarse, 14.0, 'coarse'), (~coarse, 4.0, 'fine, or no move')):
        axes.scatter(time[chosen], rows[chosen], s=size, color='black', linewidth=0, label=name)
    axes.set_yticks(range(len(shown)), shown, fontsize=6)
    axes.set_ylim(len(shown) - 0.5, -0.5)
    axes.set_ylabel('action')
    axes.legend(**BESIDE)


def _events(episode: Episode, rows: tuple[Axes, ...]) -> None:
    """Mark what happened to the patient meanwhile."""
    for event in episode.patient.events:
        if event.start < len(episode.actions) * TICK:
            for axes in rows:
                axes.axvline(event.start, color='gray', linewidth=0.7, linestyle='--')
            rows[0].text(event.start, 1.02, event.kind, fontsize=7, transform=_above(rows[0]))


def _above(axes: Axes) -> Any:
    """Return the transform with time along x and the height of the axes along y."""
    return axes.get_xaxis_transform()
