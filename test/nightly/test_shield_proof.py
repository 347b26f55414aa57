# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""The proof of the shield at all corners; a few minutes."""

from dataclasses import replace

from fdrl_ros.experiments.studies.shield.adversary import Assault
from fdrl_ros.experiments.studies.shield.attack import attack, attack_motors
from fdrl_ros.experiments.studies.shield.robot_attack import attack_loop
from fdrl_ros.shield.proof import check_tables, ProofCase
import pytest
from support.shield_faults import (
    ESTIMATOR_FAULTS,
    PATCHED_ESTIMATORS,
    PATCHED_FORECASTS,
    SETTINGS,
    TABLE_FAULTS,
    WIDE,
)


@pytest.mark.parametrize('check', [ProofCase.check_estimator, ProofCase.check_forces])
@pytest.mark.parametrize('wide', [True, False], ids=['wide', 'usual'])
@pytest.mark.parametrize('procedure', ['retraction', 'follow'])
def test_estimates_and_forces_bound_what_is_true(check, procedure, wide):
    finding = check(ProofCase(SETTINGS, procedure, wide), fine=1)
    assert finding.holds, finding.failure
    assert finding.cells > 1_000_000


def test_nothing_that_can_happen_leads_beyond_the_tables():
    finding = check_tables(SETTINGS.usual_bounds(), fine=1)
    assert finding.holds, finding.failure


@pytest.mark.parametrize('wide', [True, False], ids=['wide', 'usual'])
def test_a_shield_that_allows_for_inexact_positions_holds(wide):
    inexact = replace(SETTINGS, position_error=1e-4)
    finding = ProofCase(inexact, 'retraction', wide).check_estimator(fine=0)
    assert finding.holds, finding.failure


@pytest.mark.parametrize('fault', TABLE_FAULTS)
def test_tables_that_allow_for_less_than_can_be_are_found_out(fault):
    taken, wrong = TABLE_FAULTS[fault]
    assert not check_tables(taken, WIDE, fine=1, **wrong).holds


@pytest.mark.parametrize('fault', ESTIMATOR_FAULTS)
def test_an_estimator_that_allows_for_less_than_can_be_is_found_out(fault):
    assert not ProofCase(*ESTIMATOR_FAULTS[fault]).check_estimator(fine=0).holds


@pytest.mark.parametrize('fault', PATCHED_ESTIMATORS)
def test_an_estimator_of_wrong_code_is_found_out(fault, monkeypatch):
    spoil, wide, fine = PATCHED_ESTIMATORS[fault]
    spoil(monkeypatch)
    world = WIDE if wide else None
    assert not ProofCase(SETTINGS, 'retraction', wide, world).check_estimator(fine).holds


@pytest.mark.parametrize('fault', PATCHED_FORECASTS)
def test_a_prediction_of_wrong_code_is_found_out(fault, monkeypatch):
    spoil, wide = PATCHED_FORECASTS[fault]
    spoil(monkeypatch)
    assert not ProofCase(SETTINGS, 'retraction', wide).check_forces(fine=0).holds


@pytest.mark.parametrize('procedure', ['reach', 'retraction'])
def test_no_adversary_gets_above_the_damage_limit_or_out_of_the_workspace(procedure):
    tally = attack(Assault(procedure, 'down', 6000, SETTINGS))
    assert 1.0 < tally.most_damage < SETTINGS.damage_limit
    assert tally.above_damage == 0 and tally.outside == 0


def test_one_robot_too_is_asked_for_what_is_predicted_to_be_worst():
    for ways in (attack_loop, attack_motors):
        down, greedy = (ways(Assault('palpation', kind, 60, None)) for kind in ('down', 'greedy'))
        assert replace(greedy, attacker='down') != down
