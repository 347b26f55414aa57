# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""The page on sepsis tells the numbers of its result file."""

import json
from pathlib import Path

from fdrl_ros.worlds.icu_sepsis.model import action_number
from fdrl_ros.worlds.icu_sepsis.study.settings import REPLAYS, Start
from fdrl_ros.worlds.icu_sepsis.study.summary import most_frequent
from fdrl_ros.worlds.icu_sepsis.study.tables import KINDS, pair_words
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
    levels = sorted([FOUND['phi'], *(float(each) for each in FOUND['arms'][0]['fae_at'])])
    made = []
    for phi in levels:
        for epsilon in dict.fromkeys(each['epsilon'] for each in FOUND['arms']):
            cells = []
            for replay in REPLAYS:
                (row,) = (
                    each
                    for each in FOUND['arms']
                    if (each['replay'], each['epsilon']) == (replay, epsilon)
                )
                wait = row['fae'] if phi == FOUND['phi'] else row['fae_at'][f'{phi:g}']
                low, high = (patients(each) for each in wait['quartiles'])
                cells.append(f'{patients(wait["median"])} [{low}, {high}]; {wait["reached"]}')
            made.append([f'{phi:g}', named(epsilon), *cells])
    return made


def mortality_rows():
    """Return the table of mortality: the arms without PER, and whom they are compared with."""
    made = []
    for name, each in FOUND['references'].items():
        values = [each['survival'], *(each['by_band'][band] for band in BANDS)]
        made.append([name, '', *(f'{100.0 * (1.0 - value):.2f}' for value in values)])
    for row in FOUND['arms']:
        if row['replay'] == 'poisson':
            values = [row['mortality'], *(row['mortality_by_band'][band] for band in BANDS)]
            cells = [told(value, 100.0, 2) for value in values]
            made.append(['DP-DQN' if row['epsilon'] else 'DQN', named(row['epsilon']), *cells])
    return made


def per_rows():
    """Return the table of what PER adds."""
    made = []
    for epsilon in dict.fromkeys(each['epsilon'] for each in FOUND['per']):
        own = {each['replay']: each for each in FOUND['per'] if each['epsilon'] == epsilon}
        cells = [told(own[replay]['gain'], 1.0, 2) for replay in list(REPLAYS)[1:]]
        made.append([named(epsilon), *cells])
    return made


def band_rows():
    """Return the table of what epsilon 8 costs."""
    return [
        [band, told(FOUND['bands'][band], 1.0, 2), f'{FOUND["paper"]["bands"][band]:+.1f}']
        for band in BANDS
    ]


def target_rows():
    """Return the table of targets."""
    settings = FOUND['settings']
    made = []
    for row in FOUND['targets']:
        usual = {
            'online': settings['patients'],
            'plain': settings['plain_rounds'] * settings['plain_patients'],
            'offline': settings['clinician_patients'],
            'plan': 0,
        }[row['kind']]
        made.append(
            [
                KINDS[row['kind']],
                f'{row["patients"] or usual:,}',
                Start(**row['public']).name,
                named(row['epsilon']),
                f'{row["start"]["mean"]:.4f}',
                told(row['final']),
                told(row['final_gain']),
            ]
        )
    return made


def action_rows():
    """Return the table of the most frequent actions."""
    made = []
    for name, bands in FOUND['heat_maps'].items():
        for band in BANDS:
            found, pair = bands[band]['shares'], most_frequent(bands[band])
            place = action_number(pair[1], pair[0])
            share = f'{100.0 * found["mean"][place]:.1f}'
            if found['low']:  # more than one run
                share = told({each: found[each][place] for each in found}, 100.0, 1)
            peak = FOUND['paper']['peaks'][name].get(band)
            paper = pair_words(peak) if peak else 'not told'
            made.append([name, band, pair_words(pair), share, paper])
    return made


TABLES = {
    '| policy | SOFA | most frequent here |': action_rows,
    '| survival | epsilon | no PER |': fae_rows,
    '| policy | epsilon | all |': mortality_rows,
    '| noise for epsilon |': per_rows,
    '| SOFA | here | paper |': band_rows,
    '| learning | patients |': target_rows,
}

# Tables of which the page shows some rows, and the result file all.
CHOSEN = ('| survival | epsilon | no PER |', '| learning | patients |')


@pytest.mark.parametrize('first', TABLES)
def test_the_page_tells_the_numbers_of_the_result_file(first):
    lines = PAGE.splitlines()
    (start,) = (number for number, line in enumerate(lines) if line.startswith(first))
    found = []
    for line in lines[start + 2 :]:
        if not line.startswith('|'):
            break
        found.append([each.strip() for each in line.strip('|').split('|')])
    whole = TABLES[first]()
    if first in CHOSEN:
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
