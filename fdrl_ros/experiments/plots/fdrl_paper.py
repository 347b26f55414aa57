# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""
Figures 3 to 7 of the FDRL paper from our measurements, and learning curves over records.

The paper's own curves are not redrawn, since its text holds no numbers of them; the few numbers it
states are marked by black diamonds.
"""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from fdrl_ros.experiments.intervals import Interval, percent_change
from fdrl_ros.experiments.json_file import Json
from fdrl_ros.experiments.plots.drawing import (
    BLUE,
    draw_curve,
    draw_points,
    drawing,
    ends_of,
    GREEN,
    LIMIT,
    ORANGE,
    PURPLE,
    RED,
    SKY,
    ZERO,
)
from fdrl_ros.experiments.studies.fdrl_paper.settings import FdrlSettings, TEMPERATURE
from fdrl_ros.experiments.studies.fdrl_paper.tables import NAMES
from matplotlib.axes import Axes
from matplotlib.figure import Figure
import numpy as np

FEDERATED, CENTRAL, ALONE, START = BLUE, RED, PURPLE, ORANGE

CLAIMED = {'a_task': 0.0, 'r_mit': 15.2, 'plr': -60.0, 'divergence': -50.0, 'ope': 25.8}
"""Change by federation that the paper states, in percent."""

_SIDES = {'federated': (FEDERATED, 'federated'), 'central': (CENTRAL, 'centralised, 15 epochs')}
_DIAMOND: dict[str, Any] = {'marker': 'D', 'color': 'black', 'linestyle': 'none', 'zorder': 5}


def draw_figures(summary: Json, directory: Path, settings: FdrlSettings) -> dict[str, str]:
    """
    Draw every figure as PNG and SVG.

    :returns: what each shows, by the name of its files.
    :raises OSError: if a file cannot be written.
    """
    every: dict[str, tuple[Callable[[Figure, Json, FdrlSettings], None], float, str]] = {
        'fig3': (
            _rounds,
            3.4,
            'Round by round, means over seeds with 95 % bands: (a) privacy leakage rate of the '
            'released policy, (b) divergence (hospitals from their mean; for the baseline, the '
            f'federated from the centralised policy) at tau = {TEMPERATURE:g}, (c) overall '
            'privacy effectiveness by the true epsilon. The baseline is seen at the same share '
            'of its 15 epochs.',
        ),
        'fig4': (
            _noise,
            3.4,
            'Noise s on the averaged gradient against accuracy (a: one line for each H, dashed: '
            'chance), privacy leakage rate of the released policy (b: a dot for each '
            'H) and epsilon (c: delta 1e-3; squares and triangles: the formula of the '
            'paper, in two readings).',
        ),
        'fig5': (
            _bars,
            3.6,
            'A_task and R_mit of five policies; PLR and OPE of the federated policy and of the '
            "paper's baseline; 95 % intervals over seeds. The paper draws a radar, whose areas "
            'mean nothing.',
        ),
        'fig6': (
            _surface,
            3.6,
            'Accuracy of the federated policy over H and s (a), and what share that is of the '
            'best that any single policy can reach (b). Means over seeds.',
        ),
        'fig7': (
            _changes,
            3.6,
            'Change by federation in percent, with 95 % intervals over seeds; diamonds: what the '
            'paper states. A change without a dot is not measurable: its denominator cannot be '
            'told from 0.',
        ),
        'records': (
            _curves,
            3.6,
            'Accuracy over records of a hospital, with 95 % bands over seeds. Dashed: ceiling of '
            'any single policy. Dotted: the expert of the mean hospital, who saw no patient.',
        ),
    }
    for name, (draw, height, words) in every.items():
        with drawing(
            directory / f'{name}.png', (10.5, height), words, suffixes=('.png', '.svg')
        ) as figure:
            draw(figure, summary, settings)
    return {name: words for name, (_, _, words) in every.items()}


def _rounds(figure: Figure, summary: Json, settings: FdrlSettings) -> None:
    panels = figure.subplots(1, 3)
    found = summary['rounds']
    places = [int(each) for each in found]
    titles = ('(a) PLR, bits', '(b) D_KL, nats', '(c) OPE')
    for axes, name, title in zip(panels, ('plr', 'divergence', 'ope'), titles, strict=True):
        for side, (colour, label) in _SIDES.items():
            draw_curve(axes, places, [each[side][name] for each in found.values()], colour, label)
        axes.set_title(title, fontsize=9)
        axes.set_xlabel('round')
    panels[1].set_yscale('log')
    means = [each[side]['divergence']['mean'] for each in found.values() for side in _SIDES]
    panels[1].set_ylim(min(means) / 3.0, max(means) * 3.0)
    panels[0].legend(fontsize=7)


_EPSILONS = {
    'epsilon': ('o-', FEDERATED, 'accountant'),
    'epsilon_paper': ('s-', ORANGE, "paper's formula, sigma = sigma_m"),
    'epsilon_s': ('^-', PURPLE, "paper's formula, sigma = s"),
}
"""Line, colour and name of each reading of epsilon."""


def _noise(figure: Figure, summary: Json, settings: FdrlSettings) -> None:
    first, second, third = figure.subplots(1, 3)
    noises = [each for each in settings.all_noises if each]
    shades = np.linspace(0.25, 1.0, len(settings.all_levels))
    for shade, level in zip(shades, settings.all_levels, strict=True):
        at = summary['grid'][f'{level:g}']
        rows = [at[f'{each:g}']['worth']['federated']['a_task'] for each in noises]
        draw_points(
            first,
            noises,
            rows,
            100.0,
            color=(0.0, 0.45, 0.7, shade),
            ms=3,
            linewidth=1,
            label=f'H = {level:g}',
        )
    chance = summary['grid'][f'{settings.all_levels[0]:g}'][f'{noises[0]:g}']['worth']['random']
    first.axhline(100.0 * chance['a_task']['mean'], **LIMIT)
    first.set_title('(a) A_task, %', fontsize=9)
    first.set_ylim(0.0, 100.0)
    first.legend(fontsize=6)
    surface = summary['surface']
    for place, row in enumerate(surface['rows']):
        shift = 1.0 + 0.06 * (place - len(surface['rows']) / 2)
        at_noise = np.array(surface['noises']) * shift
        found = [each['plr'] for each in row]
        colour = (0.0, 0.45, 0.7, shades[place])
        draw_points(second, at_noise, found, fmt='o', ms=3, linewidth=1, color=colour)
    second.axhline(0.0, **ZERO)
    second.set_title('(b) PLR, bits', fontsize=9)
    for reading, (line, tint, words) in _EPSILONS.items():
        spent = [each[reading] for each in summary['spent'].values()]
        third.plot(surface['noises'], spent, line, color=tint, label=words)
    third.set_yscale('log')
    third.set_title('(c) epsilon', fontsize=9)
    third.legend(fontsize=6, loc='lower left')
    for axes in (first, second, third):
        axes.set_xscale('log')
        axes.set_xlabel('s')


_POLICIES = {
    'federated': FEDERATED,
    'central_paper': CENTRAL,
    'central_steps': GREEN,
    'central_epsilon': SKY,
    'alone': ALONE,
}


def _bars(figure: Figure, summary: Json, settings: FdrlSettings) -> None:
    panels = figure.subplots(1, 4)
    worth = summary['grid'][f'{settings.heterogeneity:g}'][f'{settings.noise:g}']['worth']
    for axes, name, title in zip(panels, ('a_task', 'r_mit'), ('A_task', 'R_mit'), strict=False):
        for place, (policy, colour) in enumerate(_POLICIES.items()):
            label = NAMES[policy] if name == 'a_task' else None
            found = [worth[policy][name]]
            draw_points(axes, [place], found, fmt='o', color=colour, label=label)
        axes.set_title(title, fontsize=9)
        axes.set_xlim(-0.7, len(_POLICIES) - 0.3)
        axes.set_ylim(0.0, 1.0)
    ceiling, idle = worth['majority']['a_task']['mean'], worth['stabilise']['r_mit']['mean']
    panels[0].axhline(ceiling, label='ceiling of any single policy', **LIMIT)
    panels[1].axhline(idle, **{**LIMIT, 'linestyle': ':'}, label='always stabilise')
    last = list(summary['rounds'].values())[-1]
    for axes, name, title in zip(panels[2:], ('plr', 'ope'), ('PLR, bits', 'OPE'), strict=True):
        for place, (side, (colour, _)) in enumerate(_SIDES.items()):
            draw_points(axes, [place], [last[side][name]], fmt='o', color=colour)
        axes.set_title(title, fontsize=9)
        axes.set_xlim(-0.7, 1.7)
    for axes in panels:
        axes.set_xticks([])
    figure.legend(loc='outside right upper', fontsize=6)


def _surface(figure: Figure, summary: Json, settings: FdrlSettings) -> None:
    panels = figure.subplots(1, 2)
    levels, noises = settings.all_levels, [each for each in settings.all_noises if each]
    for axes, name, title in zip(
        panels, ('a_task', 'share'), ('(a) A_task, %', '(b) % of the ceiling'), strict=True
    ):
        values = np.array(
            [
                [
                    100.0 * summary['grid'][f'{h:g}'][f'{s:g}']['worth']['federated'][name]['mean']
                    for s in noises
                ]
                for h in levels
            ]
        )
        axes.grid(visible=False)
        drawn = axes.imshow(values, origin='lower', aspect='auto', cmap='cividis')
        for (row, column), value in np.ndenumerate(values):
            dark = value < (values.min() + values.max()) / 2
            axes.text(
                column,
                row,
                f'{value:.0f}',
                ha='center',
                va='center',
                fontsize=8,
                color='white' if dark else 'black',
            )
        axes.set_xticks(range(len(noises)), [f'{each:g}' for each in noises])
        axes.set_yticks(range(len(levels)), [f'{each:g}' for each in levels])
        axes.set_xlabel('s')
        axes.set_ylabel('H')
        axes.set_title(title, fontsize=9)
        figure.colorbar(drawn, ax=axes)


def changes(summary: Json, settings: FdrlSettings) -> dict[str, dict[str, Interval | None]]:
    """Return the change by federation in percent, by measure and baseline."""
    at = summary['grid'][f'{settings.heterogeneity:g}'][f'{settings.noise:g}']
    tau = f'{TEMPERATURE:g}'
    regimes = summary['leakage']['regimes']
    found: dict[str, dict[str, Interval | None]] = {}
    for measure in ('a_task', 'r_mit'):
        own = _values(at['worth']['federated'][measure])
        found[measure] = {
            name: percent_change(own, _values(at['worth'][name][measure]))
            for name in ('central_paper', 'central_steps')
        }
    own = _values(at['divergence'][tau]['federated'])
    found['divergence'] = {
        name: percent_change(own, _values(at['divergence'][tau][name]))
        for name in ('central_paper', 'central_steps')
    }
    by_regime = {'central_paper': 'paper', 'central_steps': 'matched'}
    known = {name: regimes[each] for name, each in by_regime.items() if each in regimes}
    found['plr'] = {name: each['plr']['change_percent'] for name, each in known.items()}
    found['ope'] = {
        name: each['effectiveness'][tau]['epsilon']['change_percent']
        for name, each in known.items()
    }
    return found


def _values(found: Interval) -> list[float]:
    return [float(each) for each in found['values'] if each is not None]


_SHOWN = {
    'a_task': 'A_task',
    'r_mit': 'R_mit',
    'plr': 'PLR',
    'divergence': 'D_KL',
    'ope': 'OPE',
}


def _changes(figure: Figure, summary: Json, settings: FdrlSettings) -> None:
    axes: Axes = figure.subplots()
    found = changes(summary, settings)
    labels = {
        'central_paper': "the paper's regime (15 epochs centralised)",
        'central_steps': 'as many steps (PLR and OPE: without noise)',
    }
    for side, (name, words) in enumerate(labels.items()):
        pairs = [(p, found[each].get(name)) for p, each in enumerate(_SHOWN)]
        known = [(place, each) for place, each in pairs if each is not None]
        places = [place + 0.2 * side - 0.1 for place, _ in known]
        colour = (CENTRAL, GREEN)[side]
        draw_points(axes, places, [each for _, each in known], fmt='o', color=colour, label=words)
    axes.plot(range(len(_SHOWN)), [CLAIMED[each] for each in _SHOWN], **_DIAMOND, label='paper')
    axes.axhline(0.0, **ZERO)
    axes.set_yscale('symlog', linthresh=100.0)
    marks = (-200, -100, -50, 0, 50, 100, 200, 500, 1000)
    axes.set_yticks(marks, [f'{each:+d}' if each else '0' for each in marks])
    axes.set_xticks(range(len(_SHOWN)), list(_SHOWN.values()))
    axes.set_ylabel('change by federation, %')
    axes.legend(fontsize=7)


def _curves(figure: Figure, summary: Json, settings: FdrlSettings) -> None:
    panels: Sequence[Axes] = figure.subplots(1, 2, sharey=True)
    found = summary['curves']
    places = [int(each) for each in found]
    shown = {
        'federated': FEDERATED,
        'federated_from_start': START,
        'alone': ALONE,
        'central': CENTRAL,
        'planned': GREEN,
        'planned_alone': SKY,
    }
    titles = {'plain': 'no noise', 'private': 'epsilon 8'}
    for axes, (way, title) in zip(panels, titles.items(), strict=True):
        for name, colour in shown.items():
            rows = [each[way][name]['a_task'] for each in found.values()]
            draw_curve(axes, places, rows, colour, NAMES[name])
        for name, line in (('majority', '--'), ('public_start', ':')):
            means, _ = ends_of([each[way][name]['a_task'] for each in found.values()])
            axes.plot(places, means, line, color='gray')
        axes.set_xscale('log')
        axes.set_xlabel('records of a hospital')
        axes.set_title(title, fontsize=9)
    panels[0].set_ylabel('A_task')
    panels[0].set_ylim(0.0, 1.0)
    panels[1].legend(fontsize=7, loc='lower right', ncols=2)
