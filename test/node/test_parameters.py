# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""Parameters and names as ROS has them: dumped, loaded, for many nodes, remapped, judged."""

from collections.abc import Mapping
import sys
from typing import Any

from fdrl_ros.errors import SettingError
from fdrl_ros.nodes.common import qos
import pytest
from rclpy.parameter import Parameter, parameter_value_to_python
from rclpy.parameter_client import AsyncParameterClient
from rclpy.qos import HistoryPolicy, ReliabilityPolicy
from support.node_process import NODES, Process
from support.operating_room import Room
from support.untrained_segmenter import needed
import yaml


def nested(values: Mapping[str, Any]) -> dict[str, Any]:
    """Nest parameters by the dots in their names, as `ros2 param dump` does."""
    made: dict[str, Any] = {}
    for name, value in values.items():
        *groups, last = name.split('.')
        place = made
        for each in groups:
            place = place.setdefault(each, {})
        assert last not in place, f'{name} is a parameter and a group'
        place[last] = value
    return made


def read_by_services(process: Process, domain: int) -> dict[str, Any]:
    """Return all parameters of a node that this process spins, by its parameter services."""
    room = Room(domain)
    try:
        client = AsyncParameterClient(room.node, process.node.get_fully_qualified_name())
        assert client.wait_for_services(15.0)

        def answer(future):
            def answered() -> bool:
                process.spin(0.001)
                return future.done()

            room.wait(answered)
            return future.result()

        names = answer(client.list_parameters()).result.names
        values = answer(client.get_parameters(names)).values
        return dict(zip(names, map(parameter_value_to_python, values), strict=True))
    finally:
        room.close()


def own(node) -> dict[str, Any]:
    return {name: each.value for name, each in node.get_parameters_by_prefix('').items()}


@pytest.mark.parametrize('name', [f'/north{each}' for each in NODES])
def test_node_starts_with_the_same_parameters_from_its_dump(
    name, directory, lone_domain, tmp_path, monkeypatch
):
    file = tmp_path / 'dump.yaml'
    given = ['use_sim_time:=true', *needed(name, tmp_path)]
    with Process(name, directory, lone_domain, *given) as process:
        process.node.trigger_configure()
        process.node.trigger_activate()
        read = read_by_services(process, lone_domain)
        assert read == own(process.node)
    assert read['use_sim_time'] is True
    file.write_text(yaml.safe_dump({name: {'ros__parameters': nested(read)}}))
    words = ['--params-file', str(file)]
    monkeypatch.setattr(sys, 'argv', ['node', '--ros-args', *words])
    with Process(name, directory, lone_domain, words=words) as process:
        assert own(process.node) == read
        process.node.trigger_configure()
        process.node.trigger_activate()
        assert process.node.fault is None and own(process.node) == read


FOR_MANY = """
/**:
  ros__parameters:
    update_rate: 100
    controller: {gains: [1.0, 2.0], joints: [yaw, pitch]}
    endoscop_rate: 7.0
    privacy: {batch: 5}
/robot_1/*: {ros__parameters: {first_patient: 3}}
robot_1: {env: {ros__parameters: {world: {horizon: 66}}}}
/robot_2/*: {ros__parameters: {first_patient: 4}}
/camera: {ros__parameters: {directory: 5}}
"""


@pytest.fixture
def site(tmp_path, monkeypatch):
    """Return a parameter file for all nodes of a robot, and have this process be told of it."""
    file = tmp_path / 'site.yaml'
    file.write_text(FOR_MANY)
    monkeypatch.setattr(sys, 'argv', ['node', '--ros-args', '--params-file', str(file)])
    return file


def test_sections_for_many_nodes_may_hold_what_is_for_others(site, directory, lone_domain, capfd):
    words = ['--params-file', str(site)]
    with Process('/robot_1/env', directory, lone_domain, words=words) as process:
        node = process.node
        assert node.settings.first_patient == 3 and node.plan().world.horizon == 66
        for name in ('update_rate', 'controller.gains', 'endoscop_rate', 'privacy.batch'):
            assert not node.has_parameter(name)
    said = capfd.readouterr().err
    assert 'no parameter endoscop_rate here, ignored: did you mean endoscope_rate?' in said
    assert said.count('[INFO]') == 1 and 'controller.gains, controller.joints' in said


@pytest.mark.parametrize('section', ['/**/env', '/robot_1/env'])
def test_name_that_is_none_is_refused_where_it_is_given_to_this_node(
    site, section, directory, lone_domain
):
    unknown = {section: {'ros__parameters': {'update_rate': 100}}}
    site.write_text(FOR_MANY + yaml.safe_dump(unknown))
    with pytest.raises(SettingError, match='update_rate = 100: expected one of the'):
        Process('/robot_1/env', directory, lone_domain, words=['--params-file', str(site)])


def measured(node) -> dict[str, tuple[int, HistoryPolicy, ReliabilityPolicy]]:
    return {
        each.topic_name: (
            each.qos_profile.depth,
            each.qos_profile.history,
            each.qos_profile.reliability,
        )
        for each in (*node.publishers, *node.subscriptions)
        if each.topic_name.startswith('/robot_1/')
    }


QOS = """
/robot_1/env:
  ros__parameters:
    qos_overrides:
      /robot_1/measured_js: {publisher: {depth: 9, reliability: best_effort}}
      /robot_1/servo_cp: {subscription: {reliability: reliable}}
      /robot_1/measured_j: {publisher: {depth: 9}}
"""


def test_qos_of_topics_is_overridden_by_parameters_at_each_activation(
    directory, lone_domain, tmp_path, capfd
):
    file = tmp_path / 'qos.yaml'
    file.write_text(QOS)
    words = ['--params-file', str(file)]
    with Process('/robot_1/env', directory, lone_domain, words=words) as process:
        node = process.node
        for _ in range(2):
            node.trigger_configure()
            node.trigger_activate()
            assert node.fault is None
            found = measured(node)
            best = ReliabilityPolicy.BEST_EFFORT, ReliabilityPolicy.RELIABLE
            assert found['/robot_1/measured_js'] == (9, HistoryPolicy.KEEP_LAST, best[0])
            assert found['/robot_1/measured_cp'] == (5, HistoryPolicy.KEEP_LAST, best[1])
            assert found['/robot_1/servo_cp'] == (1, HistoryPolicy.KEEP_LAST, best[1])
            assert found['/robot_1/servo_jp'] == (1, HistoryPolicy.KEEP_LAST, best[0])
            node.trigger_deactivate()
            node.trigger_cleanup()
        listed = own(node)
        assert listed['qos_overrides./robot_1/measured_js.publisher.depth'] == 9
        assert listed['qos_overrides./robot_1/measured_cp.publisher.depth'] == 5
        assert node.describe_parameter(
            'qos_overrides./robot_1/measured_cp.publisher.depth'
        ).read_only
    told = (
        'qos_overrides./robot_1/measured_j.publisher.depth is of no topic here, and ignored: did'
    )
    assert (
        f'{told} you mean qos_overrides./robot_1/measured_js.publisher?' in capfd.readouterr().err
    )
    assert qos.STATE.depth == 5 and qos.SENSOR.reliability == ReliabilityPolicy.BEST_EFFORT


@pytest.mark.parametrize(
    ('name', 'parameter', 'value', 'expected'),
    [
        ('/robot_1/env', '/robot_1/outcome.publisher.depth', 1, 'none: its QoS stays'),
        ('/robot_1/env', '/robot_1/servo_cp.subscription.depth', 9, 'none but reliability'),
        ('/robot_1/env', '/robot_1/measured_js.publisher.depth', 0, 'int, at least 1'),
        ('/robot_1/env', '/robot_1/measured_js.publisher.history', 'none', 'one of keep_last'),
        (
            '/federation/key_authority',
            '/federation/policy.publisher.reliability',
            'best_effort',
            'none: its QoS stays',
        ),
        (
            '/federation/key_authority',
            '/federation/wanted/aggregator.publisher.depth',
            1,
            'none: its QoS stays',
        ),
    ],
)
def test_qos_that_must_stay_or_cannot_be_is_refused(
    name, parameter, value, expected, directory, lone_domain
):
    given = f'qos_overrides.{parameter}:={value}'
    with Process(name, directory, lone_domain, given) as process:
        process.node.trigger_configure()
        if process.node.fault is None:
            process.node.trigger_activate()
        assert isinstance(process.node.fault, SettingError)
        assert str(process.node.fault).startswith(f'qos_overrides.{parameter} = {value!r}: expect')
        assert expected in str(process.node.fault)


def test_change_that_contradicts_another_value_is_refused_when_it_is_set(directory, lone_domain):
    with Process('/robot_1/selector', directory, lone_domain) as process:
        node = process.node
        patience = node.get_parameter('selector.patience').value
        dwell = Parameter('selector.dwell', value=patience + 1.0)
        longer = Parameter('selector.patience', value=patience + 2.0)
        refused = node.set_parameters([dwell])[0]
        assert not refused.successful
        assert refused.reason.startswith(f'selector.dwell = {patience + 1.0}: expected at most')
        wrong = Parameter('kept_versions', value=0)
        assert not node.set_parameters_atomically([dwell, longer, wrong]).successful
        assert node.get_parameter('selector.patience').value == patience
        assert node.set_parameters_atomically([dwell, longer]).successful
        assert node.plan().selector.dwell == patience + 1.0
        (refused,) = node.set_parameters([Parameter('limiter.speed_limit', value=0.04)])
        assert not refused.successful and 'drawing back' in refused.reason
        (refused,) = node.set_parameters([Parameter('federation_namespace', value='no-name')])
        assert not refused.successful and 'a ROS namespace' in refused.reason


def test_trainer_hands_policies_on_under_names_that_are_remapped_in_both_domains(
    directory, lone_domain, robot_domain
):
    words = ['-r', '/north/federation/policy:=/public/policy', '-r', 'home:=~/home']
    words += ['-r', 'round:=other']  # means /north/hospital_1/round: nothing
    given = f'robot_domain:={robot_domain}'
    name = '/north/hospital_1/trainer'
    with Process(name, directory, lone_domain, given, words=words) as process:
        process.node.trigger_configure()
        link = process.node._robots._node
        handed = {each.topic_name for each in link.publishers} - {'/parameter_events'}
        assert {each for each in handed if not each.endswith('/weights')} == {
            '/public/policy',
            '/north/hospital_1/policy',
            '/north/hospital_1/trainer/home',
        }
        sent = {each.topic_name for each in process.node.publishers}
        assert '/north/federation/round_key' in sent and '/north/hospital_1/policy' in sent


@pytest.mark.parametrize(
    ('said', 'policies'),
    [
        ('', '/north'),
        ('/south/federation', '/south'),
        ('trial/federation', '/north/trial'),
    ],
)
def test_robot_takes_policies_of_the_federation_beside_it_or_of_the_one_it_is_told(
    said, policies, directory, lone_domain
):
    given = [f'federation_namespace:={said}'] if said else []
    with Process('/north/robot_1/selector', directory, lone_domain, *given) as process:
        process.node.trigger_configure()
        process.node.trigger_activate()
        heard = {each.topic_name for each in process.node.subscriptions}
        hospitals = {f'{policies}/hospital_{number}/policy' for number in (1, 2, 3)}
        assert {each for each in heard if each.endswith('/policy')} == {
            f'{policies}/federation/policy',
            *hospitals,
        }
