# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""Metrics of an episode: closed forms, what is missing, and the files that hold them."""

import dataclasses
import math

from fdrl_ros.errors import RecordsError, StateError
from fdrl_ros.metrics.episode import (
    EpisodeMetrics,
    log_dimensionless_jerk,
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


def episode(**changes):
    """Return the metrics of an operation, all numbers 1."""
    values = {each.name: each.type(1) for each in dataclasses.fields(EpisodeMetrics)}
    return EpisodeMetrics(**{**values, 'success': False, **changes})


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
    tremor = minimum_jerk(101) + 1e-4 * np.sin(np.arange(101.0))[:, None]
    assert log_dimensionless_jerk(tremor, 0.01) < closed - 1.0


@settings(deadline=None)
@given(st.floats(0.01, 100.0), st.floats(0.001, 10.0))
def test_jerk_has_no_dimension(length, period):
    way = np.cumsum(np.random.default_rng(1).normal(size=(30, 3)), axis=0)
    expected = log_dimensionless_jerk(way, 1.0)
    assert log_dimensionless_jerk(length * way, period) == pytest.approx(expected, rel=1e-9)


def test_a_corner_counts_as_both_of_its_sides():
    assert path_length(np.array([[0.0, 0, 0], [0.003, 0, 0], [0.003, 0.004, 0]])) == (
        pytest.approx(0.007)
    )


@pytest.mark.parametrize('tips', [np.zeros((9, 3)), minimum_jerk(3), np.ones((4, 3))])
def test_smoothness_of_no_motion_is_undefined_not_zero(tips):
    assert math.isnan(log_dimensionless_jerk(tips, PERIOD))


@pytest.mark.parametrize(
    'changes',
    [
        {'mean_force': math.inf},
        {'mean_force': -1.0},
        {'worst_sofa': True},
        {'success': True, 'failure': 'force'},
        {'patient': 3},
    ],
)
def test_what_no_operation_can_have_is_refused(changes):
    with pytest.raises(StateError):
        episode(**changes)


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
@settings(max_examples=15, deadline=None)
@given(episodes=st.lists(rows(), max_size=3))
def test_files_keep_every_bit(tmp_path_factory, kind, episodes):
    write, read = READERS[kind]
    path = tmp_path_factory.mktemp('metrics') / f'episodes.{kind}'
    write(path, episodes)
    assert [repr(each) for each in read(path)] == [repr(each) for each in episodes]
    assert [each.name for each in path.parent.iterdir()] == [path.name]
    assert kind == 'json' or 'force_time [N s]' in path.read_text().splitlines()[0]


@pytest.mark.parametrize('write', [write_csv, write_json])
def test_a_missing_folder_is_told(tmp_path, write):
    with pytest.raises(RecordsError):
        write(tmp_path / 'none' / 'file', [])
