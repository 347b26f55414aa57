# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""The page on sepsis tells the numbers of its result file."""

import json
from pathlib import Path

from fdrl_ros.experiments.studies.sepsis.settings import MINIBATCH, NETWORKS, REPLAYS, Start
from fdrl_ros.experiments.studies.sepsis.summary import most_frequent
from fdrl_ros.experiments.studies.sepsis.tables import KINDS, levels_of, pair_words, row_at
from fdrl_ros.worlds.icu_sepsis.values import BANDS
import pytest

DOCS = Path(__file__).resolve().parents[3] / 'docs'
FOUND = json.loads((DOCS / 'results' / 'sepsis.json').read_text('utf-8'))
PAGE = (DOCS / 'sepsis.md').read_text('utf-8')


def told(value, factor=1.0, digits=4):
    """Write mean and interval."""
    mean, low, high = (f'{factor * value[each]:.{digits}f}' for each in ('mean', 'low', 'high'))
    return f'{mean} [{low}, {high}]'


def named(epsilon):
    return 'inf' if epsilon is None else f'{epsilon:g}'


def patients(value):
    return 'never' if value is None else f'{value:,.0f}'


def fae_rows(found=FOUND):
    """Return the table of FAE: one row for each survival and epsilon."""
    arms = {(each['replay'], each['epsilon']): each for each in found['arms']}
    for phi in levels_of(found):
        for epsilon in dict.fromkeys(each['epsilon'] for each in found['arms']):
            cells = []
            for replay in REPLAYS:
                wait = row_at(arms[replay, epsilon], phi, found)
                median, low, high = map(patients, (wait['median'], *wait['quartiles']))
                cells.append(f'{median} [{low}, {high}]; {wait["reached"]}')
            yield [f'{phi:g}', named(epsilon), *cells]


def moderate_rows():
    """Return the table of FAE of moderate SOFA."""
    return fae_rows(FOUND['moderate'])


def overall_rows():
    """Return the table of vasopressors over all patients."""
    for name, bands in FOUND['heat_maps'].items():
        levels = bands['all']['vasopressor']
        each = [{end: levels[end] and levels[end][level] for end in levels} for level in range(5)]
        alone = levels['low'] is None
        yield [name, *(f'{100 * x["mean"]:.1f}' if alone else told(x, 100.0, 1) for x in each)]


def of_both_networks(*kinds):
    """Yield kinds of learning, start and epsilon of targets, and their row by network."""
    rows = {}
    for row in FOUND['targets']:
        if row['kind'] in kinds and not row['patients']:
            key = (KINDS[row['kind']], Start(**row['public']).name, named(row['epsilon']))
            rows.setdefault(key, {})[row['network']] = row
    return rows.items()


def begun_and_ended(row):
    return [f'{row["start"]["mean"]:.4f}', told(row['final'])] if row else ['', '']


def network_rows():
    """Return the table of the 47 features beside the table of states."""
    for key, rows in of_both_networks('plain', 'online'):
        if 'features' in rows:
            yield [*key, *(cell for name in NETWORKS for cell in begun_and_ended(rows[name]))]


def minibatch_rows():
    """Return the table of learning offline by minibatches."""
    for key, rows in of_both_networks(*MINIBATCH):
        noise = f'{rows["table"]["noise_multiplier"]:.2f}'
        cells = (cell for name in NETWORKS for cell in begun_and_ended(rows.get(name)))
        yield [key[0].removeprefix('offline, '), *key[1:], noise, *cells]


def mortality_rows():
    """Return the table of mortality: the arms without PER, and whom they are compared with."""
    for name, each in FOUND['references'].items():
        values = [each['survival'], *(each['by_band'][band] for band in BANDS)]
        yield [name, '', *(f'{100.0 * (1.0 - value):.2f}' for value in values)]
    for row in FOUND['arms']:
        if row['replay'] == 'poisson':
            values = [row['mortality'], *(row['mortality_by_band'][band] for band in BANDS)]
            name = 'DP-DQN' if row['epsilon'] else 'DQN'
            yield [name, named(row['epsilon']), *(told(value, 100.0, 2) for value in values)]


def per_rows():
    """Return the table of what PER adds."""
    gains = {
        (each['replay'], each['epsilon']): told(each['gain'], 1.0, 2) for each in FOUND['per']
    }
    for epsilon in dict.fromkeys(each['epsilon'] for each in FOUND['per']):
        yield [named(epsilon), *(gains[replay, epsilon] for replay in list(REPLAYS)[1:])]


def band_rows():
    """Return the table of what epsilon 8 costs."""
    paper = FOUND['paper']['bands']
    return ([b, told(FOUND['bands'][b], 1.0, 2), f'{paper[b]:+.1f}'] for b in BANDS)


def target_rows():
    """Return the table of targets."""
    settings = FOUND['settings']
    usual = {
        'online': settings['patients'],
        'plain': settings['plain_rounds'] * settings['plain_patients'],
        'offline': settings['clinician_patients'],
    }
    for row in FOUND['targets']:
        if row['network'] != 'table' or row['kind'] in MINIBATCH:
            continue
        count = f'{row["patients"] or usual[row["kind"]]:,}'
        start, epsilon = Start(**row['public']).name, named(row['epsilon'])
        numbers = (f'{row["start"]["mean"]:.4f}', told(row['final']), told(row['final_gain']))
        yield [KINDS[row['kind']], count, start, epsilon, *numbers]


def action_rows():
    """Return the table of the most frequent actions."""
    for name, bands in FOUND['heat_maps'].items():
        for band in BANDS:
            found, (vasopressor, fluid) = bands[band]['shares'], most_frequent(bands[band])
            share = {each: found[each] and found[each][5 * fluid + vasopressor] for each in found}
            cell = told(share, 100.0, 1) if found['low'] else f'{100.0 * share["mean"]:.1f}'
            peak = FOUND['paper']['peaks'][name].get(band)
            paper = pair_words(peak) if peak else 'not told'
            yield [name, band, pair_words((vasopressor, fluid)), cell, paper]


TABLES = {
    '| policy | SOFA | most frequent here |': action_rows,
    '| survival | epsilon | no PER |': fae_rows,
    '| survival, moderate SOFA | epsilon |': moderate_rows,
    '| policy | none | level 1 |': overall_rows,
    '| online | public start |': network_rows,
    '| offline | public start |': minibatch_rows,
    '| policy | epsilon | all |': mortality_rows,
    '| noise for epsilon |': per_rows,
    '| SOFA | here | paper |': band_rows,
    '| learning | patients |': target_rows,
}
CHOSEN = (fae_rows, moderate_rows, target_rows)
"""Tables of which the page shows some rows, and the result file all."""


@pytest.mark.parametrize('first', TABLES)
def test_the_page_tells_the_numbers_of_the_result_file(first):
    lines = PAGE[PAGE.index(f'\n{first}') :].strip().split('\n\n')[0].splitlines()[2:]
    found = [[each.strip() for each in line.strip('|').split('|')] for line in lines]
    whole = list(TABLES[first]())
    if TABLES[first] in CHOSEN:
        assert len(found) > 9 and all(row in whole for row in found)
    else:
        assert found == whole


def test_the_page_tells_how_often_and_for_whom():
    words = ' '.join(PAGE.split())
    new = [
        row for row in FOUND['targets'] if row['network'] != 'table' or row['kind'] in MINIBATCH
    ]
    old = [row for row in FOUND['targets'] if row not in new]
    counts = [
        {row['runs'] for row in rows}
        for rows in (FOUND['arms'], FOUND['moderate']['arms'], old, new)
    ]
    (runs,), (moderate,), (seeds,), (fewer,) = counts
    assert f'{runs} runs of each setting' in words and f'({moderate} of moderate SOFA)' in words
    assert f'{seeds} seeds of each other arm' in words
    assert f'({fewer} of minibatches and of the network on 47 features)' in words
    assert FOUND['unit'] == 'patient' and FOUND['delta'] == 1e-6 and 'delta 1e-6' in PAGE


def test_the_page_tells_how_far_policies_are_apart():
    words, found = ' '.join(PAGE.split()), FOUND['overall']
    apart, turned = (told(found[each], 100.0, 1) for each in ('distance', 'between_seeds'))
    assert f'differ by {apart} % of steps' in words and f'differ by {turned} %' in words
    assert f'{len(found["distance"]["values"])} pairs of runs' in words


def test_the_page_tells_the_noise_of_the_network():
    (row,) = (
        each
        for each in FOUND['targets']
        if (each['kind'], each['network'], each['epsilon']) == ('online', 'features', 8.0)
        and each['public']['concentration']
    )
    table = next(each for each in FOUND['arms'] if each['epsilon'] == 8.0)
    words = f"({row['noise_multiplier']:.2f} at epsilon 8; the table's one step: "
    assert f'{words}{table["noise_multiplier"]:.2f})' in ' '.join(PAGE.split())


def test_the_page_tells_how_near_the_accountant_is():
    figures = json.loads((DOCS / 'results' / 'accountant.json').read_text('utf-8'))['figures']
    most = figures[0]['most above the pessimistic bound']
    words = ' '.join(PAGE.split())
    assert f'at most {100.0 * most:.2f} % above' in words and 'results/accountant.json' in words
    assert f'{figures[0]["compared"]} random histories' in words


def test_no_run_spent_more_than_its_epsilon():
    for row in (*FOUND['arms'], *FOUND['moderate']['arms']):
        if row['epsilon_spent'] is not None:
            assert 0.99 * row['epsilon'] <= row['epsilon_spent'] <= row['epsilon']
