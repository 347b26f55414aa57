# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""Pictures of the selector: what it earns beside others, and single operations over time."""

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from fdrl_ros.experiments.json_file import Json
from fdrl_ros.experiments.plots.drawing import (
    BLACK,
    BLUE,
    draw_points,
    drawing,
    GREEN,
    LIMIT,
    NEUTRAL,
    ORANGE,
    PURPLE,
    RED,
    SKY,
    style_of,
    ZERO,
)
from fdrl_ros.experiments.reports.names import reader_name
from fdrl_ros.experiments.studies.selector.summary import SELECTOR
from fdrl_ros.metrics.risk import risk_terms
from fdrl_ros.selector import HOLD, Reason, Selection
from fdrl_ros.shield.shield import Veto
from fdrl_ros.surgery.gym.actions import ACTIONS, STAY, TICK
from fdrl_ros.surgery.gym.episode import Episode
from fdrl_ros.surgery.gym.state import INDEX, SCALES
from matplotlib.axes import Axes
from matplotlib.figure import Figure, SubFigure
import numpy as np
from numpy.typing import NDArray

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

_PICTURES = 6  # of the arm, at most

SPREAD = 0.7
"""Of the distance between two H, what the points of one take."""

FAR = 3.0
"""Times the median distance from the selector: who lies farther below is told in words."""

Floats = NDArray[np.floating]

HOLDS = {
    Reason.BEST: GREEN,
    Reason.KEPT: SKY,
    Reason.CAUTION: ORANGE,
    Reason.RISK_GATE: RED,
    Reason.PROCEDURE: PURPLE,
}
"""Colours of the reasons to hold; all others are black."""

VETOES = {
    Veto.HARD_STOP: RED,
    Veto.FORCE: ORANGE,
    Veto.DAMAGE: PURPLE,
    Veto.WORKSPACE: BLUE,
}


VITAL_SIGNS = {
    'mean_arterial_pressure': ('mean arterial pressure, mmHg', PURPLE),
    'heart_rate': ('heart rate, 1/min', ORANGE),
    'oxygen_saturation': ('oxygen saturation, %', BLUE),
}
"""Label and colour of each."""


def draw_returns(summary: Json, path: Path) -> None:
    """
    Draw mean return by H, with 95 % intervals over seeds if there are several, and the lead.

    Who lies as far below as holding mostly does is told in words: drawn, it would press all
    others into one line.

    :param summary: as :func:`fdrl_ros.experiments.studies.selector.summary.summarise` returns it.
    :raises OSError: if the file cannot be written.
    """
    levels, seeds = summary['levels'], len(summary['seeds'])
    far = _far_below(levels)
    words = f'Means over {seeds} seeds with 95 % intervals.'
    if seeds == 1:
        words = 'One seed: no intervals.'
    if far:
        below = ', '.join(f'{reader_name(name)} (J = {means})' for name, means in far.items())
        words += f' Far below, not drawn: {below}.'
    near = [name for name in ROWS if name not in far]
    with drawing(path, (10.0, 4.2), words) as figure:
        left, right = figure.subplots(1, 2)
        for axes, key in ((left, 'return'), (right, 'lead')):
            for place, name in enumerate(near):
                if axes is left or name != SELECTOR:
                    where = np.arange(len(levels)) + SPREAD * ((place + 0.5) / len(near) - 0.5)
                    found = [each['contenders'][name][key] for each in levels]
                    style: Json = {'fmt': '', 'linestyle': 'none', **style_of(name)}
                    draw_points(axes, where, found, label=reader_name(name), **style)
            axes.set_xlabel('heterogeneity H')
            axes.set_xticks(range(len(levels)), [f'{each["level"]:g}' for each in levels])
            axes.set_xlim(-0.5, len(levels) - 0.5)
            for border in range(1, len(levels)):
                axes.axvline(border - 0.5, color='gainsboro', linewidth=0.8)
        left.set_ylabel('mean discounted return J')
        left.set_title('Return on unseen patients')
        right.set_ylabel("selector's J minus theirs")
        right.set_title('Lead of the selector, paired by seed')
        right.axhline(0.0, **ZERO)
        figure.legend(*left.get_legend_handles_labels(), loc='outside right center')


def _far_below(levels: Sequence[Json]) -> dict[str, str]:
    """Return contenders far below all others, mostly hold, with their mean at each H."""
    leads = {
        name: float(np.mean([each['contenders'][name]['lead']['mean'] for each in levels]))
        for name in ROWS
        if name != SELECTOR
    }
    usual = float(np.median(np.abs(list(leads.values()))))
    return {
        name: ', '.join(f'{each["contenders"][name]["return"]["mean"]:.2f}' for each in levels)
        for name, lead in leads.items()
        if lead > FAR * usual
    }


def draw_operation(
    episode: Episode,
    selections: Sequence[Selection],
    names: tuple[str, ...],
    path: Path,
    seen: Sequence[tuple[float, NDArray[np.uint8]]] = (),
) -> None:
    """
    Draw one operation under the selector: state, chosen policy, action and risk over time.

    Where the robot holds, the colour tells why; what the shield vetoed is crossed out.

    :param selections: one a tick.
    :param names: of all candidates.
    :param seen: pictures of the arm with their times, seconds; some are shown above the rest.
    :raises OSError: if the file cannot be written.
    """
    with drawing(path, (10.5, 9.6 if seen else 7.8)) as whole:
        figure: Figure | SubFigure = whole
        if seen:
            parts: Any = whole.subfigures(2, 1, height_ratios=[1.7, 7.8])
            _draw_arm(parts[0], seen)
            figure = parts[1]
        heights = [1.5, 1.0, 1.2, 1.5, 1.0]
        rows = figure.subplots(5, 1, sharex=True, height_ratios=heights)
        time = np.arange(len(episode.actions)) * TICK
        values, patient = episode.states[:-1] * SCALES, episode.patient
        limit = patient.procedure.force_limit
        _draw_state(rows[0], time, values, limit)
        for name, (label, colour) in VITAL_SIGNS.items():
            rows[1].plot(time, values[:, INDEX[name]], color=colour, label=label)
        rows[1].set_ylabel('vital signs')
        rows[1].legend(**BESIDE)
        _draw_choices(rows[2], time, selections, names)
        _draw_actions(rows[3], time, episode.actions, selections)
        risk = risk_terms(episode.forces, episode.damages, episode.critical, limit).total
        rows[4].plot(time, risk, color=RED)
        rows[4].set_ylabel('risk D_t')
        rows[4].set_ylim(0.0, max(0.25, 1.05 * float(risk.max())))
        rows[4].set_xlabel('time, s')
        for event in patient.events:
            if event.start < len(episode.actions) * TICK:
                for axes in rows:
                    axes.axvline(event.start, color=NEUTRAL, linewidth=0.7, linestyle=':')
                above = rows[0].get_xaxis_transform()
                rows[0].text(event.start, 1.02, event.kind, fontsize=7, transform=above)
        end = 'success' if episode.success else f'failure: {episode.failure or "time"}'
        title = f'{reader_name(patient.procedure.name)}, {patient.name}: {reader_name(end)}'
        whole.suptitle(title, fontsize=10)
        figure.align_ylabels(rows)


def _draw_arm(figure: SubFigure, seen: Sequence[tuple[float, NDArray[np.uint8]]]) -> None:
    """Show pictures of the arm that are spread over the operation."""
    places = np.unique(np.linspace(0, len(seen) - 1, _PICTURES).round().astype(int))
    panels = figure.subplots(1, len(places), squeeze=False)[0]
    for axes, (time, image) in zip(panels, (seen[place] for place in places), strict=True):
        axes.imshow(image)
        axes.set_title(f'{time:.1f} s', fontsize=8)
        axes.set_axis_off()


def _draw_state(axes: Axes, time: Floats, values: Floats, limit: float) -> None:
    """Draw where the tip is, and beside it the force with its limit."""
    x, y, z = (1e3 * values[:, INDEX[f'goal_error_{axis}']] for axis in 'xyz')
    axes.plot(time, z, color=BLUE, label='height over the waypoint, mm')
    axes.plot(time, np.hypot(x, y), color=SKY, label='distance aside, mm')
    axes.set_ylabel('mm')
    loads = axes.twinx()
    loads.plot(time, values[:, INDEX['force']], color=RED, label='force, N')
    loads.axhline(limit, label='force limit, N', **LIMIT)
    loads.set_ylabel('N', color=RED)
    lines = [*axes.get_lines(), *loads.get_lines()]
    axes.legend(lines, [str(each.get_label()) for each in lines], **BESIDE)


def _draw_choices(
    axes: Axes, time: Floats, selections: Sequence[Selection], names: tuple[str, ...]
) -> None:
    """Draw which policy acts, and why none does."""
    places = np.array([names.index(each.policy) for each in selections])
    axes.step(time, places, where='post', color='silver', zorder=1)
    reasons = [each.reason if each.holds else None for each in selections]
    acting = np.array([each is None for each in reasons])
    colours = np.array([style_of(each.policy)['color'] for each in selections])[acting]
    axes.scatter(time[acting], places[acting], s=8.0, color=colours, label='policy')
    for reason in dict.fromkeys(each for each in reasons if each is not None):
        at = time[[each == reason for each in reasons]]
        style: Json = {'color': HOLDS.get(reason, BLACK), 'label': f'hold: {reason}'}
        axes.scatter(at, np.full(len(at), names.index(HOLD)), s=12.0, **style)
    _name_rows(axes, map(reader_name, names), 'policy')
    axes.set_ylim(-0.5, len(names) - 0.5)


def _draw_actions(
    axes: Axes, time: Floats, actions: NDArray[np.int64], selections: Sequence[Selection]
) -> None:
    """Draw the way of each action, coarse moves larger than fine ones, and vetoed ones."""
    names = [each.name for each in ACTIONS]
    ways = [WAYS.get(each, each) for each in (name.split(' ', 1)[-1] for name in names)]
    ways[JAW:] = names[JAW:]
    shown = list(dict.fromkeys(ways))
    coarse = np.array([each.startswith('coarse') for each in names])[actions]
    row_of = np.array([shown.index(each) for each in ways])
    for chosen, size, name in ((coarse, 14.0, 'coarse'), (~coarse, 4.0, 'fine, or no move')):
        rows = row_of[actions][chosen]
        axes.scatter(time[chosen], rows, s=size, color='black', linewidth=0, label=name)
    asked = row_of[[each.proposed for each in selections]]
    for veto, colour in VETOES.items():
        struck = np.array([each.veto == veto for each in selections])
        if struck.any():
            style: Json = {'marker': 'x', 'color': colour, 'label': f'vetoed: {veto}'}
            axes.scatter(time[struck], asked[struck], s=34.0, zorder=0.5, **style)
    _name_rows(axes, shown, 'action')
    axes.set_ylim(len(shown) - 0.5, -0.5)


def _name_rows(axes: Axes, names: Iterable[str], label: str) -> None:
    names = list(names)
    axes.set_yticks(range(len(names)), names, fontsize=6)
    axes.set_ylabel(label)
    axes.legend(**BESIDE)
