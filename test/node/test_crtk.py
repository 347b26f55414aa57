# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""The simulated arm over real DDS, spoken to in CRTK and nothing else."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from action_msgs.msg import GoalStatus
from builtin_interfaces.msg import Time
from fdrl_ros.action import Operate
import fdrl_ros.msg as ros
from fdrl_ros.nodes.arm.arm_readings import READINGS
from fdrl_ros.nodes.arm.robot_messages import joint_state, OperatingState, StringStamped
from fdrl_ros.nodes.common import qos
from fdrl_ros.surgery.arm.kinematics import forward_kinematics, JAW, JOINTS
from fdrl_ros.surgery.arm.rotations import from_quaternion, from_rotation_vector
from fdrl_ros.surgery.gym.actions import MAXIMUM_SPEED
from fdrl_ros.surgery.tasks.outcome import TickOutcome
from fdrl_ros.surgery.tasks.procedures import PROCEDURES
import numpy as np
import pytest
from rclpy.action import ActionClient
from rclpy.action.client import ClientGoalHandle
from rclpy.task import Future
from rosgraph_msgs.msg import Clock
from sensor_msgs.msg import CameraInfo, Image, JointState
from std_msgs.msg import Empty
from std_srvs.srv import Trigger
from support.node_process import Process
from support.operating_room import Room
from support.surgeon import env_alone, LABEL, Surgeon
from visualization_msgs.msg import MarkerArray


def test_arm_says_all_that_crtk_asks_for_and_it_fits_together(surgeon, room, runner):
    room.wait(lambda: room.last('operating_state'))
    assert surgeon.state == ('ENABLED', True, False), 'before there is a patient'
    surgeon.begin()
    types = dict(room.node.get_topic_names_and_types())
    for topic, (kind, _) in READINGS.items():
        package, name = kind.__module__.split('.')[0], kind.__name__
        assert types[f'/robot_1/{topic}'] == [f'{package}/msg/{name}']
    assert list(room.last('measured_js').name) == list(JOINTS)
    assert list(room.last('setpoint_js').name) == list(JOINTS)
    assert list(room.last('joint_states').name) == [*JOINTS, JAW]
    assert list(room.last('jaw/measured_js').name) == [JAW]

    start, rotation = surgeon.tip()
    down = start + [0.0, 0.0, -0.02]
    surgeon.pose('move_cp', down, rotation)
    surgeon.wait(lambda: room.last('measured_cv').twist.linear.z < -0.02)
    surgeon.wait(lambda: room.last('measured_js').velocity[2] > 0.02)
    surgeon.wait(lambda: room.last('spatial/measured_cf').wrench.force.z > 0.0)
    surgeon.wait(lambda: not room.last('operating_state').is_busy)
    surgeon.settle()
    stamps: dict[str, dict[tuple[int, int], Any]] = {}
    for topic in READINGS:
        stamps[topic] = {
            (each.header.stamp.sec, each.header.stamp.nanosec): each
            for _, each in room.heard[topic][-50:]
        }
    common = sorted(set.intersection(*(set(each) for each in stamps.values())))
    assert len(common) > 10, 'one snapshot, one stamp'
    now = {topic: each[common[-1]] for topic, each in stamps.items()}
    position, tool = forward_kinematics(now['measured_js'].position)
    at, turned = now['measured_cp'].pose.position, now['measured_cp'].pose.orientation
    assert np.allclose([at.x, at.y, at.z], position, atol=1e-12)
    assert np.allclose(from_quaternion((turned.x, turned.y, turned.z, turned.w)), tool, atol=1e-12)
    assert now['local/measured_cp'] == now['measured_cp']
    body, spatial = now['body/measured_cf'], now['spatial/measured_cf']
    force = np.array([getattr(spatial.wrench.force, axis) for axis in 'xyz'])
    felt = np.array([getattr(body.wrench.force, axis) for axis in 'xyz'])
    torque = np.array([getattr(spatial.wrench.torque, axis) for axis in 'xyz'])
    assert np.allclose(tool @ felt, force, atol=1e-9) and force[2] > 0.0
    assert np.allclose(np.cross(position, force), torque, atol=1e-9)
    assert body.header.frame_id == 'tool_tip' and spatial.header.frame_id == 'base_link'


def test_moves_are_busy_until_they_arrive_and_servo_takes_their_place(surgeon, room):
    surgeon.begin()
    start, rotation = surgeon.tip()
    goal = start + [0.006, -0.004, 0.008]
    turned = rotation @ from_rotation_vector(np.array([0.2, 0.1, -0.2]))
    surgeon.pose('move_cp', goal, turned)
    surgeon.wait(lambda: room.last('operating_state').is_busy)
    surgeon.wait(lambda: not room.last('operating_state').is_busy)
    surgeon.settle()
    position, tool = surgeon.tip('measured_cp')
    assert np.allclose(position, goal, atol=1e-5) and np.allclose(tool, turned, atol=1e-4)
    heard = [each for _, each in room.heard['setpoint_cp']]
    points = np.array([[getattr(e.pose.position, a) for a in 'xyz'] for e in heard])
    times = np.array([e.header.stamp.sec + 1e-9 * e.header.stamp.nanosec for e in heard])
    steps = np.linalg.norm(np.diff(points, axis=0), axis=1)[np.diff(times) < 0.015]
    assert steps.max() <= MAXIMUM_SPEED * 0.01 + 2e-7, 'at 100 Hz, none of them lost'

    joints = np.array(room.last('setpoint_js').position)
    wanted = joints + [0.03, 0.02, -0.004, 0.3, -0.2, 0.2]
    order = [3, 1, 5, 0, 2, 4]
    surgeon.joints('move_jp', wanted[order], tuple(JOINTS[each] for each in order))
    surgeon.wait(lambda: room.last('operating_state').is_busy)
    surgeon.wait(lambda: not room.last('operating_state').is_busy)
    assert np.allclose(surgeon.settle(), wanted, atol=1e-5)

    numbers = tuple(map(str, range(6)))
    surgeon.joints('move_jp', joints, numbers)
    surgeon.wait(lambda: room.last('operating_state').is_busy)
    here = np.array(room.last('setpoint_js').position)
    surgeon.say_until(
        lambda: surgeon.joints('servo_jp', here),
        lambda: not room.last('operating_state').is_busy,
    )
    assert np.allclose(surgeon.settle(), here, atol=1e-5), 'the move does not go on'

    surgeon.joints('jaw/move_jp', [0.7])
    surgeon.wait(lambda: room.last('operating_state').is_busy)
    surgeon.wait(lambda: not room.last('operating_state').is_busy)
    surgeon.wait(lambda: abs(room.last('jaw/measured_js').position[0] - 0.7) < 1e-9)
    surgeon.say_until(
        lambda: surgeon.joints('jaw/servo_jp', [0.1], ('jaw',)),
        lambda: abs(room.last('jaw/measured_js').position[0] - 0.1) < 1e-9,
    )
    assert room.last('jaw/setpoint_js').position[0] == pytest.approx(0.1)


def test_arm_holds_when_told_and_when_it_is_not_ready(surgeon, room):
    surgeon.begin()
    start, rotation = surgeon.tip()
    up = start + [0.0, 0.0, 0.02]
    surgeon.pose('move_cp', up, rotation)
    surgeon.wait(lambda: surgeon.tip()[0][2] > start[2] + 0.002)
    surgeon.send('hold', Empty())
    surgeon.wait(lambda: surgeon.state == ('ENABLED', True, False))
    held = surgeon.settle()
    assert surgeon.tip('measured_cp')[0][2] < up[2] - 0.002

    for leave, state, back in (
        ('pause', ('PAUSED', True, False), ('resume',)),
        ('disable', ('DISABLED', True, False), ('enable',)),
        ('unhome', ('ENABLED', False, False), ('home',)),
    ):
        surgeon.pose('move_cp', up, rotation)
        surgeon.wait(lambda: room.last('operating_state').is_busy)
        surgeon.word(leave)
        surgeon.wait(lambda state=state: surgeon.state == state)
        held = surgeon.settle()
        for _ in range(5):
            surgeon.joints('servo_jp', held + [0.05, 0.0, 0.0, 0.0, 0.0, 0.0])
            surgeon.pose('move_cp', up, rotation)
            count = len(room.heard['measured_js'])
            surgeon.wait(lambda count=count: len(room.heard['measured_js']) > count + 5)
        assert np.allclose(surgeon.settle(), held, atol=1e-9), f'held while {state}'
        assert surgeon.state == state
        for word in back:
            surgeon.word(word)
        surgeon.wait(lambda: surgeon.state == ('ENABLED', True, False))
        assert np.allclose(surgeon.settle(), held, atol=1e-9), 'no old move goes on'
    surgeon.pose('move_cp', up, rotation)
    surgeon.wait(lambda: abs(surgeon.tip('measured_cp')[0][2] - up[2]) < 1e-4)
    assert surgeon.state == ('ENABLED', True, False)


def test_every_procedure_is_listed_and_can_be_asked_for_by_name(runner, room, settings):
    runner.start([env_alone(settings, **{'world.horizon': 10})])
    surgeon = Surgeon(room)
    listed = room.ask(Trigger, 'env/procedures', Trigger.Request())
    lines = dict(each.split(': ', 1) for each in listed.message.splitlines())
    assert list(lines) == [each.name for each in PROCEDURES] and len(lines) >= 6
    assert all(len(each) > 20 for each in lines.values())
    room.hear(ros.OperationState, 'operation_state', qos.EVENT)
    room.hear(MarkerArray, 'markers', qos.PICTURE)
    for count, name in enumerate(lines, 1):
        patient = surgeon.begin(name, index=count)
        surgeon.wait(lambda p=patient: _patient(room) == p)
        assert room.last('operation_state').procedure == name
        surgeon.wait(lambda p=patient: _shown(room, p))
        text = next(each.text for each in room.last('markers').markers if each.text)
        assert 'NEWS2' in text and 'not for clinical use' in text and name in text
        surgeon.say_until(
            lambda: surgeon.joints('jaw/servo_jp', [0.2]),
            lambda c=count: len(room.heard['outcome']) == c,
        )
        outcome = room.last('outcome')
        assert (outcome.patient, outcome.procedure) == (patient, name)
        assert (outcome.success, outcome.failure, outcome.steps) == (False, 'time', 10)


def test_an_arm_alone_needs_no_federation(runner, room, settings):
    spec = env_alone(settings, **{'federation.heterogeneity': 0.3})
    parameters = {name: value for name, value in spec.parameters.items() if name != 'directory'}
    runner.start([replace(spec, parameters=parameters)])
    surgeon = Surgeon(room)
    assert surgeon.begin('reach', index=4).startswith('hospital_')
    before = surgeon.settle()
    surgeon.joints('servo_jp', before + np.array([0.0, 0.0, 0.002, 0.0, 0.0, 0.0]))
    surgeon.wait(lambda: room.last('measured_js').position[2] > before[2] + 0.0015)


def test_reset_aborts_the_operation_which_late_clients_hear_and_brings_the_next_patient(
    surgeon, room, settings
):
    room.hear(ros.OperationState, 'operation_state', qos.EVENT)
    first = surgeon.begin('palpation', index=1)
    assert not room.operate().accepted
    following = []
    for count, patient in enumerate((first, None), 1):
        patient = patient or following[-1]
        surgeon.wait(lambda p=patient: _patient(room) == p)
        aborted = room.ask(Trigger, 'env/reset', Trigger.Request())
        surgeon.wait(lambda c=count: len(room.heard['outcome']) == c)
        outcome = room.last('outcome')
        assert outcome.patient == patient
        assert not outcome.success and outcome.failure == 'aborted'
        following.append(aborted.message.partition(' in ')[0])
    surgeon.wait(lambda: _patient(room) == following[-1])
    assert following[0] != following[1]
    late = Room(settings.robot_domain)
    try:
        late.hear(ros.Outcome, 'outcome', qos.HEARD)
        late.wait(lambda: late.last('outcome') == room.last('outcome'))
    finally:
        late.close()


def test_goal_that_nobody_begins_ends_and_one_for_an_arm_that_is_off_is_rejected(
    runner, room, settings
):
    runner.start([env_alone(settings, goal_timeout=0.5)])
    surgeon = Surgeon(room)
    status, outcome = room.outcome_of(room.operate('palpation', 1))
    assert (status, outcome.failure) == (GoalStatus.STATUS_ABORTED, ros.Outcome.FAILURE_NOT_BEGUN)
    assert outcome.steps == 0
    surgeon.word('disable')
    surgeon.wait(lambda: surgeon.state == ('DISABLED', True, False))
    assert not room.operate('palpation', 1).accepted
    said = 'goal rejected: a goal while DISABLED, homed: expected ENABLED and homed (enable first)'
    assert said in runner.log_file(LABEL).read_text()
    surgeon.word('enable')
    surgeon.wait(lambda: surgeon.state == ('ENABLED', True, False))
    assert room.operate('palpation', 1).accepted


def test_a_goal_ends_when_it_is_canceled_or_its_patient_gives_way(surgeon, room, runner):
    room.hear(ros.OperationState, 'operation_state', qos.EVENT)

    def canceled(goal: ClientGoalHandle) -> tuple[int, bool, str]:
        asked = goal.cancel_goal_async()
        room.wait(asked.done)
        status, outcome = room.outcome_of(goal)
        return status, outcome.success, outcome.failure

    first = room.operate('palpation', 1)
    room.wait(lambda: _patient(room))
    assert canceled(first) == (GoalStatus.STATUS_CANCELED, False, 'aborted')
    surgeon.wait(lambda: room.last('outcome'))
    unasked = room.ask(Trigger, 'env/reset', Trigger.Request()).message.partition(' in ')[0]
    second = room.operate('follow', 5)
    assert second.accepted
    assert not room.operate('reach', 6).accepted, 'one goal at a time'
    following = room.ask(Trigger, 'env/reset', Trigger.Request()).message.partition(' in ')[0]
    status, outcome = room.outcome_of(second)
    assert (status, outcome.failure) == (GoalStatus.STATUS_ABORTED, 'aborted')
    assert outcome.procedure == 'follow' and outcome.steps == 0
    third = room.operate('incision', 6)
    assert canceled(third) == (GoalStatus.STATUS_CANCELED, False, 'aborted')
    wanted = room.operate_now('incision', 7)
    surgeon.wait(lambda: _patient(room) == wanted)
    assert room.last('operation_state').procedure == 'incision'
    log = runner.log_file(LABEL).read_text()
    assert f'{outcome.patient} comes instead of {unasked}' in log
    assert f'{following} comes instead of {outcome.patient}' in log
    assert 'goal rejected: another goal is not done' in log


def _patient(room: Room) -> str:
    last = room.last('operation_state')
    return last.patient if last else ''


def _shown(room: Room, patient: str) -> bool:
    last = room.last('markers')
    return last is not None and any(patient in each.text for each in last.markers)


def test_endoscope_and_clock_are_there_when_asked_for(runner, room, settings):
    endoscope = {'endoscope': True, 'endoscope_rate': 15.0, 'endoscope_width': 160}
    runner.start([env_alone(settings, **endoscope, use_sim_time=True)])
    surgeon = Surgeon(room)
    for name in ('image_raw', 'depth', 'labels'):
        room.hear(Image, f'endoscope/{name}', qos.PICTURE)
    room.hear(CameraInfo, 'endoscope/camera_info', qos.PICTURE)
    room.hear(Clock, '/clock', qos.SENSOR)
    surgeon.begin()
    room.wait(lambda: len(room.heard['endoscope/image_raw']) > 10)
    room.wait(lambda: room.heard['endoscope/labels'] and room.heard['endoscope/depth'])
    picture, info = room.last('endoscope/image_raw'), room.last('endoscope/camera_info')
    assert (picture.encoding, picture.height, picture.width) == ('rgb8', info.height, info.width)
    assert (info.width, info.height) == (160, 240)
    assert len(picture.data) == picture.step * picture.height == 3 * info.width * info.height
    assert np.frombuffer(picture.data, np.uint8).std() > 5.0, 'there is something to see'
    labels = np.frombuffer(room.last('endoscope/labels').data, np.uint8)
    assert {0, 1} <= set(labels.tolist()) <= {0, 1, 2, 3}
    depth = np.frombuffer(room.last('endoscope/depth').data, np.float32)
    assert 0.02 < np.median(depth[np.isfinite(depth)]) < 0.5
    assert info.k[0] == info.p[0] > 0.0 and info.k[2] == pytest.approx(info.width / 2, abs=0.6)
    stamps = [each.header.stamp for _, each in room.heard['endoscope/image_raw']]
    times = [each.sec + 1e-9 * each.nanosec for each in stamps]
    assert np.mean(np.diff(times)) > 0.9 / 15.0, 'no more than 15 a second'
    clocks = [each.clock.sec + 1e-9 * each.clock.nanosec for _, each in room.heard['/clock']]
    assert len(clocks) > 50 and min(np.diff(clocks)) > 0.0


def test_arm_that_failed_is_led_out_by_enable_and_home(directory, lone_domain):
    process = Process('/robot_1/env', directory, lone_domain)
    node = process.node
    room = Room(lone_domain)
    try:
        node.trigger_configure()
        node.trigger_activate()

        def wait(condition: Callable[[], Any]) -> None:
            def spun() -> Any:
                for _ in range(10):  # one event each; a beat of the env brings several
                    process.spin(0.001)
                return condition()

            room.wait(spun)

        room.hear(OperatingState, 'operating_state', qos.HEARD)
        room.hear(ros.Outcome, 'outcome', qos.EVENT)
        word = room.node.create_publisher(StringStamped, 'state_command', qos.EVENT)
        client = ActionClient(room.node, Operate, 'env/operate')
        results, feedback = [], []

        def operate() -> None:
            """Send a goal; its result is asked for long before its feedback comes."""
            feedback.clear()

            def accepted(future: Future) -> None:
                asked = future.result().get_result_async()
                asked.add_done_callback(lambda done: results.append(done.result()))

            sent = client.send_goal_async(Operate.Goal(), feedback_callback=feedback.append)
            sent.add_done_callback(accepted)
            wait(lambda: node.operating and len(feedback) > 2)

        def ended(count: int) -> tuple[int, str]:
            wait(lambda: len(results) == count)
            return results[-1].status, results[-1].result.outcome.failure

        wait(client.server_is_ready)
        operate()
        # No set-point is fast enough to pass the hard stop within a tick: judge as if one had.
        node._end(TickOutcome(-5.0, 11.0, 3.0, 1.0, True, False, 'force', True, False))

        def state() -> tuple[str, bool, bool]:
            said = room.last('operating_state')
            return (said.state, said.is_homed, said.is_busy) if said else ('', False, False)

        wait(lambda: state() == ('FAULT', False, False))
        wait(lambda: room.last('outcome'))
        assert room.last('outcome').failure == 'force'
        assert ended(1) == (GoalStatus.STATUS_ABORTED, 'force')
        assert 'FAULT' in node.health().summary
        heard = len(room.heard['operating_state'])
        wait(lambda: len(room.heard['operating_state']) > heard)
        assert state() == ('FAULT', False, False), 'told again to who listens only now'
        move = room.node.create_publisher(JointState, 'move_jr', qos.EVENT)
        raised = joint_state(Time(), (), [0.0, 0.0, -0.002, 0.0, 0.0, 0.0])
        before = node.arm.free.setpoint_joints()
        wait(move.get_subscription_count)
        move.publish(raised)
        word.publish(StringStamped(string='resume'))
        word.publish(StringStamped(string='enable'))
        wait(lambda: state() == ('ENABLED', False, False))
        word.publish(StringStamped(string='home'))
        wait(lambda: state() == ('ENABLED', True, False))
        assert 'FAULT' not in node.health().summary
        assert np.array_equal(node.arm.free.setpoint_joints(), before), 'it held meanwhile'
        move.publish(raised)
        wait(lambda: state() == ('ENABLED', True, True))
        wait(lambda: state() == ('ENABLED', True, False))
        assert np.allclose(node.arm.free.setpoint_joints()[2], before[2] - 0.002)
        operate()
        node._end(TickOutcome(5.0, 0.5, 0.3, 0.0, False, True, '', True, False))
        assert ended(2) == (GoalStatus.STATUS_SUCCEEDED, '')
        operate()
        for count in (3, 4):
            node.trigger_deactivate()
            assert ended(count) == (GoalStatus.STATUS_ABORTED, 'aborted')
            wait(lambda: not client.server_is_ready())
            node.trigger_activate()
            wait(client.server_is_ready)
            operate()
    finally:
        room.close()
        process.close()
