# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""Operations in a batch as one by one, and what a policy is worth by them."""

from dataclasses import replace
import math
from statistics import NormalDist

from fdrl_ros.deployment.plan import Plan
from fdrl_ros.deployment.robot import public_value
from fdrl_ros.deployment.robot.public_value import fitted_with, PublicValuation, same_robot
from fdrl_ros.errors import RecordsError, TrainingStopped
from fdrl_ros.selector import fit_value, returns_to_go
from fdrl_ros.selector.value.monte_carlo_reference import chooser_of, SAME
from fdrl_ros.surgery.gym.actions import ACTION_COUNT, STAY
from fdrl_ros.surgery.gym.episode import roll_out, run_episode
from fdrl_ros.surgery.gym.state import INDEX
from fdrl_ros.surgery.gym.surgery_env import SurgeryEnv
from fdrl_ros.surgery.patient.cohort import mixture
from fdrl_ros.surgery.settings import WorldSettings
from fdrl_ros.surgery.tasks.controller import controller, Experience
from fdrl_ros.surgery.tasks.outcome import FAILURES
import numpy as np
import pytest

PLAN = Plan().changed(
    {
        'federation': {'procedures': 'palpation, needle_pass'},
        'learner': {'hidden': 8},
        'value': {'patients': 9, 'features': 6, 'groups': 4, 'checked': 2, 'redraws': 16},
    }
)


def policy(seed):
    return PLAN.network.policy(PLAN.network.draw(np.random.default_rng(seed)))


VALUATION = PublicValuation(PLAN, policy(0))


OFF = np.array([0.3, -0.2, 0.4, -0.3])


def sure():
    """Return a policy that is surer of what it does than a drawn one."""
    return PLAN.network.policy(3.0 * policy(0).weights)


def made_for(start, off):
    """Return a policy that acts as a start does in states moved by `off`."""
    matrix, bias = PLAN.network.layout.tensors[:2]
    size, found = np.prod(matrix.shape), start.weights.copy()
    columns = [INDEX[f'goal_error_{axis}'] for axis in 'xyz'] + [INDEX['force_error']]
    first = found[:size].reshape(matrix.shape)
    found[size : size + bias.shape[0]] += first[:, columns] @ np.float32(off)
    return PLAN.network.policy(found)


def test_how_far_robots_are_off_is_found_in_their_policy():
    states = np.random.default_rng(0).normal(size=(200, PLAN.network.states)).astype(np.float32)
    start = sure()
    found = public_value.calibration_of(made_for(start, OFF), start, states)
    np.testing.assert_allclose(found / public_value._TOLD, OFF[:3], atol=0.01)
    assert np.abs(public_value.calibration_of(start, start, states)).max() < 1e-6


class Surgeon:
    """The hand-written controller, as a policy, with experience of a robot's force sensor."""

    def __init__(self, gain):
        self.experience = Experience(force_gain=gain)

    def q_values(self, states):
        chosen = controller(states, self.experience)
        return np.eye(ACTION_COUNT, dtype=np.float32)[chosen]


@pytest.mark.parametrize('log_gain', [-0.2, 0.15])
def test_the_gain_of_a_force_sensor_is_where_its_policy_succeeds(log_gain):
    public = [public_value.public_patient(each, PLAN, 'palpation') for each in range(60)]
    surgeon, none = Surgeon(math.exp(log_gain)), np.zeros(3)
    found = public_value.gain_of(surgeon, none, public, PLAN.world)
    assert found == pytest.approx(log_gain, abs=0.051)
    with pytest.raises(TrainingStopped):
        public_value.gain_of(surgeon, none, public, PLAN.world, lambda: True)


def test_a_robot_that_is_off_sees_the_goal_elsewhere_and_feels_less():
    patient = PLAN.cohorts[0].patient(0, 'test')
    off = public_value.off_by(patient, np.array([1.0, 0.0, -0.5, math.log(0.9)]))
    before = patient.calibration
    assert off.calibration == pytest.approx((before[0] + 0.002, before[1], before[2] - 0.001))
    assert off.force_gain == pytest.approx(0.9 * patient.force_gain)


def test_public_patients_are_operated_on_as_far_off_as_policies_say():
    start = sure()
    told = PublicValuation(PLAN, start, known=[made_for(start, OFF), start])
    public = [public_value.public_patient(each, PLAN, 'palpation') for each in range(400)]
    moved = told._at_robot(public, np.random.default_rng(0))
    shift = np.array([each.calibration for each in moved]) / 0.002
    # Half of them as one policy says, half as the other; within the doubt.
    expected = 0.5 * OFF[:3] * public_value._TOLD
    np.testing.assert_allclose(shift.mean(axis=0), expected, atol=0.06)
    assert PublicValuation(PLAN, start)._at_robot(public, np.random.default_rng(0)) is public
    without = PLAN.changed({'learner': {'offsets': '', 'frozen': ''}})
    left = PublicValuation(without, start, known=[made_for(start, OFF)])
    assert left._at_robot(public, np.random.default_rng(0)) is public


@pytest.mark.parametrize('known', [1, 2])
def test_patients_whom_estimates_are_measured_on_look_the_same_to_robots_that_are_off(known):
    start = sure()
    told = PublicValuation(PLAN, start, known=[start, made_for(start, OFF)][-known:])
    for procedure in PLAN.federation.names:
        for meeting in told._meetings(procedure):
            states = roll_out(meeting.patients, chooser_of(None), PLAN.world)
            first = states.states[states.ticks == 0]
            assert len({each.calibration for each in meeting.patients}) == len(first) == 17
            assert np.ptp(first, axis=0).max() <= SAME


def test_a_policy_that_hardly_ever_succeeds_tells_no_gain():
    class Lucky:
        """Succeeds once, by chance."""

        def q_values(self, states):
            return np.random.default_rng(0).normal(size=(len(states), ACTION_COUNT))

    public = [public_value.public_patient(each, PLAN, 'palpation') for each in range(30)]
    assert public_value.gain_of(Lucky(), np.zeros(3), public, PLAN.world) == 0.0


def test_values_are_fitted_with_the_very_policies_that_tell_how_far_the_robot_is_off():
    start = sure()
    near, far = made_for(start, 0.01 * OFF), made_for(start, OFF)
    told = [([start], [near], [far], [], [start, far], [far, start]), ([start], [far], [])]
    assert len({fitted_with(PLAN, start, known) for known in told[0]}) == 6
    without = PLAN.changed({'learner': {'offsets': '', 'frozen': ''}})
    assert len({fitted_with(without, start, known) for known in told[1]}) == 1


def test_small_steps_of_training_do_not_make_another_robot():
    start = sure()
    # Either side of a step of a grid, which the distance does not depend on.
    low, high, far = (made_for(start, each * np.eye(4)[3]) for each in (0.149, 0.151, 0.26))
    assert same_robot(PLAN, [low], [high]) and same_robot(PLAN, [high], [low])
    assert not same_robot(PLAN, [low], [far]) and not same_robot(PLAN, [low], [start])
    assert same_robot(PLAN, [low, far], [high, far])
    assert not same_robot(PLAN, [low, far], [far, low])
    assert not same_robot(PLAN, [], [start]) and not same_robot(PLAN, [low], [])
    without = PLAN.changed({'learner': {'offsets': '', 'frozen': ''}})
    assert same_robot(without, [low], [far, start])
    torch = PLAN.changed({'learner': {'kind': 'torch'}})
    assert same_robot(torch, [low], [low]) and not same_robot(torch, [low], [high])


def test_a_rollout_is_every_operation_by_itself():
    chosen = policy(3)
    patients = [mixture(3, 1.0, 5).patient(each, 'test') for each in range(12)]
    rolled = roll_out(patients, chooser_of(chosen))
    env = SurgeryEnv(settings=WorldSettings(mode='kinematic'))
    for case, patient in enumerate(patients):
        alone = run_episode(env, chosen, patient)
        own = rolled.cases == case
        np.testing.assert_allclose(rolled.states[own], alone.states[:-1], atol=1e-5)
        np.testing.assert_array_equal(rolled.actions[own], alone.actions)
        np.testing.assert_allclose(rolled.rewards[own], alone.rewards, atol=1e-5)
        np.testing.assert_allclose(rolled.forces[own], alone.forces, atol=1e-6)
        np.testing.assert_allclose(rolled.damages[own], alone.damages, atol=1e-6)
        np.testing.assert_array_equal(rolled.critical[own], alone.critical)
        np.testing.assert_array_equal(rolled.ticks[own], np.arange(alone.length))
        assert rolled.success[case] == alone.success
        failure = rolled.failure[case]
        assert (FAILURES[failure] if failure >= 0 else '') == alone.failure
    env.close()


def test_patients_and_hand_over_are_the_same_for_every_policy():
    one, two = (VALUATION.experience(each) for each in (policy(1), None))
    assert list(one) == list(two) == list(PLAN.federation.names)
    for name in one:
        first = [np.flatnonzero(each.cases == 3)[0] for each in (one[name], two[name])]
        met = one[name].states[first[0]], two[name].states[first[1]]
        np.testing.assert_array_equal(*met)  # case 3 was handed over after the same moves
        place = PLAN.federation.names.index(name)
        assert set(one[name].cases) <= set(range(9))
        assert np.all(one[name].states[:, :7].argmax(axis=1) == one[name].states[0, :7].argmax())
        assert place in (0, 1)


def test_whom_policies_are_valued_on_is_drawn_once_for_all(monkeypatch):
    drawn, original = [], public_value.public_patient

    def noted(index, plan, procedure=None):
        drawn.append((index, procedure))
        return original(index, plan, procedure)

    monkeypatch.setattr(public_value, 'public_patient', noted)
    valuation = PublicValuation(PLAN, policy(0))
    for each in (policy(1), policy(2), None):
        valuation.experience(each)
    assert len(drawn) == len(set(drawn)) == 9 * len(PLAN.federation.names)


def test_half_of_every_group_is_handed_over(monkeypatch):
    led, original = [], public_value.handing_over

    def noted(policy, lead, handover, moves):
        led.append(handover)
        return original(policy, lead, handover, moves)

    monkeypatch.setattr(public_value, 'handing_over', noted)
    plan = PLAN.changed({'value': {'patients': 24, 'groups': 4}})
    PublicValuation(plan, policy(0)).experience(None)
    for own in np.concatenate(led).reshape(-1, 24):
        for group in range(4):
            assert np.count_nonzero(own[np.arange(24) % 4 == group]) == 3


def test_the_return_of_staying_is_what_it_says():
    known = VALUATION.experience(None)['palpation']
    model = VALUATION.value_model(None).estimates['palpation']
    begins = np.flatnonzero(np.r_[True, known.cases[1:] != known.cases[:-1]])
    returns = [
        returns_to_go(part, PLAN.value.discount)[0] for part in np.split(known.rewards, begins[1:])
    ]
    mean, _ = model.mean_and_std(known.states[begins])
    assert np.mean(mean) == pytest.approx(np.mean(returns), abs=0.3)
    assert model.caution == 0.0
    still = chooser_of(None)(known.states[:5], np.arange(5), 0)
    assert list(still) == [STAY] * 5 and STAY < ACTION_COUNT


def test_the_conformal_error_tells_how_far_an_estimate_is_off():
    known = VALUATION.experience(policy(1))['palpation']
    fitted = fit_value(known, PLAN.value)
    for bias in (20.0, 40.0):
        weights = fitted.weights.copy()
        weights[0, 0] += bias
        wrong = replace(fitted, weights=weights)
        found = VALUATION.conformal_error(wrong, 'palpation', policy(1))
        assert found == pytest.approx(bias / NormalDist().inv_cdf(0.95), rel=0.3)


def test_patients_whom_nobody_looks_like_are_passed_over(monkeypatch):
    known = VALUATION.experience(policy(1))['palpation']
    fitted, met, lonely = fit_value(known, PLAN.value), [], {1, 2}
    meet, cohort = public_value.draw_meeting, PLAN.public_cohort(1.0)
    checked = (cohort.patient(public_value.CHECKED + each) for each in range(100))
    place = {each.name: number for number, each in enumerate(checked)}

    def some(patients, *given):
        number = place[patients[0].name]
        if number in lonely:
            raise RecordsError('nobody looks like that')
        met.append(number)
        return meet(patients, *given)

    monkeypatch.setattr(public_value, 'draw_meeting', some)
    assert PublicValuation(PLAN, policy(0)).conformal_error(fitted, 'palpation', policy(1)) >= 0.0
    assert met == [0, 3] and PLAN.value.checked == 2
    lonely.update(range(100))
    with pytest.raises(RecordsError, match='nobody'):
        PublicValuation(PLAN, policy(0)).conformal_error(fitted, 'palpation', policy(1))


def test_valuing_stops_when_it_is_told_to():
    asked = iter([False, False, True])
    with pytest.raises(TrainingStopped):
        replace(VALUATION, stopped=lambda: next(asked)).experience(policy(1))


def test_what_candidates_share_is_found_once_and_changes_no_model(monkeypatch):
    start, known, looked = policy(0), [policy(1)], []
    plan = PLAN.changed({'learner': {'offsets': 'goal_error_x'}})
    monkeypatch.setattr(
        PublicValuation, '_off', lambda own, each, *seen: looked.append(each) or OFF
    )
    candidates = (policy(2), None, policy(2))
    alone = [PublicValuation(plan, start, known=known).value_model(each) for each in candidates]
    assert len(looked) == len(candidates)
    told = []
    first = PublicValuation(plan, start, known=known)
    together = [
        replace(first, progress=lambda *done: told.append(done)).value_model(each)
        for each in candidates
    ]
    assert len(looked) == len(candidates) + 1
    assert [each.to_bytes() for each in together] == [each.to_bytes() for each in alone]
    assert told[-1] == (18, 18) and told.count((18, 18)) == len(candidates)
