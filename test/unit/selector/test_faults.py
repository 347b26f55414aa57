# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""Whatever goes wrong with states or policies: held within 50 ms, said why, and over by itself."""

import dataclasses
import math

from fdrl_ros.selector import Candidate, Limiter, Reason, Selector
from fdrl_ros.selector.control.loop import ControlLoop, PERIOD
from fdrl_ros.selector.control.plausibility import PlausibilitySettings, StampCheck
from fdrl_ros.surgery.gym.actions import STAY
from fdrl_ros.surgery.gym.state import INDEX, OPERATION_FIELDS, OPERATION_SIZE, PATIENT_FIELDS
from fdrl_ros.surgery.patient.cohort import public_cohort
from hypothesis import given
from hypothesis import strategies as st
import numpy as np
import pytest
from unit.selector.test_control import Robot

SECOND = 1_000_000_000
BEAT = SECOND // 100
START = 1_700_000_000 * SECOND


class Line(Robot):
    """A robot whose states may be spoiled on their way; stamps are of another clock than `now`."""

    def __init__(self, policy, patient=None) -> None:
        super().__init__(policy)
        if patient is not None:
            self.operation.reset(patient)
        self.stamp = START
        self.runs = True  # the operation's time
        self.heard = []  # (now, selection)

    def place(self, patient) -> None:
        """Put somebody on the table, whose time begins with the first motion."""
        self.operation.reset(patient)
        self.runs = False

    def say(self, spoil=None, ahead: float = 0.0, say_patient=True, say_operation=True) -> None:
        """Let a beat pass in which the state says something else, or nothing."""
        values = np.array(self.operation.values())
        operation = self.half(OPERATION_FIELDS, values[:OPERATION_SIZE])
        vitals = self.half(PATIENT_FIELDS, values[OPERATION_SIZE:])
        if spoil is not None:
            operation, vitals = spoil(operation, vitals)
        cycles = []
        self.loop.receive_tip(self.operation.target, 1e-9 * self.stamp)
        if say_patient:
            cycles.append(self.loop.receive_patient(vitals, self.now))
        if say_operation:
            cycles.append(self.loop.run_waiting(self.now))
            clock = 1e-9 * self.stamp + ahead
            cycles.append(self.loop.receive_operation(operation, self.now, clock))
        cycles.append(self.loop.watchdog(self.now))
        for cycle in cycles:
            if cycle is not None and cycle.selection is not None:
                self.heard.append((self.now, cycle.selection))
            if cycle is not None and cycle.setpoint is not None:
                self.move(tuple(cycle.setpoint.position))
        self.targets.append(np.array(self.operation.target))
        self.pass_time()
        self.now += PERIOD
        self.stamp += BEAT

    def move(self, target) -> None:
        """Command the arm."""
        self.operation.set_target(target)
        self.runs = True

    def pass_time(self) -> None:
        """Let the operation go on by a beat, if its time runs."""
        if not self.runs:
            return
        self.substeps += 1
        self.operation.advance(2 + (self.substeps % 5 in (0, 2)))
        if self.substeps % 5 == 0:
            self.operation.tick()

    def half(self, fields, values, factor: float = 1.0):
        patient = self.operation.patient
        return dataclasses.replace(
            super().half(fields, values, factor),
            patient=patient.name,
            procedure=patient.procedure.name,
            stamp=self.stamp,
        )

    @property
    def last(self):
        return self.heard[-1][1]


def up(state) -> int:
    """Go up and down, which no operation minds."""
    return 11 if state[INDEX['goal_error_z']] < 2.0 else 10


def number(name, value):
    """Return what spoils one number of the state."""

    def spoil(operation, vitals):
        place = INDEX[name]
        part = operation if place < OPERATION_SIZE else vitals
        values = np.array(part.values)
        values[place if part is operation else place - OPERATION_SIZE] = value
        changed = dataclasses.replace(part, values=values)
        return (changed, vitals) if part is operation else (operation, changed)

    return spoil


def both(**changes):
    """Return what changes the two halves; a number is added to what is there."""

    def spoil(operation, vitals):
        halves = []
        for each in (operation, vitals):
            new = {k: getattr(each, k) + v for k, v in changes.items()}
            halves.append(dataclasses.replace(each, **new))
        return tuple(halves)

    return spoil


def vitals_only(**changes):
    return lambda operation, vitals: (
        operation,
        dataclasses.replace(vitals, **{k: getattr(vitals, k) + v for k, v in changes.items()}),
    )


FAULTS = {
    'silence': ({'say_patient': False, 'say_operation': False}, Reason.STALE),
    'no vital signs': ({'say_patient': False}, Reason.STALE),
    'no operation': ({'say_operation': False}, Reason.STALE),
    'not a number': ({'spoil': number('force', math.nan)}, Reason.NOT_FINITE),
    'infinite': ({'spoil': number('heart_rate', math.inf)}, Reason.NOT_FINITE),
    'out of range': ({'spoil': number('oxygen_saturation', 140.0)}, Reason.OUT_OF_RANGE),
    'another procedure': (
        {'spoil': lambda o, v: (dataclasses.replace(o, procedure='x'), v)},
        Reason.MISMATCH,
    ),
    'stamps an hour ahead': ({'spoil': both(stamp=3600 * SECOND)}, Reason.CLOCK),
    'stamps an hour behind': ({'spoil': both(stamp=-3600 * SECOND)}, Reason.CLOCK),
    'stamps a little behind': ({'spoil': both(stamp=-SECOND // 10)}, Reason.CLOCK),
    'vital signs from before': ({'spoil': vitals_only(stamp=-SECOND)}, Reason.STALE),
    'vital signs from later': ({'spoil': vitals_only(stamp=SECOND)}, Reason.CLOCK),
    "the node's clock ahead": ({'ahead': 2.0}, Reason.CLOCK),
    "the node's clock behind": ({'ahead': -2.0}, Reason.CLOCK),
    'states that waited': ({'spoil': both(received=-0.035)}, Reason.LATE),
}


@pytest.mark.parametrize('name', FAULTS)
def test_it_holds_within_a_control_period_says_why_and_recovers_by_itself(name):
    fault, reason = FAULTS[name]
    line = Line(up)
    for _ in range(40):
        line.say()
    assert line.last.policy == 'global'
    good, count = line.now - PERIOD, len(line.heard)
    for _ in range(30):
        line.say(**fault)
    held = line.heard[count:]
    first, selection = next((now, each) for now, each in held if each.holds)
    assert first - good <= 0.05 + 1e-9
    assert selection.reason is reason and selection.action == STAY
    # A leap is one at first, and then the time it is.
    if 'stamps' not in name:
        assert {each.reason for now, each in held if now > first} == {reason}
        # At the hold the move of the tick ends.
        np.testing.assert_allclose(line.targets[-1], line.targets[-22], atol=1e-12)
    count, good = len(line.heard), line.now
    for _ in range(30):
        line.say()
    moved, _ = next(each for each in line.heard[count:] if each[1].policy == 'global')
    assert moved - good <= 0.11
    assert all(each.policy == 'global' for now, each in line.heard if now > moved)


def test_a_stamp_that_stands_still_is_no_new_state():
    line = Line(up)
    for _ in range(40):
        line.say()
    stuck, good = line.stamp - BEAT, line.now - PERIOD

    def again(operation, vitals):
        return [dataclasses.replace(each, stamp=stuck) for each in (operation, vitals)]

    for _ in range(20):
        line.say(again)
    first = next(now for now, each in line.heard if each.reason is Reason.FROZEN)
    assert first - good <= 0.05 + 1e-9
    for _ in range(10):
        line.say()
    assert line.last.policy == 'global'


@pytest.mark.parametrize('first', ['watchdog', 'state'])
def test_states_that_waited_while_nobody_ran_are_late_whoever_runs_first(first):
    line = Line(up)
    for _ in range(40):
        line.say()
    count = len(line.heard)
    line.now += 0.2  # the process was stopped, and so was the robot
    if first == 'watchdog':
        cycle = line.loop.watchdog(line.now)
        assert cycle.selection.reason is Reason.STALE
    line.say()
    assert {each.reason for _, each in line.heard[count:]} <= {Reason.LATE, Reason.STALE}
    held = line.targets[-1]
    line.say(say_patient=False, say_operation=False)
    np.testing.assert_array_equal(line.targets[-1], held)
    for _ in range(8):
        line.say()
    assert line.last.policy == 'global'


def freeze(*names):
    """Return what makes some numbers of the operation say what they said first."""
    kept = {}

    def spoil(operation, vitals):
        values = np.array(operation.values)
        for each in names:
            values[INDEX[each]] = kept.setdefault(each, values[INDEX[each]])
        return dataclasses.replace(operation, values=values), vitals

    return spoil


OPERATION = tuple(each.name for each in OPERATION_FIELDS)


@pytest.mark.parametrize(
    ('names', 'latest'),
    [(OPERATION, 0.31), (('goal_error_x', 'goal_error_y', 'goal_error_z'), 0.2)],
)
def test_frozen_sensors_are_found_and_when_they_thaw_it_goes_on(names, latest):
    line = Line(lambda state: 4)
    for _ in range(40):
        line.say()
    begun, spoil = line.now, freeze(*names)
    for _ in range(60):
        line.say(spoil)
    first = next(now for now, each in line.heard if each.reason is Reason.FROZEN)
    assert 0.02 < first - begun <= latest
    assert line.last.reason is Reason.FROZEN
    for _ in range(10):
        line.say()
    assert line.last.policy == 'global'


def test_frozen_force_is_found_in_contact_while_the_set_point_moves():
    line = Line(lambda state: 5)
    for _ in range(20):
        line.say(
            lambda o, v: number('contact', 1.0)(*number('force', 1.0 + 1e-6 * line.now)(o, v))
        )
    spoil = freeze('force', 'lag')
    for _ in range(20):
        line.say(lambda o, v: number('contact', 1.0)(*spoil(o, v)))
    assert line.last.reason is Reason.FROZEN


def test_vital_signs_may_stay_the_same_but_not_for_ever():
    line = Line(up)
    line.loop = ControlLoop(line.loop.selector, Limiter(), PlausibilitySettings(frozen_vitals=0.5))

    def steady(o, v):
        return o, dataclasses.replace(v, values=np.array([80.0, 70, 98, 14]))

    for _ in range(48):
        line.say(steady)
    assert line.last.policy == 'global'
    for _ in range(12):
        line.say(steady)
    assert line.last.reason is Reason.FROZEN


@pytest.mark.parametrize('procedure', public_cohort(3).procedures)
def test_no_working_sensor_counts_as_frozen(procedure):
    rng = np.random.default_rng(1)
    patient = public_cohort(3, procedures=(procedure,)).patient(0)
    line = Line(lambda state: int(rng.choice([STAY, STAY, 4, 10, 6, 8])), patient)
    while not line.operation.done:
        line.say()
    assert len(line.heard) > 20
    assert {each.reason for _, each in line.heard} == {Reason.UNVALUED}


def test_time_that_begins_again_is_another_case():
    line = Line(up)
    for _ in range(100):
        line.say()
    assert line.last.risk.cases == 1
    line.stamp = START  # a recording that is played again, a simulated clock that is set back
    reasons = len(line.heard)
    for _ in range(40):
        line.say()
    assert [each.reason for _, each in line.heard[reasons:]][0] is Reason.CLOCK
    assert line.last.policy == 'global' and line.last.risk.cases == 2
    assert line.last.risk.case.steps < 9


def fail(state):
    raise ValueError('no')


@pytest.mark.parametrize('answer', [math.nan, None, 'x', 3.0, 99, fail])
def test_a_policy_that_answers_no_action_is_held_for_at_once(answer):
    good = [True]

    def policy(state):
        if good[0]:
            return 3
        return answer(state) if callable(answer) else answer

    line = Line(policy)
    for _ in range(10):
        line.say()
    good[0] = False
    for _ in range(6):
        line.say()
    assert line.last.reason is Reason.POLICY_FAILED and line.last.holds
    good[0] = True
    for _ in range(110):
        line.say()
    assert line.last.policy == 'global'


def test_a_slow_policy_is_late_then_left_out_and_tried_again():
    time, slow = [0.0], [False]

    def policy(state):
        time[0] += 0.03 if slow[0] else 0.001
        return 3

    line = Line(policy)
    line.loop.selector = Selector(clock=lambda: time[0])
    line.loop.selector.set_candidates([Candidate('global', policy)])
    for _ in range(11):
        line.say()
    count, slow[0] = len(line.heard), True
    for _ in range(20):
        line.say()
    reasons = [each.reason for _, each in line.heard[count:]]
    assert reasons == [Reason.LATE, Reason.LATE, Reason.POLICY_FAILED, Reason.POLICY_FAILED]
    assert all(each.risk is not None for _, each in line.heard[count:])
    slow[0] = False
    for _ in range(110):
        line.say()
    assert line.last.policy == 'global'


@given(st.lists(st.sampled_from([0, 1, 1, 1, 5, 100, -1, -3, -200, 10**9, -(10**9)]), max_size=40))
def test_stamps_in_order_are_taken_again_after_whatever_came_before(steps):
    order, stamp = StampCheck(PlausibilitySettings()), 0
    for step in steps:
        stamp += step
        order.check(0.01 * stamp)
    # At worst the newest that counted is a gap ahead, and then they have to settle.
    verdicts = [order.check(0.01 * (stamp + 1 + beat))[0] for beat in range(60)]
    assert verdicts[31:] == [None] * 29
