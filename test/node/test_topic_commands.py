# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""`fdrl topic` and `fdrl node` print what `ros2` prints; bags are recorded whole, and played."""

from contextlib import contextmanager
import os
import re
import signal
import subprocess
import sys
import threading

from fdrl_ros.errors import RecordsError, SettingError, TopicError
import fdrl_ros.msg as ros
from fdrl_ros.nodes.common import qos
from fdrl_ros.nodes.recorder import WholeRecorder
from fdrl_ros.nodes.topics import player
from fdrl_ros.nodes.topics.message_text import as_csv, as_yaml, field_of
from fdrl_ros.nodes.topics.topic_queries import rate_of
from fdrl_ros.surgery.data.bag import TRANSFORMS
from geometry_msgs.msg import PoseStamped
import pytest
from std_msgs.msg import String
from support.operating_room import Room
from support.surgeon import env_alone
import yaml

AnyReader = pytest.importorskip('rosbags.highlevel').AnyReader


def fdrl(*words):
    """Run a command as people do: exit code, lines of its output."""
    command = [sys.executable, '-P', '-m', 'fdrl_ros', *map(str, words)]
    told = {'stdout': subprocess.PIPE, 'stderr': subprocess.STDOUT, 'text': True}
    done = subprocess.run(command, **told, timeout=60.0)
    return done.returncode, done.stdout.splitlines()


@pytest.fixture
def arm(runner, room, settings):
    """Start an env, and wait until it says where the arm is."""
    runner.start([env_alone(settings)])
    room.hear(PoseStamped, 'measured_cp', qos.EVENT)
    room.wait(lambda: room.last('measured_cp'))


def test_topics_nodes_and_messages_of_a_live_arm_are_printed_as_ros2_prints_them(
    arm, room, robot_domain
):
    at = '--domain', robot_domain
    code, lines = fdrl('topic', 'list', '-t', *at)
    assert code == 0 and lines == sorted(lines)
    assert '/robot_1/measured_cp [geometry_msgs/msg/PoseStamped]' in lines
    assert not [each for each in lines if '/_' in each]
    code, nodes = fdrl('node', 'list', *at)
    assert code == 0 and '/robot_1/env' in nodes and nodes == sorted(nodes)

    # A latched topic, and one whose publisher is reliable and volatile.
    code, lines = fdrl('topic', 'echo', '/robot_1/state_fields', '--once', *at)
    assert (code, lines[0], lines[-1]) == (0, 'header:', '---')
    fields = yaml.safe_load('\n'.join(lines[:-1]))
    assert list(fields) == ['header', 'layout', 'names', 'units', 'scales']
    code, lines = fdrl('topic', 'echo', 'robot_1/measured_cp', '--once', '--csv', *at)
    assert code == 0 and re.fullmatch(r'\d+,\d+,base_link(,-?[\d.e-]+){7}', lines[0])
    code, lines = fdrl('topic', 'echo', '/robot_1/measured_cp', '--once', '--field', 'pose.x', *at)
    assert (code, len(lines)) == (1, 1) and 'no field pose.x in /robot_1/measured_cp' in lines[0]
    code, lines = fdrl('topic', 'echo', '/robot_1/nothing', *at)
    assert (code, len(lines)) == (1, 1) and 'nobody publishes /robot_1/nothing' in lines[0]


def test_the_rate_of_a_topic_is_printed_until_ctrl_c(arm, robot_domain):
    words = [sys.executable, '-P', '-m', 'fdrl_ros', 'topic', 'hz', '/robot_1/measured_js']
    told = {**os.environ, 'PYTHONUNBUFFERED': '1', 'ROS_DOMAIN_ID': str(robot_domain)}
    with subprocess.Popen(words, stdout=subprocess.PIPE, env=told, text=True) as process:
        lines = [process.stdout.readline() for _ in range(2)]
        process.send_signal(signal.SIGINT)
        assert process.wait(20.0) == 130
    assert re.fullmatch(r'average rate: \d+\.\d{3}\n', lines[0])
    form = r'\tmin: \d+\.\d{3}s max: \d+\.\d{3}s std dev: \d\.\d{5}s window: \d+\n'
    assert re.fullmatch(form, lines[1])


def test_messages_as_text_have_the_form_of_ros2_topic_echo():
    message = ros.StateFields(layout='x' * 200, names=['a', 'b', 'c'], scales=[1.0, 2.5, 1e-9])
    text = as_yaml(message, 2)
    assert text.startswith('header:\n  stamp:\n    sec: 0\n    nanosec: 0\n  frame_id: ')
    assert "layout: xx...\nnames:\n- a\n- b\n- '...'\nunits: []\nscales:\n- 1.0\n- 2.5\n" in text
    assert yaml.safe_load(as_yaml(message, None))['scales'] == [1.0, 2.5, 1e-9]
    assert as_csv(message, 2) == '0,0,x,xx...,a,b,...,,1.0,2.5,...'.replace(',x,', ',,')
    assert field_of(message, 'header.stamp.sec') == 0
    rate = rate_of([0, 10_000_000, 30_000_000])
    words = 'average rate: 66.667\n\tmin: 0.010s max: 0.020s std dev: 0.00500s window: 2'
    assert str(rate) == words


@pytest.fixture
def bag(arm, room, robot_domain, tmp_path):
    """Record a whole arm for an operation."""
    path = tmp_path / 'log'
    with WholeRecorder(path, '/robot_1', robot_domain) as recorder:

        def found(*topics):
            return lambda: recorder.poll(0.05) or all(recorder.counts[each] for each in topics)

        room.wait(found('measured_cp', '/tf', 'robot_description', 'state_fields'))
        assert room.operate('reach').accepted
        room.wait(found('operation_state', 'patient_state', 'markers'))
        move = room.node.create_publisher(PoseStamped, 'servo_cp', qos.COMMAND)
        room.wait(lambda: move.get_subscription_count() > 1)
        move.publish(PoseStamped())  # refused by the arm, and recorded
        room.wait(found('servo_cp'))
    return path


@contextmanager
def playing(path, domain, moved, **how):
    """Play in a thread until the block ends."""
    ending, done = threading.Event(), []

    def run():
        how_ = {'stopped': ending.is_set, 'tell': lambda words: None, **how}
        done.append(player.play(path, domain, moved, **how_))

    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield done
    finally:
        ending.set()
        thread.join()


def test_a_bag_of_everything_is_read_and_played_without_commands(
    bag, robot_domain, lone_domain, tmp_path
):
    with AnyReader([bag]) as reader:
        kinds = {each.topic: each.msgtype for each in reader.connections}
        sent = {each.topic for each, _, _ in reader.messages()}
        (urdf,) = {
            reader.deserialize(data, each.msgtype).data
            for each, _, data in reader.messages()
            if each.topic == '/robot_1/robot_description'
        }
    assert kinds['/tf'] == kinds['/tf_static'] == TRANSFORMS
    assert '<link name="tool_tip"' in urdf
    assert {'/tf', '/tf_static', '/robot_1/servo_cp', '/robot_1/markers'} <= sent

    quiet = {'stopped': lambda: False, 'tell': lambda words: None}
    with pytest.raises(TopicError, match='is published in DDS domain'):
        player.play(bag, robot_domain, player.Moved(), **quiet)
    with pytest.raises(SettingError, match='commands an arm'):
        moved = player.Moved('', {'/robot_1/measured_cp': '/robot_1/servo_cp'})
        player.play(bag, lone_domain, moved, **quiet)
    whole = (bag / 'log.mcap').read_bytes()
    (tmp_path / 'cut.mcap').write_bytes(whole[: len(whole) // 2])
    with pytest.raises(RecordsError, match='cut off'):
        player.play(tmp_path / 'cut.mcap', lone_domain, player.Moved(), **quiet)

    audience = Room(lone_domain, '/replay/robot_2')
    try:
        audience.hear(PoseStamped, 'measured_cp', qos.EVENT)
        moved = player.Moved('/replay', {'/robot_1': '/robot_2'})
        with playing(bag, lone_domain, moved, loop=True) as done:
            audience.wait(lambda: len(audience.heard['measured_cp']) > 50)
            audience.hear(String, 'robot_description', qos.HEARD)  # late: it is latched
            audience.wait(lambda: audience.last('robot_description'))
            assert not audience.node.count_publishers('/replay/robot_2/servo_cp')
        assert done[0].messages > 50
        assert '/robot_1/servo_cp commands an arm' in done[0].left_out
    finally:
        audience.close()


@pytest.mark.parametrize('rate', [0.5, 1.0, 4.0])
def test_messages_are_due_as_far_apart_as_they_came_divided_by_the_rate(monkeypatch, rate):
    now = [100.0]
    monkeypatch.setattr(player.time, 'monotonic', lambda: now[0])
    monkeypatch.setattr(player.time, 'sleep', lambda s: now.__setitem__(0, now[0] + s))
    came = [5_000_000_000, 5_010_000_000, 5_010_000_000, 7_000_000_000]
    messages = [('/a', at, b'') for at in came]
    due = [now[0] - 100.0 for _ in player.due(iter(messages), rate, lambda: False)]
    assert due == pytest.approx([1e-9 * (at - came[0]) / rate for at in came])
    assert not [*player.due(iter(messages), rate, lambda: True)]


def test_no_sensible_flags_or_bag_is_one_line(tmp_path):
    for words, said in (
        (('--play', tmp_path / 'none'), 'does not exist'),
        (('--loop', tmp_path / 'none'), 'expected --play with it'),
        (('--play', tmp_path, '--remap', 'robot_1'), 'OLD:=NEW'),
    ):
        code, lines = fdrl('record', *words)
        assert (code, len(lines)) == (1, 1) and said in lines[0], lines
