# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""
The control loop keeps the beat of the state, starts where the tip is, and holds in silence.

The same states give the same decisions: neither their pace nor the steady clock decides.
"""

from dataclasses import replace
from itertools import pairwise
import math

from fdrl_ros.selector import Candidate, Limiter, Reason, Selector, SelectorSettings
from fdrl_ros.selector.control.loop import ControlLoop, IDLE, PERIOD
from fdrl_ros.selector.control.plausibility import NewestMessage, SET_BACK
from fdrl_ros.surgery.gym.actions import ACTIONS, COARSE_STEP, MAXIMUM_SPEED, STAY
from fdrl_ros.surgery.gym.state import INDEX
from fdrl_ros.surgery.gym.surgery_env import SurgeryEnv
from fdrl_ros.surgery.patient.cohort import public_cohort
from hypothesis import given, settings
from hypothesis import strategies as st
import numpy as np
import pytest
from support.choices import observe, values_of
from support.robot_loop import KINEMATIC, number, PATIENT, Robot, SECOND, up


def test_moves_of_a_robot_are_those_of_the_gymnasium_env():
    sequence = [5, 4, 1, 3, 10, 5, 5, 6, 12, 4]
    env = SurgeryEnv(public_cohort(3), KINEMATIC)
    env.reset(options={'patient': PATIENT})
    chosen = iter([*sequence, *[STAY] * 100])
    robot = Robot(lambda state: next(chosen))
    for action in sequence:
        env.step(action)
    robot.run(5 * len(sequence) + 1)
    np.testing.assert_allclose(robot.targets[-1], env.operation.target, atol=1e-12)
    assert [each.action for each in robot.selections[: len(sequence)]] == sequence


def test_each_state_that_is_judged_shows_the_whole_move_before_it():
    seen = []
    robot = Robot(lambda state: seen.append(robot.operation.target) or 5)
    robot.run(26)
    np.testing.assert_allclose(np.diff(np.array(seen)[:, 2]), COARSE_STEP, atol=1e-12)


@settings(max_examples=30, deadline=None)
@given(st.lists(st.tuples(st.integers(0, len(ACTIONS) - 1), st.booleans()), max_size=40))
def test_tip_is_never_faster_than_the_limit_whatever_is_said_or_left_out(beats):
    action = [STAY]
    robot = Robot(lambda state: action[0])
    commanded = [(0, robot.targets[0])]
    for beat, (wanted, speak) in enumerate(beats, 1):
        action[0] = wanted
        robot.publish(with_patient=speak, with_operation=speak)
        if np.any(robot.targets[-1] != robot.targets[-2]):
            commanded.append((beat, robot.targets[-1]))
    for (first, before), (second, after) in pairwise(commanded):
        way = np.linalg.norm(after - before)
        # A set-point is one period ahead of its time.
        assert way <= MAXIMUM_SPEED * PERIOD * (second - first + 1) + 1e-12


def test_silence_holds_within_a_tick_and_ends_the_set_points_later():
    robot = Robot(lambda state: 5)
    robot.run(20)
    count = len(robot.selections)
    robot.keep_silent(5)
    assert [each.reason for each in robot.selections[count:]] == [Reason.STALE]
    held = robot.targets[-1]
    robot.keep_silent(30)
    np.testing.assert_array_equal(robot.targets[-1], held)
    robot.now += IDLE
    assert robot.loop.watchdog(robot.now).setpoint is None


@pytest.mark.parametrize('lost', ['operation', 'vitals'])
def test_set_points_end_with_the_states_of_the_operation_not_with_the_vital_signs(lost):
    robot = Robot(lambda state: 5)
    robot.run(20)
    ended = lost == 'operation'
    robot.run(round(2.0 * IDLE / PERIOD), with_operation=not ended, with_patient=ended)
    assert robot.last.holds and robot.loop.is_idle(robot.now) is ended
    assert (robot.loop.watchdog(robot.now).setpoint is None) is ended


def test_nothing_moves_without_a_policy_or_without_knowing_where_the_tip_is():
    robot = Robot(lambda state: 5)
    robot.loop.selector.set_candidates([])
    robot.run(10)
    np.testing.assert_array_equal(robot.targets, [PATIENT.start] * 11)
    loop = Robot(lambda state: 5).loop
    observed = robot.halves()[0]
    loop.receive_tip(PATIENT.start, robot.time - PERIOD)
    assert loop.receive_operation(observed, robot.now) is None
    assert loop.run_waiting(robot.now).setpoint is None, 'the tip is older'


def test_tip_that_is_no_number_is_dropped_and_the_case_waits_for_one_that_is():
    robot = Robot(lambda state: 5)
    places = []
    for tip in ((0.0, np.nan, -0.1), (0.0, np.inf, -0.1), PATIENT.start):
        robot.loop.receive_tip(tip, robot.time)
        observed = robot.halves()[0]
        assert robot.loop.receive_operation(observed, robot.now) is None, (
            'it waits for vital signs'
        )
        places.append(robot.loop.run_waiting(robot.now).setpoint)
        robot.loop.receive_patient(robot.halves()[1], robot.now)
        robot.pass_period()
    assert places[:2] == [None, None]
    np.testing.assert_array_equal(places[2].position, PATIENT.start)


def test_retraction_goes_along_the_shaft_to_the_trocar():
    robot = Robot(lambda state: STAY)
    tip = np.array([0.01, -0.02, -0.13])
    robot.loop.receive_tip(tip, robot.time)
    values = np.array(robot.operation.values())
    values[INDEX['force']] = 2.0 * values[INDEX['force_limit']]
    robot.loop.selector.set_candidates([Candidate('global', lambda state: STAY)])
    places = []
    for _ in range(20):
        # No vital signs: the robot holds, and the force is too high.
        half = robot.halves(values)[0]
        cycle = robot.loop.receive_operation(half, robot.now) or robot.loop.run_waiting(robot.now)
        places.append(cycle.setpoint)
        robot.pass_period()
    assert places[-1].retracting
    way = places[-1].position - tip
    assert np.linalg.norm(way) > 1e-3
    np.testing.assert_allclose(np.cross(way, tip), 0.0, atol=1e-12)
    assert np.linalg.norm(places[-1].position) < np.linalg.norm(tip)


def test_another_patient_is_a_new_case_before_a_whole_state_of_it_has_come(monkeypatch):
    robot, resets = Robot(lambda state: STAY), []
    robot.run(10)
    selector = robot.loop.selector
    ended = selector.reset
    monkeypatch.setattr(
        selector, 'reset', lambda *given: resets.append(robot.now) or ended(*given)
    )
    for _ in range(3):
        # The vital signs are those of the one before still.
        other = replace(robot.halves()[0], patient='other')
        robot.loop.receive_operation(other, robot.now)
        robot.pass_period()
    assert len(resets) == 1


def test_a_second_operation_on_one_patient_starts_from_where_the_tip_is_then():
    robot = Robot(lambda state: 0)
    robot.run(60)
    left = robot.targets[-1]
    assert np.linalg.norm(left - PATIENT.start) > 0.01
    robot.operation.reset(PATIENT)
    robot.targets.append(np.array(robot.operation.target))
    robot.timed.clear()
    robot.run(3)
    # Its first state is judged, whenever it comes, and no set-point leads back.
    assert robot.selections[0].risk.cases == 2 and robot.selections[0].risk.case.steps == 1
    steps = np.diff(robot.targets[-4:], axis=0)
    assert (np.linalg.norm(steps, axis=1) <= MAXIMUM_SPEED * PERIOD + 1e-9).all()
    assert np.linalg.norm(robot.targets[-1] - PATIENT.start) < 4 * MAXIMUM_SPEED * PERIOD


@pytest.mark.parametrize('apart', [-0.009, -0.006, -0.004, 0.003])
def test_an_arm_that_tells_its_tip_between_two_states_is_taken_from_a_fresh_one(apart):
    robot, tips = Robot(lambda state: 0), []
    take, target = robot.loop.receive_tip, robot.operation.target

    def tell(tip, now) -> None:
        tips.append((tip, now + apart))
        take(*tips[-1])

    robot.loop.receive_tip = tell
    take((0.05, 0.05, -0.1), robot.time - 0.02)  # of before
    robot.publish()
    assert robot.loop.commanding == (apart > -PERIOD / 2), 'older than the first state'
    robot.publish()
    assert robot.loop.commanding
    robot.run(30)
    assert np.linalg.norm(robot.targets[-1] - target) > 0.005
    steps = np.linalg.norm(np.diff(robot.targets, axis=0), axis=1)
    assert steps.max() <= MAXIMUM_SPEED * PERIOD + 1e-9


NOW = 1_700_000_000.0


@pytest.mark.parametrize(
    ('stamps', 'believed'),
    [
        ((NOW, NOW + 0.01, NOW + 1e4), (True, True, True)),
        ((NOW, NOW), (True, True)),
        ((NOW, NOW - 0.001, NOW - SET_BACK, NOW), (True, False, False, True)),
        ((NOW, 0.0, NOW - 1.0), (True, True, False)),
        ((0.0, 0.0), (True, True)),
        ((NOW, NOW - SET_BACK - 1.0, NOW - SET_BACK), (True, True, True)),
        ((500.0, 0.01, 0.02, 0.015), (True, True, True, False)),
    ],
    ids=['newer', 'twice', 'older', 'unstamped', 'never stamped', 'set back', 'restarted'],
)
def test_what_is_older_is_not_believed_unless_the_clock_was_set(stamps, believed):
    newest = NewestMessage()
    assert tuple(newest.accepts(each) for each in stamps) == believed


def test_an_arm_that_is_paused_is_not_moved_by_an_older_word():
    stream = Robot(up)
    stream.run(20)
    assert stream.loop.receive_arm_state('PAUSED', True, NOW)
    assert not stream.loop.receive_arm_state('ENABLED', True, NOW - 0.5)
    stream.run(20)
    assert stream.last.reason == Reason.PAUSED
    assert stream.loop.receive_arm_state('ENABLED', True, NOW + 0.5)
    stream.run(20)
    assert stream.last.policy == 'global'


def test_a_word_stamped_ahead_of_the_clock_silences_none_after_it():
    loop = Robot(up).loop
    assert loop.receive_arm_state('ENABLED', True, NOW + 3.0, NOW)
    assert loop.receive_arm_state('PAUSED', True, NOW + 0.1, NOW + 0.1)
    assert not loop.receive_arm_state('ENABLED', True, NOW, NOW + 0.2), (
        'what came in time has its order'
    )
    assert loop.receive_arm_state('ENABLED', True, NOW + 0.4, NOW + 0.2), 'within the tolerance'
    assert not loop.receive_arm_state('PAUSED', True, NOW + 0.3, NOW + 0.3)


def decisions(states, speed, late_patient, jitter):
    """Return what a loop decides on recorded states that come so many times faster."""
    selector = Selector(SelectorSettings(dwell=0.1))
    selector.set_candidates(
        [
            Candidate('global', lambda state: int(abs(1e3 * state[INDEX['force']])) % 12),
            Candidate('other', lambda state: 4),
        ]
    )
    loop, found, now, ticks = ControlLoop(selector, Limiter()), [], 50.0, 0
    for number_, (operation, vitals, tip) in enumerate(states):
        due = now + (0.01 / speed) * (1.0 + jitter[number_ % len(jitter)])
        while 50.0 + 0.01 * ticks < due:  # the watchdog's own clock
            found.append(loop.watchdog(50.0 + 0.01 * ticks))
            ticks += 1
        now = due
        operation, vitals = (replace(each, received=now) for each in (operation, vitals))
        loop.receive_tip(tip, operation.time)
        if not late_patient:
            found.append(loop.receive_patient(vitals, now))
        found.append(loop.run_waiting(now))
        found.append(loop.receive_operation(operation, now))
        if late_patient:
            found.append(loop.receive_patient(vitals, now))
    chosen = [each.selection for each in found if each is not None]
    return [
        repr(each._replace(time=0.0))
        for each in chosen
        if each is not None and each.risk is not None
    ]


@pytest.fixture(scope='module')
def recorded():
    """Record a robot's states for four seconds, with a leap of the stamps and a bad number."""
    rng = np.random.default_rng(2)
    stream, states = Robot(lambda state: int(rng.choice([STAY, 4, 10, 11, 5]))), []

    def keep(operation, vitals):
        if 200 <= stream.substeps < 206:
            operation, _ = number('force', math.nan)(operation, vitals)
        states.append((operation, vitals, np.array(stream.operation.target)))
        return operation, vitals

    for beat in range(320):
        if beat == 250:
            stream.stamp += SECOND
        stream.publish(keep)
    return states


@settings(deadline=None, max_examples=8)
@given(
    speed=st.floats(0.1, 20.0),
    late=st.booleans(),
    jitter=st.lists(st.floats(-0.9, 0.9), min_size=1, max_size=7),
)
def test_the_same_states_give_the_same_decisions_however_fast_they_come(
    recorded, speed, late, jitter
):
    expected = decisions(recorded, 1.0, False, [0.0])
    assert len(expected) > 50
    assert decisions(recorded, speed, late, jitter) == expected


@pytest.mark.parametrize(
    ('reason', 'stamp'), [(Reason.STALE, None), (Reason.OUT_OF_RANGE, 1)], ids=['clock', 'state']
)
def test_a_hold_leaves_no_trace_in_later_decisions(reason, stamp):
    told = []
    for interrupted in (True, False):
        selector = Selector()
        selector.set_candidates([Candidate('global', lambda state: 10)])  # down
        forces = []
        for number_ in range(8):
            now = 0.05 * number_
            halves = observe(values_of(force=0.6 + 0.1 * (number_ % 3)), now)
            forces.append(selector.select(*halves, now).predicted_force)
            if interrupted and number_ == 4:
                between, _ = observe(values_of(force=0.5), now + 0.03)
                selector.keep_tip(reason, now + 0.04, between, stamp)
        told.append(forces)
    assert told[0] == told[1]
