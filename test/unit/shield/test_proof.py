# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""
The proof of the shield on drawn histories, and shields that are wrong, which it finds out.

All corners are in test/nightly/test_shield_proof.py, tables that hold in
test/unit/cli/test_shield.py.
"""

from fdrl_ros.errors import SettingError
from fdrl_ros.shield import prediction
from fdrl_ros.shield.depth_tables import Motion, tip_sinking
from fdrl_ros.shield.proof import check_tables, Margins, ProofCase
from fdrl_ros.shield.retreat import RISE
from fdrl_ros.surgery.gym.actions import COARSE_STEP, TICK
import numpy as np
import pytest
from support.shield_faults import (
    ESTIMATOR_FAULTS,
    PATCHED_ESTIMATORS,
    PATCHED_FORECASTS,
    SETTINGS,
    TABLE_FAULTS,
    USUAL,
    WIDE,
)

SAMPLE = 1000
"""Histories that are drawn of those at corners."""


@pytest.mark.parametrize('check', [ProofCase.check_estimator, ProofCase.check_forces])
@pytest.mark.parametrize(('procedure', 'wide'), [('retraction', True), ('follow', False)])
def test_estimates_and_forces_bound_what_is_true(check, procedure, wide):
    finding = check(ProofCase(SETTINGS, procedure, wide, sample=SAMPLE), fine=0)
    assert finding.holds, finding.failure
    assert finding.cells >= 25 * SAMPLE


def test_a_shield_that_stays_where_nothing_is_allowed_is_found_out():
    finding = check_tables(TABLE_FAULTS['staying'][0], back=0.0, fine=1)
    assert not finding.holds and finding.failure['short'] > 1e-3


@pytest.mark.parametrize('fault', ['noise'])
def test_an_estimator_that_allows_for_less_than_can_be_is_found_out(fault):
    settings, procedure, wide, world = ESTIMATOR_FAULTS[fault]
    assert not ProofCase(settings, procedure, wide, world, SAMPLE).check_estimator(0).holds


@pytest.mark.parametrize('fault', ['damping'])
def test_an_estimator_of_wrong_code_is_found_out(fault, monkeypatch):
    spoil, wide, fine = PATCHED_ESTIMATORS[fault]
    spoil(monkeypatch)
    proof = ProofCase(SETTINGS, 'retraction', wide, WIDE, SAMPLE)
    assert not proof.check_estimator(fine).holds


@pytest.mark.parametrize('fault', ['row of speed', 'moves to come'])
def test_a_prediction_of_wrong_code_is_found_out(fault, monkeypatch):
    spoil, wide = PATCHED_FORECASTS[fault]
    spoil(monkeypatch)
    proof = ProofCase(SETTINGS, 'retraction', wide, sample=SAMPLE)
    assert not proof.check_forces(fine=0).holds


def test_tables_that_are_not_cut_at_all_are_refused():
    with pytest.raises(SettingError, match='fine'):
        check_tables(WIDE, fine=0)


def test_the_tables_draw_a_tip_back_along_the_most_tilted_shaft():
    time = np.array([0.6 - TICK, 0.6])
    sunk, _ = tip_sinking(USUAL, time, np.zeros(1), (0.02, 0.02), Motion(0.0, 0.0, 0.0))
    assert -np.diff(sunk[0]) == pytest.approx(RISE * COARSE_STEP)


@pytest.mark.parametrize('bounds', [WIDE, USUAL], ids=['wide', 'usual'])
def test_the_tables_wait_for_a_state_that_is_late(bounds):
    late = 1.1 * TICK + bounds.latency
    sunk, _ = tip_sinking(
        bounds, late + np.array([0.0, 0.01]), np.zeros(1), (0.02, 0.02), Motion(0.0, 0.0, 0.0)
    )
    assert sunk[0, 0] == 0.0 > sunk[0, 1]


def test_damping_between_its_ends_can_be_the_worst():
    least, most = 0.05, 0.075  # m/s
    ends = [now_less_then(damping, least, most) for damping in (0.0, 5.0)]
    worst = max(now_less_then(damping, least, most) for damping in np.linspace(0.0, 5.0, 501))
    assert worst > max(ends) + 5e-4
    assert prediction.greatest_growth(1.0, least, 0.75, most, 5.0) == pytest.approx(
        worst, abs=1e-5
    )


def now_less_then(damping, slow, fast):
    """Return by how much kappa d of 1 is above one of 0.75 under some damping."""
    return (1.0 + damping * slow) ** (-2 / 3) - 0.75 * (1.0 + damping * fast) ** (-2 / 3)


@pytest.mark.parametrize('order', [(0, 1, 2), (1, 0, 2), (1, 2, 0)])
def test_a_margin_that_is_no_number_is_a_failure_whatever_comes_after_it(order):
    margins, some = Margins(), (np.array([0.3, np.nan]), np.array([-0.1, 0.2]), np.array([0.4]))
    for each in order:
        margins.add(some[each], lag=np.arange(2.0)[: len(some[each])], move=0.5 * each)
    finding = margins.finding('claim')
    assert not finding.holds and np.isnan(finding.margin) and finding.cells == 5
    assert (finding.failure['lag'], finding.failure['move']) == (1.0, 0.0)


def test_the_failure_told_is_the_worst():
    margins = Margins()
    for each in (-0.1, -0.3, -0.2):
        margins.add(np.array([1.0, each]), 'short of room', depth=each)
    finding = margins.finding('claim')
    assert finding.failure == {'short of room': 0.3, 'depth': -0.3} and finding.margin == -0.3
    assert margins.finding('claim', 0.4).holds
