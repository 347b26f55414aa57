# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""What a live robot says, logged in a bag, becomes records; ROS reads the bags that we write."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from fdrl_ros.deployment.bringup import robot_graph
from fdrl_ros.deployment.robot.robot_policies import RobotPolicies
from fdrl_ros.deployment.runner import Runner
from fdrl_ros.errors import RecordsError
from fdrl_ros.learner.records.records import Records
import fdrl_ros.msg as ros
from fdrl_ros.nodes.common import qos
from fdrl_ros.nodes.recorder import Recorder, WholeRecorder
from fdrl_ros.selector.replay import compare, decisions, recorded_actions, replay, ReplaySettings
from fdrl_ros.surgery.data.bag import (
    ARM_STATE,
    EPISODE,
    message_types,
    OURS,
    read_log,
    TOPICS,
    TRANSFORMS,
    write_bag,
)
from fdrl_ros.surgery.data.log_rewards import with_rewards
from fdrl_ros.surgery.data.recording import demonstrations
from fdrl_ros.surgery.gym.state import STATE_SIZE
from fdrl_ros.surgery.settings import WorldSettings
from geometry_msgs.msg import PoseStamped, WrenchStamped
import pytest
from rclpy.serialization import deserialize_message
from sensor_msgs.msg import JointState
from std_msgs.msg import String
from support.foreign_robot import released
from support.operating_room import Room
from support.surgeon import env_alone

rosbag2 = pytest.importorskip('rosbags.rosbag2')
AnyReader = pytest.importorskip('rosbags.highlevel').AnyReader

WORLD = WorldSettings(mode='kinematic')
KINDS = {
    'std_msgs/msg/String': String,
    'sensor_msgs/msg/JointState': JointState,
    'geometry_msgs/msg/PoseStamped': PoseStamped,
    'geometry_msgs/msg/WrenchStamped': WrenchStamped,
    **{f'fdrl_ros/msg/{name}': getattr(ros, name) for name in (*OURS.values(), 'StateFields')},
}


@pytest.fixture
def room(settings) -> Iterator[Room]:
    made = Room(settings.robot_domain)
    yield made
    made.close()


OF_LIBRARIES = ('__msgtype__', '_check_fields')


def said(message: Any) -> Any:
    """Return what a message holds, whichever library made it; NaN as a word."""
    names = getattr(message, '__dataclass_fields__', None) or getattr(message, '__slots__', ())
    inner = [each.lstrip('_') for each in names if not each.isupper() and each not in OF_LIBRARIES]
    if inner:
        return {each: said(getattr(message, each)) for each in inner}
    if isinstance(message, str):
        return message
    if hasattr(message, '__len__'):
        return [said(each) for each in message]
    return 'NaN' if message != message else message


def test_the_log_of_a_live_robot_is_decided_again_and_becomes_records(
    room, settings, directory, tmp_path
):
    path = tmp_path / 'live'
    room.hear(ros.Outcome, 'outcome', qos.EVENT)
    room.hear(ros.Policies, 'policies', qos.LATCHED)
    policy = room.node.create_publisher(ros.GlobalPolicy, '/federation/policy', qos.LATCHED)
    policy.publish(released(directory))
    with Runner(settings, Path(settings.directory) / 'log') as runner:
        runner.start(robot_graph(settings, 'robot_1'))

        def is_candidate() -> bool:
            told = room.last('policies')
            return bool(told and [each.status for each in told.policies] == ['candidate'])

        room.wait(is_candidate)
        with (
            Recorder(path, '/robot_1', settings.robot_domain) as recorder,
            WholeRecorder(tmp_path / 'whole', '/robot_1', settings.robot_domain) as whole,
        ):
            assert '/robot_1/operation_state' in recorder.waits_for
            waiting = 'the next operation to begin'
            room.wait(lambda: recorder.poll(0.05) or recorder.waits_for == waiting)
            for index in range(2):

                def ended(count: int = index + 1) -> bool:
                    recorder.poll(0.05)
                    return recorder.counts['outcome'] == len(room.heard['outcome']) == count

                assert room.operate(index=index).accepted
                room.wait(ended)
            assert not recorder.waits_for and not whole.waits_for
    # What records everything holds what replay and training need, too.
    patients = ['hospital_1/test/0', 'hospital_2/test/0']
    assert [each.patient for each in read_log(tmp_path / 'whole', partial=True)] == patients
    assert recorded_actions(tmp_path / 'whole')
    assert path.stat().st_mode & 0o777 == 0o700, 'it holds what is measured of patients'
    with pytest.raises(RecordsError, match='exists already'):
        Recorder(path, '/robot_1', settings.robot_domain)
    with Recorder(tmp_path / 'none', '/robot_9', settings.robot_domain) as recorder:
        assert '/robot_9/operation_state' in recorder.waits_for
    assert not (tmp_path / 'none').exists()
    heard = set()
    with AnyReader([path]) as reader:
        for connection, _, data in reader.messages():
            reader.deserialize(data, connection.msgtype)
            heard.add(connection.topic.removeprefix('/robot_1/'))
    assert heard == {*TOPICS, ARM_STATE} - {EPISODE}
    # A busy machine may lose a tick here and there: those are left out.
    found = read_log(path, partial=True)
    assert [each.patient for each in found] == patients
    outcomes = [each for _, each in room.heard['outcome']]
    for log, outcome in zip(found, outcomes, strict=True):
        assert (log.success, log.failure) == (outcome.success, outcome.failure)
        assert 0.1 * outcome.steps <= len(log.actions) <= outcome.steps + log.held + 3
    robot = RobotPolicies.of(directory, 'robot_1')
    candidates, actions = robot.registry.candidates(robot.supervision), recorded_actions(path)
    rules = ReplaySettings(robot.plan.selector, shield=robot.plan.shield)
    compared = [
        compare(actions, replay(path, candidates, rules, decided=decided))
        for decided in (None, decisions(actions))
    ]
    # Node and recorder may have lost other states on a busy machine: then it decides in those.
    assert any(each.agree >= 9 * len(each.differ) for each in compared), compared
    records = Records.from_logs([with_rewards(each, WORLD) for each in found])
    records.save(tmp_path / 'records.npz')
    assert Records.load(tmp_path / 'records.npz', STATE_SIZE).n_patients == 2


def test_the_first_operation_waits_until_a_recorder_hears_it(room, settings, tmp_path):
    room.hear(ros.OperationState, 'operation_state', qos.EVENT)
    room.hear(JointState, 'measured_js', qos.EVENT)
    room.node.create_publisher(ros.SelectedAction, 'action', qos.EVENT)
    path, states = tmp_path / 'bag', room.heard['operation_state']
    with Runner(settings, Path(settings.directory) / 'log') as runner:
        runner.start([env_alone(settings, operations=1, recorded=True)])
        room.wait(lambda: len(room.heard['measured_js']) > 100)
        assert not states
        with Recorder(path, '/robot_1', settings.robot_domain) as recorder:
            room.wait(lambda: recorder.poll(0.02) or states)
            room.wait(lambda: recorder.poll(0.02) or recorder.counts['operation_state'] > 9)
    with AnyReader([path]) as reader:
        ours = [each for each in reader.connections if each.topic.endswith('/operation_state')]
        connection, _, data = next(reader.messages(ours))
        first = reader.deserialize(data, connection.msgtype).header.stamp
    told = states[0][1].header.stamp
    # The visitor may have lost the first ones, as it was busy; the recorder has not.
    assert (first.sec, first.nanosec) <= (told.sec, told.nanosec)


def test_ros_reads_in_a_bag_what_was_written(tmp_path):
    write_bag(demonstrations('needle_pass', tmp_path / 'demo', 1, world=WORLD), tmp_path / 'bag')
    seen = set()
    with rosbag2.Reader(tmp_path / 'bag') as reader:
        for connection, _, data in reader.messages():
            if connection.msgtype == TRANSFORMS:
                continue  # of a package that may not be installed
            message = deserialize_message(data, KINDS[connection.msgtype])
            assert said(message) == said(message_types().deserialize_cdr(data, connection.msgtype))
            seen.add(connection.msgtype)
    assert seen == set(KINDS)
