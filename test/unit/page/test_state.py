# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""What the page shows: the newest of each thing, no number that is none, and no growth."""

from dataclasses import fields, replace
import json
import math
import tracemalloc
from typing import get_type_hints

from fdrl_ros.deployment.events import (
    HospitalProgress,
    NodeHealth,
    OperationEnded,
    PrivacySpent,
    ReceivedMessage,
    RejectedMessage,
)
from fdrl_ros.federation.protocol.message import (
    Blame,
    Envelope,
    Fault,
    GlobalPolicy,
    Phase,
    RoundStatus,
)
from fdrl_ros.page.state import (
    as_json,
    EVENTS,
    FederationState,
    MOST_NODES,
    PageState,
    SILENT,
    TIMELINE,
)
from fdrl_ros.surgery.gym.state import (
    INDEX,
    OPERATION_LAYOUT,
    OPERATION_SIZE,
    PATIENT_LAYOUT,
)
from hypothesis import given
from hypothesis import strategies as st
import pytest


class Clock:
    """A clock that goes on when it is told to."""

    def __init__(self) -> None:
        self.now = 1_000_000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def state(clock) -> PageState:
    federation = FederationState(('hospital_1', 'hospital_2'), rounds=3)
    return PageState(('robot_1',), federation, clock, clock)


def values(**changed: float) -> list[float]:
    found = [0.0] * OPERATION_SIZE
    for name, each in changed.items():
        found[INDEX[name]] = each
    return found


def status(phase: Phase, round: int = 1, **changed: object) -> RoundStatus:
    told = {
        'keyed': b'',
        'members': b'\x03',
        'survivors': b'',
        'time_left': 20.0,
        'reason': '',
    } | changed
    envelope = Envelope('f', round, 0, 'aggregator', 1)
    blank = dict.fromkeys(('policy_digest', 'roster_digest', 'terms_digest', 'nonce'), b'')
    return RoundStatus(envelope=envelope, phase=int(phase), keys_digest=b'', **blank, **told)


def say(state: PageState, at: float, force: float = 1.0, policy: str = 'global') -> None:
    """Let a robot tell one state and what was chosen for it."""
    with state.robot('robot_1', urgent=True) as robot:
        robot.receive_arm({'yaw': 0.1}, (0.0, 0.0, -0.1), (0.001, 0.0, -0.1), (0.0, 0.0, force))
        told = values(force=force, goal_error_x=0.002, force_limit=6.0, done=0.5)
        robot.receive_operation(at, 'palpation', 'patient', OPERATION_LAYOUT, told)
        robot.receive_patient(PATIENT_LAYOUT, (80.0, 70.0, math.nan, 14.0))
        numbers = dict.fromkeys(
            ('value', 'uncertainty', 'expected_risk', 'predicted_force'), math.nan
        )
        robot.receive_action(at, policy, 'best', '', 3, **numbers)


def test_the_newest_of_a_robot_is_shown_with_its_age_and_waypoint(state, clock):
    assert state.snapshot()['robots']['robot_1']['age'] is None
    say(state, clock.now)
    clock.now += 0.75
    shown = state.snapshot()['robots']['robot_1']
    assert shown['age'] == 0.75 and shown['force'] == 1.0 and shown['procedure'] == 'palpation'
    assert shown['waypoint'] == [-0.001, 0.0, -0.1]
    assert shown['vitals']['heart_rate'] == 70.0


def test_an_arm_that_does_not_operate_has_an_age(state, clock):
    say(state, clock.now)
    assert state.snapshot()['robots']['robot_1']['operating'] and state.operates('robot_1')
    clock.now += 60.0
    with state.robot('robot_1') as robot:
        robot.receive_arm({'yaw': 0.2})
    shown = state.snapshot()['robots']['robot_1']
    assert shown['age'] == 0.0 and not shown['operating'] and shown['joints'] == {'yaw': 0.2}
    clock.now += 60.0
    with state.robot('robot_1') as robot:
        robot.receive_arm_state('DISABLED', True)
    assert state.snapshot()['robots']['robot_1']['age'] == 0.0


def test_what_is_too_old_is_not_shown(state, clock):
    say(state, clock.now)
    with state.robot('robot_1') as robot:
        robot.receive_visibility(True, '', (1.0, 0.0, 0.0, 0.0))
        robot.receive_risk(
            **dict.fromkeys(('risk', 'force', 'damage', 'critical'), 0.1),
            mitigation=1.0,
            case_mitigation=1.0,
        )
    clock.now += 0.5
    shown = state.snapshot()['robots']['robot_1']
    assert shown['choice'] and shown['risk'] and shown['visibility']
    clock.now += 0.1
    shown = state.snapshot()['robots']['robot_1']
    assert shown['choice'] is None and shown['risk'] is None and shown['visibility']
    assert shown['selector_silent'] == pytest.approx(0.6)
    clock.now += 1.5
    assert state.snapshot()['robots']['robot_1']['visibility'] is None


def test_a_selector_that_says_nothing_has_an_age(state, clock):
    def silent():
        return state.snapshot()['robots']['robot_1']['selector_silent']

    assert silent() is None
    with state.robot('robot_1') as robot:
        robot.receive_policies('selector', '', (), ())
    clock.now += 7.0
    assert silent() == 7.0
    state.receive(NodeHealth('/robot_1/selector', 0, 'ok', {'armed': 'true'}))
    assert silent() == 0.0 and state.snapshot()['robots']['robot_1']['armed']


def test_a_node_that_says_nothing_is_not_well(state, clock):
    state.receive(NodeHealth('/robot_1/env', 0, 'ok', {}))
    clock.now += 4.9
    assert state.snapshot()['health'][0]['level'] == 0
    clock.now += 2.1
    (told,) = state.snapshot()['health']
    assert (told['level'], told['summary']) == (3, 'nothing heard for 7 s')
    state.receive(NodeHealth('/robot_1/env', 0, 'ok', {}))
    assert state.snapshot()['health'][0]['summary'] == 'ok'


def test_a_federation_has_the_age_of_the_aggregator_s_last_sign(state, clock):
    def age():
        return state.snapshot()['federation']['age']

    assert age() is None
    state.receive(ReceivedMessage(status(Phase.TRAIN)))
    clock.now += 3.0
    state.receive(HospitalProgress('hospital_1', 'training', 1, 3, 10, math.nan))
    assert age() == 3.0
    state.receive(NodeHealth('/federation/aggregator', 0, 'ok', {}))
    assert age() == 0.0


def test_ages_do_not_follow_the_clock_on_the_wall():
    wall, steady = Clock(), Clock()
    state = PageState(('robot_1',), FederationState(('hospital_1',)), wall, steady)
    say(state, wall.now)
    state.receive(ReceivedMessage(status(Phase.TRAIN)))
    state.receive(HospitalProgress('hospital_1', 'training', 1, 3, 10, math.nan))
    wall.now -= 30.0
    steady.now += 10.0
    shown = state.snapshot()
    assert shown['robots']['robot_1']['age'] == 10.0 and shown['time'] == wall.now
    federation = shown['federation']
    assert (federation['age'], federation['time_left']) == (10.0, 10.0)
    assert not federation['hospitals']['hospital_1']['alive']
    assert shown['events'][0][0] == wall.now + 30.0


def test_what_is_no_number_is_null(state, clock):
    say(state, clock.now, force=math.inf)
    document = json.loads(as_json(state.snapshot()))
    shown = document['robots']['robot_1']
    assert shown['force'] is None and shown['vitals']['oxygen_saturation'] is None
    assert shown['choice']['value'] is None and shown['force_vector'][2] is None


@given(st.lists(st.floats(), min_size=OPERATION_SIZE, max_size=OPERATION_SIZE))
def test_every_state_can_be_sent(numbers):
    state = PageState(('robot_1',), None)
    with state.robot('robot_1') as robot:
        robot.receive_arm(setpoint=(math.nan, 0.0, 1.0))
        robot.receive_operation(0.0, 'reach', '', OPERATION_LAYOUT, numbers)
        robot.receive_risk(
            **dict.fromkeys(('risk', 'force', 'damage', 'critical'), numbers[0]),
            mitigation=numbers[1],
            case_mitigation=numbers[2],
        )
    as_json(state.snapshot())


def test_states_of_another_layout_show_who_and_when_alone(state, clock):
    with state.robot('robot_1') as robot:
        robot.receive_operation(1.0, 'reach', 'one', 'other', [1.0])
    shown = state.snapshot()['robots']['robot_1']
    assert shown['patient'] == 'one' and shown['force'] is None and shown['age'] == 0.0


def test_the_timeline_has_changes_alone(state, clock):
    for policy in ('global', 'global', 'hold', 'global'):
        say(state, clock.now, policy=policy)
    timeline = state.snapshot()['robots']['robot_1']['timeline']
    assert [each[1] for each in timeline] == ['global', 'hold', 'global']


def test_changes_of_supervision_are_told_in_words(state):
    with state.robot('robot_1') as robot:
        assert robot.receive_policies('selector', '', (), ()) == []
        assert robot.receive_policies('surgeon', 'global', ('hospital_1',), ()) == [
            'the surgeon drives',
            'global alone may act',
            'vetoed: hospital_1',
        ]
        robot.shown['taken_by'] = 'Ada'
        assert 'allowed: hospital_1' in robot.receive_policies('selector', '', (), ())
        assert robot.shown['taken_by'] is None


def test_a_federation_is_shown_as_it_goes_on(state, clock):
    state.receive(ReceivedMessage(status(Phase.TRAIN)))
    state.receive(HospitalProgress('hospital_1', 'training', 1, 3, 10, math.nan))
    state.receive(PrivacySpent('hospital_1', 'patient', 2.5, 0.1, 1e-4, 8.0, 1, True))
    state.receive(HospitalProgress('stranger', 'training', 1, 3, 10, 1.0))
    state.receive(RejectedMessage('aggregator: another signature'))
    values = {'left out hospital_2': 'silent', 'seconds sum': '1'}
    state.receive(NodeHealth('/federation/aggregator', 0, 'ok', values))
    tested = {'tested round': '1', 'success': '0.5', 'success palpation': '0.75'}
    for _ in range(2):
        state.receive(NodeHealth('/federation/key_authority', 0, 'ok', tested))
    state.set_forecast('hospital_1', 2)
    clock.now += 4.0
    shown = state.snapshot()['federation']
    assert (shown['phase'], shown['round'], shown['rounds']) == ('TRAIN', 1, 3)
    assert shown['time_left'] == 16.0 and shown['missing'] == {'hospital_2': 'silent'}
    one = shown['hospitals']['hospital_1']
    assert (one['epsilon'], one['budget'], one['pays_for'], one['alive']) == (2.5, 8.0, 2, True)
    assert shown['hospitals'].keys() == {'hospital_1', 'hospital_2'}
    assert not shown['hospitals']['hospital_2']['alive']
    assert [words for _, words in shown['refusals']] == ['aggregator: another signature']
    assert shown['success'] == [
        {'round': 1, 'policy': 'global', 'success': 0.5, 'procedures': {'palpation': 0.75}}
    ]
    clock.now += 2.0
    assert not state.snapshot()['federation']['hospitals']['hospital_1']['alive']


def empty_proof():
    """Return fields of a Blame after guilty and fault, all empty."""
    hints = get_type_hints(Blame)
    names = [each.name for each in fields(Blame)][3:]
    return tuple(b'' if hints[name] is bytes else () for name in names)


def test_blames_and_roll_backs_are_told_once_however_often_they_come(state):
    envelope = Envelope('f', 2, 0, 'key_authority', 1)
    policy = GlobalPolicy(envelope, b'', b'', (), b'', True, True, 'success fell')
    empty = empty_proof()
    blame = Blame(envelope, 'hospital_2', int(Fault.DEAL), *empty)
    for _ in range(3):
        state.receive(ReceivedMessage(policy))
        state.receive(ReceivedMessage(blame))
    shown = state.snapshot()['federation']
    assert [words for _, words in shown['roll_backs']] == ['round 2 was rolled back: success fell']
    assert [each[1:] for each in shown['blames']] == [['hospital_2', 'deal']]


def test_only_present_causes_say_why_a_hospital_is_missing(state, clock):
    def told(**left_out: str) -> None:
        values = {f'left out {name}': why for name, why in left_out.items()}
        state.receive(NodeHealth('/federation/aggregator', 0, 'ok', values))

    def missing() -> dict[str, str]:
        return state.snapshot()['federation']['missing']

    state.receive(ReceivedMessage(status(Phase.TRAIN)))
    told(hospital_2='its budget does not pay')
    assert missing() == {'hospital_2': 'its budget does not pay'}
    told(hospital_1='lost its ledger')
    assert missing() == {'hospital_1': 'lost its ledger'}
    state.receive(ReceivedMessage(status(Phase.FINISHED)))
    assert missing() == {}
    state.receive(ReceivedMessage(status(Phase.OPEN, 2)))
    assert missing() == {'hospital_1': 'lost its ledger'}
    clock.now += SILENT  # whether that still holds nobody knows
    assert missing() == {}


def test_an_unknown_fault_is_a_number():
    state = FederationState(('hospital_2',))
    empty = empty_proof()
    state.receive(
        ReceivedMessage(Blame(Envelope('f', 1, 0, 'a', 1), 'hospital_2', 99, *empty)), 0.0, 0.0
    )
    assert state.snapshot(0.0)['blames'][0][1:] == ['hospital_2', '99']


def test_the_health_of_strangers_does_not_pile_up(state):
    for number in range(2 * MOST_NODES):
        state.receive(NodeHealth(f'/robot_{number}/env', 0, 'ok', {}))
    told = [each['node'] for each in state.snapshot()['health']]
    assert len(told) == MOST_NODES and told[-1] == f'/robot_{2 * MOST_NODES - 1}/env'


def live(state: PageState, clock: Clock, seconds: int) -> None:
    """Let a robot and a federation go on, a state a second."""
    for second in range(seconds):
        clock.now += 1.0
        say(state, clock.now, policy=('global', 'hold')[second % 2])
        if second % 10 == 0:
            state.receive(RejectedMessage(f'message {clock.now}'))
            state.receive(NodeHealth(f'/robot_{second}/selector', 1, 'ok', {}))
            state.receive(ReceivedMessage(status(Phase.TRAIN, int(clock.now))))
            outcome = OperationEnded('robot_1', 'p', 'reach', True, '', 1, 1.0, 0.0)
            with state.robot('robot_1') as robot:
                robot.receive_outcome(outcome)


def test_a_day_needs_no_more_memory_than_an_hour(state, clock):
    # 20 s for each that passes, so that a day is 4320 states.
    clock_step = 20

    def pass_hours(hours: int) -> None:
        for _ in range(hours * 3600 // clock_step // 10):
            live(state, clock, 10)
            clock.now += 10.0 * (clock_step - 1)
            state.snapshot()

    pass_hours(16)
    tracemalloc.start()
    try:
        pass_hours(2)
        before = tracemalloc.get_traced_memory()[0]
        text = len(as_json(state.snapshot()))
        pass_hours(24)
        grown = tracemalloc.get_traced_memory()[0] - before
    finally:
        tracemalloc.stop()
    assert grown < 200_000
    snapshot = state.snapshot()
    assert len(as_json(snapshot)) < 1.1 * text + 1000
    assert len(snapshot['robots']['robot_1']['timeline']) == TIMELINE
    assert len(snapshot['events']) == EVENTS


def test_an_epsilon_is_shown_rounded_up(state):
    state.receive(PrivacySpent('hospital_1', 'patient', 2.5000001, 1.0, 1e-4, 8.0, 3, True))
    assert state.snapshot()['federation']['hospitals']['hospital_1']['epsilon'] == 2.500001
    told = {'stage': 'training', 'round': 1, 'step': 3, 'steps': 9}
    state.receive(HospitalProgress(hospital='hospital_1', epsilon=2.6000001, **told))
    assert state.snapshot()['federation']['hospitals']['hospital_1']['epsilon'] == 2.600001


def test_lists_of_the_status_are_those_of_the_same_roster_alone():
    for digest, members in (
        (b'', ['hospital_1', 'hospital_2']),
        (b'1', []),
        (b'2', ['hospital_1', 'hospital_2']),
    ):
        federation = FederationState(('hospital_2', 'hospital_1'), roster_digest=digest)
        told = replace(status(Phase.TRAIN), roster_digest=b'2')
        federation.receive(ReceivedMessage(told), 0.0, 0.0)
        shown = federation.snapshot(0.0)
        assert (shown['members'], shown['survivors']) == (members, [])
