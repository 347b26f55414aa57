# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""The URDF is one that any tool takes, and an arm can stand elsewhere under other names."""

import shutil
import subprocess
import xml.etree.ElementTree as ElementTree

from fdrl_ros.deployment.frame_settings import FrameSettings
from fdrl_ros.errors import SettingError
from fdrl_ros.resources import resource
from fdrl_ros.surgery.arm.kinematics import forward, JAW, JOINTS, LOWER, UPPER
from fdrl_ros.surgery.arm.mount import Mount
from fdrl_ros.surgery.arm.operating_state import CommandError
from fdrl_ros.surgery.arm.pybullet_client import PhysicsClient, pybullet
from fdrl_ros.surgery.arm.rotations import from_quaternion, to_quaternion
from hypothesis import given
from hypothesis import strategies as st
import numpy as np
import pytest

ELSEWHERE = Mount('left_', 'theatre', (1.5, -0.25, 0.8, 0.1, -0.2, 2.0))


def whole():
    return ElementTree.parse(resource('urdf/psm.urdf')).getroot()


def shapes(link, tag):
    found = []
    for each in link.findall(tag):
        origin = each.find('origin')
        place = {} if origin is None else dict(origin.attrib)
        found.append((ElementTree.tostring(each.find('geometry')), place))
    return found


def test_every_body_has_mass_inertia_of_a_body_and_what_is_seen_collides():
    for link in whole().findall('link'):
        if link.get('name') == 'world':
            assert link.find('inertial') is None  # KDL takes no root with inertia
            continue
        inertial = link.find('inertial')
        assert float(inertial.find('mass').get('value')) > 0.0
        moments = inertial.find('inertia').attrib
        tensor = np.array(
            [[float(moments['i' + ''.join(sorted(a + b))]) for b in 'xyz'] for a in 'xyz']
        )
        first, second, third = sorted(np.linalg.eigvalsh(tensor))
        assert first > 0.0 and first + second >= third
        assert shapes(link, 'visual') == shapes(link, 'collision')


@pytest.mark.parametrize('mount', [Mount(), ELSEWHERE])
def test_the_official_parser_takes_it(mount, tmp_path):
    if shutil.which('check_urdf') is None:
        pytest.skip('check_urdf is not installed (liburdfdom-tools)')
    path = tmp_path / 'arm.urdf'
    path.write_text(mount.urdf())
    done = subprocess.run(['check_urdf', path], capture_output=True, text=True, check=True)
    assert f'root Link: {mount.base_frame or "world"} has' in done.stdout


def test_a_prefix_and_a_place_change_names_and_the_root_alone():
    plain, moved = whole(), ElementTree.fromstring(ELSEWHERE.urdf())
    for tag in ('link', 'joint'):
        before = {each.get('name') for each in plain.findall(tag)}
        after = {each.get('name') for each in moved.findall(tag)}
        assert after == {f'left_{name}' for name in before} | {
            'theatre' if tag == 'link' else 'left_mount'
        }
    text = ElementTree.tostring(plain, 'unicode')
    assert Mount().urdf() == text


def test_pybullet_puts_the_tip_of_an_arm_elsewhere_where_kinematics_does():
    held = PhysicsClient('a test')
    body = held.load(ELSEWHERE.urdf(), resource('urdf/psm.urdf'))
    index = {}
    for number in range(pybullet.getNumJoints(body, held.client)):
        info = pybullet.getJointInfo(body, number, held.client)
        index[info[1].decode()] = index[info[12].decode()] = number
    at, turned = ELSEWHERE.remote_centre
    base = pybullet.getLinkState(body, index['left_base_link'], 0, 1, held.client)
    assert np.abs(at - base[4]).max() < 1e-6
    rng = np.random.default_rng(5)
    for joints in rng.uniform(LOWER, UPPER, (20, 6)).tolist():
        for name, value in zip(JOINTS, joints, strict=True):
            pybullet.resetJointState(body, index[f'left_{name}'], value, 0.0, held.client)
        link = pybullet.getLinkState(body, index['left_tool_tip'], 0, 1, held.client)
        tip, axes = forward(joints)
        assert np.abs(at + turned @ np.array(tip) - link[4]).max() < 1e-5
        matrix = np.array(pybullet.getMatrixFromQuaternion(link[5])).reshape(3, 3)
        assert np.abs(turned @ np.array(axes).T - matrix).max() < 1e-5
    assert f'left_{JAW}_mirror' in index
    held.close()


coordinates = st.floats(-0.2, 0.2)


@given(
    st.tuples(coordinates, coordinates, coordinates),
    st.lists(st.floats(-1, 1), min_size=4, max_size=4),
)
def test_a_pose_in_the_base_frame_is_the_one_in_base_link(position, numbers):
    length = float(np.linalg.norm(numbers))
    quaternion = tuple(each / length for each in numbers) if length > 0.1 else (0, 0, 0, 1.0)
    at, turned = ELSEWHERE.remote_centre
    seen = at + turned @ np.array(position)
    rotation = turned @ from_quaternion(quaternion)
    back, turn = ELSEWHERE.pose_in_base_link('theatre', seen.tolist(), to_quaternion(rotation))
    assert np.abs(np.array(back) - position).max() < 1e-9
    assert np.abs(from_quaternion(turn) - from_quaternion(quaternion)).max() < 1e-9
    for frame in ('', 'left_base_link'):
        assert ELSEWHERE.pose_in_base_link(frame, position, quaternion) == (position, quaternion)


def test_a_pose_in_another_frame_is_refused_by_its_name():
    for mount, frame in ((ELSEWHERE, 'base_link'), (Mount(), 'theatre')):
        with pytest.raises(CommandError, match=f"in '{frame}'"):
            mount.pose_in_base_link(frame, (0.0, 0.0, 0.0), (0.0, 0.0, 0.0, 1.0))


@pytest.mark.parametrize(
    ('name', 'values'),
    [
        ('frame_prefix', {'frame_prefix': '1st'}),
        ('frame_prefix', {'frame_prefix': '/left_'}),
        ('base_frame', {'base_frame': 'two words'}),
        ('base_pose', {'base_frame': 'map', 'base_pose': '1 2 3'}),
        ('base_pose', {'base_frame': 'map', 'base_pose': '1 2 3 0 0 nan'}),
        ('base_pose', {'base_pose': '1 0 0 0 0 0'}),
    ],
)
def test_names_and_poses_that_cannot_be_are_refused(name, values):
    with pytest.raises(SettingError, match=name):
        FrameSettings(**values)
