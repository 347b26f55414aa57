# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""An arm that stands elsewhere, under other names of frames."""

from dataclasses import replace

from fdrl_ros.deployment.bringup import frames_graph, robot_graph, RoomArguments
from fdrl_ros.deployment.frame_settings import FrameSettings
from fdrl_ros.nodes.arm.robot_messages import quaternion
from fdrl_ros.nodes.common import qos
from fdrl_ros.surgery.arm.kinematics import forward_kinematics
from geometry_msgs.msg import PoseStamped
import numpy as np
from sensor_msgs.msg import JointState
from support.surgeon import env_alone

FRAMES = FrameSettings('left_', 'hall', '1.5 -0.25 0.8 0.1 -0.2 2.0')


def test_an_arm_elsewhere_names_its_frames_and_obeys_poses_of_its_base_frame(
    runner, room, settings
):
    for kind, topic in ((PoseStamped, 'measured_cp'), (JointState, 'joint_states')):
        room.hear(kind, topic, qos.EVENT)
    runner.start([env_alone(settings, **vars(FRAMES))])
    move = room.node.create_publisher(PoseStamped, 'move_cp', qos.EVENT)
    room.wait(lambda: room.last('measured_cp') and move.get_subscription_count())
    assert room.last('measured_cp').header.frame_id == 'left_base_link'
    room.wait(lambda: room.last('joint_states'))
    assert room.last('joint_states').name[:2] == ['left_yaw', 'left_pitch']

    position, rotation = forward_kinematics([0.05, 0.02, 0.11, 0.0, 0.0, 0.0])
    at, turned = FRAMES.mount().remote_centre
    goal = PoseStamped()
    goal.header.frame_id = 'hall'
    x, y, z = (at + turned @ position).tolist()
    goal.pose.position.x, goal.pose.position.y, goal.pose.position.z = x, y, z
    goal.pose.orientation = quaternion(turned @ rotation)
    move.publish(goal)

    def there() -> bool:
        tip = room.last('measured_cp').pose.position
        return bool(np.abs(np.array([tip.x, tip.y, tip.z]) - position).max() < 1e-4)

    room.wait(there)


def test_the_room_is_shown_under_the_names_that_the_arm_tells(settings):
    room = replace(RoomArguments(rviz=True), **vars(FRAMES))
    env, _ = robot_graph(settings, 'robot_1', room=room)
    assert {name: env.parameters[name] for name in vars(FRAMES)} == vars(FRAMES)
    frames, rviz = frames_graph(settings, 'robot_1', room)
    assert '<link name="left_tool_tip"' in frames.parameters['robot_description']
    assert rviz.arguments[-1] == 'left_base_link'
    assert dict(frames.remappings) == {'/tf': '/tf', '/tf_static': '/tf_static'}
