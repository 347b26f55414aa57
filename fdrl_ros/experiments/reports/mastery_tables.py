# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""Tables of the study of mastery in Markdown, as the command prints them and the page has them."""

from collections.abc import Iterable, Mapping, Sequence

from fdrl_ros.experiments.intervals import Interval, interval_words
from fdrl_ros.experiments.json_file import Json

SHOWN = ('federated', 'alone', 'global', 'public_start')
"""Rows of the study that tables by hospital and disturbance have as columns."""

_PLACES = {'home': 'own patients', 'away': 'away'}


def mastery_tables(summary: Json) -> dict[str, str]:
    """
    Return the tables of a study by their headings: means with 95 % intervals over seeds.

    :param summary: what ``mastery.json`` holds.
    """
    levels: Mapping[str, Json] = summary['levels']
    tables = {
        'Success by row (%)': _rows(levels),
        'Federated minus other rows on own patients (points)': _endpoints(levels),
        'Federated minus other rows away (points)': _away(levels),
        'Success by procedure, own patients (%)': _procedures(levels),
        'Success by hospital, own patients (%)': _by('hospitals', 'hospital', levels),
        'Success by gap and records, own patients (%)': _cells(summary['cells']),
        'Success under disturbances, own patients (%)': _by('robust', 'disturbance', levels),
        'Success with motors, own patients (%)': _motors(levels),
        'Success where only the end is rewarded (%)': _sparse(levels),
        'The selector and its candidates': _selector(levels),
        'Shares of what can be gained by choosing (%)': _shares(levels),
    }
    return {name: table for name, table in tables.items() if table}


def _rows(levels: Mapping[str, Json]) -> str:
    first = next(iter(levels.values()))
    names = sorted(first['home'], key=lambda name: -first['home'][name]['mean'])
    headings = ['row'] + [
        f'H = {level}, {words}' for level in levels for words in _PLACES.values()
    ]
    return _table(
        headings,
        [
            [_name(name)]
            + [_percent(found[place].get(name)) for found in levels.values() for place in _PLACES]
            for name in names
        ],
    )


def _endpoints(levels: Mapping[str, Json]) -> str:
    rows = []
    for level, found in levels.items():
        for each in found['endpoints']:
            met = ('met' if each['met'] else 'not met') if each['tested'] else 'not tested'
            words = interval_words(each, '.2f', 100.0)
            rows.append([level, _name(each['minus']), words, f'{100 * each["above"]:g}', met])
    return _table(['H', 'federated minus', 'points', 'aimed above', 'came out'], rows)


def _away(levels: Mapping[str, Json]) -> str:
    first = next(iter(levels.values()))['paired_away']
    wanted = ('alone', 'public_start', 'global', 'pooled_at_home', 'controller')
    names = [each for each in wanted if each in first]
    return _table(
        ['H', *map(_name, names)],
        [
            [
                level,
                *(interval_words(found['paired_away'][each], factor=100.0) for each in names),
            ]
            for level, found in levels.items()
        ],
    )


def _by(what: str, heading: str, levels: Mapping[str, Json]) -> str:
    """Return a table of :data:`SHOWN` by the names of one kind."""
    return _table(
        ['H', heading, *map(_name, SHOWN)],
        [
            [level, _name(name), *(_percent(own.get(each)) for each in SHOWN)]
            for level, found in levels.items()
            for name, own in found[what].items()
        ],
    )


def _procedures(levels: Mapping[str, Json]) -> str:
    names = ('federated', 'alone', 'public_start')
    return _table(
        ['H', 'procedure', *map(_name, names), 'federated minus ceiling'],
        [
            [
                level,
                _name(procedure),
                *(_percent(own[each]) for each in names),
                interval_words(found['ceiling']['procedures'][procedure], factor=100.0),
            ]
            for level, found in levels.items()
            for procedure, own in found['procedures'].items()
        ],
    )


def _cells(cells: Iterable[Json]) -> str:
    names = ('federated', 'alone', 'global')
    return _table(
        ['H', 'gap', 'records', *map(_name, names), 'federated minus alone'],
        [
            [
                *(f'{cell[each]:g}' for each in ('heterogeneity', 'gap', 'patients')),
                *(_percent(cell['home'][name]) for name in names),
                interval_words(cell['paired']['alone'], factor=100.0),
            ]
            for cell in cells
        ],
    )


def _motors(levels: Mapping[str, Json]) -> str:
    names = [name for found in levels.values() for name in found['with_motors']]
    names = list(dict.fromkeys(names))
    return _table(
        ['H', *map(_name, names)],
        [
            [level, *(_percent(found['with_motors'].get(name)) for name in names)]
            for level, found in levels.items()
        ],
    )


def _sparse(levels: Mapping[str, Json]) -> str:
    rows, procedures = [], ('needle_pass', 'peg_transfer')
    for level, found in levels.items():
        for name, own in found['sparse'].items():
            rows.append([level, _name(name), *(_percent(own.get(each)) for each in procedures)])
    return _table(['H', 'row', *map(_name, procedures)], rows)


def _selector(levels: Mapping[str, Json]) -> str:
    rows = []
    for level, found in levels.items():
        for place, words in _PLACES.items():
            chosen = found['selector'][place]
            for name, own in chosen['rows'].items():
                lead = chosen['lead'].get(name, {}).get('return')
                rows.append(
                    [
                        level,
                        words,
                        _name(name),
                        interval_words(own['return'], '.2f'),
                        _percent(own['success']),
                        '' if lead is None else interval_words(lead, '.2f'),
                    ]
                )
    return _table(['H', 'where', 'who', 'J', 'success, %', 'selector minus it, J'], rows)


def _shares(levels: Mapping[str, Json]) -> str:
    rows = []
    for level, found in levels.items():
        for place, words in _PLACES.items():
            own = found['selector'][place]
            shares = ('share_of_oracle', 'share_of_oracle_without')
            chosen = ', '.join(
                f'{_name(name)} {100 * each["mean"]:.0f}'
                for name, each in own['chosen'].items()
                if each['mean'] >= 0.005
            )
            shown = (_percent(own.get(each)) for each in shares)
            rows.append([level, words, *shown, chosen])
    return _table(['H', 'where', 'of the oracle', 'without a selector', 'who acted'], rows)


def _percent(found: Interval | None) -> str:
    """Return a share in percent with its interval; nothing where nobody measured it."""
    if found is None or found['low'] is None or found['high'] is None:
        return '' if found is None else interval_words(found, factor=100.0)
    low, high = max(found['low'], 0.0), min(found['high'], 1.0)
    return interval_words({**found, 'low': low, 'high': high}, factor=100.0)


def _name(name: str) -> str:
    return name.replace('_', ' ')


def _table(headings: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a table in Markdown; nothing without rows."""
    body = [f'| {" | ".join(row)} |' for row in rows]
    line = f'|{"---|" * len(headings)}'
    return '\n'.join([f'| {" | ".join(headings)} |', line, *body]) if body else ''
