# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""Plots of studies: audit of epsilon, heterogeneity, number of hospitals, cost of privacy."""

from pathlib import Path

from fdrl_ros.experiments.json_file import Json
from fdrl_ros.experiments.plots.drawing import (
    BLACK,
    BLUE,
    draw_curve,
    draw_points,
    drawing,
    GREEN,
    NEUTRAL,
    ORANGE,
    PURPLE,
    RED,
    SKY,
    style_of,
    ZERO,
)
from fdrl_ros.experiments.reports.names import reader_name
from fdrl_ros.experiments.studies.distance import LEANING
from fdrl_ros.experiments.studies.hospitals import ALONE, HOME, SHARED
import numpy as np

SIZE = (11.0, 4.2)
AUDIT_STYLES = {
    'claimed': ('_', BLACK, 'claimed by the accountant'),
    'estimated': ('s', ORANGE, 'lower limit if the mechanism is Gaussian'),
    'by_errors': ('^', GREEN, 'proven if it is the claimed one but for its noise'),
    'bound': ('o', BLUE, 'proven, whatever the mechanism is'),
    'attainable': ('x', NEUTRAL, 'mean proof on a flawless mechanism'),
}
"""Marker, colour and words of each number."""

QUANTITY_STYLES = ('-', '--', ':', '-.', (0, (1, 3)))
"""Of the lines of what hospitals differ in."""

START_COLOURS = {'public': ORANGE, 'random': BLUE}


def draw_audit(summary: Json, path: Path) -> None:
    """
    Draw what was claimed and what was proven.

    :param summary: as :func:`fdrl_ros.experiments.studies.audit.run_audit` returns it.
    :raises OSError: if the file cannot be written.
    """
    parts, sure = summary['parts'], 1.0 - summary['settings']['audit']['failure']
    first = parts[0]
    words = f'{first["canaries"]} canaries among {first["patients"]} patients, confidence '
    with drawing(path, SIZE, f'{words}{100.0 * sure:g} % a seed.') as figure:
        left, right = figure.subplots(1, 2)
        places = np.arange(len(parts))
        for name, (marker, colour, label) in AUDIT_STYLES.items():
            values, size = [each[name] for each in parts], 14 if marker == '_' else 6
            style: Json = {'color': colour, 'label': label, 'markersize': size}
            left.plot(places, values, marker, markeredgewidth=2, **style)
        left.set_xticks(places, [str(each['seed']) for each in parts])
        left.set_xlabel('seed')
        left.set_ylabel(f'epsilon at delta = {first["delta"]:g}')
        left.set_ylim(0.0, 1.35 * max(each[name] for each in parts for name in AUDIT_STYLES))
        left.set_title('Epsilon, claimed and proven')
        left.legend(fontsize=7, loc='upper left')
        scores = first['scores']
        for name, colour in (('others', NEUTRAL), ('members', RED)):
            style = {'color': colour, 'label': name}
            right.stairs(scores[name], scores['edges'], fill=True, alpha=0.5, **style)
        right.set_xlabel('log of how much likelier a member is (nats)')
        right.set_ylabel('canaries')
        right.set_title(f'Scores of canaries, seed {first["seed"]}')
        right.legend(fontsize=7)


def draw_heterogeneity(summary: Json, path: Path) -> None:
    """
    Draw the curves over H with their 95 % intervals.

    :param summary: as :func:`fdrl_ros.experiments.studies.heterogeneity.run_heterogeneity`
        returns it.
    :raises OSError: if the file cannot be written.
    """
    words = (
        f'Means over {len(summary["seeds"])} seeds with 95 % intervals; policies do '
        f'{summary["settings"]["federation"]["procedures"]}.'
    )
    levels, quantities = summary['levels'], summary['quantities']
    curves = {name: curve['at'] for name, curve in summary['curves'].items()}
    panels = (
        ("Distance between hospitals' patients", 'Wasserstein-1, in spreads at H = 1'),
        ("Success of one hospital's own policy", 'success on unseen patients'),
        ('Success lost abroad', 'difference in success'),
    )
    with drawing(path, SIZE, words) as figure:
        every = figure.subplots(1, len(panels))
        for name, style in zip(LEANING, QUANTITY_STYLES, strict=True):
            means = [each['mean'] for each in quantities[name]['at']]
            every[0].plot(levels, means, linestyle=style, color=SKY, linewidth=1.2, label=name)
        for place, name, colour, label in (
            (0, 'distance', BLUE, 'mean of these'),
            (0, 'mix', ORANGE, 'procedures, total variation'),
            (1, 'home', GREEN, 'at home'),
            (1, 'elsewhere', RED, 'in other hospitals'),
            (2, 'loss', PURPLE, 'at home minus elsewhere'),
        ):
            draw_curve(every[place], levels, curves[name], colour, label)
        for axes, (title, unit) in zip(every, panels, strict=True):
            axes.set_title(title)
            axes.set_ylabel(unit)
            axes.set_xlabel('heterogeneity H')
            axes.set_xticks(levels)
            axes.legend(fontsize=7)
        every[0].set_ylim(0.0, 1.55 * curves['distance'][-1]['mean'])
        every[1].set_ylim(0.0, 1.02)
        every[2].axhline(0.0, **ZERO)


def draw_hospitals(summary: Json, path: Path) -> None:
    """
    Draw success at home and away, and epsilon, against the number of hospitals.

    :param summary: as :func:`fdrl_ros.experiments.studies.hospitals.run_hospitals` returns it.
    :raises OSError: if the file cannot be written.
    """
    counts, places = summary['counts'], np.arange(len(summary['counts']))
    words = (
        f'Means over {len(summary["seeds"])} seeds with 95 % intervals; '
        f'{summary["settings"]["collection"]["patients"]} patients of each hospital.'
    )
    if not summary['private']:
        words = f'NOT PRIVATE: noise of a seed. {words}'
    with drawing(path, SIZE, words) as figure:
        home, away, spent = figure.subplots(1, 3)
        for axes, found in ((home, summary['success']), (away, summary['away']['success'])):
            for name, shift in zip(found, np.linspace(-0.12, 0.12, len(found)), strict=True):
                style = {**style_of(name), 'label': reader_name(name), 'fmt': '-'}
                draw_points(axes, places + shift, found[name]['at'], 100.0, **style)
            axes.set_ylabel('success, %')
            axes.set_ylim(top=101.0)
        for name, dashes in ((SHARED, '-'), (HOME, '--'), (ALONE, ':')):
            style = {**style_of(name), 'label': reader_name(name), 'linestyle': dashes}
            spent.plot(places, summary['epsilon'][name], **style)
        spent.set_ylim(0.0, 1.3 * max(summary['epsilon'][HOME]))
        spent.set_ylabel(f'epsilon at delta {summary["delta"]:g}')
        for axes, title in (
            (home, 'Own unseen patients'),
            (away, 'Patients of hospitals that took no part'),
            (spent, 'Spent on a patient'),
        ):
            axes.set_title(title)
            axes.set_xlabel('hospitals')
            axes.set_xticks(places, [str(each) for each in counts])
        shown = home.get_legend_handles_labels()
        figure.legend(*shown, fontsize=8, ncols=len(shown[1]), loc='outside upper center')


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
        for shift, (start, row) in zip((-0.04, 0.04), summary['results'].items(), strict=True):
            names, colour = list(reversed(row)), START_COLOURS[start]
            places, found = np.arange(len(names)) + shift, [row[name]['success'] for name in names]
            label = f'{start} start'
            draw_points(axes, places, found, fmt='', color=colour, capsize=3, label=label)
            begun = summary['start'][start]['mean']
            axes.axhline(begun, color=colour, linestyle=':', label=f'{label} itself')
            axes.set_xticks(range(len(names)), ['not private' if n == 'inf' else n for n in names])
        axes.set_xlabel(f'epsilon of a {summary["unit"]} at delta {summary["delta"]:g}')
        axes.set_ylabel('success on unseen patients')
        axes.set_ylim(0.0, 1.02)
        axes.legend(fontsize=8, loc='lower right')
