# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""Tables of the sepsis experiments, for people."""

from collections.abc import Iterator, Sequence

from fdrl_ros.experiments.intervals import Interval, interval_words
from fdrl_ros.experiments.json_file import Json
from fdrl_ros.worlds.icu_sepsis.study.settings import REPLAYS
from fdrl_ros.worlds.icu_sepsis.study.summary import most_frequent, spread
from fdrl_ros.worlds.icu_sepsis.study.verdicts import not_reached
from fdrl_ros.worlds.icu_sepsis.values import BANDS
import numpy as np
from rich.markup import escape
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
    if summary['per']:
        yield per_table(summary)
    if summary['bands']:
        yield band_table(summary)
    yield action_table(summary)
    if summary['targets']:
        yield target_table(summary)


def fae_table(summary: Json) -> Table:
    """Show FAE by epsilon and replay."""
    said = [f'Paper: {summary["paper"]["fae"]}; {summary["paper"]["per"]}']
    table = Table(
        title=f'FAE: patients until survival reaches {summary["phi"]:g}, median \\[quartiles]',
        caption='. '.join([*said, *not_reached(summary).values()]),
    )
    others = [f'FAE at {each}' for each in summary['arms'][0]['fae_at']]
    for name in ('replay', 'epsilon', 'noise for', 'sigma_m', 'FAE', 'reached', *others):
        table.add_column(name, justify='left' if name == 'replay' else 'right')
    for row in summary['arms']:
        found = row['fae']
        low, high = (_patients(each) for each in found['quartiles'])
        told = f'{_patients(found["median"])} \\[{low}, {high}]'
        table.add_row(
            REPLAYS[row['replay']],
            _epsilon(row['epsilon_spent'], '.2f'),
            _epsilon(row['epsilon'], 'g'),
            f'{row["noise_multiplier"]:.2f}',
            NOT_REACHED if low == NOT_REACHED else told,
            f'{found["reached"]} of {row["runs"]}',
            *(_patients(each['median']) for each in row['fae_at'].values()),
        )
    return table


def mortality_table(summary: Json) -> Table:
    """Show estimated mortality in the end, by epsilon and band."""
    table = Table(
        title='Estimated mortality in the end, exact, in %: mean \\[95 % interval over runs]',
        caption=f'Paper: {summary["paper"]["mortality"]}',
    )
    for name in ('policy', 'epsilon', 'all', *BANDS):
        table.add_column(name, justify='left' if name == 'policy' else 'right')
    for name, each in summary['references'].items():
        cells = [each['survival'], *(each['by_band'][band] for band in BANDS)]
        table.add_row(name, '', *(f'{100.0 * (1.0 - value):.2f}' for value in cells))
    for row in summary['arms']:
        cells = [row['mortality'], *(row['mortality_by_band'][band] for band in BANDS)]
        words = (_shown(each, '.2f', 100.0) for each in cells)
        name = f'{REPLAYS[row["replay"]]}, noise for {_epsilon(row["epsilon"], "g")}'
        table.add_row(name, _epsilon(row['epsilon_spent'], '.2f'), *words)
    return table


def per_table(summary: Json) -> Table:
    """Show what prioritised replay adds."""
    table = Table(
        title='Survival in the end with PER minus without, points, paired by seed',
        caption=f'Paper: {summary["paper"]["per"]}',
    )
    for name in ('replay', 'noise for', 'difference'):
        table.add_column(name)
    for row in summary['per']:
        words = _shown(row['gain'], '.2f')
        table.add_row(REPLAYS[row['replay']], _epsilon(row['epsilon'], 'g'), words)
    return table


def band_table(summary: Json) -> Table:
    """Show what epsilon 8 costs by band, beside the paper."""
    table = Table(title='Mortality at epsilon 8 minus without privacy, points, paired by seed')
    for name in ('SOFA', 'here', 'paper'):
        table.add_column(name, justify='right')
    for band in BANDS:
        paper = summary['paper']['bands'][band]
        table.add_row(band, _shown(summary['bands'][band], '.2f'), f'{paper:+.1f}')
    return table


def action_table(summary: Json) -> Table:
    """Show the share of steps with each level of vasopressor and of fluid."""
    table = Table(
        title='Levels 0 to 4 of vasopressor and of fluid, % of steps: mean ± 95 % interval over '
        'runs; most frequent (vasopressor, fluid)',
        caption=f'Paper: {summary["paper"]["actions"]}; it tells no shares',
    )
    for name in ('policy', 'SOFA', 'vasopressor', 'fluid', 'most', 'paper'):
        table.add_column(name)
    for name, bands in summary['heat_maps'].items():
        for band in BANDS:
            levels = [level_words(bands[band][drug]) for drug in ('vasopressor', 'fluid')]
            peak = summary['paper']['peaks'][name].get(band)
            most = pair_words(most_frequent(bands[band]))
            table.add_row(name, band, *levels, most, pair_words(peak) if peak else 'not told')
    return table


def level_words(found: Json) -> str:
    """Write the share of each level in percent, with its spread."""
    means, wide = 100.0 * np.array(found['mean']), spread(found)
    if wide is None:
        return '  '.join(f'{each:.0f}' for each in means)
    return '  '.join(
        f'{each:.0f}±{_digits(100.0 * far)}' for each, far in zip(means, wide, strict=True)
    )


def pair_words(pair: Sequence[int]) -> str:
    """Write levels of vasopressor and fluid as the paper does."""
    return f'({pair[0]}, {pair[1]})'


def _digits(value: float) -> str:
    """Write half an interval: tenths where it is small."""
    return f'{value:.1f}' if 0.0 < value < 0.95 else f'{value:.0f}'


def target_table(summary: Json) -> Table:
    """Show what each way to learn reaches, and adds to what was publicly known."""
    table = Table(
        title='Exact survival: mean \\[95 % interval over seeds]; gains are paired differences '
        'from the public start'
    )
    for name in ('learning', 'public start', 'epsilon', 'patients', 'n', 'start'):
        table.add_column(name)
    for name in ('final', 'averaged', 'gain of the final'):
        table.add_column(name, justify='right')
    for row in summary['targets']:
        table.add_row(
            KINDS[row['kind']],
            start_words(row),
            _epsilon(row['epsilon'], 'g'),
            str(row['patients'] or ''),
            str(row['runs']),
            f'{row["start"]["mean"]:.4f}',
            *(_shown(row[each], '.4f') for each in ('final', 'averaged')),
            _shown(row['final_gain'], '.4f'),
        )
    return table


def start_words(row: Json) -> str:
    """Name a public start as the tables do."""
    guess = row['public']
    if guess['concentration'] is None:
        return 'scratch'
    return f'c = {guess["concentration"]:g}, b = {guess["blend"]:g}'


def _shown(found: Interval, form: str = '.2f', factor: float = 1.0) -> str:
    return escape(interval_words(found, form, factor))


def _patients(value: float | None) -> str:
    return NOT_REACHED if value is None else f'{value:.0f}'


def _epsilon(value: float | None, form: str) -> str:
    return 'inf' if value is None else format(value, form)
