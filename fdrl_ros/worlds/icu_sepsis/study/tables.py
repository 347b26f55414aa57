# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""Tables of the sepsis experiments, for people."""

from collections.abc import Iterator, Sequence

from fdrl_ros.experiments.intervals import interval_words
from fdrl_ros.experiments.json_file import Json
from fdrl_ros.experiments.reports.table import make_table
from fdrl_ros.worlds.icu_sepsis.study.settings import REPLAYS, Start
from fdrl_ros.worlds.icu_sepsis.study.summary import most_frequent, spread
from fdrl_ros.worlds.icu_sepsis.study.verdicts import not_reached
from fdrl_ros.worlds.icu_sepsis.values import BANDS
import numpy as np
from rich.table import Table

NOT_REACHED = 'not reached'
KINDS = {
    'online': 'online, DP-SGD',
    'plain': 'online, Adam',
    'offline': 'offline, clinicians',
    'plan': 'planning, clinicians',
}


def tables(summary: Json) -> Iterator[Table]:
    """Make every table of a summary."""
    yield fae_table(summary)
    yield mortality_table(summary)
    paper = summary['paper']
    if summary['per']:
        yield make_table(
            'Survival in the end with PER minus without, points, paired by seed',
            ('replay', 'noise for', 'difference'),
            (
                (
                    REPLAYS[row['replay']],
                    _epsilon(row['epsilon']),
                    interval_words(row['gain'], '.2f'),
                )
                for row in summary['per']
            ),
            caption=f'Paper: {paper["per"]}',
        )
    if summary['bands']:
        yield make_table(
            'Mortality at epsilon 8 minus without privacy, points, paired by seed',
            ('SOFA', 'here', 'paper'),
            (
                (
                    band,
                    interval_words(summary['bands'][band], '.2f'),
                    f'{paper["bands"][band]:+.1f}',
                )
                for band in BANDS
            ),
        )
    yield action_table(summary)
    if summary['targets']:
        yield target_table(summary)


def fae_table(summary: Json) -> Table:
    """Show FAE by epsilon and replay."""
    paper, others = summary['paper'], summary['arms'][0]['fae_at']
    notes = [f'Paper: {paper["fae"]}; {paper["per"]}', *not_reached(summary).values()]

    def cells(row: Json) -> Iterator[str]:
        found = row['fae']
        low, median, high = (
            _patients(each)
            for each in (found['quartiles'][0], found['median'], found['quartiles'][1])
        )
        yield REPLAYS[row['replay']]
        yield _epsilon(row['epsilon_spent'], '.2f')
        yield _epsilon(row['epsilon'])
        yield f'{row["noise_multiplier"]:.2f}'
        yield NOT_REACHED if low == NOT_REACHED else f'{median} [{low}, {high}]'
        yield f'{found["reached"]} of {row["runs"]}'
        yield from (_patients(each['median']) for each in row['fae_at'].values())

    return make_table(
        f'FAE: patients until survival reaches {summary["phi"]:g}, median [quartiles]',
        ('replay', 'epsilon', 'noise for', 'sigma_m', 'FAE', 'reached')
        + tuple(f'FAE at {phi}' for phi in others),
        [tuple(cells(row)) for row in summary['arms']],
        caption='. '.join(notes),
        numbers='right',
    )


def mortality_table(summary: Json) -> Table:
    """Show estimated mortality in the end, by epsilon and band."""
    rows = []
    for name, each in summary['references'].items():
        values = [each['survival'], *(each['by_band'][band] for band in BANDS)]
        rows.append([name, '', *(f'{100.0 * (1.0 - value):.2f}' for value in values)])
    for row in summary['arms']:
        cells = [row['mortality'], *(row['mortality_by_band'][band] for band in BANDS)]
        name = f'{REPLAYS[row["replay"]]}, noise for {_epsilon(row["epsilon"])}'
        spent = _epsilon(row['epsilon_spent'], '.2f')
        rows.append([name, spent, *(interval_words(each, '.2f', 100.0) for each in cells)])
    return make_table(
        'Estimated mortality in the end, exact, in %: mean [95 % interval over runs]',
        ('policy', 'epsilon', 'all', *BANDS),
        rows,
        caption=f'Paper: {summary["paper"]["mortality"]}',
        numbers='right',
    )


def action_table(summary: Json) -> Table:
    """Show the share of steps with each level of vasopressor and of fluid."""
    rows = []
    for name, bands in summary['heat_maps'].items():
        for band in BANDS:
            peak = summary['paper']['peaks'][name].get(band)
            levels = (level_words(bands[band][drug]) for drug in ('vasopressor', 'fluid'))
            most = pair_words(most_frequent(bands[band]))
            rows.append((name, band, *levels, most, pair_words(peak) if peak else 'not told'))
    return make_table(
        'Levels 0 to 4 of vasopressor and of fluid, % of steps: mean ± 95 % interval over runs; '
        'most frequent (vasopressor, fluid)',
        ('policy', 'SOFA', 'vasopressor', 'fluid', 'most', 'paper'),
        rows,
        caption=f'Paper: {summary["paper"]["actions"]}; it tells no shares',
    )


def level_words(found: Json) -> str:
    """Write the share of each level in percent, with its spread: tenths where it is small."""
    means, half_widths = 100.0 * np.array(found['mean']), spread(found)
    if half_widths is None:
        return '  '.join(f'{mean:.0f}' for mean in means)
    return '  '.join(
        f'{mean:.0f}±{half:.{int(0.0 < half < 0.95)}f}'
        for mean, half in zip(means, 100.0 * half_widths, strict=True)
    )


def pair_words(pair: Sequence[int]) -> str:
    """Write levels of vasopressor and fluid as the paper does."""
    return f'({pair[0]}, {pair[1]})'


def target_table(summary: Json) -> Table:
    """Show what each way to learn reaches, and adds to what was publicly known."""
    return make_table(
        'Exact survival: mean [95 % interval over seeds]; gains are paired differences from the '
        'public start',
        ('learning', 'public start', 'epsilon', 'patients', 'n', 'start')
        + ('final', 'averaged', 'gain of the final'),
        (
            (
                KINDS[row['kind']],
                Start(**row['public']).name,
                _epsilon(row['epsilon']),
                row['patients'] or '',
                row['runs'],
                f'{row["start"]["mean"]:.4f}',
                *(
                    interval_words(row[each], '.4f')
                    for each in ('final', 'averaged', 'final_gain')
                ),
            )
            for row in summary['targets']
        ),
    )


def _patients(value: float | None) -> str:
    return NOT_REACHED if value is None else f'{value:.0f}'


def _epsilon(value: float | None, form: str = 'g') -> str:
    return 'inf' if value is None else format(value, form)
