# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""Risk and its mitigation score: closed forms, bounds, and online against batch."""

import math

from fdrl_ros.errors import StateError
from fdrl_ros.metrics.risk import (
    case_risk,
    procedure_scale,
    risk_adjusted_success,
    risk_terms,
    RiskAdjustedSuccess,
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

shares = st.floats(0.0, 1.0)
cases_strategy = st.lists(
    st.tuples(st.lists(shares, min_size=1, max_size=12), st.booleans()), min_size=1, max_size=8
)


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
    less = RiskMeter().add(force, damage, critical, 3.4, OWN)
    more = RiskMeter().add(force + more_force, damage + more_damage, True, 3.4, OWN)
    assert 0.0 <= less.total <= more.total <= 1.0 + 1e-15
    batch = risk_terms(force, damage, critical, 3.4, OWN)
    assert less[:4] == pytest.approx(tuple(map(float, batch)), abs=1e-15)


@given(cases_strategy)
def test_risk_adjusted_success_online_equals_batch_and_is_never_above_success(raw):
    meter = RiskAdjustedSuccess()
    for totals, success in raw:
        for total in totals:
            meter.add(total)
        meter.end_case(success)
    cases = [(np.array(totals), success) for totals, success in raw]
    batch = risk_adjusted_success(cases)
    assert meter.value == pytest.approx(batch, abs=1e-12)
    assert meter.cases == len(raw)
    assert 0.0 <= batch <= np.mean([success for _, success in raw]) + 1e-12


@given(cases_strategy)
def test_less_risk_wins_only_where_the_work_is_done(raw):
    calm = [(np.zeros(len(totals)), success) for totals, success in raw]
    scored = risk_adjusted_success([(np.array(totals), success) for totals, success in raw])
    assert scored <= risk_adjusted_success(calm) + 1e-12
    undone = [(totals, False) for totals, _ in calm]
    assert risk_adjusted_success(undone) == 0.0, 'nobody scores by keeping still'


def test_a_case_without_success_bears_the_whole_risk():
    assert case_risk(np.array([0.0, 0.5]), True) == 0.25
    assert case_risk(np.zeros(60), False) == 1.0
    assert math.isnan(risk_adjusted_success([]))
    meter = RiskAdjustedSuccess()
    meter.end_case(False)
    assert math.isnan(meter.value) and meter.cases == 0
    meter.add(0.5)
    assert meter.value == 0.5, 'a case under way counts as one that will succeed'


@pytest.mark.parametrize(
    'bad', [(1.0, 1.0, 3.0), (-0.1, 1.0, 3.0), (0.8, 1.1, 0.0), (0.8, 1.1, math.nan)]
)
def test_a_scale_without_room_is_refused(bad):
    with pytest.raises(StateError, match='warning force'):
        procedure_scale(*bad)


def test_a_limit_below_the_free_force_is_refused():
    for refuse in (risk_terms, RiskMeter().add):
        with pytest.raises(StateError, match='above 2.4'):
            refuse(1.0, 0.0, False, 2.4, OWN)
