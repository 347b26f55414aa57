# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""Whom hospitals admit, what their clinicians did, public guesses, and what the page says."""

import importlib.util
import json
from pathlib import Path
import re

from fdrl_ros.errors import SettingError
from fdrl_ros.worlds.icu_sepsis.assets import icu_sepsis, INSTALL, PACKAGE
from fdrl_ros.worlds.icu_sepsis.episodes import (
    clinician_records,
    federation,
    sample_stays,
    SepsisHospital,
)
from fdrl_ros.worlds.icu_sepsis.model import DEATH, PATIENT_STATES, REWARD, uniform_policy
from fdrl_ros.worlds.icu_sepsis.perturbed import perturbed
from fdrl_ros.worlds.icu_sepsis.records import CLIP, FEATURES, sepsis_records
from fdrl_ros.worlds.icu_sepsis.values import (
    band_of,
    BANDS,
    optimum,
    survival,
    survival_by_band,
    visits,
)
from fdrl_ros.worlds.mimic.columns import MIMIC_FEATURES
from hypothesis import given, settings, strategies
import numpy as np
import pytest
from support.sample_size import sampled

ROOT = Path(__file__).resolve().parents[3]
PAGE = (ROOT / 'docs' / 'sepsis.md').read_text('utf-8')
RESULTS = ROOT / 'docs' / 'results' / 'sepsis_perturbed.json'

pytestmark = pytest.mark.skipif(
    importlib.util.find_spec(PACKAGE) is None, reason=f'needs {INSTALL}'
)


@pytest.fixture(scope='module')
def model():
    return icu_sepsis()


def rows(first):
    """Return the rows of the page's table whose first heading is given."""
    table = PAGE[PAGE.index(f'| {first} |') :].split('\n\n')[0].splitlines()
    return [[each.strip() for each in line.strip('|').split('|')] for line in table[2:]]


@settings(max_examples=15, deadline=None)
@given(
    hospitals=strategies.integers(1, 12),
    heterogeneity=strategies.floats(0.0, 1.0),
    seed=strategies.integers(0, 2**32),
)
def test_hospitals_together_admit_everyone(hospitals, heterogeneity, seed):
    model = icu_sepsis()
    mixes = [each.start(model) for each in federation(hospitals, heterogeneity, seed)]
    assert all(mix.sum() == pytest.approx(1.0, abs=1e-12) for mix in mixes)
    assert np.abs(np.mean(mixes, axis=0) - model.start).max() < 1e-15


@settings(max_examples=sampled(8, 3), deadline=None)
@given(hospitals=strategies.integers(2, 8), seed=strategies.integers(0, 2**32))
def test_mixes_move_from_equal_to_apart_in_a_straight_line(hospitals, seed):
    model = icu_sepsis()
    same, half, apart = (
        [each.start(model) for each in federation(hospitals, h, seed)] for h in (0.0, 0.5, 1.0)
    )
    for mixes in zip(same, half, apart, strict=True):
        assert np.array_equal(mixes[0], same[0])
        assert mixes[1] == pytest.approx((mixes[0] + mixes[2]) / 2.0, abs=1e-15)
    # At H = 1 two neighbours share at most the state where the cut falls.
    assert (np.sum(np.array(apart) > 0.0, axis=0) > 1).sum() <= hospitals - 1


def test_hospitals_are_ordered_by_severity_and_seeds_shuffle_them(model):
    hospitals = federation(4, 1.0, 7)
    by_part = sorted(hospitals, key=lambda each: each.part)
    severity = [each.start(model) @ model.sofa for each in by_part]
    chances = [survival(model, model.clinicians, each.start(model)) for each in by_part]
    assert severity == sorted(severity) and severity[-1] - severity[0] > 4.0
    assert chances[0] > chances[-1]
    assert len({tuple(each.part for each in federation(4, 1.0, seed)) for seed in range(20)}) > 5
    assert [each.name for each in hospitals] == [f'hospital_{i}' for i in (1, 2, 3, 4)]


@pytest.mark.parametrize(
    'given', [(3, 3, 0.5, 0), (0, 0, 0.5, 0), (0, 1, 1.5, 0), (0, 1, float('nan'), 0)]
)
def test_what_is_no_hospital_is_refused(given):
    with pytest.raises(SettingError):
        SepsisHospital(*given)


def test_roll_outs_agree_with_the_linear_solve(model):
    # Seeded; a right sampler is 4 deviations off with chance 6e-5, each.
    count = 5_000
    for policy in (model.clinicians, optimum(model).actions, uniform_policy()):
        hospital = SepsisHospital(1, 3, 0.7, 5)
        stays = sample_stays(model, policy, count, 11, hospital)
        chance = survival(model, policy, hospital.start(model))
        deviation = np.sqrt(chance * (1.0 - chance) / count)
        assert abs(stays.survived.mean() - chance) < 4.0 * deviation
        lengths = np.diff(stays.starts)
        steps = visits(model, policy, hospital.start(model)).sum()
        assert abs(lengths.mean() - steps) < 4.0 * lengths.std() / np.sqrt(count)


def test_stays_hang_together():
    stays = clinician_records(3000, 1)
    last = stays.starts[1:] - 1
    assert np.array_equal(np.flatnonzero(stays.terminals), last)
    inside = ~stays.terminals
    assert np.array_equal(stays.next_states[inside], stays.states[np.flatnonzero(inside) + 1])
    assert not stays.rewards[inside].any()
    assert np.array_equal(stays.rewards[last], REWARD * (2.0 * stays.survived - 1.0))
    assert stays.states.max() < PATIENT_STATES and (stays.next_states[last] >= DEATH).all()


def test_a_patient_is_its_seed_s_hospital_s_and_number_s_whoever_else_is_treated():
    few, many = (clinician_records(count, 3) for count in (40, 500))
    end = few.starts[-1]
    assert np.array_equal(few.starts, many.starts[:41])
    for name in ('states', 'actions', 'next_states', 'rewards'):
        assert np.array_equal(getattr(few, name), getattr(many, name)[:end])
    others = [clinician_records(50, 3, each) for each in (None, *federation(2, 0.0, 1))]
    others.append(clinician_records(50, 4))
    assert len({each.states[:50].tobytes() for each in others}) == 4
    for patients, seed in ((0, 1), (5, -1)):
        with pytest.raises(SettingError):
            clinician_records(patients, seed)


def test_stays_become_records_with_one_unit_each(model):
    stays = clinician_records(200, 5, SepsisHospital(0, 3, 0.5, 0))
    records = sepsis_records(stays, model, prefix='hospital_1')
    assert records.n_patients == 200 and records.patients[7] == 'hospital_1_000007'
    assert records.states.shape == (len(stays.states), 47) and records.states.dtype == np.float32
    assert np.abs(records.states).max() <= CLIP
    assert not records.next_states[records.terminals].any()
    assert records.digest() == sepsis_records(stays, model, prefix='hospital_1').digest()
    hot = sepsis_records(stays, model, 'one_hot')
    assert np.array_equal(hot.states.argmax(axis=1), stays.states)
    assert np.array_equal(sepsis_records(stays, model, 'state').states[:, 0], stays.states)
    with pytest.raises(SettingError):
        sepsis_records(stays, model, 'pixels')


@settings(max_examples=2, deadline=None)
@given(
    concentration=strategies.floats(1.0, 1e4),
    blend=strategies.floats(0.0, 1.0),
    seed=strategies.integers(0, 2**32),
)
def test_public_guess_keeps_what_is_possible(concentration, blend, seed):
    model = icu_sepsis()
    guess = perturbed(model, concentration, seed, blend)
    assert guess.rows.sum(axis=1) == pytest.approx(1.0)
    table = guess.rows[guess.row_of]
    reachable = model.rows[model.row_of].any(axis=1)
    assert not (table.any(axis=1) & ~reachable).any()
    weights = model.admissible / model.admissible.sum(axis=1, keepdims=True)
    mean = np.einsum('sa,sat->st', weights, table)
    others = np.flatnonzero(~model.admissible.all(axis=1))
    action = (~model.admissible[others]).argmax(axis=1)
    assert np.abs(table[others, action] - mean[others]).max() < 1e-12


def test_public_guess_comes_near_the_truth_and_repeats(model):
    assert np.abs(perturbed(model, 1e12, 0).rows - model.rows).max() < 1e-4
    first, again, other = (perturbed(model, 10.0, seed).rows for seed in (1, 1, 2))
    assert np.array_equal(first, again) and not np.array_equal(first, other)
    for bad in ((0.5, 0, 0.0), (10.0, -1, 0.0), (10.0, 0, 1.5), (float('inf'), 0, 0.0)):
        with pytest.raises(SettingError):
            perturbed(model, *bad)


def test_table_of_guesses_is_that_of_its_result_file(model):
    found = json.loads(RESULTS.read_text('utf-8'))
    told = {
        (float(row[0]), blend): cell
        for row in rows('concentration c')
        for blend, cell in zip((0.0, 0.25, 0.5, 0.75, 1.0), row[1:], strict=True)
    }
    assert len(told) == len(found['figures'])
    for each in found['figures']:
        cell = told[each['concentration'], each['blend']]
        assert cell == f'{each["mean"]:.3f} ± {each["deviation"]:.3f}'
        if (each['concentration'], each['blend']) in {(30, 0.0), (300, 0.5)}:
            guess = perturbed(model, each['concentration'], 0, each['blend'])
            again = survival(model, optimum(guess).actions)
            assert again == pytest.approx(each['survival'][0], abs=1e-4)


def test_values_on_the_page_are_exact(model):
    policies = {
        'uniform': uniform_policy(),
        'clinicians': model.clinicians,
        'optimum': optimum(model).actions,
    }
    lying = visits(model, model.clinicians).sum(axis=1)
    for name, whole, *cells in rows('policy'):
        policy = policies.pop(name)
        assert float(whole) == pytest.approx(survival(model, policy), abs=6e-5)
        found = [survival_by_band(model, policy, each) for each in (None, lying)]
        exact = [each[band] for each in found for band in BANDS]
        assert [float(each) for each in cells] == pytest.approx(exact, abs=6e-4)
    assert not policies
    three = [
        survival(model, model.clinicians, each.start(model)) for each in federation(3, 1.0, 0)
    ]
    words = ' '.join(PAGE.split())
    told = re.search(r'three hospitals bring (\S+), (\S+) and (\S+) of their', words).groups()
    assert [float(each) for each in told] == pytest.approx(sorted(three, reverse=True), abs=6e-4)
    for (band, states, admitted, there), number in zip(rows('band'), range(3), strict=True):
        inside = band_of(model.sofa) == number
        assert band.startswith(BANDS[number]) and int(states) == inside.sum()
        shares = [model.start[inside].sum(), lying[inside].sum() / lying.sum()]
        assert [float(each.rstrip(' %')) / 100 for each in (admitted, there)] == pytest.approx(
            shares, abs=6e-5
        )


def test_columns_are_documented_one_by_one():
    expected = [
        [
            str(number),
            f'`{each.name}`',
            each.unit,
            f'{each.lowest:g} to {each.highest:g}',
            f'{each.low:g} to {each.high:g}',
            'log' if each.log else '',
        ]
        for number, each in enumerate(MIMIC_FEATURES)
    ]
    assert rows('number') == expected
    assert tuple(each.name for each in MIMIC_FEATURES) == FEATURES


@pytest.mark.parametrize('block', re.findall(r'```python\n(.*?)```', PAGE, re.DOTALL))
def test_python_on_the_page_runs(block):
    exec(compile(block, 'sepsis.md', 'exec'), {})
