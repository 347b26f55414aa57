# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""Frames of the arm's URDF agree with its kinematics, and /tf is what ROS decodes."""

from fdrl_ros.errors import ResourceError
from fdrl_ros.surgery.arm.frame_tree import FrameTree, text_message, Transform, transforms_message
from fdrl_ros.surgery.arm.kinematics import (
    forward_kinematics,
    HOME,
    JAW,
    JAW_LIMITS,
    JOINTS,
    LOWER,
    UPPER,
)
from fdrl_ros.surgery.arm.mount import Mount
from fdrl_ros.surgery.arm.rotations import from_quaternion
from hypothesis import given
from hypothesis import strategies as st
import numpy as np
import pytest

TREE = FrameTree(Mount().urdf())
SHARES = st.lists(st.floats(0, 1), min_size=6, max_size=6)


def pose(transforms, frame, root):
    """Follow the tree from a frame up to a root."""
    parents = {each.child: each for each in transforms}
    at, turned = np.zeros(3), np.eye(3)
    while frame != root:
        each = parents[frame]
        turn = from_quaternion(each.rotation)
        at, turned = np.array(each.translation) + turn @ at, turn @ turned
        frame = each.parent
    return at, turned


@given(SHARES)
def test_the_tip_is_where_the_kinematics_have_it(shares):
    joints = LOWER + np.array(shares) * (UPPER - LOWER)
    frames = TREE.fixed() + TREE.moving(dict(zip(JOINTS, joints.tolist(), strict=True)))
    at, turned = pose(frames, 'tool_tip', 'base_link')
    position, rotation = forward_kinematics(joints)
    np.testing.assert_allclose(at, position, atol=1e-9)
    np.testing.assert_allclose(turned, rotation, atol=1e-6)


def test_every_frame_has_a_parent_and_the_fingers_open_by_half_of_the_jaw():
    assert TREE.joints == {*JOINTS, JAW}
    closed, opened = (
        FrameTree.moving(TREE, {**dict(zip(JOINTS, HOME.tolist(), strict=True)), JAW: angle})
        for angle in (0.0, JAW_LIMITS[1])
    )
    right = next(i for i, each in enumerate(closed) if each.child == 'jaw_right')
    x, _, _, w = opened[right].rotation
    assert 2 * np.arctan2(x, w) == pytest.approx(JAW_LIMITS[1] / 2)
    children = {each.child for each in TREE.fixed() + closed}
    assert len(children) == len(TREE.fixed()) + len(closed)
    assert {each.parent for each in TREE.fixed() + closed} - children == {'world'}


def test_frames_have_the_names_of_the_mount_and_unknown_joints_move_nothing():
    tree = FrameTree(Mount('left_', 'hall', (1.0, 2.0, 3.0, 0.0, 0.0, 0.5)).urdf())
    assert tree.joints == {f'left_{each}' for each in (*JOINTS, JAW)}
    assert {each.child for each in tree.fixed()} >= {'left_world', 'left_base_link'}
    assert not tree.moving({'yaw': 0.1})
    with pytest.raises(ResourceError, match='expected a URDF'):
        FrameTree('<robot')


def test_the_encoded_messages_are_those_of_an_independent_library():
    types = pytest.importorskip('rosbags.typesys')
    store = types.get_typestore(types.Stores.ROS2_KILTED)
    some = [
        Transform('world', 'base', (1.0, -2.0, 3.5), (0.0, 0.6, 0.0, 0.8)),
        Transform('a_longer_name', 'b', (0.0, 0.0, 0.25), (0.0, 0.0, 0.0, 1.0)),
    ]
    data = transforms_message(1_000_000_007, some)
    message = store.deserialize_cdr(data, 'tf2_msgs/msg/TFMessage')
    assert bytes(store.serialize_cdr(message, 'tf2_msgs/msg/TFMessage')) == data
    assert [each.child_frame_id for each in message.transforms] == ['base', 'b']
    assert message.transforms[0].transform.rotation.y == 0.6
    assert message.transforms[1].transform.translation.z == 0.25
    assert message.transforms[1].header.stamp.nanosec == 7
    text = store.deserialize_cdr(text_message('<robot/>'), 'std_msgs/msg/String')
    assert text.data == '<robot/>'
