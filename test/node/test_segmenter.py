# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""The segmenter: labels of live pictures, and a hold while the camera shows nothing."""

from dataclasses import replace
import math
import os
import subprocess
import sys

from diagnostic_msgs.msg import DiagnosticArray
from fdrl_ros.deployment.bringup import environment, robot_graph, RoomArguments
import fdrl_ros.msg as ros
from fdrl_ros.nodes.arm.images import image, picture
from fdrl_ros.nodes.common import qos
from fdrl_ros.segmentation.camera_check import CameraSettings, PATIENCE
from fdrl_ros.segmentation.overlay import overlaid
from fdrl_ros.selector.control.observation import nanoseconds
from geometry_msgs.msg import PoseStamped
import numpy as np
import pytest
from sensor_msgs.msg import Image
from support.foreign_robot import moving, position, reason, released
from support.untrained_segmenter import untrained

CALM = {'world.horizon': 1200, 'federation.disturbances': False, 'federation.gap': 0.0}


class Cable:
    """Between camera and segmenter: it may be cut, or the lens covered."""

    def __init__(self, room) -> None:
        self.lens = picture  # what the camera makes of what is before it
        self.encoding = 'rgb8'
        self.cut = False
        self.sent: dict[int, np.ndarray] = {}
        self._end = room.node.create_publisher(Image, 'camera', qos.PICTURE)
        room.node.create_subscription(Image, 'endoscope/image_raw', self._carry, qos.PICTURE)

    def _carry(self, source: Image) -> None:
        if not self.cut:
            seen = self.lens(source)
            self.sent[nanoseconds(source.header.stamp)] = seen
            self._end.publish(image(source.header, self.encoding, seen))


def told(room):
    return room.last('visibility').reason if room.heard['visibility'] else None


def made_at(seen: ros.Visibility) -> int:
    """Return when a message was made, ns."""
    stamp = nanoseconds(seen.header.stamp)
    return stamp if math.isnan(seen.latency) else stamp + round(1e9 * seen.latency)


def test_labels_follow_the_pictures_and_a_covered_lens_makes_the_robot_hold(
    room, runner, settings, directory, tmp_path
):
    place = RoomArguments(segmenter=str(untrained(tmp_path)))
    env, selector, segmenter = robot_graph(settings, 'robot_1', room=place)
    cable = Cable(room)
    for kind, topic in (
        (ros.Visibility, 'visibility'),
        (Image, 'segmenter/labels'),
        (Image, 'segmenter/overlay'),
        (ros.SelectedAction, 'action'),
        (ros.OperationState, 'operation_state'),
        (PoseStamped, 'servo_cp'),
        (DiagnosticArray, '/diagnostics'),
    ):
        room.hear(kind, topic, qos.EVENT)
    policy = room.node.create_publisher(ros.GlobalPolicy, '/federation/policy', qos.LATCHED)
    policy.publish(released(directory))
    runner.start(
        [
            replace(env, parameters={**env.parameters, **CALM}),
            selector,
            replace(segmenter, remappings=(('endoscope/image_raw', 'camera'),)),
        ]
    )
    room.operate_now('palpation', 0)
    room.wait(moving(room))

    room.wait(lambda: len(room.heard['segmenter/overlay']) > 2)
    shown = {
        nanoseconds(each.header.stamp): each for _, each in room.heard['segmenter/overlay'][-2:]
    }
    for _, labels in room.heard['segmenter/labels']:
        stamp = nanoseconds(labels.header.stamp)
        assert labels.encoding == 'mono8' and labels.header.frame_id == 'endoscope_optical'
        found = np.frombuffer(labels.data, np.uint8).reshape(128, 128)
        (seen,) = (
            each
            for _, each in room.heard['visibility']
            if each.seen and nanoseconds(each.header.stamp) == stamp
        )
        share = np.bincount(found.ravel(), minlength=4) / found.size
        np.testing.assert_allclose(seen.share, share, atol=1e-6)
        np.testing.assert_array_equal(np.isnan(seen.confidence), share == 0.0)
        if stamp in shown:
            expected = overlaid(cable.sent[stamp], found)
            np.testing.assert_array_equal(picture(shown[stamp]), expected)

    waited = []  # states that were not yet held for, once the segmenter had told, in each case

    def hold(expected: str, lens=picture, encoding: str = 'rgb8', cut: bool = False) -> None:
        """Let the robot move, then change what it sees: the next state holds, for what is told."""
        cable.lens, cable.encoding, cable.cut = picture, 'rgb8', False
        room.wait(lambda: told(room) == '' and moving(room)())
        for topic in ('visibility', 'action', 'operation_state'):
            del room.heard[topic][:-1]
        cable.lens, cable.encoding, cable.cut = lens, encoding, cut
        room.wait(lambda: told(room) == expected and reason(room) == 'no_visibility')
        every = [each for _, each in room.heard['visibility']]
        # On a busy machine a picture may have been missed before that.
        assert {each.reason for each in every if not each.seen} <= {expected, 'no_picture'}
        blind = next(each for each in every if each.reason == expected)
        assert not blind.seen and not any(blind.share)
        held = next(each for _, each in room.heard['action'] if each.reason == 'no_visibility')
        judged = nanoseconds(held.header.stamp)
        states = [nanoseconds(each.header.stamp) for _, each in room.heard['operation_state']]
        waited.append(sum(made_at(blind) < stamp < judged for stamp in states))
        if cut:
            silent = 1e-9 * (made_at(blind) - max(cable.sent))
            assert silent >= PATIENCE * CameraSettings().period
        del room.heard['servo_cp'][:]

        def still() -> bool:
            """Say whether it was drawn back at most; a set-point may still be on its way."""
            tips = np.array([position(each) for _, each in room.heard['servo_cp'][-10:]])
            return len(tips) == 10 and np.ptp(tips[:, :2], axis=0).max() == 0.0

        room.wait(still)
        room.wait(lambda: told(room) == expected)

    hold('dark', lambda source: np.zeros((128, 128, 3), np.uint8))
    hold('unusable', lambda source: picture(source)[..., 0].copy(), 'mono8')
    hold('covered', lambda source: np.full((128, 128, 3), 180, np.uint8))
    hold('unusable', lambda source: picture(source)[:15])
    hold('no_picture', cut=True)
    still = list(cable.sent.values())[-1]
    hold('frozen', lambda source: still)
    assert sorted(waited)[len(waited) // 2] <= 1, f'{waited}: not the next state, but a next tick'

    def warned(name: str, words: str) -> bool:
        return any(
            name in status.name and words in status.message
            for _, each in room.heard['/diagnostics'][-12:]
            for status in each.status
        )

    room.wait(lambda: warned('segmenter', 'nothing can be seen: frozen'))
    room.wait(lambda: warned('selector', 'holding: no_visibility: frozen'))
    values = {
        each.key: each.value
        for _, array in room.heard['/diagnostics']
        for status in array.status
        if 'segmenter' in status.name
        for each in status.values
    }
    assert values['segmenter'] == 'tiny of site A' and values['latency'].startswith('median')
    assert int(values['refused']) > 0
    assert not runner.poll()


@pytest.mark.parametrize('missing', ['file', 'torch'])
def test_a_segmenter_without_its_file_or_pytorch_ends_with_one_line(settings, tmp_path, missing):
    variables = os.environ | environment(settings, settings.robot_domain)
    words = ['--ros-args']
    told = "file = ''"
    if missing == 'torch':
        folder = tmp_path / 'torch'
        folder.mkdir()
        (folder / '__init__.py').write_text('raise ImportError("no PyTorch here")')
        variables['PYTHONPATH'] = f'{tmp_path}:{variables.get("PYTHONPATH", "")}'
        words += ['-p', f'file:={tmp_path / "a.npz"}']
        told = 'no PyTorch here: pip install "fdrl_ros[torch]"'
    done = subprocess.run(
        [sys.executable, '-m', 'fdrl_ros.nodes', 'segmenter', *words],
        env=variables,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 1 and told in done.stderr
    assert len([line for line in done.stderr.splitlines() if 'FATAL' in line]) == 1
