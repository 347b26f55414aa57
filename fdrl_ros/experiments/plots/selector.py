# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""Pictures of the selector: what it earns beside others, and single operations over time."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from fdrl_ros.experiments.json_file import Json
from fdrl_ros.experiments.reports.table import DISCLAIMER
from fdrl_ros.experiments.studies.selector.summary import SELECTOR
from fdrl_ros.metrics import risk_terms
from fdrl_ros.selector import HOLD, Reason, Selection
from fdrl_ros.shield.shield import Veto
from fdrl_ros.surgery.gym.actions import ACTIONS, STAY, TICK
from fdrl_ros.surgery.gym.episode import Episode
from fdrl_ros.surgery.gym.state import INDEX, SCALES
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
import numpy as np

DOTS = 130
WAYS = {'+z': 'up', '-z': 'down'}
BESIDE: Json = {'fontsize': 7, 'loc': 'upper left', 'bbox_to_anchor': (1.08, 1.0)}
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

SPREAD = 0.7
"""Of the distance between two H, what the points of one take."""

FAR = 3.0
"""Times the median distance from the selector: who lies farther below is told in words."""

HOLDS = {
    Reason.BEST: 'tab:green',
    Reason.KEPT: 'yellowgreen',
    Reason.CAUTION: 'tab:orange',
    Reason.RISK_GATE: 'tab:red',
    Reason.PROCEDURE: 'tab:purple',
}
"""Colours of the reasons to hold; all others are black."""

VETOES = {
    Veto.HARD_STOP: 'tab:red',
    Veto.FORCE: 'tab:orange',
    Veto.DAMAGE: 'tab:purple',
    Veto.WORKSPACE: 'tab:blue',
}


def draw_returns(summary: Json, path: Path) -> None:
    """
    Draw mean return by H, with 95 % intervals over seeds if there are several, and the lead.

    Who lies as far below as holding mostly does is told in words: drawn, it would press all
    others into one line.

    :param summary: as :func:`fdrl_ros.experiments.studies.selector.summary.summarise` returns it.
    :raises OSError: if the file cannot be written.
    """
    figure = Figure((10.0, 4.2), layout='constrained')
    FigureCanvasAgg(figure)
    left, right = figure.subplots(1, 2)
    levels = summary['levels']
    far = _far_below(levels)
    near = [each for each in zip(ROWS, COLOURS, strict=True) if each[0] not in far]
    for place, (name, colour) in enumerate(near):
        for axes, key in ((left, 'return'), (right, 'lead')):
            if axes is right and name == SELECTOR:
                continue
            at = [each['contenders'][name][key] for each in levels]
            where = np.arange(len(levels)) + SPREAD * ((place + 0.5) / len(near) - 0.5)
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
        axes.set_xticks(range(len(levels)), [f'{each["level"]:g}' for each in levels])
        axes.set_xlim(-0.5, len(levels) - 0.5)
        for border in range(1, len(levels)):
            axes.axvline(border - 0.5, color='gainsboro', linewidth=0.8)
    figure.legend(*left.get_legend_handles_labels(), fontsize=7, loc='outside right center')
    seeds = len(summary['seeds'])
    told = [
        f'Means over {seeds} seeds with 95 % intervals.'
        if seeds > 1
        else 'One seed: no intervals.'
    ]
    if far:
        below = ', '.join(
            f'{name} (J = {", ".join(f"{each:.2f}" for each in means)})'
            for name, means in far.items()
        )
        told.append(f'Far below, not drawn: {below}.')
    figure.supxlabel(' '.join([*told, DISCLAIMER]), fontsize=7, color='dimgray')
    figure.savefig(path, dpi=DOTS)


def _far_below(levels: Sequence[Json]) -> dict[str, list[float]]:
    """Return contenders far below all others, mostly hold, with their mean at each H."""
    leads = {
        name: float(np.mean([each['contenders'][name]['lead']['mean'] for each in levels]))
        for name in ROWS
        if name != SELECTOR
    }
    usual = float(np.median(np.abs(list(leads.values()))))
    return {
        name: [each['contenders'][name]['return']['mean'] for each in levels]
        for name, lead in leads.items()
        if lead > FAR * usual
    }


def draw_operation(
    episode: Episode, selections: Sequence[Selection], names: tuple[str, ...], path: Path
) -> None:
    """
    Draw one operation under the selector: state, chosen policy, action and risk over time.

    Where the robot holds, the colour tells why; what the shield vetoed is crossed out.

    :param selections: one a tick.
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
    for name, unit, colour in (
        ('mean_arterial_pressure', 'mmHg', 'tab:purple'),
        ('heart_rate', '1/min', 'tab:brown'),
        ('oxygen_saturation', '%', 'tab:olive'),
    ):
        label = f'{name.replace("_", " ")}, {unit}'
        vitals.plot(time, values[:, INDEX[name]], color=colour, label=label)
    vitals.legend(**BESIDE)
    vitals.set_ylabel('vital signs')
    _choices(choice, time, selections, names)
    _actions(action, time, episode.actions, selections)
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
    figure.align_ylabels([state, vitals, choice, action, risk])
    figure.savefig(path, dpi=DOTS)


def _choices(
    axes: Axes, time: np.ndarray, selections: Sequence[Selection], names: tuple[str, ...]
) -> None:
    """Draw which policy acts, and why none does."""
    places = [names.index(each.policy) for each in selections]
    axes.step(time, places, where='post', color='silver', zorder=1)
    reasons = [each.reason if each.holds else None for each in selections]
    acting = [each is None for each in reasons]
    axes.scatter(time[acting], np.array(places)[acting], s=8.0, color='tab:green', label='policy')
    for reason in dict.fromkeys(each for each in reasons if each is not None):
        at = time[[each == reason for each in reasons]]
        colour = HOLDS.get(reason, 'black')
        rows = np.full(len(at), names.index(HOLD))
        axes.scatter(at, rows, s=12.0, color=colour, label=f'hold: {reason}')
    axes.set_yticks(range(len(names)), names, fontsize=7)
    axes.set_ylim(-0.5, len(names) - 0.5)
    axes.set_ylabel('policy')
    axes.legend(**BESIDE)


def _actions(
    axes: Axes, time: np.ndarray, actions: np.ndarray, selections: Sequence[Selection]
) -> None:
    """Draw the way of each action, coarse moves larger than fine ones, and vetoed ones."""
    names = [each.name for each in ACTIONS]
    ways = [WAYS.get(each, each) for each in (name.split(' ', 1)[-1] for name in names)]
    ways[JAW:] = names[JAW:]
    shown = list(dict.fromkeys(ways))
    coarse = np.array([each.startswith('coarse') for each in names])[actions]
    row_of = np.array([shown.index(each) for each in ways])
    rows = row_of[actions]
    for chosen, size, name in ((coarse, 14.0, 'coarse'), (~coarse, 4.0, 'fine, or no move')):
        axes.scatter(time[chosen], rows[chosen], s=size, color='black', linewidth=0, label=name)
    asked = row_of[[each.proposed for each in selections]]
    vetoes = [each.veto for each in selections]
    for veto, colour in VETOES.items():
        struck = np.array([each == veto for each in vetoes])
        if struck.any():
            label = f'vetoed: {veto}'
            at, where = time[struck], asked[struck]
            axes.scatter(at, where, s=34.0, marker='x', color=colour, zorder=0.5, label=label)
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
