# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""What the simulated arm refuses, drops or takes over real DDS, and how it is when nobody asks."""

from collections.abc import Callable
import math
import re
from typing import Any

from builtin_interfaces.msg import Time
from fdrl_ros.nodes.arm.robot_messages import OperatingState, pose, quaternion
from fdrl_ros.nodes.common import qos
from fdrl_ros.surgery.arm.kinematics import forward_kinematics, HOME, JAW, JOINTS
from geometry_msgs.msg import PoseStamped
from lifecycle_msgs.msg import Transition
from lifecycle_msgs.srv import ChangeState
import numpy as np
from support.surgeon import LABEL


def test_what_is_no_command_is_refused_with_a_warning_and_the_arm_holds(surgeon, room, runner):
    surgeon.begin()
    start, rotation = surgeon.tip()
    joints = surgeon.settle()
    up = start + [0.0, 0.0, 0.02]
    log = runner.log_file(LABEL)

    def refused(send: Callable[[], None], warning: str = 'refused: ') -> None:
        """Send while a move is under way: the arm holds, and says why within its second."""
        surgeon.pose('move_cp', up, rotation)
        surgeon.wait(lambda: room.last('operating_state').is_busy)
        surgeon.say_until(send, lambda: not room.last('operating_state').is_busy)
        surgeon.say_until(send, lambda: warning in log.read_text())
        held = forward_kinematics(surgeon.settle())[0]
        assert held[2] < up[2] - 0.001
        surgeon.pose('move_cp', start, rotation)
        surgeon.wait(lambda: np.allclose(surgeon.tip()[0], start, atol=1e-9))

    refused(lambda: surgeon.joints('servo_jp', joints[:5]))
    refused(lambda: surgeon.joints('move_jp', joints, tuple('abcdef')))
    refused(lambda: surgeon.pose('servo_cp', up * [1, 1, math.nan], rotation))
    far = [1e200, 0.0, -0.1]
    refused(lambda: surgeon.pose('move_cp', far, rotation), 'refused: move_cp: position (1e+200')
    refused(lambda: surgeon.joints('jaw/move_jp', [5.0]), 'refused: jaw/move_jp: jaw = 5.0')
    elsewhere = pose(Time(), up, quaternion(rotation))
    elsewhere.header.frame_id = 'endoscope_optical'
    refused(
        lambda: surgeon.send('servo_cp', elsewhere),
        "refused: servo_cp: a pose in 'endoscope_optical'",
    )


def test_refused_state_command_holds_the_arm_and_each_is_told(surgeon, room, runner):
    surgeon.begin()
    start, rotation = surgeon.tip()
    surgeon.pose('move_cp', start + [0.0, 0.0, 0.03], rotation)
    surgeon.wait(lambda: room.last('operating_state').is_busy)
    surgeon.word('PAUSE')
    surgeon.wait(lambda: surgeon.state == ('ENABLED', True, False))
    assert surgeon.tip()[0][2] < start[2] + 0.029
    log = runner.log_file(LABEL)
    for count in range(3):
        surgeon.word(f'word {count}')
    nowhere = start + [0.0, 0.0, 5.0]
    surgeon.say_until(
        lambda: surgeon.pose('servo_cp', nowhere, rotation),
        lambda: log.read_text().count('refused: servo_cp: position') >= 2,
    )
    surgeon.word('between')
    surgeon.say_until(
        lambda: surgeon.pose('servo_cp', nowhere, rotation),
        lambda: log.read_text().count('refused: servo_cp: position') >= 3,
    )
    said = log.read_text()
    for word in ('PAUSE', 'word 0', 'word 1', 'word 2', 'between'):
        assert f"refused: state command '{word}'" in said
    times = [
        float(each)
        for each in re.findall(r'\[WARN\] \[([0-9.]+)\].* refused: servo_cp: position', said)
    ]
    assert np.diff(times).min() > 0.9, 'of one topic once a second'


def test_commands_of_any_sender_are_meant_now_unless_they_are_from_before_the_patient(
    surgeon, room, runner
):
    surgeon.begin()
    start, rotation = surgeon.tip()
    up = start + [0.0, 0.0, 0.004]

    def arrives(command: Callable[[], None], goal: Any) -> None:
        surgeon.say_until(command, lambda: np.allclose(surgeon.tip()[0], goal, atol=1e-9))

    unstamped = pose(Time(), up, quaternion(rotation))
    unstamped.header.frame_id = ''
    surgeon.send('move_cp', unstamped)
    surgeon.wait(lambda: np.allclose(surgeon.tip()[0], up, atol=1e-9))
    arrives(lambda: surgeon.send('servo_cp', pose(Time(), start, quaternion(rotation))), start)

    best_effort = room.node.create_publisher(PoseStamped, 'servo_cp', qos.SENSOR)
    arrives(lambda: best_effort.publish(pose(surgeon.now, up, quaternion(rotation))), up)

    late = pose(surgeon.now, start, quaternion(rotation))
    late.header.stamp.sec -= 350
    log = runner.log_file(LABEL)
    surgeon.say_until(
        lambda: surgeon.send('servo_cp', late), lambda: 'clock late' in log.read_text()
    )
    assert 'dropped: servo_cp stamped 3' in log.read_text()
    assert np.allclose(surgeon.tip()[0], up, atol=1e-9)


def test_deactivated_arm_is_disabled_and_comes_back_at_rest(surgeon, room):
    room.wait(lambda: room.heard['joint_states'])
    first = room.last('joint_states')
    assert list(first.name) == [*JOINTS, JAW]
    assert np.allclose(first.position, [*HOME, 0.0], atol=1e-9)
    patient = surgeon.begin()
    start, rotation = surgeon.tip()
    surgeon.pose('move_cp', start + [0.0, 0.0, 0.03], rotation)
    surgeon.wait(lambda: room.last('operating_state').is_busy)

    def change(transition: int) -> None:
        request = ChangeState.Request(transition=Transition(id=transition))
        assert room.ask(ChangeState, 'env/change_state', request).success

    change(Transition.TRANSITION_DEACTIVATE)
    surgeon.wait(lambda: room.heard['outcome'])
    outcome = room.last('outcome')
    assert (outcome.patient, outcome.failure) == (patient, 'aborted')
    surgeon.wait(lambda: surgeon.state == ('DISABLED', True, False))
    late: list[Any] = []
    room.node.create_subscription(OperatingState, 'operating_state', late.append, qos.HEARD)
    room.wait(lambda: late and late[-1].state == 'DISABLED')
    assert [each for each in late if each.is_busy], 'the begin of the move is told to who waits'

    change(Transition.TRANSITION_ACTIVATE)
    surgeon.wait(lambda: surgeon.state == ('ENABLED', True, False))
    surgeon.begin()
    start, rotation = surgeon.tip()
    up = start + [0.0, 0.0, 0.004]
    surgeon.pose('move_cp', up, rotation)
    surgeon.wait(lambda: np.allclose(surgeon.tip()[0], up, atol=1e-9))
    surgeon.wait(lambda: surgeon.state == ('ENABLED', True, False))
