# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""Metrics of an episode: closed forms, what is missing, and the files that hold them."""

import dataclasses
import math

from fdrl_ros.errors import RecordsError, StateError
from fdrl_ros.metrics import StateSet, task_accuracy
from fdrl_ros.metrics.episode import (
    EpisodeMetrics,
    EpisodeTrace,
    log_dimensionless_jerk,
    measure_episode,
    path_length,
    write_csv,
    write_json,
)
from hypothesis import given, settings
from hypothesis import strategies as st
import numpy as np
import pytest
from support.metrics_files import read_csv, read_json

PERIOD = 0.05
READERS = {'csv': (write_csv, read_csv), 'json': (write_json, read_json)}


def minimum_jerk(count, length=0.1):
    """Return a reach of minimum jerk (Flash and Hogan 1985) along a slanted line."""
    time = np.linspace(0.0, 1.0, count)
    way = length * (10 * time**3 - 15 * time**4 + 6 * time**5)
    return way[:, None] * np.array([2.0, -1.0, 2.0]) / 3.0


def arrays(count=20, **changes):
    rng = np.random.default_rng(7)
    made = {
        'patient': 'hospital_1/test/3',
        'procedure': 'palpation',
        'success': True,
        'failure': '',
        'period': PERIOD,
        'tips': minimum_jerk(count + 1),
        'peak_forces': rng.uniform(0.0, 8.0, count),
        'mean_forces': rng.uniform(0.0, 8.0, count),
        'damages': np.cumsum(rng.uniform(0.0, 0.1, count)),
        'pressures': rng.uniform(55.0, 90.0, count),
        'news2': rng.integers(0, 8, count + 1),
        'sofa': rng.integers(0, 8, count + 1),
    }
    return {**made, **changes}


def measured(levels=(0.8, 3.4, 6.5), hypotension=65.0, state_set=None, chosen=None, **changes):
    trace = EpisodeTrace(**arrays(**changes))
    return measure_episode(
        trace, levels=levels, hypotension=hypotension, state_set=state_set, chosen=chosen
    )


def test_a_minimum_jerk_reach_has_the_jerk_of_its_closed_form():
    # Squared jerk integrates to 720 A^2 / T^5, the greatest speed is 15/8 A / T.
    closed = -math.log(720.0 / (15.0 / 8.0) ** 2)
    errors = []
    for count in (51, 101, 201, 401):
        value = log_dimensionless_jerk(minimum_jerk(count), 1.0 / (count - 1))
        errors.append(abs(value - closed))
    assert errors[-1] < 1e-3
    # It converges with the second order of the step.
    assert all(3.0 < coarse / fine for coarse, fine in zip(errors, errors[1:], strict=False))


@settings(deadline=None)
@given(st.floats(0.01, 100.0), st.floats(0.001, 10.0))
def test_jerk_has_no_dimension(length, period):
    way = np.cumsum(np.random.default_rng(1).normal(size=(30, 3)), axis=0)
    expected = log_dimensionless_jerk(way, 1.0)
    assert log_dimensionless_jerk(length * way, period) == pytest.approx(expected, rel=1e-9)


def test_tremor_is_less_smooth_than_a_reach():
    reach = minimum_jerk(101)
    tremor = reach + 1e-4 * np.sin(np.arange(101.0))[:, None]
    assert log_dimensionless_jerk(tremor, PERIOD) < log_dimensionless_jerk(reach, PERIOD)


def test_a_corner_counts_as_both_of_its_sides():
    assert path_length(np.array([[0.0, 0, 0], [0.003, 0, 0], [0.003, 0.004, 0]])) == (
        pytest.approx(0.007)
    )


@pytest.mark.parametrize('tips', [np.zeros((9, 3)), minimum_jerk(3), np.ones((4, 3))])
def test_smoothness_of_no_motion_is_undefined_not_zero(tips):
    assert math.isnan(log_dimensionless_jerk(tips, PERIOD))


def test_forces_and_vitals_are_added_up_as_written_out():
    given_arrays = arrays()
    found = measured()
    means = given_arrays['mean_forces'].tolist()
    assert found.time == pytest.approx(20 * PERIOD)
    assert found.path_length == pytest.approx(0.1)
    assert found.peak_force == max(given_arrays['peak_forces'])
    assert found.mean_force == pytest.approx(sum(means) / 20)
    assert found.force_time == pytest.approx(sum(each * PERIOD for each in means))
    for level, seconds in (
        (0.8, found.time_above_gentle),
        (3.4, found.time_above_firm),
        (6.5, found.time_above_severe),
    ):
        assert seconds == pytest.approx(PERIOD * sum(each > level for each in means))
    assert found.damage == given_arrays['damages'][-1]
    low = sum(each < 65.0 for each in given_arrays['pressures'])
    assert found.low_pressure_time == pytest.approx(PERIOD * low)
    assert found.worst_news2 == max(given_arrays['news2'])
    assert found.worst_sofa == max(given_arrays['sofa'])
    assert math.isnan(found.task_exact)
    assert found.states == ''


def test_times_of_finer_resolution_are_taken_where_known():
    above = {0.8: 0.4, 3.4: 0.3, 6.5: 0.0125}
    found = measured(time_above=above, low_pressure_time=0.25)
    times = (found.time_above_gentle, found.time_above_firm, found.time_above_severe)
    assert times == (0.4, 0.3, 0.0125)
    assert found.low_pressure_time == 0.25
    with pytest.raises(StateError, match=r'3\.4'):
        measured(time_above={0.8: 0.4, 6.5: 0.0})


def test_scores_are_the_worst_from_the_start_on():
    falling = np.arange(20, -1, -1)
    found = measured(news2=falling, sofa=falling + 1)
    assert (found.worst_news2, found.worst_sofa) == (20, 21)


def test_levels_and_hypotension_are_those_that_are_given():
    found = measured(levels=(0.0, 1.0, 9.0), hypotension=100.0)
    assert found.time_above_gentle == found.low_pressure_time == pytest.approx(found.time)
    assert found.time_above_severe == 0.0 < found.time_above_firm < found.time_above_gentle


def test_task_accuracy_comes_from_the_set_that_is_given():
    rng = np.random.default_rng(3)
    costs = rng.choice(np.arange(0, 1e-3, 1e-4), size=(30, 15))
    states = StateSet(rng.normal(size=(30, 4)), costs, costs.argmin(axis=1), np.zeros(30, int))
    chosen = rng.integers(0, 15, 30)
    found, expected = measured(state_set=states, chosen=chosen), task_accuracy(states, chosen)
    assert found.task_exact == expected.exact
    assert found.task_tolerant == expected.tolerant
    assert (found.chance_exact, found.ceiling_exact) == (
        expected.chance_exact,
        expected.ceiling_exact,
    )
    assert found.states == states.digest
    with pytest.raises(StateError, match='both'):
        measured(state_set=states)


def test_what_was_not_recorded_stays_missing():
    found = measured(damages=np.full(20, np.nan), mean_forces=np.full(20, np.nan))
    missing = (found.damage, found.mean_force, found.force_time, found.time_above_firm)
    assert all(map(math.isnan, missing))
    assert not math.isnan(found.peak_force)


@pytest.mark.parametrize(
    'changes',
    [
        {'tips': np.zeros((21, 2))},
        {'tips': np.zeros((1, 3))},
        {'peak_forces': np.zeros(19)},
        {'mean_forces': np.full(20, np.inf)},
        {'mean_forces': np.full(20, -1.0)},
        {'news2': np.zeros((21, 1))},
        {'sofa': np.zeros(20)},
        {'period': 0.0},
        {'success': True, 'failure': 'force'},
        {'low_pressure_time': -1.0},
        {'patient': 3},
    ],
)
def test_what_no_operation_can_have_is_refused(changes):
    with pytest.raises(StateError):
        measured(**changes)


numbers = st.floats(0.0, 1e9) | st.just(math.nan)
words = st.text(st.characters(exclude_categories=['Cs', 'Cc']), max_size=12)


@st.composite
def rows(draw):
    values = {}
    for each in dataclasses.fields(EpisodeMetrics):
        kinds = {float: numbers, bool: st.booleans(), str: words}
        values[each.name] = draw(kinds[each.type])
    if values['success']:
        values['failure'] = ''
    return EpisodeMetrics(**values)


@pytest.mark.parametrize('kind', READERS)
@settings(max_examples=25, deadline=None)
@given(episodes=st.lists(rows(), max_size=3))
def test_files_keep_every_bit(tmp_path_factory, kind, episodes):
    write, read = READERS[kind]
    path = tmp_path_factory.mktemp('metrics') / f'episodes.{kind}'
    write(path, episodes)
    assert [repr(each) for each in read(path)] == [repr(each) for each in episodes]
    assert [each.name for each in path.parent.iterdir()] == [path.name]


def test_the_heading_tells_units(tmp_path):
    write_csv(tmp_path / 'a.csv', [measured()])
    heading = (tmp_path / 'a.csv').read_text().splitlines()[0].split(',')
    assert 'force_time [N s]' in heading
    assert 'success' in heading


@pytest.mark.parametrize('write', [write_csv, write_json])
def test_a_missing_folder_is_told(tmp_path, write):
    with pytest.raises(RecordsError):
        write(tmp_path / 'none' / 'file', [])
