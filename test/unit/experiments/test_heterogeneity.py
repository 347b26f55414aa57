# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""Heterogeneity: one law at H = 0, distances by closed forms, and the measurement that resumes."""

import json

from click.testing import CliRunner
from fdrl_ros.cli import main
from fdrl_ros.experiments.studies import heterogeneity
from fdrl_ros.experiments.studies.distance import (
    distances,
    LEANING,
    OTHERS,
    pooled_spread,
    sample_of,
    total_variation,
    two_sample_tests,
)
from fdrl_ros.experiments.studies.heterogeneity import (
    curve_of,
    LEVELS,
    over_levels,
    verdict,
)
from fdrl_ros.surgery.gym.state import PROCEDURE_NAMES
from fdrl_ros.surgery.patient.cohort import Cohort
import numpy as np
import pytest

FLAGS = (
    '--learner-hidden 4 --collection-patients 2 --pretraining-steps 4 --pretraining-batch 8 '
    '--pretraining-patients 2 --evaluation-patients 3 --evaluation-workers 1 '
    '--world-mode kinematic --world-horizon 8'
)


def hospitals(level, count=200, seed=0):
    cohorts = [Cohort(each, 3, level, seed, procedures=PROCEDURE_NAMES) for each in range(3)]
    return [[each.patient(index, 'test') for index in range(count)] for each in cohorts]


def corrected_p(level):
    drawn = hospitals(level)
    done = [[patient.procedure.name for patient in each] for each in drawn]
    return two_sample_tests([sample_of(each) for each in drawn], done)


# One law.


def test_at_zero_a_two_sample_test_agrees_and_at_one_it_rejects():
    """False alarm at H = 0: at most 1 in 100 over seeds, after Holm; the seed is fixed."""
    alike, apart = corrected_p(0.0), corrected_p(1.0)
    assert min(alike.values()) > 0.01
    for name in (*LEANING, 'procedure'):
        assert apart[name] < 1e-6, name
    assert min(apart[name] for name in OTHERS) > 0.01
    assert corrected_p(0.25)['log stiffness'] < 1e-6


# Distances.


def test_the_distance_of_two_shifted_samples_is_the_shift_in_spreads():
    values = np.random.default_rng(1).standard_normal(500)
    samples = [{'a': values}, {'a': values + 3.0}, {'a': values - 1.0}]
    # Pairs are 3, 1 and 4 apart.
    assert distances(samples, {'a': 2.0})['a'] == pytest.approx((3.0 + 1.0 + 4.0) / 3.0 / 2.0)
    assert distances(samples, {'a': 0.0})['a'] == 0.0
    assert pooled_spread(samples)['a'] == pytest.approx(
        np.concatenate([each['a'] for each in samples]).std()
    )


def test_total_variation_by_hand():
    assert total_variation([['a', 'a'], ['b', 'b']]) == 1.0
    assert total_variation([['a', 'b'], ['b', 'a']]) == 0.0
    assert total_variation([['a', 'b'], ['a', 'c'], ['a', 'b']]) == pytest.approx(1.0 / 3.0)


# Summing up.


def test_success_lost_abroad_is_home_minus_elsewhere():
    part = {
        'quantities': dict.fromkeys(LEANING, 0.5),
        'mix_of_all_procedures': 0.25,
        'success': [[0.9, 0.5, 0.1], [0.2, 0.8, 0.4], [0.3, 0.3, 1.0]],
    }
    curve = curve_of(part)
    assert curve == pytest.approx(
        {'distance': 0.5, 'mix': 0.25, 'loss': 0.6, 'home': 0.9, 'elsewhere': 0.3}
    )


def test_rises_are_paired_over_seeds_and_said_plainly():
    rising = over_levels([[0.0, 0.1, 0.3, 0.5, 0.6], [0.2, 0.301, 0.5, 0.702, 0.8]])
    assert rising['at'][0]['mean'] == pytest.approx(0.1)
    assert rising['rises'][0]['mean'] == pytest.approx(0.1005)
    assert rising['rises'][0]['values'] == pytest.approx([0.1, 0.101])
    assert rising['means_rise'] and rising['every_rise_resolved']
    flat = over_levels([[0.0, 0.1, 0.3, 0.2, 0.3], [0.0, 0.2, 0.4, 0.3, 0.3]])
    assert not flat['means_rise'] and not flat['every_rise_resolved']
    summary = {'levels': list(LEVELS), 'curves': {'distance': rising, 'loss': flat}}
    assert verdict(summary, 'distance') == 'distance grows with H'
    words = verdict(summary, 'loss')
    assert words.startswith('loss does not grow from H = 0.5 to 0.75')
    assert '0.75 to 1' in words.partition(';')[2]


def test_intervals_are_cut_to_what_can_be():
    wide = [[0.1, 0.9], [0.9, 1.0]]
    low, high = (over_levels(wide, (0.0, 1.0))['at'][0][each] for each in ('low', 'high'))
    assert (low, high) == (0.0, 1.0)
    free = over_levels(wide)
    assert free['at'][0]['low'] < 0.0 < 1.0 < free['at'][0]['high']
    assert over_levels(wide, (0.0, 1.0))['rises'] == free['rises']


# The measurement.


@pytest.fixture(autouse=True)
def few_patients(monkeypatch):
    monkeypatch.setattr(heterogeneity, 'DRAWN', 12)
    monkeypatch.setattr(heterogeneity, 'LEVELS', (0.0, 1.0))


def test_the_command_writes_numbers_a_table_and_a_plot(tmp_path):
    words = ['heterogeneity', '--seeds', '2', '--directory', str(tmp_path / 'out'), *FLAGS.split()]
    result = CliRunner().invoke(main, words)
    assert result.exit_code == 0, result.output
    assert 'not a medical device' in result.output and 'distance grows with H' in result.output
    assert 'elsewhere, %' in result.output and 'loss: success at home minus' in result.output
    summary = json.loads((tmp_path / 'out/heterogeneity.json').read_text())
    assert summary['seeds'] == [1, 2] and summary['levels'] == [0.0, 1.0]
    assert np.shape(summary['success']) == (2, 3, 3)
    rows = (tmp_path / 'out/heterogeneity.csv').read_text().splitlines()
    curves = len(summary['curves']) + len(summary['quantities']) + 1
    assert rows[0] == 'name,H,mean,low,high' and len(rows) == 1 + 2 * curves
    assert (tmp_path / 'out/heterogeneity.png').read_bytes().startswith(b'\x89PNG')
