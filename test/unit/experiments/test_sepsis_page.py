# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""The page on sepsis tells the numbers of its result file."""

import json
from pathlib import Path

from fdrl_ros.experiments.studies.sepsis.settings import REPLAYS, Start
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


def fae_rows():
    """Return the table of FAE: one row for each survival and epsilon."""
    arms = {(each['replay'], each['epsilon']): each for each in FOUND['arms']}
    for phi in levels_of(FOUND):
        for epsilon in dict.fromkeys(each['epsilon'] for each in FOUND['arms']):
            cells = []
            for replay in REPLAYS:
                wait = row_at(arms[replay, epsilon], phi, FOUND)
                median, low, high = map(patients, (wait['median'], *wait['quartiles']))
                cells.append(f'{median} [{low}, {high}]; {wait["reached"]}')
            yield [f'{phi:g}', named(epsilon), *cells]


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
    '| policy | epsilon | all |': mortality_rows,
    '| noise for epsilon |': per_rows,
    '| SOFA | here | paper |': band_rows,
    '| learning | patients |': target_rows,
}
CHOSEN = (fae_rows, target_rows)
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
    runs = {each['runs'] for each in FOUND['arms']}
    seeds = {each['runs'] for each in FOUND['targets']}
    assert len(runs) == 1 and f'{runs.pop()} runs of each' in PAGE
    assert len(seeds) == 1 and f'{seeds.pop()} seeds' in PAGE
    assert FOUND['unit'] == 'patient' and FOUND['delta'] == 1e-6 and 'delta 1e-6' in PAGE


def test_the_page_tells_how_near_the_accountant_is():
    figures = json.loads((DOCS / 'results' / 'accountant.json').read_text('utf-8'))['figures']
    most = figures[0]['most above the pessimistic bound']
    words = ' '.join(PAGE.split())
    assert f'at most {100.0 * most:.2f} % above' in words and 'results/accountant.json' in words
    assert f'{figures[0]["compared"]} random histories' in words


def test_no_run_spent_more_than_its_epsilon():
    for row in FOUND['arms']:
        if row['epsilon_spent'] is not None:
            assert 0.99 * row['epsilon'] <= row['epsilon_spent'] <= row['epsilon']
