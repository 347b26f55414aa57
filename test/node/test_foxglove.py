# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""Foxglove sees every topic of a live arm, with frames and URDF; a layout fits what it sees."""

import json
import re

from fdrl_ros.deployment.interfaces import Domain, INTERFACES, Kind
from fdrl_ros.errors import RecordsError, ResourceError
import fdrl_ros.msg as ros
from fdrl_ros.nodes.common import qos
from fdrl_ros.nodes.topics.every_topic import is_for_people
from fdrl_ros.nodes.topics.message_types import message_type, schema
from fdrl_ros.resources import resource
from fdrl_ros.surgery.arm.mount import Mount
from fdrl_ros.surgery.data.bag import message_types, TRANSFORMS
from geometry_msgs.msg import WrenchStamped
import pytest
from rclpy.serialization import deserialize_message
from std_msgs.msg import String

pytest.importorskip('foxglove')
pytest.importorskip('rosbags')
pytest.importorskip('websockets')

from fdrl_ros.nodes.foxglove_bridge import FoxgloveBridge, served  # noqa: E402, I100
from fdrl_ros.nodes.topics.foxglove_server import OPEN  # noqa: E402
from support.foxglove_client import FoxgloveClient  # noqa: E402
from support.surgeon import env_alone  # noqa: E402

LAYOUT = json.loads(resource('config/foxglove_layout.json').read_text('utf-8'))

TYPES = {
    '/diagnostics': 'diagnostic_msgs/msg/DiagnosticArray',
    '/federation/round': 'fdrl_ros/msg/RoundStatus',
    **{f'/hospital_{i}/privacy': 'fdrl_ros/msg/Privacy' for i in (1, 2, 3)},
    '/robot_1/action': 'fdrl_ros/msg/SelectedAction',
    '/robot_1/body/measured_cf': 'geometry_msgs/msg/WrenchStamped',
    '/robot_1/endoscope/camera_info': 'sensor_msgs/msg/CameraInfo',
    '/robot_1/endoscope/image_raw': 'sensor_msgs/msg/Image',
    '/robot_1/markers': 'visualization_msgs/msg/MarkerArray',
    '/robot_1/measured_cp': 'geometry_msgs/msg/PoseStamped',
    '/robot_1/operating_state': 'fdrl_ros/msg/OperatingState',
    '/robot_1/patient_state': 'fdrl_ros/msg/PatientState',
    '/robot_1/policies': 'fdrl_ros/msg/Policies',
    '/robot_1/risk': 'fdrl_ros/msg/Risk',
    '/robot_1/robot_description': 'std_msgs/msg/String',
    '/robot_1/segmenter/overlay': 'sensor_msgs/msg/Image',
    '/robot_1/setpoint_cp': 'geometry_msgs/msg/PoseStamped',
}
"""Types of all topics that the layout names; those of a live arm are compared with it."""


def texts(value):
    """Yield every text of a JSON document, keys too."""
    if isinstance(value, dict):
        for key, each in value.items():
            yield key
            yield from texts(each)
    elif isinstance(value, list):
        for each in value:
            yield from texts(each)
    elif isinstance(value, str):
        yield value


PATHS = sorted({each for each in texts(LAYOUT['configById']) if each.startswith('/')})


@pytest.mark.parametrize('path', PATHS)
def test_each_path_of_the_layout_is_a_topic_of_the_graph_and_a_field_of_its_type(path):
    topic, *fields = path.split('.')
    assert is_for_people(topic)
    published = {
        line.name.replace('{federation}', '/federation')
        .replace('{robot}', '/robot_1')
        .replace('{hospital}', f'/hospital_{topic[10:11]}')
        for lines in INTERFACES.values()
        for line in lines
        if line.kind is Kind.TOPIC and line.by
    }
    assert topic in published | {'/diagnostics'}
    found = message_type(TYPES[topic])()
    for each in fields:
        name, index = re.fullmatch(r'(\w+)(\[\d+\])?', each).groups()
        assert name in found.get_fields_and_field_types(), path
        assert not index or 'sequence' in found.get_fields_and_field_types()[name]
        found = getattr(found, name)
    # A plot is of numbers, a timeline of words.
    if fields and not index:
        assert isinstance(found, float | str), path


def test_the_layout_has_each_panel_once_and_shows_what_a_robot_is_judged_by():
    def panels(node):
        return [node] if isinstance(node, str) else panels(node['first']) + panels(node['second'])

    shown = panels(LAYOUT['layout'])
    assert sorted(shown) == sorted(LAYOUT['configById'])
    kinds = {each.partition('!')[0] for each in shown}
    assert kinds >= {'3D', 'Image', 'Plot', 'StateTransitions', 'DiagnosticSummary', 'RawMessages'}
    (arm,) = (e for e in LAYOUT['configById']['3D!room']['layers'].values() if 'topic' in e)
    assert arm['topic'] == '/robot_1/robot_description'


def test_panels_have_the_same_title_in_foxglove_and_in_lichtblick():
    for name, panel in LAYOUT['configById'].items():
        assert panel['foxglovePanelTitle'] == panel['lichtblickPanelTitle'], name


def test_definitions_hold_those_of_all_types_in_them():
    for kind in (
        TRANSFORMS,
        *TYPES.values(),
        *(f'fdrl_ros/msg/{e}' for e in dir(ros) if e[0] != '_'),
    ):
        if kind.startswith('fdrl_ros') and not isinstance(getattr(ros, kind[13:]), type):
            continue
        own, *others = re.split(r'=+\nMSG: ', schema(kind))
        parts = {kind.replace('/msg/', '/'): own}
        parts |= {each.partition('\n')[0]: each.partition('\n')[2] for each in others}
        for name, text in parts.items():
            for line in text.splitlines():
                word = re.match(r'\s*([A-Z]\w*|\w+/\w+)[<\[ ]', line.partition('#')[0])
                if word:
                    package = name.partition('/')[0]
                    needed = word[1] if '/' in word[1] else f'{package}/{word[1]}'
                    assert needed in parts, f'{kind}: {needed}'


def test_what_parties_have_among_themselves_and_home_policies_are_not_shown():
    for name in (
        *('/federation/update', '/north/federation/key', '/federation/wanted/hospital_2'),
        *('/federation/policy/weights', '/hospital_1/policy/weights', '/hospital_1/home'),
        *('/rosout', '/parameter_events', '/robot_1/env/transition_event'),
        *('/robot_1/env/operate/_action/status', '/hospital_1/home/weights'),
    ):
        assert not is_for_people(name), name
    for line in INTERFACES[Domain.ROBOTS]:
        if line.kind is Kind.TOPIC and line.name.startswith('{robot}'):
            assert is_for_people(line.name.replace('{robot}', '/north/robot_1'))


def test_a_client_sees_a_live_arm_and_what_was_latched_before_it_came(
    runner, room, settings, robot_domain, federation_domain, tmp_path
):
    runner.start([env_alone(settings)])
    offered = {'/robot_1/body/measured_cf', '/tf', '/tf_static', '/robot_1/robot_description'}
    offered |= {'/robot_1/state_fields', '/robot_1/patient_state'}
    path = tmp_path / 'bag'
    domains = robot_domain, federation_domain
    with FoxgloveBridge(domains, 0, path) as bridge:
        with FoxgloveClient(bridge.address, Origin='https://example.org') as client:
            client.wait(lambda: offered <= client.channels.keys())
            assert client.server['capabilities'] == []  # nothing acts: no publish, no calls
            for topic in offered:
                assert client.channels[topic]['encoding'] == 'cdr'
                assert client.channels[topic]['schemaEncoding'] == 'ros2msg'
            assert not [each for each in client.channels if not is_for_people(each)]
            known = TYPES.keys() & client.channels.keys()
            assert {topic: client.channels[topic]['schemaName'] for topic in known} == {
                topic: TYPES[topic] for topic in known
            }
            client.subscribe(*offered)
            client.wait(lambda: offered - {'/robot_1/patient_state'} <= client.heard.keys())
            force = client.heard['/robot_1/body/measured_cf'][0]
            assert deserialize_message(force, WrenchStamped).header.frame_id == 'tool_tip'
            # A second client comes late, and to a topic that has a client already.
            with FoxgloveClient(bridge.address) as late:
                late.wait(lambda: offered <= late.channels.keys())
                late.subscribe('/robot_1/state_fields', '/tf_static', '/robot_1/robot_description')
                late.wait(lambda: len(late.heard) == 3 and late.heard['/tf_static'])
                fields = deserialize_message(
                    late.heard['/robot_1/state_fields'][0], ros.StateFields
                )
                assert 'force' in fields.names or 'heart_rate' in fields.names
                urdf = deserialize_message(
                    late.heard['/robot_1/robot_description'][0], String
                ).data
                assert urdf == Mount().urdf()
            store = message_types()
            moving = store.deserialize_cdr(client.heard['/tf'][-1], TRANSFORMS)
            assert 'tool_tip' not in {each.child_frame_id for each in moving.transforms}
            assert 'wrist_yaw_link' in {each.child_frame_id for each in moving.transforms}
            client.unsubscribe('/robot_1/body/measured_cf')
            # It is subscribed to while a bag wants it, and no client can publish.
            kind = {'encoding': 'cdr', 'schemaName': 'geometry_msgs/msg/PoseStamped'}
            command = {'id': 1, 'topic': '/robot_1/servo_cp', **kind}
            client.send({'op': 'advertise', 'channels': [command]})
            heard = len(client.heard['/tf'])
            client.wait(lambda: len(client.heard['/tf']) > heard)
            room.wait(lambda: not room.node.count_publishers('/robot_1/servo_cp'))
        with pytest.raises(ResourceError, match='cannot serve on .*in use'):
            FoxgloveBridge(domains, int(bridge.address.rpartition(':')[2]))
        with pytest.raises(RecordsError, match='exists already'):
            FoxgloveBridge(domains, 0, path)
    from rosbags.highlevel import AnyReader

    with AnyReader([path]) as reader:
        recorded = {each.topic for each, _, data in reader.messages() if len(data)}
    assert recorded >= offered - {'/robot_1/patient_state'}


def test_a_topic_is_subscribed_to_only_while_a_client_is(room, settings, robot_domain):
    publisher = room.node.create_publisher(String, 'note', qos.EVENT)
    told: list[str] = []
    bridge = FoxgloveBridge([robot_domain], 0)
    with served(bridge, told.append):
        assert told == [
            f'serving {bridge.address}: in Foxglove or Lichtblick, open a Foxglove WebSocket',
            OPEN,
        ]
        with FoxgloveClient(bridge.address) as client:
            client.wait(lambda: '/robot_1/note' in client.channels)
            assert not publisher.get_subscription_count()
            client.subscribe('/robot_1/note')
            client.wait(publisher.get_subscription_count)
            client.unsubscribe('/robot_1/note')
            client.wait(lambda: not publisher.get_subscription_count())
