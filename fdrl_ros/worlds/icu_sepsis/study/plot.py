# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""Plots of the sepsis experiments: FAE, mortality, actions, and the best plan on the data."""

from pathlib import Path
import textwrap

from fdrl_ros.experiments.json_file import Json
from fdrl_ros.experiments.reports.table import DISCLAIMER
from fdrl_ros.worlds.icu_sepsis.model import LEVELS
from fdrl_ros.worlds.icu_sepsis.study.settings import EPSILONS, REPLAYS
from fdrl_ros.worlds.icu_sepsis.study.summary import CURVES, spread
from fdrl_ros.worlds.icu_sepsis.study.tables import start_words
from fdrl_ros.worlds.icu_sepsis.study.verdicts import levels_of, not_reached, row_at
from fdrl_ros.worlds.icu_sepsis.values import BANDS
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle
import numpy as np

DOTS = 120
COLOURS = {'poisson': 'tab:blue', 'prioritised_poisson': 'tab:orange', 'prioritised': 'tab:red'}


def draw_sepsis(summary: Json, directory: Path) -> list[str]:
    """
    Draw every plot of a summary.

    :param directory: of the PNG files.
    :returns: their names.
    :raises OSError: if one cannot be written.
    """
    drawn = {
        'sepsis_fae.png': draw_fae,
        'sepsis_learning.png': draw_learning,
        'sepsis_mortality.png': draw_mortality,
        'sepsis_actions.png': draw_actions,
    }
    if any(each['kind'] == 'plan' for each in summary['targets']):
        drawn['sepsis_information.png'] = draw_information
    for name, draw in drawn.items():
        figure = Figure(layout='constrained')
        FigureCanvasAgg(figure)
        draw(figure, summary)
        _sign(figure, summary, CURVES[Path(name).stem.removeprefix('sepsis_')])
        figure.savefig(directory / name, dpi=DOTS)
    return list(drawn)


def draw_fae(figure: Figure, summary: Json) -> None:
    """Draw FAE against epsilon, for each survival that is waited for."""
    levels, nobody = levels_of(summary), not_reached(summary)
    figure.set_size_inches(2.9 * len(levels), 4.1)
    panels = figure.subplots(1, len(levels), sharey=True, squeeze=False)[0]
    longest = max(max(row['patients']) for row in summary['arms'])
    beyond = 1.1 * longest
    for axes, phi in zip(panels, levels, strict=True):
        for shift, (replay, words) in zip((-0.15, 0.0, 0.15), REPLAYS.items(), strict=True):
            rows = [each for each in summary['arms'] if each['replay'] == replay]
            if not rows:
                continue
            found = [row_at(each, phi, summary) for each in rows]
            spots = np.array([_place(each['epsilon']) for each in rows]) + shift
            middle = np.array([_or(each['median'], beyond) for each in found])
            ends = np.array([[_or(q, beyond) for q in each['quartiles']] for each in found])
            spread = np.abs(ends - middle[:, None]).T
            axes.errorbar(spots, middle, spread, fmt='o-', color=COLOURS[replay], label=words)
        axes.axhline(longest, color='gray', linewidth=0.8, linestyle=':')
        axes.set_ylim(0.0, 1.18 * longest)
        axes.text(-0.3, 1.13 * longest, 'not reached', fontsize=7, color='dimgray')
        if phi in nobody:
            words = textwrap.fill(nobody[phi], 30)
            axes.text(0.5, 0.5, words, ha='center', fontsize=8, transform=axes.transAxes)
        _epsilon_axis(axes)
        axes.set_title(f'survival {phi:g}')
    panels[0].set_ylabel('FAE in patients, median and quartiles')
    panels[0].legend(fontsize=7)


def draw_learning(figure: Figure, summary: Json) -> None:
    """Draw how survival grows with patients."""
    figure.set_size_inches(6.5, 4.4)
    axes = figure.subplots()
    for row in summary['arms']:
        if row['replay'] == 'poisson':
            axes.plot(row['patients'], row['curve'], label=f'epsilon {_named(row["epsilon"])}')
    axes.set_xlabel('patients treated')
    axes.set_ylabel('exact survival, mean over runs')
    axes.set_title('Learning without PER, from a public start')
    axes.legend(fontsize=7)


def draw_mortality(figure: Figure, summary: Json) -> None:
    """Draw estimated mortality against epsilon, and by SOFA band at epsilon 8."""
    figure.set_size_inches(13.0, 4.4)
    left, right, change = figure.subplots(1, 3)
    for replay, words in REPLAYS.items():
        rows = [each for each in summary['arms'] if each['replay'] == replay]
        if not rows:
            continue
        means, errors = _bars([each['mortality'] for each in rows])
        places = [_place(each['epsilon']) for each in rows]
        left.errorbar(places, means, errors, fmt='o-', color=COLOURS[replay], label=words)
    for name, style in (('clinicians', '--'), ('optimum', ':')):
        value = 100.0 * (1.0 - summary['references'][name]['survival'])
        left.axhline(value, color='gray', linestyle=style, linewidth=0.9, label=name)
    _epsilon_axis(left)
    left.set_ylabel('estimated mortality, %')
    left.set_title('Mortality against epsilon')
    left.legend(fontsize=7)
    chosen = [
        each
        for each in summary['arms']
        if each['replay'] == 'poisson' and each['epsilon'] in (None, 8.0)
    ]
    spots = np.arange(len(BANDS), dtype=np.float64)
    width = 0.8 / (1 + len(chosen))
    for number, row in enumerate(chosen):
        means, errors = _bars([row['mortality_by_band'][band] for band in BANDS])
        name = 'DQN' if row['epsilon'] is None else 'DP-DQN, epsilon 8'
        right.bar(spots + width * number, means, width, yerr=errors, label=name)
    doctors = summary['references']['clinicians']['by_band']
    values = [100.0 * (1.0 - doctors[band]) for band in BANDS]
    right.bar(spots + width * len(chosen), values, width, label='clinicians', color='gray')
    right.set_xticks(spots + width, [f'{band} SOFA' for band in BANDS])
    right.set_ylabel('estimated mortality, %')
    right.set_title('Mortality by severity')
    right.legend(fontsize=7)
    _draw_changes(change, summary)


def _draw_changes(axes: Axes, summary: Json) -> None:
    """Draw what epsilon 8 costs by SOFA band, beside the paper's numbers."""
    spots = np.arange(len(BANDS), dtype=np.float64)
    axes.axhline(0.0, color='gray', linewidth=0.8)
    if summary['bands']:
        own = [summary['bands'][band] for band in BANDS]
        means, errors = _bars(own, 1.0)
        axes.errorbar(spots - 0.08, means, errors, fmt='o', capsize=3, label='here')
    paper = [summary['paper']['bands'][band] for band in BANDS]
    axes.plot(spots + 0.08, paper, 'D', color='tab:red', label='paper, Figure 6 (no spread told)')
    axes.set_xticks(spots, [f'{band} SOFA' for band in BANDS])
    axes.set_xlim(-0.5, len(BANDS) - 0.5)
    axes.set_ylabel('points of mortality')
    axes.set_title('Epsilon 8 minus no privacy')
    axes.legend(fontsize=7)


def draw_information(figure: Figure, summary: Json) -> None:
    """Draw how far the best plan gets from so many of the clinicians' patients."""
    figure.set_size_inches(6.5, 4.4)
    axes = figure.subplots()
    rows = [each for each in summary['targets'] if each['kind'] == 'plan']
    for name in dict.fromkeys(start_words(each) for each in rows):
        own = sorted(
            (each for each in rows if start_words(each) == name), key=lambda e: e['patients']
        )
        means, errors = _bars([each['final'] for each in own])
        counts = [each['patients'] for each in own]
        axes.errorbar(counts, means, errors, fmt='o-', label=f'planning, {name}')
    for name, style in (('clinicians', '--'), ('optimum', ':')):
        value = 100.0 * summary['references'][name]['survival']
        axes.axhline(value, color='gray', linestyle=style, linewidth=0.9, label=name)
    axes.set_xscale('log')
    axes.set_xlabel("clinicians' patients")
    axes.set_ylabel('exact survival, %')
    axes.set_title('What the data can tell at all, without privacy')
    axes.legend(fontsize=7)


def _bars(found: list[Json], factor: float = 100.0) -> tuple[np.ndarray, np.ndarray]:
    """Return means and half widths, in percent; one run has no width."""
    means = np.array([factor * each['mean'] for each in found])
    high = np.array([factor * _or(each['high'], each['mean']) for each in found])
    return means, high - means


def _place(epsilon: float | None) -> float:
    return list(EPSILONS).index(float('inf') if epsilon is None else epsilon)


def _epsilon_axis(axes: Axes) -> None:
    axes.set_xticks(range(len(EPSILONS)), [_named(each) for each in EPSILONS])
    axes.set_xlabel("epsilon (the paper's PER: of its noise)", fontsize=8)


def _named(epsilon: float | None) -> str:
    return 'inf' if epsilon is None else f'{epsilon:g}'


def _or(value: float | None, other: float) -> float:
    return other if value is None else value


def _sign(figure: Figure, summary: Json, paper: str) -> None:
    """Write below a plot what the paper shows and how many runs there are."""
    runs = max((each['runs'] for each in summary['arms']), default=0)
    words = f'ICU-Sepsis, {runs} runs; epsilon per {summary["unit"]}, delta {summary["delta"]:g}. '
    width = int(17 * figure.get_size_inches()[0])
    lines = [*textwrap.wrap(paper, width), *textwrap.wrap(words + DISCLAIMER, width)]
    figure.supxlabel('\n'.join(lines), fontsize=7, color='dimgray')


_TOLD = 0.5
"""Percent above which the spread of a share is written."""


def draw_actions(figure: Figure, summary: Json) -> None:
    """Draw policies down, bands across; a red frame where the paper has most actions."""
    maps = summary['heat_maps']
    figure.set_size_inches(9.6, 3.1 * len(maps))
    grid = figure.subplots(len(maps), len(BANDS), squeeze=False)
    for line, (name, bands) in zip(grid, maps.items(), strict=True):
        for axes, band in zip(line, BANDS, strict=True):
            _draw_map(axes, bands[band]['shares'])
            peak = summary['paper']['peaks'].get(name, {}).get(band)
            if peak:
                vasopressor, fluid = peak
                place = (vasopressor - 0.5, fluid - 0.5)
                axes.add_patch(Rectangle(place, 1, 1, fill=False, edgecolor='red', linewidth=1.8))
            runs = '' if bands[band]['shares']['low'] is None else ', % ± 95 % interval'
            axes.set_title(f'{name}: {band} SOFA{runs}', fontsize=8)
            axes.set_xlabel('vasopressor level', fontsize=8)
            axes.set_ylabel('fluid level', fontsize=8)


def _draw_map(axes: Axes, found: Json) -> None:
    shares = 100.0 * np.reshape(found['mean'], (LEVELS, LEVELS))
    wide = spread(found)
    spreads = None if wide is None else 100.0 * wide.reshape(LEVELS, LEVELS)
    axes.imshow(shares, cmap='Blues', origin='lower', vmin=0.0)
    for fluid, vasopressor in np.ndindex(LEVELS, LEVELS):
        value = shares[fluid, vasopressor]
        words = f'{value:.0f}'
        if spreads is not None and spreads[fluid, vasopressor] >= _TOLD:
            words += f'\n±{spreads[fluid, vasopressor]:.0f}'
        ink = 'white' if value > 0.6 * shares.max() else 'black'
        axes.text(vasopressor, fluid, words, ha='center', va='center', color=ink, fontsize=6.5)
