# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""Tables of the FDRL paper's experiments."""

from collections.abc import Iterator

from fdrl_ros.experiments.intervals import Interval, interval_words
from fdrl_ros.experiments.json_file import Json
from fdrl_ros.experiments.reports.text_table import Grid
from fdrl_ros.experiments.studies.fdrl_paper.settings import FdrlSettings
from fdrl_ros.privacy.stated import stated

NAMES = {
    'federated': 'federated',
    'federated_from_start': 'federated from a public start',
    'alone': 'each hospital alone',
    'central_paper': 'centralised, 15 epochs, s = 0.1',
    'central_steps': 'centralised, as many steps, same s',
    'central_epsilon': 'centralised, as many steps, same epsilon',
    'central': 'centralised, as many steps, same epsilon',
    'planned': 'planned from all counts',
    'planned_alone': 'each hospital plans from its own counts',
    'public_start': 'public start, no patient seen',
    'majority': 'best single policy by votes (ceiling)',
    'expert': "each hospital's expert",
    'stabilise': 'always stabilise',
    'random': 'random moves',
    'federated_minus_alone': 'federated minus alone, paired by seed',
}
"""Names of policies for readers, in the order of tables."""

OTHER_READING = 'other reading: '
"""Before a claim that is tested in another setting than the paper's."""

_MEASURES = (
    ('a_task', 'A_task, %', '.1f', 100.0),
    ('share', '% of the ceiling', '.0f', 100.0),
    ('value', 'return', '.3f', 1.0),
    ('success', 'success, %', '.1f', 100.0),
    ('r_mit', 'R_mit', '.3f', 1.0),
)


def claims_grid(summary: Json) -> Grid:
    """Return the table of claims and verdicts."""
    headings = ('claim', 'where', 'tested in', 'found', 'verdict', 'why')
    rows = [
        (
            each['claimed'] if each['own'] else OTHER_READING + each['claimed'],
            *(each[name] for name in ('where', 'setting', 'found', 'verdict', 'why')),
        )
        for each in summary['claims']
    ]
    return Grid(f'Claims of the paper: {_seeds(summary)}', headings, rows)


def tables(summary: Json, settings: FdrlSettings) -> Iterator[Grid]:
    """Yield every table but that of the claims."""
    level = f'{settings.heterogeneity:g}'
    for noise in dict.fromkeys((0.0, settings.noise)):
        if f'{noise:g}' in summary['grid'][level]:
            yield policies_grid(summary, level, f'{noise:g}')
    yield homes_grid(summary, level, f'{settings.noise:g}')
    yield accuracy_grid(summary)
    yield curves_grid(summary)
    yield cost_grid(summary)


def policies_grid(summary: Json, level: str, noise: str) -> Grid:
    """Return what every policy is worth at one H and s."""
    worth = summary['grid'][level][noise]['worth']
    rows = [
        (NAMES[name], *(_cell(worth[name].get(key), form, by) for key, _, form, by in _MEASURES))
        for name in NAMES
        if name in worth
    ]
    headings = ('policy', *(heading for _, heading, _, _ in _MEASURES))
    title = f'Policies at H = {level}, s = {noise}, means over hospitals: {_seeds(summary)}'
    return Grid(title, headings, rows)


def homes_grid(summary: Json, level: str, noise: str) -> Grid:
    """Return exact returns on each hospital's own patients."""
    worth = summary['grid'][level][noise]['worth']
    known = {name: worth[name]['values'] for name in NAMES if 'values' in worth.get(name, {})}
    homes = list(known['federated'])
    rows = [
        (NAMES[name], *(interval_words(values[home], '.3f') for home in homes))
        for name, values in known.items()
    ]
    title = f"Return on each hospital's own patients, H = {level}, s = {noise}: {_seeds(summary)}"
    return Grid(title, ('policy', *homes), rows)


def accuracy_grid(summary: Json) -> Grid:
    """Return A_task of the federated policy over H and s, beside its ceiling."""
    grid = summary['grid']
    noises = list(next(iter(grid.values())))
    rows = []
    for level, at in grid.items():
        cells = [_cell(at[each]['worth']['federated']['a_task'], '.1f', 100.0) for each in noises]
        cells.append(_cell(at[noises[0]]['worth']['majority']['a_task'], '.1f', 100.0))
        cells.append(_cell(at[noises[0]]['worth']['public_start']['a_task'], '.1f', 100.0))
        rows.append((level, *cells))
    headings = ('H', *(f's = {each}' for each in noises), 'ceiling', 'public start')
    return Grid(f'A_task of the federated policy, %: {_seeds(summary)}', headings, rows)


def curves_grid(summary: Json) -> Grid:
    """Return A_task over records of a hospital."""
    ways = {'plain': 'no noise', 'private': 'epsilon 8'}
    shown = (
        *('federated', 'federated_from_start', 'alone', 'central'),
        *('planned', 'planned_alone'),
    )
    rows = []
    for size, found in summary['curves'].items():
        for way, words in ways.items():
            cells = [_cell(found[way][name]['a_task'], '.1f', 100.0) for name in shown]
            limits = [
                _cell(found[way][name]['a_task'], '.1f', 100.0)
                for name in ('public_start', 'majority')
            ]
            lead = found[way]['federated_minus_alone']
            rows.append(
                (
                    size,
                    words,
                    *cells,
                    *limits,
                    _cell(lead['a_task'], '+.1f', 100.0),
                    f'{lead["p"]:.2g}',
                    _cell(lead['value'], '+.3f', 1.0),
                )
            )
    names = (*shown, 'public_start', 'majority')
    leads = ('federated minus alone, points', 'p (Holm)', 'of return')
    headings = ('records of a hospital', 'privacy', *(NAMES[name] for name in names), *leads)
    return Grid(f'A_task over records, %: {_seeds(summary)}', headings, rows)


def surgery_grid(combined: Json) -> Grid:
    """Return what policies are worth in the surgical world, and how federation differs."""
    shown = (
        ('success', 100.0),
        ('a_task', 100.0),
        ('r_mit', 1.0),
        ('alpha_adapt', 1.0),
        ('mean_return', 1.0),
    )
    forms = {100.0: '.1f', 1.0: '.3f'}
    rows = [
        (title + name, *(_cell(row.get(key), forms[by], by) for key, by in shown))
        for title, table in (
            ('', combined['policies']),
            ('federated minus ', combined['federated_minus']),
        )
        for name, row in table.items()
    ]
    worst = max(combined['epsilon'].values())
    level = combined['plan']['federation']['heterogeneity']
    title = (
        f"The paper's setting in surgery, H = {level:g}, "
        f'epsilon {stated(worst)} at delta {combined["delta"]:g}: {_seeds(combined)}'
    )
    return Grid(
        title, ('policy', 'success, %', 'A_task, %', 'R_mit', 'alpha_adapt', 'return'), rows
    )


def cost_grid(summary: Json) -> Grid:
    """Return processor time of training, of adding and decrypting, and of a whole round."""
    cost, kinds = summary['cost'], ('least', 'median')
    works = {
        'local': 'an epoch of {} records',
        'adding': 'adding the updates of {} hospitals',
        'decrypting': 'decrypting the sum of {} hospitals',
    }
    rows = [
        (what.format(size), *(f'{1000.0 * each[kind]:.2f}' for kind in kinds))
        for key, what in works.items()
        for size, each in cost[key].items()
    ]
    least, *_ = cost['adding']
    whole = (f'{1000.0 * cost["round"][kind]:.2f}' for kind in kinds)
    rows.append((f'an encrypted round of {least} hospitals, all parties', *whole))
    title = 'Processor time of local training and of encryption, ms, of 5'
    return Grid(title, ('work', 'least', 'median'), rows)


def _cell(found: Interval | None, form: str, factor: float) -> str:
    return '' if found is None else interval_words(found, form, factor)


def _seeds(summary: Json) -> str:
    seeds = summary['seeds']
    return f'{len(seeds)} seeds ({seeds[0]} to {seeds[-1]}), mean [95 % interval]'
