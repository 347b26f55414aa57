# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""A robot's policies over DDS: swapped without a missed beat, kept, pinned, and supervised."""

from pathlib import Path
import subprocess
import sys

from fdrl_ros.deployment.bringup import robot_graph
import fdrl_ros.msg as ros
from fdrl_ros.nodes.common import qos
from fdrl_ros.nodes.parties.conversion import to_ros
from fdrl_ros.srv import ListPolicies, PinPolicy, Supervise
import pytest
from std_msgs.msg import String
from support.foreign_robot import position, StillRobot
from support.hand_back import hand_back
from support.operating_room import Room
from support.signed_policies import global_policy, own_policy


class Theatre:
    """A selector alone, a patient that the test speaks for, and who releases policies."""

    def __init__(self, room: Room, runner, settings, directory: Path) -> None:
        self.room, self.runner, self.directory = room, runner, directory
        self.spec = robot_graph(settings, 'robot_1')[1]
        room.hear(ros.Policies, 'policies', qos.LATCHED)
        publish = room.node.create_publisher
        self.released = publish(ros.GlobalPolicy, '/federation/policy', qos.LATCHED)
        self.own = publish(ros.HospitalPolicy, '/hospital_1/policy', qos.LATCHED)
        self.patient = StillRobot(room)

    def start(self) -> None:
        self.runner.start([self.spec])

    def release(self, number: int, seed: int = 0) -> None:
        message = global_policy(self.directory, number, seed)
        self.released.publish(to_ros(message, ros.GlobalPolicy()))

    def standing(self) -> list[tuple[str, int, str]]:
        """Return what the node says of its policies."""
        told = self.room.last('policies')
        return [(each.name, each.round, each.status) for each in told.policies] if told else []

    def order(self, command: str, name: str = '') -> str:
        """Give an order by the service; it must be obeyed."""
        request = Supervise.Request(command=command, name=name)
        if command == 'hand_back':
            request = hand_back(self.directory)
        answer = self.room.ask(Supervise, 'selector/supervise', request)
        assert answer.success, answer.message
        return answer.message

    def command(self, *words: str) -> str:
        """Give an order by the command line, which finds out that the node runs."""
        place = ['--directory', str(self.directory), '--domain', str(self.spec.domain)]
        done = subprocess.run(
            [sys.executable, '-m', 'fdrl_ros', 'policies', *words, *place],
            capture_output=True,
            text=True,
            timeout=60.0,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    def say_until(self, condition, seconds: float = 60.0) -> None:
        self.patient.say_until(condition, seconds)

    def said(self) -> tuple[str, str]:
        """Return who was chosen last, and why."""
        return self.newest().policy, self.newest().reason

    def newest(self) -> ros.SelectedAction:
        return self.room.last('action')


@pytest.fixture
def theatre(room, runner, settings, directory) -> Theatre:
    return Theatre(room, runner, settings, directory)


def test_new_policy_is_swapped_in_without_a_missed_state(theatre, room):
    theatre.release(0)
    theatre.start()
    theatre.say_until(lambda: ('global', 0, 'candidate') in theatre.standing())
    theatre.say_until(lambda: theatre.newest().policy == 'global')
    chosen = len(room.heard['action'])

    theatre.release(1, seed=7)
    answered, after = 0, 0
    while after < 100:
        # One state after the other: each must have its set-point before the next is said.
        before = len(room.heard['servo_cp'])
        theatre.patient.say()
        try:
            room.wait(lambda before=before: len(room.heard['servo_cp']) > before, 1.0)
        except AssertionError:
            # A set-point lives for 0.1 s: a busy machine may deliver one too late, but not two.
            theatre.patient.say()
            room.wait(lambda before=before: len(room.heard['servo_cp']) > before, 1.0)
        answered += 1
        after += ('global', 1, 'candidate') in theatre.standing()
        assert answered < 20000, theatre.standing()
    assert ('global', 0, 'replaced') in theatre.standing()
    reasons = {each.reason for _, each in room.heard['action'][chosen:]}
    assert reasons and reasons <= {'best', 'kept', 'caution', 'stale', 'late'}
    (told,) = [each for each in room.last('policies').policies if each.round == 1]
    # With so few patients the misfit may leave no variance for the noise.
    assert told.mean_return == told.mean_return and told.value_noise + told.value_misfit > 0.0
    assert bytes(told.digest) == global_policy(theatre.directory, 1, 7).digest


def test_surgeon_takes_over_by_topic_and_hands_back_by_service(theatre, room):
    pedal = room.node.create_publisher(String, 'supervise', qos.EVENT)
    theatre.release(0)
    theatre.start()
    theatre.say_until(lambda: theatre.newest() and theatre.newest().policy == 'global')
    recorded = hand_back(theatre.directory)

    pedal.publish(String(data='explode'))
    pedal.publish(String(data='lock'))
    pedal.publish(String(data='take_over'))
    theatre.say_until(lambda: theatre.newest().reason == 'surgeon')
    commands, risks = len(room.heard['servo_cp']), len(room.heard['risk'])
    theatre.say_until(lambda: len(room.heard['risk']) > risks + 5)
    assert len(room.heard['servo_cp']) == commands, "the arm is the surgeon's alone"
    assert theatre.newest().policy == 'hold' and room.last('policies').driver == 'surgeon'

    theatre.runner.stop()
    del room.heard['action'][:]
    theatre.start()
    theatre.say_until(lambda: theatre.newest() and theatre.newest().reason == 'surgeon')
    assert len(room.heard['servo_cp']) == commands, 'nor is it taken back by a restart'

    pedal.publish(String(data='hand_back'))
    unsigned = Supervise.Request(command='hand_back')
    for request in (unsigned, hand_back(theatre.directory, 'robot_2'), recorded):
        answer = room.ask(Supervise, 'selector/supervise', request)
        assert not answer.success and 'an operator has to sign' in answer.message
    assert room.last('policies').driver == 'surgeon'
    assert 'the selector drives' in theatre.order('hand_back')
    theatre.say_until(lambda: theatre.newest().policy == 'global')
    theatre.say_until(lambda: len(room.heard['servo_cp']) > commands)
    first = position(room.heard['servo_cp'][commands][1])
    assert first == pytest.approx((0.0, 0.0, -0.12), abs=1e-3), 'from where the tip is'


def test_locks_vetoes_and_pins_are_obeyed_and_outlive_the_node(theatre, room):
    theatre.release(0)
    message = own_policy(theatre.directory, 'hospital_1', 3)
    theatre.own.publish(to_ros(message, ros.HospitalPolicy()))
    theatre.start()
    ready = {('global', 0, 'candidate'), ('hospital_1', 1, 'candidate')}
    theatre.say_until(lambda: ready <= set(theatre.standing()), 90.0)

    for name in ('global', 'hospital_1'):
        assert f'{name} alone may act' in theatre.order('lock', name)
        theatre.say_until(lambda name=name: theatre.said() == (name, 'locked'))
    theatre.order('veto', 'hospital_1')
    # What is locked and vetoed does not act, and nothing else does.
    theatre.say_until(lambda: theatre.said() == ('hold', 'no_policy'))
    assert 'hospital_1 is vetoed' in theatre.command('unlock'), 'as people do it'
    theatre.say_until(lambda: theatre.newest().policy == 'global')

    request = Supervise.Request(command='lock', name='hospital_2')
    answer = room.ask(Supervise, 'selector/supervise', request)
    assert not answer.success and 'no candidate' in answer.message

    theatre.release(1, seed=7)
    theatre.say_until(lambda: ('global', 1, 'candidate') in theatre.standing())
    answer = room.ask(
        PinPolicy, 'selector/pin_policy', PinPolicy.Request(name='global', version='0')
    )
    assert answer.success, answer.message
    refused = PinPolicy.Request(name='global', version='9')
    assert 'rounds that are kept, 1' in room.ask(PinPolicy, 'selector/pin_policy', refused).message

    theatre.runner.stop()
    del room.heard['policies'][:]
    theatre.start()
    room.wait(lambda: room.heard['policies'])
    first = room.heard['policies'][0][1]
    statuses = [(each.name, each.round, each.status, each.pinned) for each in first.policies]
    assert statuses == [
        ('global', 1, 'replaced', False),
        ('global', 0, 'candidate', True),
        ('hospital_1', 1, 'vetoed', False),
    ], 'the same stand at once, without waiting for a topic'
    listed = room.ask(ListPolicies, 'selector/list_policies', ListPolicies.Request())
    assert listed.success and 'hospital_1 is vetoed' in listed.message
    assert len(listed.policies.policies) == 3
