# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""The selector: the better of two, no chatter, and hold whenever anything is wrong."""

import dataclasses
import math

from fdrl_ros.env.actions import STAY, TICK
from fdrl_ros.env.state import INDEX, OPERATION_FIELDS, PATIENT_FIELDS, SCALES, STATE_SIZE
from fdrl_ros.errors import PolicyError
from fdrl_ros.metrics import alpha_adapt, r_mit, risk_terms, variation_rate
from fdrl_ros.selector import (
    Candidate,
    HOLD,
    Observation,
    Reason,
    Selector,
    SelectorSettings,
    StateValue,
    ValueModel,
)
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st
import numpy as np
import pytest

NAMES = tuple(tuple(each.name for each in part) for part in (OPERATION_FIELDS, PATIENT_FIELDS))
SPLIT = len(OPERATION_FIELDS)


def values_of(**changes):
    """Return a plausible state in units: palpation, light contact."""
    values = np.zeros(STATE_SIZE)
    plain = {
        'palpation': 1.0,
        'goal_error_z': -0.004,
        'force': 0.6,
        'force_limit': 3.4,
        'time_left': 0.7,
        'mean_arterial_pressure': 85.0,
        'heart_rate': 75.0,
        'oxygen_saturation': 98.0,
        'respiratory_rate': 14.0,
    }
    for name, value in {**plain, **changes}.items():
        values[INDEX[name]] = value
    return values


def observe(values, received=0.0, patient='case_1', procedure='palpation'):
    return (
        Observation(
            patient,
            NAMES[0],
            values[:SPLIT].tolist(),
            SCALES[:SPLIT].tolist(),
            received,
            procedure,
        ),
        Observation(patient, NAMES[1], values[SPLIT:].tolist(), SCALES[SPLIT:].tolist(), received),
    )


def constant_value(
    mean, std=0.0, slope=0.0, policy='', procedures=('palpation',), size=STATE_SIZE
):
    """Return a model that says mean + slope * force (scaled) with this deviation everywhere."""
    weights = np.zeros((2, 1 + size))
    weights[0, 0] = mean
    if slope:
        weights[0, 1 + INDEX['force']] = slope
    wide = np.full(size, 1e3)
    one = StateValue(
        weights=weights,
        deviations=np.zeros((2, 2, 1 + size)),
        low=-wide,
        high=wide,
        spread=np.ones(size),
        misfit=std,
        noise=0.0,
        caution=1.0,
        quantiles=np.linspace(0.01, 3, 99),
    )
    return ValueModel(policy, dict.fromkeys(procedures, one))


def candidate(name, mean=None, std=0.0, slope=0.0, action=0):
    value = None if mean is None else constant_value(mean, std, slope)
    return Candidate(name, lambda state: action, value)


def selector_with(*candidates, **settings):
    selector = Selector(SelectorSettings(**settings))
    selector.set_candidates(candidates)
    return selector


def test_the_clearly_better_policy_is_chosen():
    selector = selector_with(
        candidate('global', 0.5, action=3), candidate('hospital_1', 0.9, action=7)
    )
    selection = selector.select(*observe(values_of()), 0.001)
    assert (selection.policy, selection.action) == ('hospital_1', 7)
    assert (selection.value, selection.uncertainty) == pytest.approx((0.9, 0.0))
    assert selection.reason == Reason.BEST == 'best'


def test_the_surer_policy_is_preferred_to_a_doubtful_one():
    selector = selector_with(candidate('doubtful', 1.0, std=0.8), candidate('sure', 0.6, std=0.05))
    assert selector.select(*observe(values_of()), 0.0).policy == 'sure'


def test_when_every_policy_is_doubtful_it_holds():
    selector = selector_with(candidate('global', 0.3, std=0.8), hold_return=0.0)
    selection = selector.select(*observe(values_of()), 0.0)
    assert selection.holds and selection.reason == Reason.CAUTION
    assert selection.action == STAY and selection.risk is not None


def test_hold_has_a_value_like_the_others():
    models = candidate('global', 0.3), Candidate(HOLD, None, constant_value(0.4))
    assert selector_with(*models).select(*observe(values_of()), 0.0).value == pytest.approx(0.4)


def test_the_choice_depends_on_the_state():
    selector = selector_with(
        candidate('soft', 1.0, slope=-1.0), candidate('stiff', 0.5), dwell=0.0
    )
    assert selector.select(*observe(values_of(force=0.1)), 0.0).policy == 'soft'
    second = selector.select(*observe(values_of(force=2.5), 0.05), 0.05)
    assert second.policy == 'stiff'


def test_without_any_estimate_the_first_policy_runs():
    selector = selector_with(candidate('global', action=4), candidate('hospital_1'))
    selection = selector.select(*observe(values_of()), 0.0)
    assert (selection.policy, selection.action, selection.reason) == ('global', 4, Reason.UNVALUED)
    assert math.isnan(selection.value)


def test_a_policy_without_estimate_never_beats_one_with():
    selector = selector_with(candidate('unknown'), candidate('global', 0.1))
    assert selector.select(*observe(values_of()), 0.0).policy == 'global'


def test_without_policies_it_holds():
    assert Selector().select(*observe(values_of()), 0.0).reason == Reason.NO_POLICY


@pytest.mark.parametrize('index', range(STATE_SIZE))
@pytest.mark.parametrize('bad', [math.nan, math.inf, -math.inf])
def test_a_number_that_is_not_finite_holds_in_that_very_call(index, bad):
    selector = selector_with(candidate('global', 0.5, action=3))
    values = values_of()
    values[index] = bad
    selection = selector.select(*observe(values), 0.0)
    assert selection.holds and selection.action == STAY
    assert selection.reason == Reason.NOT_FINITE
    assert selection.risk is None and selection.adaptation is None
    again = selector.select(*observe(values_of(), 0.05), 0.05)
    assert again.policy == 'global'


def change(part, **changes):
    def apply(operation, patient):
        inputs = [operation, patient]
        inputs[part] = dataclasses.replace(inputs[part], **changes)
        return inputs

    return apply


@pytest.mark.parametrize(
    ('spoil', 'reason'),
    [
        (lambda o, p: (None, p), Reason.MISSING),
        (lambda o, p: (o, None), Reason.MISSING),
        (change(0, received=-1.0), Reason.STALE),
        (change(1, received=-1.0), Reason.STALE),
        (change(0, received=9.0), Reason.CLOCK),
        (change(1, received=math.nan), Reason.CLOCK),
        (change(0, names=NAMES[0][:-1]), Reason.MISMATCH),
        (change(1, names=NAMES[1][::-1]), Reason.MISMATCH),
        (change(0, values=[1.0] * (SPLIT - 1)), Reason.MISMATCH),
        (change(0, values=['x'] * SPLIT), Reason.MISMATCH),
        (change(0, values=[[1.0]] * SPLIT), Reason.MISMATCH),
        (change(0, scales=[1.0] * SPLIT), Reason.MISMATCH),
        (change(1, scales=[]), Reason.MISMATCH),
        (change(1, patient='another'), Reason.MISMATCH),
        (change(0, procedure='unheard of'), Reason.MISMATCH),
        (change(0, values=values_of(force=1e6)[:SPLIT]), Reason.OUT_OF_RANGE),
        (change(0, values=values_of(force=-25)[:SPLIT]), Reason.OUT_OF_RANGE),
        (change(0, values=values_of(force_limit=0)[:SPLIT]), Reason.OUT_OF_RANGE),
        (change(0, values=values_of(goal_error_x=1e9)[:SPLIT]), Reason.OUT_OF_RANGE),
        (change(1, values=values_of(heart_rate=-1)[SPLIT:]), Reason.OUT_OF_RANGE),
        (change(1, values=values_of(oxygen_saturation=101)[SPLIT:]), Reason.OUT_OF_RANGE),
        (change(1, values=values_of(heart_rate=1e200)[SPLIT:]), Reason.OUT_OF_RANGE),
    ],
)
def test_whatever_is_wrong_with_the_state_it_holds_and_recovers(spoil, reason):
    selector = selector_with(candidate('global', 0.5, action=3))
    assert selector.select(*observe(values_of()), 0.0).policy == 'global'
    selection = selector.select(*spoil(*observe(values_of(), 0.05)), 0.05)
    assert selection.holds and selection.action == STAY
    assert selection.reason == reason
    assert selector.select(*observe(values_of(), 0.1), 0.1).policy == 'global'


@pytest.mark.parametrize('now', [-0.5, math.nan])
def test_a_clock_that_goes_back_holds_and_recovers(now):
    selector = selector_with(candidate('global', 0.5))
    selector.select(*observe(values_of()), 0.0)
    assert selector.select(*observe(values_of(), -1.0), now).reason == Reason.CLOCK
    assert selector.select(*observe(values_of(), 0.05), 0.05).policy == 'global'


def fail(state):
    raise RuntimeError('no')


def spoil_state(state):
    state[:] = 0.0
    return 1


@pytest.mark.parametrize(
    'policy',
    [
        fail,
        spoil_state,
        lambda s: None,
        lambda s: math.nan,
        lambda s: 3.0,
        lambda s: True,
        lambda s: -1,
        lambda s: 15,
        lambda s: np.array([1, 2]),
        lambda s: 'stay',
    ],
)
def test_a_policy_that_fails_holds_then_others_take_over_then_it_may_again(policy):
    answers = [policy, lambda s: 5]
    broken = Candidate('broken', lambda s: answers[0](s), constant_value(0.9))
    selector = selector_with(broken, candidate('spare', 0.5, action=2), failure_pause=1.0)
    first = selector.select(*observe(values_of()), 0.0)
    assert first.holds and first.reason == Reason.POLICY_FAILED and first.action == STAY
    assert selector.select(*observe(values_of(), 0.05), 0.05).policy == 'spare'
    answers.pop(0)
    later = selector.select(*observe(values_of(), 2.0), 2.0)
    assert (later.policy, later.action) == ('broken', 5)


def test_when_all_policies_failed_it_holds():
    selector = selector_with(Candidate('broken', fail, constant_value(0.9)))
    for k in range(3):
        selection = selector.select(*observe(values_of(), k * TICK), k * TICK)
        assert selection.holds and selection.reason == Reason.POLICY_FAILED


@hypothesis_settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(st.floats(0, 0.1), st.floats(0, 0.1), st.floats(0, 0.1)), max_size=30))
def test_never_an_action_while_the_state_is_stale(steps):
    selector = selector_with(candidate('global', 0.5, action=3))
    now = 0.0
    for wait, age, patient_age in steps:
        now += wait
        operation, patient = observe(values_of())
        selection = selector.select(
            dataclasses.replace(operation, received=now - age),
            dataclasses.replace(patient, received=now - patient_age),
            now,
        )
        if now - (now - max(age, patient_age)) > selector.settings.state_timeout:
            assert selection.holds and selection.reason == Reason.STALE
        else:
            assert selection.policy == 'global'


@hypothesis_settings(max_examples=60)
@given(
    st.lists(st.floats(0, 2.5), min_size=1, max_size=60),
    st.sampled_from([0.1, 0.15, 0.3]),
    st.booleans(),
)
def test_hysteresis_bounds_the_number_of_switches(forces, dwell, hold_in_the_middle):
    hold = Candidate(HOLD, None, constant_value(0.6 if hold_in_the_middle else -9.0))
    rising, falling = candidate('rising', 0.2, slope=1.0), candidate('falling', 1.2, slope=-1.0)
    selector = selector_with(rising, falling, hold, dwell=dwell)
    chosen = []
    for k, force in enumerate(forces):
        selection = selector.select(*observe(values_of(force=force), k * TICK), k * TICK)
        chosen.append(selection.policy)
    switches = sum(a != b for a, b in zip(chosen, chosen[1:], strict=False))
    assert switches <= 2 * (len(forces) * TICK / dwell) + 1
    moves = [name for name in chosen if name != HOLD]
    to_policies = sum(b != HOLD and a != b for a, b in zip(chosen, chosen[1:], strict=False))
    assert to_policies <= len(forces) * TICK / dwell + 1 or not moves


def test_a_small_advantage_waits_for_patience_and_a_large_one_does_not():
    selector = selector_with(
        candidate('steady', 0.5), candidate('rising', 0.3, slope=1.0), margin=0.1, patience=1.0
    )
    chosen = {}
    for k in range(30):
        force = 0.0 if k == 0 else 0.6  # rising: 0.3, then 0.54 against 0.5
        selection = selector.select(*observe(values_of(force=force), k * TICK), k * TICK)
        chosen[k] = (selection.policy, selection.reason)
    assert chosen[1] == ('steady', Reason.KEPT)
    assert chosen[19] == ('steady', Reason.KEPT)
    assert chosen[21] == ('rising', Reason.BEST)
    large = selector_with(
        candidate('steady', 0.5), candidate('rising', 0.3, slope=1.0), margin=0.1, dwell=0.15
    )
    large.select(*observe(values_of(force=0.0)), 0.0)
    assert large.select(*observe(values_of(force=2.0), 0.1), 0.1).reason == Reason.KEPT
    assert large.select(*observe(values_of(force=2.0), 0.2), 0.2).policy == 'rising'


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


def test_candidates_are_replaced_all_or_none():
    selector = selector_with(candidate('global', 0.5))
    with pytest.raises(PolicyError):
        selector.set_candidates([candidate('one', 0.5), candidate('one', 0.6)])
    assert [each.name for each in selector.candidates] == ['global', HOLD]
    selector.set_candidates([candidate('hospital_2', 0.5)])
    assert selector.select(*observe(values_of()), 0.0).policy == 'hospital_2'


@pytest.mark.parametrize(
    'bad',
    [
        Candidate('global', None),
        Candidate(HOLD, lambda s: 1),
        Candidate('', lambda s: 1),
        Candidate('global', lambda s: 1, constant_value(0.0, policy='ab'), digest=b'cd'),
        Candidate('global', lambda s: 1, constant_value(0.0, size=2)),
    ],
)
def test_a_candidate_that_contradicts_itself_is_refused(bad):
    with pytest.raises(PolicyError):
        Selector().set_candidates([bad])


def test_the_same_input_gives_the_same_decisions():
    rng = np.random.default_rng(1)
    states = [values_of(force=float(f)) for f in rng.uniform(0, 3, size=50)]
    runs = []
    for _ in range(2):
        selector = selector_with(candidate('a', 0.4, slope=0.5), candidate('b', 0.9, slope=-0.5))
        runs.append(
            [selector.select(*observe(v, k * TICK), k * TICK) for k, v in enumerate(states)]
        )
    assert [s.policy for s in runs[0]] == [s.policy for s in runs[1]]
    assert [s.risk for s in runs[0]] == [s.risk for s in runs[1]]


def test_a_shield_that_fails_lets_nothing_pass_and_the_robot_goes_on_holding(monkeypatch):
    selector = selector_with(candidate('global', 0.5, action=3))
    selector.select(*observe(values_of()), 0.0)

    def fail_at(*_args, **_kinds):
        raise ZeroDivisionError('no')

    monkeypatch.setattr(selector._shield, 'review', fail_at)
    selection = selector.select(*observe(values_of(), 0.05), 0.05)
    assert selection.holds and selection.action == STAY and selection.risk is not None
    assert selection.reason == Reason.SHIELD_FAILED
    monkeypatch.undo()
    assert selector.select(*observe(values_of(), 0.1), 0.1).policy == 'global'
