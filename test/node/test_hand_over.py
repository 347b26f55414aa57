# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""The surgeon takes over, another patient comes, and the robot operates after the hand-back."""

from fdrl_ros.deployment.bringup import robot_graph
import fdrl_ros.msg as ros
from fdrl_ros.nodes.common import qos
from fdrl_ros.selector import Reason
from fdrl_ros.srv import Supervise
from geometry_msgs.msg import PoseStamped
import numpy as np
from std_srvs.srv import Trigger
from support.foreign_robot import position, released
from support.hand_back import hand_back


def test_patient_who_came_while_the_surgeon_drove_is_operated_on(
    room, runner, settings, directory
):
    for topic, kind in (
        ('action', ros.SelectedAction),
        ('servo_cp', PoseStamped),
        ('setpoint_cp', PoseStamped),
        ('outcome', ros.Outcome),
    ):
        room.hear(kind, topic, qos.EVENT)
    policy = room.node.create_publisher(ros.GlobalPolicy, '/federation/policy', qos.LATCHED)
    policy.publish(released(directory))
    runner.start(robot_graph(settings, 'robot_1'))

    def order(request: Supervise.Request) -> None:
        answer = room.ask(Supervise, 'selector/supervise', request)
        assert answer.success, answer.message

    def said(patient: str) -> list[ros.SelectedAction]:
        return [each for _, each in room.heard['action'] if each.patient == patient]

    first = room.operate_now('palpation', 0)
    room.wait(lambda: any(each.policy == 'global' for each in said(first)))
    room.wait(lambda: room.last('feedback').policy == 'global')
    told = room.last('feedback')
    assert told.reason in {*Reason} and 0.0 <= told.progress <= 1.0
    assert told.time > 0.0 and told.peak_force >= 0.0
    order(Supervise.Request(command='take_over'))
    for index in range(1, 5):  # whether it hears the very first state of each is chance
        left = position(room.last('setpoint_cp'))
        assert room.ask(Trigger, 'env/reset', Trigger.Request()).success
        last = room.operate_now('palpation', index)
        room.wait(lambda last=last: len(said(last)) > 10)
        reasons = {each.reason for each in said(last)}
        assert 'surgeon' in reasons and reasons <= {'surgeon', 'late'}, reasons
        assert np.linalg.norm(np.subtract(position(room.last('setpoint_cp')), left)) > 0.004
    commands = len(room.heard['servo_cp'])
    order(hand_back(directory))
    room.wait(lambda: len(room.heard['servo_cp']) > commands + 20)
    assert any(each.policy == 'global' for each in said(last))
    room.wait(lambda: room.heard['outcome'] and room.last('outcome').patient == last)
