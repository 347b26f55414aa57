# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""Risk and its mitigation score: closed forms, bounds, and online against batch."""

import math

from fdrl_ros.errors import StateError
from fdrl_ros.metrics.risk import (
    case_risk,
    procedure_scale,
    risk_terms,
    RiskMeter,
)
from hypothesis import given
from hypothesis import strategies as st
import numpy as np
import pytest
from support.sample_size import sampled


def test_terms_match_the_formula_by_hand():
    terms = risk_terms([1.7, 5.0], [30.0, 600.0], [False, True], 3.4)
    np.testing.assert_allclose(terms.force, [0.5, 1.0])
    np.testing.assert_allclose(terms.damage, [0.1, 1.0])
    np.testing.assert_allclose(terms.critical, [0.0, 1.0])
    np.testing.assert_allclose(terms.total, [0.4 * 0.5 + 0.4 * 0.1, 1.0])


def test_online_does_not_drift_over_a_long_operation():
    meter = RiskMeter()
    for _ in range(sampled(200_000, 30_000)):
        risk = meter.add(0.1, 0.0, False, 3.4)
    assert abs(risk.mitigation - (1.0 - 0.4 * 0.1 / 3.4)) < 1e-14


@pytest.mark.parametrize(
    'bad', [(math.nan, 0, 1), (-1, 0, 1), (1, math.inf, 1), (1, 0, 0), (1, 0, math.nan)]
)
def test_impossible_numbers_are_refused_in_both_forms(bad):
    force, damage, limit = bad
    for refuse in (risk_terms, RiskMeter().add):
        with pytest.raises(StateError):
            refuse(force, damage, False, limit)


OWN = procedure_scale(2.4, 3.4, 3.0)
"""Of retraction: warning force and limit, N, and time allowed, s."""


def test_the_scale_of_a_procedure_by_hand():
    assert OWN == pytest.approx((2.4, 1.0 * 3.0))
    terms = risk_terms([2.2, 2.9, 5.0], [0.0, 0.3, 9.0], [False, False, True], 3.4, OWN)
    np.testing.assert_allclose(terms.force, [0.0, 0.5, 1.0])
    np.testing.assert_allclose(terms.damage, [0.0, 0.1, 1.0])
    np.testing.assert_allclose(terms.total, [0.0, 0.4 * 0.5 + 0.4 * 0.1, 1.0])


def test_the_limit_held_for_all_the_time_is_full_damage():
    held, ticks = np.full(60, 3.4), np.arange(1, 61)
    terms = risk_terms(held, 0.05 * np.cumsum(held - 2.4), np.zeros(60, bool), 3.4, OWN)
    np.testing.assert_allclose(terms.damage, ticks / 60)


@given(st.floats(0, 8), st.floats(0, 4), st.booleans(), st.floats(0, 5), st.floats(0, 3))
def test_risk_is_a_share_that_grows_with_force_damage_and_error(
    force, damage, critical, more_force, more_damage
):
    less = risk_terms(force, damage, critical, 3.4, OWN)
    more = risk_terms(force + more_force, damage + more_damage, True, 3.4, OWN)
    assert 0.0 <= less.total <= more.total <= 1.0 + 1e-15
    assert less.force == 0.0 or force > 2.4


@given(st.lists(st.floats(0.0, 1.0), min_size=1, max_size=12), st.integers(0, 11))
def test_only_who_does_the_work_has_a_case_risk_below_one(totals, end):
    total = np.array(totals)
    assert 0.0 <= case_risk(total, True) <= 1.0
    assert case_risk(total / 2, True) <= case_risk(total, True)
    for undone in (total, np.zeros_like(total), total[: end + 1]):
        assert case_risk(undone, False) == 1.0, 'neither keeping still nor an early end helps'


def test_the_risk_of_a_success_is_its_mean():
    assert case_risk(np.array([0.0, 0.5]), True) == 0.25


@pytest.mark.parametrize(
    'bad', [(1.0, 1.0, 3.0), (-0.1, 1.0, 3.0), (0.8, 1.1, 0.0), (0.8, 1.1, math.nan)]
)
def test_a_scale_without_room_is_refused(bad):
    with pytest.raises(StateError, match='warning force'):
        procedure_scale(*bad)


def test_a_limit_below_the_free_force_is_refused():
    with pytest.raises(StateError, match='above 2.4'):
        risk_terms(1.0, 0.0, False, 2.4, OWN)
