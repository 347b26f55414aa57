# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""Whether intervals hold the expectation: on problems of known coverage, and the command."""

import dataclasses
import json
from pathlib import Path
from statistics import NormalDist

from click.testing import CliRunner
from fdrl_ros.cli.commands import main
from fdrl_ros.cli.robot.selector import COLUMNS, coverage_table
from fdrl_ros.errors import RecordsError, SettingError, TrainingStopped
from fdrl_ros.experiments.run_directory import RunDirectory
from fdrl_ros.experiments.studies.experiment import run_training
from fdrl_ros.experiments.studies.selector import coverage, coverage_estimate
from fdrl_ros.experiments.studies.selector.coverage import CoverageSettings, run_coverage_study
from fdrl_ros.experiments.studies.selector.coverage_estimate import (
    coverage_of,
    shares_held,
    widening,
)
from fdrl_ros.runtime.progress import Caller
from fdrl_ros.selector import reference
from fdrl_ros.surgery.gym.state import PROCEDURE_NAMES
from fdrl_ros.surgery.gym.vector_operation import VectorOperation
from fdrl_ros.surgery.patient.cohort import mixture, public_cohort
from fdrl_ros.surgery.patient.matched_patients import matched_patients
import numpy as np
import pytest
from rich.console import Console
from support.small_run import SMALL_PLAN

PUBLIC = public_cohort(5, 1.0, PROCEDURE_NAMES)
FIRST = 10**6
NOMINAL = (0.5, 0.8, 0.9, 0.95)


@pytest.mark.parametrize('procedure', PROCEDURE_NAMES)
def test_who_is_redrawn_is_seen_as_before_and_is_another(procedure):
    everyone = mixture(3, 1.0, 5, PROCEDURE_NAMES)
    for index in range(3):
        patient = everyone.patient(index, 'test', procedure)
        drawn = matched_patients(patient, PUBLIC, 10, np.random.default_rng(index), FIRST)
        states = VectorOperation([patient, *drawn]).reset()
        np.testing.assert_allclose(states[1:], states[[0] * 10], atol=5e-6)
        for name in ('young_modulus', 'damping', 'registration_error', 'breathing_amplitude'):
            assert len({getattr(each, name) for each in (patient, *drawn)}) == 11
    # Where the waypoint circles, starts go along with it but stay where patients start.
    aside = np.array([np.subtract(each.start, each.goal) for each in drawn])
    assert np.abs(aside[:, :2]).max() <= 0.012
    x, y, z = patient.start
    away = dataclasses.replace(patient, start=(x, y, z + 0.05))
    with pytest.raises(RecordsError, match='0 of'):
        matched_patients(away, PUBLIC, 1, np.random.default_rng(0), FIRST)


def test_what_is_hidden_keeps_its_distribution_given_what_is_seen():
    """Whoever is drawn given what a patient shows is as patients are, over many patients."""
    seen = [PUBLIC.patient(number, procedure='palpation') for number in range(400)]
    drawn = []
    for number, patient in enumerate(seen):
        try:
            rng = np.random.default_rng(number)
            drawn += matched_patients(patient, PUBLIC, 1, rng, FIRST + 1000 * number)
        except RecordsError:  # nobody in some dozens
            drawn.append(patient)
    assert sum(one is other for one, other in zip(seen, drawn, strict=True)) <= 4
    # At most 4 standard errors apart: a false alarm has a chance below 1e-3 for the four.
    for name in ('breathing_amplitude', 'young_modulus', 'servo_lag', 'registration_error'):
        one, two = ([getattr(each, name) for each in some] for some in (drawn, seen))
        error = (np.var(one) / len(one) + np.var(two) / len(two)) ** 0.5
        assert abs(np.mean(one) - np.mean(two)) < 4.0 * error
        assert np.std(one) == pytest.approx(np.std(two), rel=0.2)
    deep = (
        [each.breathing_amplitude for each in seen],
        [each.breathing_amplitude for each in drawn],
    )
    assert np.corrcoef(*deep)[0, 1] > 0.2  # the surface and the rate tell some of the depth


@pytest.mark.parametrize('noise', [0.1, 0.5])
def test_a_calibrated_model_covers_what_it_says_and_a_bold_one_does_not(noise):
    rng = np.random.default_rng(3)
    count = 2000
    seen = rng.normal(size=count) + noise * rng.normal(size=count)
    honest = shares_held(seen, np.full(count, noise), NOMINAL)
    bold = shares_held(2.0 * seen, np.full(count, 2.0 * noise), NOMINAL)
    normal = NormalDist()
    for held, halved, nominal in zip(honest, bold, NOMINAL, strict=True):
        # Binomial standard error 0.011 at most; what the noise hides costs as much again.
        assert held == pytest.approx(nominal, abs=0.035)
        factor = normal.inv_cdf(0.5 + nominal / 2)
        assert halved == pytest.approx(2 * normal.cdf(factor / 2) - 1, abs=0.035)


@pytest.mark.parametrize('factor', [0.5, 1.0, 2.0])
def test_what_is_too_narrow_is_told_by_how_much(factor):
    rng = np.random.default_rng(8)
    seen = factor * rng.normal(size=4000) + 0.3 * rng.normal(size=4000)
    assert widening(seen, np.full(4000, 0.3), 0.9) == pytest.approx(factor, rel=0.08)


def test_intervals_of_coverage_count_patients_not_states(monkeypatch):
    monkeypatch.setattr(coverage_estimate, 'RESAMPLES', 50)
    rng = np.random.default_rng(5)
    patients = np.repeat(np.arange(40), 10)
    shared = np.repeat(rng.normal(size=40), 10)
    wide, narrow = (
        coverage_of(shared, np.full(400, 0.1), names, (0.9,))[0]
        for names in (patients, np.arange(400))
    )
    assert wide['coverage'] == narrow['coverage']
    assert wide['high'] - wide['low'] > 2.0 * (narrow['high'] - narrow['low'])


def test_the_expectation_at_a_state_is_found_among_neighbours():
    rng = np.random.default_rng(6)
    slope = np.array([2.0, 0.0, -1.0, 0.0])
    off = []
    for _ in range(100):
        states = rng.normal(size=(600, 4))
        returns = states @ slope + 1.5 + rng.normal(size=600)
        state = 0.5 * rng.normal(size=4)
        found = reference(state, states, returns, 100)
        assert found is not None and not found.exact and found.count == 100
        off.append((found.mean - state @ slope - 1.5) / found.error)
    assert abs(np.mean(off)) < 0.35 and 0.8 < np.std(off) < 1.25


def test_the_very_same_states_are_averaged_as_they_are():
    rng = np.random.default_rng(7)
    states = np.zeros((300, 3))
    states[200:, 1] = 5.0
    returns = rng.normal(size=300) + states[:, 1]
    found = reference(np.zeros(3), states, returns, 100)
    assert found is not None and found.exact and found.count == 200
    assert found.mean == pytest.approx(returns[:200].mean())
    assert found.error == pytest.approx(returns[:200].std(ddof=1) / 200**0.5)
    assert reference(np.zeros(3), states[:150], returns[:150], 100) is None


@pytest.mark.parametrize(
    'change',
    [{'policies': ()}, {'policies': ('global', 'global')}, {'patients': 1}, {'redraws': 10}]
    + [{'states': -1}, {'seed': -1}, {'patients': 1000}],
)
def test_what_cannot_be_measured_is_refused(change):
    with pytest.raises(SettingError):
        CoverageSettings(**change)


@pytest.fixture(scope='module')
def run(tmp_path_factory):
    few = {'patients': 8, 'features': 8, 'groups': 4, 'checked': 2, 'redraws': 16}
    calm = {'gap': 0.0, 'disturbances': False}
    plan = SMALL_PLAN.changed({'value': few, 'federation': calm})
    folder = tmp_path_factory.mktemp('coverage') / 'run'
    run_training(folder, plan)
    return RunDirectory(folder), plan


SMALL = CoverageSettings(('global', 'hold'), patients=2, states=1, redraws=200)


def test_an_interrupted_measurement_goes_on_and_ends_the_same(run, monkeypatch):
    directory, plan = run
    monkeypatch.setattr(coverage_estimate, 'RESAMPLES', 20)

    def parts():
        return {each: each.stat().st_mtime_ns for each in directory.path.glob('coverage/*/*.json')}

    with pytest.raises(TrainingStopped):
        run_coverage_study(directory, plan, SMALL, Caller(stopped=lambda: len(parts()) == 1))
    before = parts()
    assert len(before) == 1
    found = run_coverage_study(directory, plan, SMALL)
    assert [each['procedure'] for each in found] == list(plan.federation.names)
    assert len(parts()) == 2 and before.items() <= parts().items()
    for path in parts():
        path.unlink()
    assert run_coverage_study(directory, plan, SMALL) == found
    for part in found:
        columns = part['policies']['global']
        assert sum(columns['start']) == 1 and len(columns['mean']) >= 2
        assert all(
            one for one, start in zip(columns['exact'], columns['start'], strict=True) if start
        )


def test_the_command_tells_and_writes_coverage(run, monkeypatch):
    directory, _ = run
    file = directory.path / 'figures.json'
    monkeypatch.setattr(coverage_estimate, 'RESAMPLES', 20)
    words = ('--policies', 'global,hold', '--patients', 2, '--states', 1, '--redraws', 200)
    done = CliRunner().invoke(
        main, [*map(str, ('selector', 'coverage', directory.path, *words, '--json', file))]
    )
    assert done.exit_code == 0, done.output
    rows = json.loads(Path(file).read_text())['rows']
    assert {each['procedure'] for each in rows} == {'reach', 'palpation', 'all'}
    for row in rows:
        held = [each['coverage'] for each in row['coverage']]
        assert held == sorted(held) and [x['confidence'] for x in row['coverage']] == [*NOMINAL]
        assert all(each['low'] <= each['high'] for each in row['coverage'])
    assert 'E[J given s]' in done.output


@pytest.mark.parametrize(('patients', 'shown'), [(4, '90'), (5, '90 [80, 100]')])
def test_of_few_patients_the_table_shows_a_mean_alone(patients, shown):
    share = {'coverage': 0.9, 'low': 0.8, 'high': 1.0}
    row = {'policy': 'global', 'procedure': 'all', 'kind': 'start', 'states': 40}
    row |= {'patients': patients, 'coverage': [share] * len(NOMINAL)}
    table = coverage_table({'rows': [row | dict.fromkeys(COLUMNS, 1.0)]})
    console = Console(width=200)
    with console.capture() as captured:
        console.print(table)
    cells = [each.strip() for each in captured.get().split('│')]
    assert cells.count(shown) == len(NOMINAL)


@pytest.mark.parametrize('policies', ['pretrained'])
def test_a_policy_or_run_that_is_not_there_is_refused(run, tmp_path, policies):
    words = ['selector', 'coverage', str(run[0].path), '--policies', policies]
    done = CliRunner().invoke(main, words)
    assert done.exit_code == 1 and policies in done.output
    done = CliRunner().invoke(main, ['selector', 'coverage', str(tmp_path)])
    assert done.exit_code == 1 and 'no run' in done.output


def test_patients_whom_nobody_looks_like_are_left_out(run, monkeypatch):
    directory, plan = run
    meet, drawn = coverage.draw_meeting, []

    def some(*given):
        drawn.append(given)
        if len(drawn) % 2 == 0:  # the second patient of each procedure
            raise RecordsError('nobody looks like that')
        return meet(*given)

    monkeypatch.setattr(coverage, 'draw_meeting', some)
    few = CoverageSettings(('hold',), patients=2, states=2, redraws=200)
    for part in run_coverage_study(directory, plan, few):
        assert set(part['policies']['hold']['patient']) == {0}
        assert part['policies']['hold']['left_out'] >= 3
