# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""What the selector keeps of a case, online as by the batch formulas, and where one ends."""

import dataclasses
import math

from fdrl_ros.metrics.adaptation import alpha_adapt
from fdrl_ros.metrics.following import following
from fdrl_ros.metrics.risk import FULL_DAMAGE, risk_terms
from fdrl_ros.selector import Candidate, GateSettings, Reason, Selector, SelectorSettings
from fdrl_ros.selector.control.current_case import CurrentCase
from fdrl_ros.shield.shield import Shield
from fdrl_ros.surgery.gym.actions import DISPLACEMENTS, TICK
from fdrl_ros.surgery.gym.state import SCALES
from fdrl_ros.surgery.tasks.procedures import procedure_named
from hypothesis import given, settings
from hypothesis import strategies as st
import numpy as np
import pytest
from support.choices import candidate, observe, recorded_damage, select, selector_with, values_of
from support.metric_formulas import r_mit, variation_rate


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
            selection = select(selector, *observe(values, now, f'case_{number}'), now)
            damage += max(0.0, force - 0.8) * TICK
            totals.append(float(risk_terms(force, damage, False, 3.4).total))
            states.append((values * (1.0 / SCALES)).astype(np.float32))
            actions.append(selection.action)
            now += TICK
        cases.append((np.array(states), np.array(actions)))
        assert abs(selection.risk.mitigation - r_mit([np.array(r) for r in risks])) < 1e-12
        assert selection.risk.cases == number + 1
        alpha, count = alpha_adapt(cases)
        adaptation = selector.adaptation()
        assert abs(adaptation.overall.alpha_adapt - alpha) < 1e-12
        assert adaptation.overall.cases == count
        rate = variation_rate([states for states, _ in cases])
        assert abs(adaptation.overall.variation_rate - rate) < 1e-12


def test_who_follows_the_organ_online_equals_the_batch():
    rng = np.random.default_rng(4)
    selector = Selector()
    selector.set_candidates([Candidate('random', lambda s: int(rng.integers(13)), None)])
    now, cases = 0.0, []
    for number in range(3):
        surfaces, moves = 0.002 * np.sin(0.3 * np.arange(40) + number), []
        for surface in surfaces:
            values = values_of(surface=float(surface))
            action = select(selector, *observe(values, now, f'case_{number}'), now).action
            moves.append(DISPLACEMENTS[action, 2])
            now += TICK
        cases.append((surfaces, np.array(moves)))
    selector.reset()
    assert selector.following == pytest.approx(following(cases), abs=1e-12)
    assert selector.following.rises == selector.following.falls == 3


def test_adaptation_counts_answers_of_which_nobody_asked():
    asked, unasked = (selector_with(candidate('global', 0.5, action=3)) for _ in range(2))
    rng = np.random.default_rng(3)
    for k in range(30):
        values, case = values_of(goal_error_x=float(rng.normal(0, 0.004))), f'case_{k // 8}'
        for each in (asked, unasked):
            select(each, *observe(values, k * TICK, case), k * TICK)
        told = asked.adaptation()
        assert asked.adaptation() is told  # asked twice, it counts once
    assert repr(unasked.adaptation()) == repr(told)
    assert told.overall.steps == 26  # of 30 states four are the first of their case
    unasked.keep_tip(Reason.STALE, 30 * TICK)
    assert unasked.adaptation() is None


@pytest.mark.parametrize('cause', [{'force': 11.0}, {'goal_error_y': -0.041}])
def test_a_critical_error_is_seen_at_once(cause):
    selector = selector_with(candidate('global', 0.5))
    for k, changes in enumerate(({}, cause)):
        now = k * TICK
        seen = select(selector, *observe(values_of(**changes), now), now).risk
        assert seen.critical == bool(changes)


def test_a_second_operation_on_one_patient_begins_a_new_case():
    settings = SelectorSettings(dwell=9.0, margin=0.0)
    selector = Selector(settings, gate=GateSettings(close_at=0.3, open_below=0.2, span=1))
    selector.set_candidates([candidate('rising', 0.2, slope=1.0), candidate('steady', 0.6)])

    def select_at(now, left, **changes):
        values = values_of(time_left=left, **changes)
        return select(selector, *observe(values, now), now)

    assert select_at(0.0, 0.9, force=0.0).policy == 'steady'
    assert select_at(0.05, 0.89, force=3.0).reason == Reason.RISK_GATE
    before = select_at(0.1, 0.88, force=0.0)
    assert before.reason == Reason.RISK_GATE and before.risk.damage > 0.0
    fresh = select_at(0.15, 1.0, force=1.5)
    assert (fresh.risk.cases, fresh.risk.case.steps) == (2, 1)
    assert math.isnan(selector.adaptation().change)
    assert fresh.reason == Reason.RISK_GATE, 'one state alone opens no gate'
    sure = select_at(0.2, 0.99, force=1.5)
    assert (sure.policy, sure.reason, sure.risk.cases) == ('rising', Reason.BEST, 2)


@pytest.mark.parametrize('held', [0, 3])
def test_the_time_of_low_pressure_goes_on_where_a_state_was_held_in(held):
    selector, low = selector_with(candidate('global', 0.5)), {'mean_arterial_pressure': 60.0}
    step, critical = 0.16, []
    for k in range(377):
        found = select(selector, *observe(values_of(**low), k * step), k * step)
        critical.append(found.risk.critical)
        for j in range(1, held + 1):
            now = k * step + 0.04 * j
            assert select(selector, observe(values_of(), now)[0], None, now).risk is None
    assert critical.index(True) == math.ceil((60.0 - TICK) / step)


def operation(left, time, procedure='palpation', patient='case_1'):
    return observe(values_of(time_left=left), time, patient, procedure)[0]


def case(*states):
    made = CurrentCase()
    for each in states:
        made.include(each)
    return made


@pytest.mark.parametrize(
    ('state', 'same'),
    [
        (operation(0.5, 2.0), True),
        (operation(0.609, 2.0), True),
        (operation(0.62, 2.0), False),
        (operation(1.0, 2.0), False),
        (operation(1.0, 1.0), True),
        (operation(1.0, 0.9), True),
        (operation(1e9, 2.0), True),
        (operation(math.nan, 2.0), True),
        (operation(0.5, 2.0, 'incision'), False),
        (operation(0.5, 2.0, 'unheard of'), True),
        (operation(0.5, 0.9, 'palpation', 'case_2'), False),
    ],
)
def test_a_case_ends_with_another_name_or_when_time_left_rises(state, same):
    told = operation(0.7, 0.5), operation(0.6, 0.9), operation(0.6, 1.0)
    assert case(*told).is_of(state) == same


def test_slow_drift_of_a_clock_adds_up_to_the_end_of_a_case():
    drifting = case(*(operation(0.6 + 0.001 * k, k) for k in range(10)))
    assert drifting.is_of(operation(0.609, 20.0)) and not drifting.is_of(operation(0.612, 20.0))


def damages(lefts, names=(), between=lambda selector: None, times=None):
    """Return the damage that the shield is given, and that in D_t, at a force of 1.8 N."""
    selector, terms = selector_with(candidate('global', 0.5)), []
    with recorded_damage() as told:
        for number, left in enumerate(lefts):
            between(selector)
            now = TICK * (times[number] if times else number)
            name = dict(names).get(number, ('case_1', 'palpation'))
            values = values_of(time_left=left, force=1.8)
            found = select(selector, *observe(values, now, *name), now)
            terms.append(found.risk.damage * FULL_DAMAGE)
    return np.array(told) / TICK, np.array(terms) / TICK


@settings(deadline=None, max_examples=40)
@given(
    st.lists(st.tuples(st.integers(1, 3), st.floats(0.0, 1.0)), max_size=5),
    st.integers(0, 3),
)
def test_no_single_wrong_time_left_takes_damage_away(wrong, more):
    lefts = [0.6, 0.599]
    for right, reading in wrong:
        lefts += [0.598 - 0.001 * (len(lefts) + k) for k in range(right)] + [reading]
    lefts += [0.598 - 0.001 * (len(lefts) + k) for k in range(more)]
    told, _ = damages(lefts)
    np.testing.assert_allclose(told, np.arange(1.0, len(lefts) + 1.0))


OTHER, INCISION = ('case_2', 'palpation'), ('case_1', 'incision')
CUT = 1.8 - procedure_named('incision').warn_force
"""Damage of a second's incision at that force."""


@pytest.mark.parametrize(
    ('lefts', 'others', 'expected', 'terms'),
    [
        # One risen time is doubted, a second in a row is another case.
        ([0.5, 0.49, 1.0, 0.48, 0.47], {}, [1, 2, 3, 4, 5], [1, 2, 1, 4, 5]),
        ([0.5, 0.49, 1.0, 0.99, 0.98], {}, [1, 2, 3, 2, 3], [1, 2, 1, 2, 3]),
        # A time that cannot be says nothing.
        ([0.5, 0.49, 1.0, 1.0 + 1e-9, 0.48], {}, [1, 2, 3, 4, 5], None),
        ([0.5, 0.49, 1.0, 1.0 + 1e-9, 0.99], {}, [1, 2, 3, 4, 3], None),
        # Another pseudonym counts at once, another procedure when it is named twice.
        ([0.5, 0.49, 0.48, 0.47], {'names': {2: OTHER, 3: OTHER}}, [1, 2, 1, 2], None),
        (
            [0.5, 0.49, 0.48, 0.47],
            {'names': {2: INCISION, 3: INCISION}},
            [1, 2, 2 + CUT, 2 * CUT],
            [1, 2, CUT, 2 * CUT],
        ),
        ([0.5, 0.49, 0.48, 0.47], {'names': {2: INCISION}}, [1, 2, 2 + CUT, 3 + CUT], None),
        # Neither lost states nor a new start between them take damage away.
        ([0.5, 0.49, 0.48, 0.47], {'times': [0.0, 1.0, 4.0, 5.0]}, [1, 2, 5, 6], None),
        ([0.5, 0.49, 1.0, 0.47], {'times': [0.0, 1.0, 4.0, 5.0]}, [1, 2, 5, 6], None),
        ([0.5, 0.49, 1.0, 1.0, 0.48], {'between': Selector.reset}, [1, 2, 3, 4, 5], None),
    ],
)
def test_damage_and_that_in_d_t_are_of_the_case_that_two_states_show(
    lefts, others, expected, terms
):
    told, in_risk = damages(lefts, **others)
    np.testing.assert_allclose(told, expected)
    if terms is not None:
        np.testing.assert_allclose(in_risk, terms)


def spoiled(fault, halves):
    """Return a state whose vital signs cannot be used."""
    felt, vitals = halves
    if fault == 'missing':
        return felt, None
    if fault == 'stale':
        return felt, dataclasses.replace(vitals, received=felt.received - 1.0)
    return felt, dataclasses.replace(vitals, values=[math.nan] * len(vitals.values))


@pytest.mark.parametrize('fault', ['missing', 'stale', 'not a number'])
def test_force_felt_without_vital_signs_counts_in_the_damage(fault):
    rng = np.random.default_rng(3)
    selector = selector_with(candidate('global', 0.5))
    damage, last = 0.0, -TICK
    with recorded_damage() as told:
        for number in range(60):
            now = 0.01 * number
            judged = number % 5 == 0 and not 15 < number < 45
            if not (judged or 15 < number < 45):
                continue
            force = float(rng.uniform(0.0, 3.0))
            halves = observe(values_of(force=force), now)
            damage, last = damage + max(0.0, force - 0.8) * (now - last), now
            if judged:
                found = select(selector, *halves, now)
                expected = float(risk_terms(force, damage, False, 3.4).total)
                assert abs(found.risk.total - expected) < 1e-12
            else:
                found = select(selector, *spoiled(fault, halves), now)
                assert found.risk is None
            assert abs(told[-1] - damage) < 1e-12
    assert found.risk.steps == 7 and damage > 0.1


def test_a_shield_that_fails_while_the_robot_holds_leaves_it_holding(monkeypatch):
    monkeypatch.setattr(Shield, 'branch', lambda shield: 1 / 0)
    selector = selector_with(candidate('global', 0.5))
    operation, _ = observe(values_of(force=1.8), 0.0)
    assert selector.keep_tip(Reason.STALE, 0.02, operation).holds


def test_a_hold_is_told_the_damage_so_far_and_adds_none_however_often_it_is_asked():
    selector, pressed = selector_with(candidate('global', 0.5)), values_of(force=1.8)
    now = 2.0 * TICK

    def blind(operation):
        return selector.select(operation, None, now)

    def again(operation):
        return selector.keep_tip(Reason.STALE, now + 0.02, operation)

    with recorded_damage() as told:

        def held(call, now, name=('case_1', 'palpation'), **changes):
            call(observe(values_of(force=1.8, **changes), now, *name)[0])
            return told[-1] / TICK

        for tick in range(2):
            select(selector, *observe(pressed, tick * TICK), tick * TICK)
        assert held(blind, now) == pytest.approx(3.0)
        for late in (0.0, 0.01, 0.02):
            assert held(again, now + late) == pytest.approx(3.0)
        assert held(again, now + 0.02, time_left=1.0) == pytest.approx(3.0), 'one is not believed'
        for name in (('case_2', 'palpation'), ('case_1', 'incision')):
            assert held(again, now + 0.02, name) == 0.0
        assert held(blind, now, ('case_2', 'palpation')) == 0.0
    found = select(selector, *observe(pressed, 3.0 * TICK), 3.0 * TICK)
    assert found.risk.damage * FULL_DAMAGE == pytest.approx(4.0 * TICK)


def test_a_new_case_is_told_from_the_old_one_without_vital_signs_too():
    selector, pressed = selector_with(candidate('global', 0.5)), values_of(force=1.8)
    select(selector, *observe(pressed, 0.0), 0.0)
    for tick, left in enumerate((1.0, 0.69, 1.0, 0.999), 1):
        halves = observe(values_of(force=1.8, time_left=left), tick * TICK)
        select(selector, halves[0], None, tick * TICK)
    now = 5.0 * TICK
    found = select(selector, *observe(values_of(force=0.0, time_left=0.998), now), now)
    assert found.risk.damage * FULL_DAMAGE == pytest.approx(2.0 * TICK)
