# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""docs/ros.md says what env and selector say and hear, and its client works as it stands."""

import os
from pathlib import Path
import re
import subprocess
import sys

from fdrl_ros.nodes.arm.robot_messages import OperatingState
from fdrl_ros.nodes.env import EnvNode, PAUSE
import rclpy
from rclpy.executors import SingleThreadedExecutor
from rclpy.qos import DurabilityPolicy, QoSProfile, ReliabilityPolicy
from rclpy.signals import SignalHandlerOptions
from support.node_process import Process
from support.surgeon import env_alone, LABEL, Surgeon
from support.untrained_segmenter import needed

PAGE = (Path(__file__).resolve().parents[2] / 'docs' / 'ros.md').read_text('utf-8')
CLIENT = re.search(r'```python\n(.*?)```', PAGE, re.DOTALL)[1]
MIDDLEWARE = {'parameter_events', 'rosout', 'diagnostics'}


def table(first: str) -> dict[str, tuple[set[str], str]]:
    """Return types and QoS of each topic of a table of the page."""
    found = {}
    lines = PAGE.split(f'| {first} | type |')[1].splitlines()[2:]
    for line in lines:
        if not line.startswith('|'):
            return found
        topics, types, profile, _ = (each.strip() for each in line.strip('|').split('|', 3))
        for topic in re.findall(r'`([^`]+)`', topics):
            own = set(re.findall(r'\w+/\w+', types))
            crtk = {each.replace('fdrl_ros/', 'crtk_msgs/') for each in own}  # where it was built
            found[topic] = (own | crtk, profile)
    return found


def said(profile: QoSProfile) -> str:
    words = 'reliable' if profile.reliability == ReliabilityPolicy.RELIABLE else 'best effort'
    if profile.durability == DurabilityPolicy.TRANSIENT_LOCAL:
        words += ', latched'
    return f'{words}, last {profile.depth}'


def type_of(kind: type) -> str:
    return f'{kind.__module__.split(".")[0]}/{kind.__name__}'


def test_every_topic_is_listed_with_its_type_and_qos(lone_domain):
    rclpy.init(
        args=['--ros-args', '-r', '__ns:=/robot_1', '-p', 'endoscope:=true']
        + ['-p', 'use_sim_time:=true', '-p', 'world.mode:=kinematic'],
        domain_id=lone_domain,
        signal_handler_options=SignalHandlerOptions.NO,
    )
    executor = SingleThreadedExecutor()
    node = EnvNode(executor.create_task)
    try:
        node.trigger_configure()
        node.trigger_activate()
        for first, ends, kind in (
            ('topic', node.publishers, 'msg_type'),
            ('command', node.subscriptions, 'msg_type'),
        ):
            listed, there = table(first), set()
            for end in ends:
                topic = end.topic_name.removeprefix('/robot_1/')
                if topic.split('/')[-1] in MIDDLEWARE or 'transition_event' in topic:
                    continue
                if (first, topic) == ('command', '/clock'):  # rclpy's own, not followed here
                    continue
                there.add(topic)
                if topic.startswith('local/'):  # the same, as CRTK names it
                    topic = topic.removeprefix('local/')
                types, profile = listed[topic]
                assert type_of(getattr(end, kind)) in types, topic
                assert said(end.qos_profile) == profile, topic
            assert listed.keys() <= there
    finally:
        node.trigger_shutdown()
        node.destroy_node()
        rclpy.shutdown()
    assert type_of(OperatingState) in table('topic')['operating_state'][0]
    assert f'within {PAUSE:.1f} s' in PAGE


def test_every_topic_and_service_of_the_selector_is_listed(directory, lone_domain):
    words = 'hospital:=hospital_2', 'needs_visibility:=true'
    process = Process('/robot_1/selector', directory, lone_domain, *words)
    node = process.node
    try:
        node.trigger_configure()
        node.trigger_activate()
        for first, ends, kind in (
            ('the selector says', node.publishers, 'msg_type'),
            ('the selector hears', node.subscriptions, 'msg_type'),
        ):
            listed, there = table(first), set()
            for end in ends:
                topic = end.topic_name.removeprefix('/robot_1/')
                topic = re.sub(r'^/hospital_\d+', '/hospital_N', topic)
                released = topic.endswith(('/policy', '/home'))
                ours = not topic.startswith('/') or released  # or the middleware's
                if not ours or topic.split('/')[-1] == 'transition_event':
                    continue
                there.add(topic)
                types, profiles = listed[topic]
                assert type_of(getattr(end, kind)) in types, topic
                assert said(end.qos_profile) in profiles.split('; '), topic
            assert listed.keys() == there
        served = {each.service_name.removeprefix('/robot_1/') for each in node.services}
        named = re.findall(r'^\| `(selector/\w+)` \|', PAGE, re.MULTILINE)
        assert len(named) == 3 and served >= {*named}
    finally:
        process.close()


def test_every_topic_that_the_monitor_hears_is_listed(directory, lone_domain, tmp_path):
    plan = tmp_path / 'plan.yaml'
    plan.write_text('{procedure: peg_transfer, patient: a, goal: [0, 0, -0.12]}')
    given = (f'plan:={plan}', 'surface:=true')
    with Process('/robot_1/monitor', directory, lone_domain, *given) as process:
        node, listed, there = process.node, table('the monitor hears'), set()
        node.trigger_configure()
        node.trigger_activate()
        for end in node.subscriptions:
            topic = end.topic_name.removeprefix('/robot_1/')
            if topic.startswith('/'):
                continue
            topic = re.sub(r'^vital_signs/\w+', 'vital_signs/...', topic)
            there.add(topic)
            types, profile = listed[topic]
            assert type_of(end.msg_type) in types, topic
            assert said(end.qos_profile) == profile, topic
        assert listed.keys() == there


def test_every_topic_of_the_segmenter_is_listed(directory, lone_domain, tmp_path):
    given = needed('/robot_1/segmenter', tmp_path)
    with Process('/robot_1/segmenter', directory, lone_domain, *given) as process:
        node = process.node
        node.trigger_configure()
        node.trigger_activate()
        for first, ends in (
            ('the segmenter hears', node.subscriptions),
            ('the segmenter says', node.publishers),
        ):
            listed, there = table(first), set()
            for end in ends:
                topic = end.topic_name.removeprefix('/robot_1/')
                if topic.startswith('/') or topic.split('/')[-1] == 'transition_event':
                    continue
                there.add(topic)
                types, profile = listed[topic]
                assert type_of(end.msg_type) in types, topic
                assert said(end.qos_profile) == profile, topic
            assert listed.keys() == there


def test_other_names_of_the_page_are_those_of_the_selector():
    told = re.findall(r'-r (\S+?):=', PAGE.split('### Another simulator')[1].split('```')[1])
    known = table('the selector says').keys() | table('the selector hears').keys()
    theirs = {each for each in known if not each.startswith('/')}
    ours = {'action', 'risk', 'adaptation', 'policies', 'supervise', 'visibility'}
    assert {*told} - {'__ns'} == theirs - ours


def run_client(domain: int) -> str:
    """Run the client of the page and return what it prints."""
    done = subprocess.run(
        [sys.executable, '-c', CLIENT],
        env={**os.environ, 'ROS_DOMAIN_ID': str(domain)},
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_the_client_of_the_page_moves_the_arm_on_a_fresh_node_and_again(runner, room, settings):
    runner.start([env_alone(settings, **{'federation.procedures': 'all'})])
    answers = []
    for _ in range(2):  # the second time somebody is on the table
        first, last = run_client(settings.robot_domain).splitlines()
        assert 'the tip is at' in last
        answers.append(first.partition(':')[0])
    assert answers == ['accepted', 'rejected']
    log = runner.log_file(LABEL).read_text()
    assert f'/robot_1/env is in DDS domain {settings.robot_domain}' in log


def test_the_client_of_the_page_moves_the_arm_after_an_operation(runner, room, settings):
    runner.start([env_alone(settings, **{'world.horizon': 60})])
    surgeon = Surgeon(room)
    surgeon.begin('reach')
    start, rotation = surgeon.tip()
    surgeon.pose('move_cp', start + [0.0, 0.0, 0.002], rotation)
    surgeon.wait(lambda: room.heard['outcome'])
    run_client(settings.robot_domain)
