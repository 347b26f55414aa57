# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""The robot: it moves by servo_cp alone, holds on a state that is none, and ends an operation."""

import math
import time

from action_msgs.msg import GoalStatus
from builtin_interfaces.msg import Time
from fdrl_ros.deployment.bringup import robot_graph, RoomArguments
import fdrl_ros.msg as ros
from fdrl_ros.nodes.arm.robot_messages import seconds, set_point
from fdrl_ros.nodes.common import qos
from fdrl_ros.surgery.gym.actions import TICK
from fdrl_ros.surgery.gym.state import INDEX
from geometry_msgs.msg import PoseStamped
import numpy as np
import pytest
from sensor_msgs.msg import JointState
from support.foreign_robot import position, released, StillRobot


def test_robot_holds_within_a_tick_when_the_state_is_no_number(runner, room, settings, directory):
    patient = StillRobot(room)
    policy = room.node.create_publisher(ros.GlobalPolicy, '/federation/policy', qos.LATCHED)
    forged = released(directory)
    forged.weights[0] ^= 1
    policy.publish(forged)
    runner.start(robot_graph(settings, 'robot_1')[1:])
    patient.say_until(lambda: room.last('action'))
    patient.say_until(lambda: room.last('action').reason == 'no_policy')
    assert not room.heard['servo_cp'], 'a robot without a policy commands nothing'

    policy.publish(released(directory))
    patient.say_until(lambda: room.last('action').policy == 'global')
    patient.say_until(lambda: len(room.heard['servo_cp']) > 5)

    patient.bad = {'heart_rate': math.nan}
    patient.say_until(lambda: room.last('action').reason == 'not_finite')
    assert room.last('action').policy == 'hold' and room.last('action').action == -1
    commands = len(room.heard['servo_cp'])
    patient.say_until(lambda: len(room.heard['servo_cp']) > commands + 20)
    still = [position(each) for _, each in room.heard['servo_cp'][commands + 5 :]]
    assert np.ptp(still, axis=0).max() == 0.0, 'the tip stays where it is'

    patient.bad = {}
    patient.say_until(lambda: room.last('action').policy == 'global')
    silent = time.monotonic()
    room.wait(lambda: room.last('action').reason == 'stale')
    first = next(at for at, each in room.heard['action'] if at > silent and each.reason == 'stale')
    # One tick is asked for, and held by the test of the loop itself; a busy machine may wake a
    # process later than that.
    assert first - silent < 1.0


def test_env_moves_by_set_points_alone_in_real_time(runner, room, settings):
    for topic, kind in (
        ('measured_js', JointState),
        ('setpoint_cp', PoseStamped),
        ('operation_state', ros.OperationState),
        ('outcome', ros.Outcome),
    ):
        room.hear(kind, topic, qos.EVENT)
    servo = room.node.create_publisher(PoseStamped, 'servo_cp', qos.COMMAND)
    runner.start(robot_graph(settings, 'robot_1')[:1])

    assert not room.operate('tonsillectomy').accepted
    log = runner.log_file('robot_1.env')
    room.wait(lambda: "goal rejected: procedure = 'tonsillectomy'" in log.read_text())
    operation = room.operate('palpation', 4)
    room.wait(lambda: len(room.heard['operation_state']) > 20 and room.heard['feedback'])
    state = room.last('operation_state')
    assert state.patient == room.last('feedback').patient and state.procedure == 'palpation'
    assert state.values[INDEX['time_left']] == 1.0, 'no command, no time'

    start = np.array(position(room.last('setpoint_cp')))
    before = set_point(Time(sec=1), start + [0.0, 0.0, 0.001])
    for _ in range(5):
        servo.publish(before)
        count = len(room.heard['operation_state'])
        room.wait(lambda count=count: len(room.heard['operation_state']) > count + 5)
    state = room.last('operation_state')
    assert state.values[INDEX['time_left']] == 1.0, 'it was meant for another patient'

    nowhere = set_point(state.header.stamp, (math.nan, 0.0, 0.0))
    servo.publish(nowhere)
    goal = start + [0.0, 0.0, 0.002]
    commanded = time.monotonic()

    def arrived() -> bool:
        servo.publish(set_point(state.header.stamp, goal))
        return np.allclose(position(room.last('setpoint_cp')), goal, atol=1e-9)

    room.wait(arrived)
    room.wait(lambda: room.heard['outcome'])
    outcome = room.last('outcome')
    assert not outcome.success and outcome.failure == 'time'
    assert room.outcome_of(operation) == (GoalStatus.STATUS_ABORTED, outcome)
    assert time.monotonic() - commanded > 0.9 * 0.05 * outcome.steps, 'time is real'
    arrivals = [at for at, _ in room.heard['measured_js']]
    assert 0.5 < np.median(np.diff(arrivals)) / 0.01 < 3.0


@pytest.mark.parametrize(
    'arguments',
    [
        RoomArguments(),
        RoomArguments(use_sim_time=True),
        RoomArguments(use_sim_time=True, real_time_factor=0.0),
    ],
)
def test_robot_operates_under_the_selector(runner, room, settings, directory, arguments):
    room.hear(ros.Outcome, 'outcome', qos.EVENT)
    room.hear(ros.Risk, 'risk', qos.EVENT)
    room.hear(ros.Adaptation, 'adaptation', qos.EVENT)
    policy = room.node.create_publisher(ros.GlobalPolicy, '/federation/policy', qos.LATCHED)
    policy.publish(released(directory))
    runner.start(robot_graph(settings, 'robot_1', 2, arguments))
    room.wait(lambda: len(room.heard['outcome']) == 2)
    patients = [each.patient for _, each in room.heard['outcome']]
    assert patients == ['hospital_1/test/0', 'hospital_2/test/0']
    risks = [each for _, each in room.heard['risk']]
    assert all(0.0 <= each.risk <= 1.0 and 0.0 <= each.mitigation <= 1.0 for each in risks)
    # At most 20 Hz; on a machine with more to do than it has cores for it may be fewer.
    stamps = [seconds(each.header.stamp) for each in risks]
    assert 10 < len(risks) < 1.2 * (stamps[-1] - stamps[0]) / TICK + 4
    assert room.last('adaptation').varied <= room.last('adaptation').steps
    assert set(runner.stop().values()) == {0}
