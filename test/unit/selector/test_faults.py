# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""Whatever goes wrong with states or policies: held within 50 ms, said why, and over by itself."""

import dataclasses
import math

from fdrl_ros.selector import Candidate, Limiter, Reason, Selector
from fdrl_ros.selector.control.loop import ControlLoop, PERIOD
from fdrl_ros.selector.control.plausibility import PlausibilitySettings, StampCheck
from fdrl_ros.surgery.gym.actions import STAY
from fdrl_ros.surgery.gym.state import OPERATION_FIELDS
from fdrl_ros.surgery.patient.cohort import public_cohort
from hypothesis import given
from hypothesis import strategies as st
import numpy as np
import pytest
from support.robot_loop import BEAT, freeze, number, Robot, SECOND, START, up


def add(halves=(0, 1), **changes):
    """Return what adds to numbers of one half or of both."""

    def spoil(*told):
        told = list(told)
        for half in halves:
            new = {key: getattr(told[half], key) + more for key, more in changes.items()}
            told[half] = dataclasses.replace(told[half], **new)
        return told

    return spoil


FAULTS = {
    'silence': ({'with_patient': False, 'with_operation': False}, Reason.STALE),
    'no vital signs': ({'with_patient': False}, Reason.STALE),
    'no operation': ({'with_operation': False}, Reason.STALE),
    'not a number': ({'spoil': number('force', math.nan)}, Reason.NOT_FINITE),
    'infinite': ({'spoil': number('heart_rate', math.inf)}, Reason.NOT_FINITE),
    'out of range': ({'spoil': number('oxygen_saturation', 140.0)}, Reason.OUT_OF_RANGE),
    'another procedure': (
        {'spoil': lambda o, v: (dataclasses.replace(o, procedure='x'), v)},
        Reason.MISMATCH,
    ),
    'stamps an hour ahead': ({'spoil': add(stamp=3600 * SECOND)}, Reason.CLOCK),
    'stamps an hour behind': ({'spoil': add(stamp=-3600 * SECOND)}, Reason.CLOCK),
    'stamps a little behind': ({'spoil': add(stamp=-SECOND // 10)}, Reason.CLOCK),
    'vital signs from before': ({'spoil': add((1,), stamp=-SECOND)}, Reason.STALE),
    'vital signs from later': ({'spoil': add((1,), stamp=SECOND)}, Reason.CLOCK),
    "the node's clock ahead": ({'ahead': 2.0}, Reason.CLOCK),
    "the node's clock behind": ({'ahead': -2.0}, Reason.CLOCK),
    'states that waited': ({'spoil': add(received=-0.035)}, Reason.LATE),
}


@pytest.mark.parametrize('name', FAULTS)
def test_it_holds_within_a_control_period_says_why_and_recovers_by_itself(name):
    fault, reason = FAULTS[name]
    stream = Robot(up)
    stream.run(40)
    assert stream.last.policy == 'global'
    good, count = stream.now - PERIOD, len(stream.timed)
    stream.run(30, **fault)
    held = stream.timed[count:]
    first, selection = next((now, each) for now, each in held if each.holds)
    assert first - good <= 0.05 + 1e-9
    assert selection.reason is reason and selection.action == STAY
    # A leap is one at first, and then the time it is.
    if 'stamps' not in name:
        assert {each.reason for now, each in held if now > first} == {reason}
        # At the hold the move of the tick ends.
        np.testing.assert_allclose(stream.targets[-1], stream.targets[-22], atol=1e-12)
    count, good = len(stream.timed), stream.now
    stream.run(30)
    moved, _ = next(each for each in stream.timed[count:] if each[1].policy == 'global')
    assert moved - good <= 0.11
    assert all(each.policy == 'global' for now, each in stream.timed if now > moved)


def test_a_stamp_that_stands_still_is_no_new_state():
    stream = Robot(up)
    stream.run(40)
    stuck, good = stream.stamp - BEAT, stream.now - PERIOD

    def again(operation, vitals):
        return [dataclasses.replace(each, stamp=stuck) for each in (operation, vitals)]

    stream.run(20, again)
    first = next(now for now, each in stream.timed if each.reason is Reason.FROZEN)
    assert first - good <= 0.05 + 1e-9
    stream.run(10)
    assert stream.last.policy == 'global'


@pytest.mark.parametrize('first', ['watchdog', 'state'])
def test_states_that_waited_while_nobody_ran_are_late_whoever_runs_first(first):
    stream = Robot(up)
    stream.run(40)
    count = len(stream.timed)
    stream.now += 0.2  # the process was stopped, and so was the robot
    if first == 'watchdog':
        cycle = stream.loop.watchdog(stream.now)
        assert cycle.selection.reason is Reason.STALE
    stream.publish()
    assert {each.reason for _, each in stream.timed[count:]} <= {Reason.LATE, Reason.STALE}
    held = stream.targets[-1]
    stream.publish(with_patient=False, with_operation=False)
    np.testing.assert_array_equal(stream.targets[-1], held)
    stream.run(8)
    assert stream.last.policy == 'global'


OPERATION = tuple(each.name for each in OPERATION_FIELDS)


@pytest.mark.parametrize(
    ('names', 'latest'),
    [(OPERATION, 0.31), (('goal_error_x', 'goal_error_y', 'goal_error_z'), 0.2)],
)
def test_frozen_sensors_are_found_and_when_they_thaw_it_goes_on(names, latest):
    stream = Robot(lambda state: 4)
    stream.run(40)
    begun, spoil = stream.now, freeze(*names)
    stream.run(60, spoil)
    first = next(now for now, each in stream.timed if each.reason is Reason.FROZEN)
    assert 0.02 < first - begun <= latest
    assert stream.last.reason is Reason.FROZEN
    stream.run(10)
    assert stream.last.policy == 'global'


def test_frozen_force_is_found_in_contact_while_the_set_point_moves():
    stream = Robot(lambda state: 5)
    for _ in range(20):
        stream.publish(
            lambda o, v: number('contact', 1.0)(*number('force', 1.0 + 1e-6 * stream.now)(o, v))
        )
    spoil = freeze('force', 'lag')
    stream.run(20, lambda o, v: number('contact', 1.0)(*spoil(o, v)))
    assert stream.last.reason is Reason.FROZEN


def test_vital_signs_may_stay_the_same_but_not_for_ever():
    stream = Robot(up)
    stream.loop = ControlLoop(
        stream.loop.selector, Limiter(), PlausibilitySettings(frozen_vitals=0.5)
    )

    def steady(o, v):
        return o, dataclasses.replace(v, values=np.array([80.0, 70, 98, 14]))

    stream.run(48, steady)
    assert stream.last.policy == 'global'
    stream.run(12, steady)
    assert stream.last.reason is Reason.FROZEN


@pytest.mark.parametrize('procedure', public_cohort(3).procedures)
def test_no_working_sensor_counts_as_frozen(procedure):
    rng = np.random.default_rng(1)
    patient = public_cohort(3, procedures=(procedure,)).patient(0)
    stream = Robot(lambda state: int(rng.choice([STAY, STAY, 4, 10, 6, 8])), patient)
    while not stream.operation.done:
        stream.publish()
    assert len(stream.timed) > 20
    assert {each.reason for _, each in stream.timed} == {Reason.UNVALUED}


def test_time_that_begins_again_is_another_case():
    stream = Robot(up)
    stream.run(100)
    assert stream.last.risk.cases == 1
    stream.stamp = START  # a recording that is played again, a simulated clock that is set back
    reasons = len(stream.timed)
    stream.run(40)
    assert [each.reason for _, each in stream.timed[reasons:]][0] is Reason.CLOCK
    assert stream.last.policy == 'global' and stream.last.risk.cases == 2
    assert stream.last.risk.case.steps < 9


def test_a_slow_policy_is_late_then_left_out_and_tried_again():
    time, slow = [0.0], [False]

    def policy(state):
        time[0] += 0.03 if slow[0] else 0.001
        return 3

    stream = Robot(policy)
    stream.loop.selector = Selector(clock=lambda: time[0])
    stream.loop.selector.set_candidates([Candidate('global', policy)])
    stream.run(11)
    count, slow[0] = len(stream.timed), True
    stream.run(20)
    reasons = [each.reason for _, each in stream.timed[count:]]
    assert reasons == [Reason.LATE, Reason.LATE, Reason.POLICY_FAILED, Reason.POLICY_FAILED]
    assert all(each.risk is not None for _, each in stream.timed[count:])
    slow[0] = False
    stream.run(110)
    assert stream.last.policy == 'global'


@given(st.lists(st.sampled_from([0, 1, 1, 1, 5, 100, -1, -3, -200, 10**9, -(10**9)]), max_size=40))
def test_stamps_in_order_are_taken_again_after_whatever_came_before(steps):
    order, stamp = StampCheck(PlausibilitySettings()), 0
    for step in steps:
        stamp += step
        order.check(0.01 * stamp)
    # At worst the newest that counted is a gap ahead, and then they have to settle.
    verdicts = [order.check(0.01 * (stamp + 1 + beat))[0] for beat in range(60)]
    assert verdicts[31:] == [None] * 29


def test_time_that_leaps_back_has_to_settle_as_one_that_leaps_ahead():
    for leap in (-400_000_000, 400_000_000):
        stream = Robot(up)
        stream.run(40)
        heard, begin = len(stream.timed), stream.now
        stream.stamp += leap
        stream.run(20)
        refused = [now for now, each in stream.timed[heard:] if each.reason is Reason.CLOCK]
        acted = [now for now, each in stream.timed[heard:] if each.reason is not Reason.CLOCK]
        assert refused and acted and min(acted) - begin > 0.045, leap


def test_two_clocks_in_turn_are_hardly_ever_acted_on():
    stream = Robot(up)
    stream.run(20)
    heard = len(stream.timed)
    for beat in range(200):
        back = (beat % 2) * 400_000_000
        stream.stamp -= back
        stream.publish()
        stream.stamp += back
    reasons = [each.reason for _, each in stream.timed[heard:]]
    assert np.mean([each is Reason.CLOCK for each in reasons]) > 0.9
