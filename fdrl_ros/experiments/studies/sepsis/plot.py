# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""Plots of the sepsis experiments: FAE, mortality, actions, and the best plan on the data."""

from collections.abc import Callable
from pathlib import Path
import textwrap

from fdrl_ros.experiments.json_file import Json
from fdrl_ros.experiments.plots.drawing import (
    BLACK,
    BLUE,
    draw_points,
    drawing,
    ends_of,
    LIMIT,
    ORANGE,
    RED,
    ZERO,
)
from fdrl_ros.experiments.studies.sepsis.settings import EPSILONS, REPLAYS, Start
from fdrl_ros.experiments.studies.sepsis.summary import CURVES, spread
from fdrl_ros.experiments.studies.sepsis.tables import (
    epsilon_words,
    levels_of,
    not_reached,
    row_at,
)
from fdrl_ros.worlds.icu_sepsis.model import LEVELS
from fdrl_ros.worlds.icu_sepsis.values import BANDS
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle
import numpy as np

COLOURS = dict(zip(REPLAYS, (BLUE, ORANGE, RED), strict=True))

_TOLD = 0.5
"""Percent above which the spread of a share is written."""


def draw_sepsis(summary: Json, directory: Path) -> list[str]:
    """
    Draw every plot of a summary.

    :param directory: of the files, each plot as PNG and SVG.
    :returns: names of the PNG files.
    :raises OSError: if one cannot be written.
    """
    runs, moderate = (
        max((each['runs'] for each in found['arms']), default=0)
        for found in (summary, summary['moderate'])
    )
    counts = {'fae_moderate': f'{moderate} runs', 'overall': f'{runs} runs'}
    promise = f'epsilon per {summary["unit"]}, delta {summary["delta"]:g}'
    plots = {
        'fae': (draw_fae, (2.9 * len(levels_of(summary)), 4.1)),
        'learning': (draw_learning, (6.5, 4.4)),
        'mortality': (draw_mortality, (13.0, 4.4)),
        'actions': (draw_actions, (9.6, 3.1 * len(summary['heat_maps']))),
    }
    if summary['moderate']['arms']:
        width = 2.9 * len(levels_of(summary['moderate']))
        plots['fae_moderate'] = (draw_fae_of_moderate, (width, 4.1))
    if summary['overall']:
        pairs = len(summary['overall']['distance']['values'])
        counts['overall'] += f', differences over {pairs} pairs'
        plots['overall'] = (draw_overall, (9.6, 8.2))
    if any(each['kind'] == 'plan' for each in summary['targets']):
        plots['information'] = (draw_information, (6.5, 4.4))
    for name, (draw, size) in plots.items():
        words = f'ICU-Sepsis, {counts.get(name, f"{runs} runs")}; {promise}.'
        path = directory / f'sepsis_{name}.png'
        with drawing(path, size, f'{CURVES[name]}\n{words}', ('.png', '.svg')) as figure:
            draw(figure, summary)
    return [f'sepsis_{name}.png' for name in plots]


def draw_fae(figure: Figure, summary: Json) -> None:
    """Draw FAE against epsilon, for each survival that is waited for."""
    levels, missed = levels_of(summary), not_reached(summary)
    panels = figure.subplots(1, len(levels), sharey=True, squeeze=False)[0]
    longest = max(max(row['patients']) for row in summary['arms'])
    for axes, phi in zip(panels, levels, strict=True):
        for shift, (replay, words) in zip((-0.15, 0.0, 0.15), REPLAYS.items(), strict=True):
            rows = [each for each in summary['arms'] if each['replay'] == replay]
            if not rows:
                continue
            waits = [row_at(each, phi, summary) for each in rows]
            quartiles = [(each['median'], *each['quartiles']) for each in waits]
            found = np.nan_to_num(np.array(quartiles, np.float64), nan=1.1 * longest)
            middle, low, high = found.T
            places = np.array([_place(each['epsilon']) for each in rows]) + shift
            ends = np.abs([middle - low, high - middle])
            axes.errorbar(places, middle, ends, fmt='o-', color=COLOURS[replay], label=words)
        axes.axhline(longest, **LIMIT)
        axes.set_ylim(0.0, 1.18 * longest)
        axes.text(-0.3, 1.13 * longest, 'not reached', fontsize=7, color='dimgray')
        if phi in missed:
            style: Json = {'ha': 'center', 'transform': axes.transAxes}
            axes.text(0.5, 0.5, textwrap.fill(missed[phi], 34), fontsize=8, **style)
        _epsilon_axis(axes)
        axes.set_title(f'survival {phi:g}')
    panels[0].set_ylabel('FAE in patients, median and quartiles')
    panels[0].legend(fontsize=7)


def draw_fae_of_moderate(figure: Figure, summary: Json) -> None:
    """Draw FAE of patients of moderate SOFA, as the paper's Figure 5."""
    draw_fae(figure, summary['moderate'])


def draw_learning(figure: Figure, summary: Json) -> None:
    """Draw how survival grows with patients."""
    axes = figure.subplots()
    for row in _without_per(summary):
        axes.plot(row['patients'], row['curve'], label=f'epsilon {epsilon_words(row["epsilon"])}')
    axes.set_xlabel('patients treated')
    axes.set_ylabel('exact survival, mean over runs')
    axes.set_title('Learning without PER, from a public start')
    axes.legend(fontsize=7)


def draw_mortality(figure: Figure, summary: Json) -> None:
    """Draw estimated mortality against epsilon, by SOFA band at epsilon 8, and its change."""
    left, middle, right = figure.subplots(1, 3)
    for replay, words in REPLAYS.items():
        rows = [each for each in summary['arms'] if each['replay'] == replay]
        if rows:
            where = [_place(each['epsilon']) for each in rows]
            found = [each['mortality'] for each in rows]
            draw_points(left, where, found, 100.0, color=COLOURS[replay], label=words)
    _draw_references(left, summary, lambda survival: 100.0 * (1.0 - survival))
    _epsilon_axis(left)
    left.set_title('Mortality against epsilon')
    bars = {
        'DQN' if row['epsilon'] is None else 'DP-DQN, epsilon 8': row['mortality_by_band']
        for row in _without_per(summary)
        if row['epsilon'] in (None, 8.0)
    }
    clinicians = summary['references']['clinicians']['by_band']
    bars['clinicians'] = {
        band: {'mean': 1.0 - clinicians[band], 'low': None, 'high': None} for band in BANDS
    }
    places = np.arange(len(BANDS))
    width = 0.8 / len(bars)
    for number, (name, by_band) in enumerate(bars.items()):
        means, ends = ends_of([by_band[band] for band in BANDS])
        ends = None if ends is None else 100.0 * ends
        middle.bar(places + width * number, 100.0 * means, width, yerr=ends, label=name)
    middle.set_title('Mortality by severity')
    right.axhline(0.0, **ZERO)
    if summary['bands']:
        found = [summary['bands'][band] for band in BANDS]
        draw_points(right, places - 0.08, found, fmt='o', capsize=3, label='here')
    paper = [summary['paper']['bands'][band] for band in BANDS]
    right.plot(places + 0.08, paper, 'D', color=BLACK, label='paper, Figure 6 (no spread told)')
    right.set_xlim(-0.5, len(BANDS) - 0.5)
    right.set_title('Epsilon 8 minus no privacy')
    for axes, shift in ((middle, width), (right, 0.0)):
        axes.set_xticks(places + shift, [f'{band} SOFA' for band in BANDS])
    for axes in (left, middle, right):
        axes.set_ylabel('points of mortality' if axes is right else 'estimated mortality, %')
        axes.legend(fontsize=7)


def draw_information(figure: Figure, summary: Json) -> None:
    """Draw how far the best plan gets from so many of the clinicians' patients."""
    axes = figure.subplots()
    rows = [each for each in summary['targets'] if each['kind'] == 'plan']
    rows.sort(key=lambda each: each['patients'])
    names = [Start(**each['public']).name for each in rows]
    for name in dict.fromkeys(names):
        own = [each for each, its in zip(rows, names, strict=True) if its == name]
        counts = [each['patients'] for each in own]
        draw_points(
            axes, counts, [each['final'] for each in own], 100.0, label=f'planning, {name}'
        )
    _draw_references(axes, summary, lambda survival: 100.0 * survival)
    axes.set_xscale('log')
    axes.set_xlabel("clinicians' patients")
    axes.set_ylabel('exact survival, %')
    axes.set_title('What the data can tell at all, without privacy')
    axes.legend(fontsize=7)


def draw_actions(figure: Figure, summary: Json) -> None:
    """Draw policies down, bands across; a red frame where the paper has most actions."""
    maps = summary['heat_maps']
    grid = figure.subplots(len(maps), len(BANDS), squeeze=False)
    for line, (name, bands) in zip(grid, maps.items(), strict=True):
        for axes, band in zip(line, BANDS, strict=True):
            _draw_map(axes, bands[band]['shares'])
            peak = summary['paper']['peaks'].get(name, {}).get(band)
            if peak:
                place = (peak[0] - 0.5, peak[1] - 0.5)
                axes.add_patch(Rectangle(place, 1, 1, fill=False, edgecolor='red', linewidth=1.8))
            runs = '' if bands[band]['shares']['low'] is None else ', % ± 95 % interval'
            axes.set_title(f'{name}: {band} SOFA{runs}', fontsize=8)
            axes.set_xlabel('vasopressor level', fontsize=8)
            axes.set_ylabel('fluid level', fontsize=8)


def draw_overall(figure: Figure, summary: Json) -> None:
    """Draw the actions of DQN and DP-DQN over all patients (Figure 3), and how they differ."""
    maps, found = summary['heat_maps'], summary['overall']
    (first, second), (third, fourth) = figure.subplots(2, 2)
    several = found['distance']['low'] is not None
    for axes, name in ((first, 'DQN'), (second, 'DP-DQN, epsilon 8')):
        _draw_map(axes, maps[name]['all']['shares'])
        axes.set_title(f'{name}: share of steps, %{" ± 95 % interval" if several else ""}')
    means = 100.0 * np.array(found['difference']['mean'])
    most = max(np.abs(means).max(), 1e-9)
    grid = means.reshape(LEVELS, LEVELS)
    third.grid(visible=False)
    third.imshow(grid, cmap='RdBu_r', origin='lower', vmin=-most, vmax=most)
    for action, change in enumerate(means):
        words, sure = f'{change:+z.1f}', False
        if several:
            low, high = (100.0 * found['difference'][end][action] for end in ('low', 'high'))
            words, sure = f'{words}\n±{max(change - low, high - change):.1f}', low * high > 0.0
        fluid, vasopressor = divmod(action, LEVELS)
        style: Json = {'ha': 'center', 'va': 'center', 'fontsize': 6.5}
        ink = 'white' if abs(change) > 0.7 * most else 'black'
        style |= {'color': ink, 'weight': 'bold' if sure else 'normal'}
        third.text(vasopressor, fluid, words, **style)
    title = 'DP-DQN minus DQN, points' + ('; bold: beyond chance' if several else '')
    third.set_title(title)
    for axes in (first, second, third):
        axes.set_xlabel('vasopressor level (0: none)')
        axes.set_ylabel('fluid level (0: none)')
    width = 0.8 / len(maps)
    for number, (name, bands) in enumerate(maps.items()):
        levels = bands['all']['vasopressor']
        shares, ends = 100.0 * np.array(levels['mean']), spread(levels)
        error = None if ends is None else 100.0 * ends
        fourth.bar(np.arange(LEVELS) + width * (number - 1), shares, width, yerr=error, label=name)
    fourth.set_xlabel('vasopressor level (0: none)')
    fourth.set_ylabel('share of steps, %')
    fourth.set_title('Vasopressors, whatever the fluid')
    fourth.legend(fontsize=7)
    for axes in (first, second, third, fourth):
        axes.title.set_size(9)


def _draw_map(axes: Axes, found: Json) -> None:
    shares, half_widths = 100.0 * np.array(found['mean']), spread(found)
    axes.grid(visible=False)
    axes.imshow(shares.reshape(LEVELS, LEVELS), cmap='Blues', origin='lower', vmin=0.0)
    for action, share in enumerate(shares):
        fluid, vasopressor = divmod(action, LEVELS)
        words = f'{share:.0f}'
        if half_widths is not None and 100.0 * half_widths[action] >= _TOLD:
            words += f'\n±{100.0 * half_widths[action]:.0f}'
        ink = 'white' if share > 0.6 * shares.max() else 'black'
        axes.text(vasopressor, fluid, words, ha='center', va='center', color=ink, fontsize=6.5)


def _draw_references(axes: Axes, summary: Json, scaled: Callable[[float], float]) -> None:
    """Draw the survival of clinicians and of the optimum as lines."""
    for name, style in (('clinicians', '--'), ('optimum', ':')):
        value = scaled(summary['references'][name]['survival'])
        axes.axhline(value, color='gray', linestyle=style, linewidth=0.9, label=name)


def _without_per(summary: Json) -> list[Json]:
    return [each for each in summary['arms'] if each['replay'] == 'poisson']


def _place(epsilon: float | None) -> int:
    return EPSILONS.index(float('inf') if epsilon is None else epsilon)


def _epsilon_axis(axes: Axes) -> None:
    axes.set_xticks(range(len(EPSILONS)), [epsilon_words(each) for each in EPSILONS])
    axes.set_xlabel("epsilon (the paper's PER: of its noise)", fontsize=8)
