# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""What the selector keeps of a case, online as by the batch formulas, and where one ends."""

import math

from choices import candidate, observe, selector_with, values_of
from fdrl_ros.env.actions import TICK
from fdrl_ros.env.state import SCALES
from fdrl_ros.metrics import alpha_adapt, r_mit, risk_terms, variation_rate
from fdrl_ros.selector import Candidate, Selector
import numpy as np
import pytest


def test_risk_and_adaptation_online_equal_the_batch_formulas():
    rng = np.random.default_rng(0)
    selector = Selector()
    selector.set_candidates([Candidate('random', lambda s: int(rng.integers(13)), None)])
    now, risks, cases = 0.0, [], []
    for number in range(4):
        damage, totals, states, actions = 0.0, [], [], []
        risks.append(totals)
        for _ in range(20):
            force = float(rng.uniform(0, 3.5))
            values = values_of(force=force, goal_error_x=float(rng.normal(0, 0.004)))
            selection = selector.select(*observe(values, now, f'case_{number}'), now)
            damage += max(0.0, force - 0.8) * TICK
            totals.append(float(risk_terms(force, damage, False, 3.4).total))
            states.append((values * (1.0 / SCALES)).astype(np.float32))
            actions.append(selection.action)
            now += TICK
        cases.append((np.array(states), np.array(actions)))
        assert abs(selection.risk.mitigation - r_mit([np.array(r) for r in risks])) < 1e-12
        assert selection.risk.cases == number + 1
        alpha, count = alpha_adapt(cases)
        assert abs(selection.adaptation.alpha_adapt - alpha) < 1e-12
        assert selection.adaptation.cases == count
        rate = variation_rate([states for states, _ in cases])
        assert abs(selection.adaptation.variation_rate - rate) < 1e-12


@pytest.mark.parametrize('cause', ['force', 'breach', 'pressure'])
def test_a_critical_error_is_seen(cause):
    selector = selector_with(candidate('global', 0.5))
    values = values_of(
        force=11.0 if cause == 'force' else 0.1,
        mean_arterial_pressure=60.0 if cause == 'pressure' else 85.0,
    )
    for k in range(1 + 1250 * (cause == 'pressure')):
        now = k * TICK
        seen = selector.select(*observe(values, now), now, breach=cause == 'breach').risk
        assert seen.critical == (cause != 'pressure' or k * TICK >= 59.999 - TICK)


def test_a_new_patient_begins_a_new_case():
    selector = selector_with(candidate('global', 0.5))
    for k in range(3):
        selector.select(*observe(values_of(force=3.0), k * TICK), k * TICK)
    selection = selector.select(*observe(values_of(force=0.0), 0.15, 'case_2'), 0.15)
    assert (selection.risk.cases, selection.risk.steps, selection.risk.case.steps) == (2, 4, 1)
    assert selection.risk.damage == 0.0 and selection.patient == 'case_2'
    assert math.isnan(selection.adaptation.change)
    selector.reset()
    again = selector.select(*observe(values_of(), 0.2, 'case_2'), 0.2)
    assert (again.risk.cases, again.risk.steps, again.risk.case.steps) == (3, 5, 1)
