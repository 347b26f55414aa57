# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""Every node: described parameters, refusals with a reason, and no trace after cleaning up."""

from collections.abc import Iterator
from dataclasses import replace
import os
from pathlib import Path
import subprocess
import time

from fdrl_ros.deployment.bringup import environment, federation_graph, NodeSpec, robot_graph
from fdrl_ros.deployment.plan import Plan
from fdrl_ros.deployment.runner import command, Runner
from fdrl_ros.msg import OperationState
from fdrl_ros.nodes.aggregator import AggregatorNode
from fdrl_ros.nodes.common import qos
from fdrl_ros.nodes.env import EnvNode
from fdrl_ros.nodes.key_authority import KeyAuthorityNode
from fdrl_ros.nodes.selector import SelectorNode
from fdrl_ros.nodes.trainer import TrainerNode
from fdrl_ros.srv import Operate
from lifecycle_msgs.msg import Transition
from lifecycle_msgs.srv import ChangeState
import pytest
import rclpy
from rclpy.experimental import EventsExecutor
from rclpy.lifecycle import TransitionCallbackReturn
from rclpy.parameter import Parameter
from rclpy.signals import SignalHandlerOptions
from support.operating_room import Room

NODES = {
    '/federation/aggregator': AggregatorNode,
    '/federation/key_authority': KeyAuthorityNode,
    '/hospital_1/trainer': TrainerNode,
    '/robot_1/env': EnvNode,
    '/robot_1/selector': SelectorNode,
}


class Process:
    """This process as that of one node."""

    def __init__(self, full_name: str, directory: Path, domain: int, *parameters: str) -> None:
        namespace = full_name.rpartition('/')[0]
        words = [word for each in parameters for word in ('-p', each)]
        rclpy.init(
            args=[*('--ros-args', '-r', f'__ns:={namespace}'), '-p', f'directory:={directory}']
            + words,
            domain_id=domain,
            signal_handler_options=SignalHandlerOptions.NO,
        )
        self.executor = EventsExecutor()
        self.node = NODES[full_name](self.executor.create_task)
        self.executor.add_node(self.node)

    def spin(self, seconds: float = 0.05) -> None:
        self.executor.spin_once(timeout_sec=seconds)

    def close(self) -> None:
        self.node.trigger_shutdown()
        self.executor.remove_node(self.node)
        self.node.destroy_node()
        rclpy.shutdown()


@pytest.fixture(params=NODES)
def process(request, directory, lone_domain) -> Iterator[Process]:
    made = Process(request.param, directory, lone_domain)
    yield made
    made.close()


@pytest.fixture
def room(robot_domain) -> Iterator[Room]:
    made = Room(robot_domain)
    yield made
    made.close()


def entities(node) -> list[str]:
    return [
        *(each.topic_name for each in node.publishers),
        *(each.topic_name for each in node.subscriptions),
        *(each.srv_name for each in node.services),
        *(each.srv_name for each in node.clients),
        *(str(each.timer_period_ns) for each in node.timers),
    ]


def test_parameters_are_those_of_the_settings_with_description_and_range(process):
    node = process.node
    for group in node.groups:
        for setting in Plan.groups()[group].describe():
            descriptor = node.describe_parameter(f'{group}.{setting.name}')
            assert descriptor.description.startswith(setting.description)
            ranged = setting.type in (int, float) and (
                setting.minimum is not None or setting.maximum is not None
            )
            ranges = [*descriptor.integer_range, *descriptor.floating_point_range]
            assert len(ranges) == ranged
            if ranged and setting.minimum is not None:
                assert ranges[0].from_value == setting.minimum


def test_cleaning_up_leaves_nothing_and_the_node_can_begin_again(process):
    node = process.node
    before = sorted(entities(node))
    for _ in range(2):
        assert node.trigger_configure() == TransitionCallbackReturn.SUCCESS
        assert node.trigger_activate() == TransitionCallbackReturn.SUCCESS
        for _ in range(10):
            process.spin()
        assert node.fault is None
        assert len(entities(node)) > len(before)
        assert node.trigger_deactivate() == TransitionCallbackReturn.SUCCESS
        assert node.worker is None
        assert node.trigger_cleanup() == TransitionCallbackReturn.SUCCESS
        assert sorted(entities(node)) == before


def test_parameter_changes_are_judged_and_come_before_configuring(directory, lone_domain):
    process = Process('/federation/aggregator', directory, lone_domain)
    node = process.node
    try:
        refused = node.set_parameters([Parameter('rounds.quorum', value=1)])[0]
        assert not refused.successful and refused.reason
        assert node.set_parameters([Parameter('rounds.rounds', value=7)])[0].successful
        node.trigger_configure()
        assert node.plan().rounds.rounds == 7
        late = node.set_parameters([Parameter('rounds.rounds', value=9)])[0]
        assert not late.successful and 'clean it up first' in late.reason
    finally:
        process.close()


def test_parameter_that_is_none_of_the_choices_is_refused_by_its_full_name(directory, lone_domain):
    process = Process('/robot_1/env', directory, lone_domain)
    try:
        (refused,) = process.node.set_parameters([Parameter('world.mode', value='glass')])
        assert not refused.successful and refused.reason.startswith("world.mode = 'glass': expec")
    finally:
        process.close()


def test_directory_is_never_another(directory, lone_domain, tmp_path):
    process = Process('/federation/aggregator', directory, lone_domain)
    try:
        node = process.node
        assert node.describe_parameter('directory').read_only
        assert not node.set_parameters([Parameter('directory', value=str(tmp_path))])[0].successful
        assert node.settings.directory == str(directory)
    finally:
        process.close()


def test_transition_that_raises_closes_everything_and_the_node_can_begin_again(
    directory, lone_domain
):
    process = Process('/robot_1/env', directory, lone_domain)
    node = process.node
    try:
        before = sorted(entities(node))
        node.trigger_configure()
        node.trigger_activate()
        node._active.callback(lambda: 1 / 0)
        node.trigger_deactivate()
        assert node.state_name == 'unconfigured' and node.changeable
        assert node.worker is None and sorted(entities(node)) == before
        assert node.fault is not None
        node.trigger_configure()
        assert node.trigger_activate() == TransitionCallbackReturn.SUCCESS
        assert node.fault is None
    finally:
        process.close()


def test_service_that_fails_is_a_fault_of_the_node_and_answers_no(directory, lone_domain):
    room = Room(lone_domain)
    process = Process('/robot_1/env', directory, lone_domain)
    node = process.node
    try:
        node.trigger_configure()
        node._place = lambda patient: 1 / 0
        node.trigger_activate()
        client = room.node.create_client(Operate, 'env/operate')
        assert client.wait_for_service(15.0)
        future = client.call_async(Operate.Request())
        deadline = time.monotonic() + 10.0
        while not future.done() and time.monotonic() < deadline:
            process.spin(0.01)
            room.executor.spin_once(timeout_sec=0.01)
        assert not future.result().success
        assert isinstance(node.fault, ZeroDivisionError)
        while node.state_name != 'unconfigured' and time.monotonic() < deadline:
            process.spin()
        assert node.state_name == 'unconfigured'
    finally:
        process.close()
        room.close()


def test_node_that_was_shut_down_by_its_service_ends_with_0(room, settings):
    room.hear(OperationState, 'operation_state', qos.EVENT)
    shutdown = ChangeState.Request()
    shutdown.transition.id = Transition.TRANSITION_ACTIVE_SHUTDOWN
    client = room.node.create_client(ChangeState, 'env/change_state')
    with Runner(settings, Path(settings.directory) / 'log') as runner:
        runner.start(robot_graph(settings, 'robot_1', operations=1)[:1])
        room.wait(lambda: room.last('operation_state'), 20.0)
        assert client.wait_for_service(15.0)
        client.call_async(shutdown)
        deaths = []
        room.wait(lambda: deaths.extend(runner.poll()) or deaths, 20.0)
        assert [each.code for each in deaths] == [0], str(deaths)


def test_site_that_leaves_an_arm_unarmed_counts_more_than_the_graph(
    settings, lone_domain, tmp_path
):
    site = tmp_path / 'site.yaml'
    site.write_text('/**/selector:\n  ros__parameters:\n    armed: false\n')
    for parameters, armed in (('', True), (str(site), False)):
        graph = robot_graph(replace(settings, parameters=parameters), 'robot_1')
        spec = next(each for each in graph if each.name == 'selector')
        words = command(spec)
        rclpy.init(args=words[words.index('--ros-args') :], domain_id=lone_domain)
        node = SelectorNode(lambda action: None)
        try:
            assert node.settings.armed is armed
        finally:
            node.destroy_node()
            rclpy.shutdown()


@pytest.mark.parametrize(
    ('parameters', 'reason'),
    [
        ({'rounds.quorum': 1}, 'rounds.quorum = 1: expected int, at least 3'),
        ({'rounds.quorums': 3}, 'rounds.quorums = 3: expected one of the parameters'),
    ],
)
def test_bad_parameter_ends_the_process_with_a_reason(settings, parameters, reason):
    spec = NodeSpec(
        'aggregator',
        '/federation',
        'aggregator',
        settings.federation_domain,
        {'directory': settings.directory, **parameters},
    )
    ended = run(spec, settings)
    assert ended.returncode == 1
    assert reason in ended.stdout


def test_parameter_file_that_cannot_be_read_ends_the_process_with_a_reason(settings, tmp_path):
    spec = robot_graph(settings, 'robot_1')[1]
    ended = run(replace(spec, parameter_file=str(tmp_path / 'missing.yaml')), settings)
    assert ended.returncode == 1
    assert 'missing.yaml' in ended.stdout and 'Traceback' not in ended.stdout


def test_ledger_that_somebody_else_writes_ends_the_trainer_with_a_reason(settings, directory):
    (directory / 'hospital_1' / 'ledger.sqlite').write_bytes(b'not a ledger' * 100)
    (directory / 'hospital_1' / 'ledger.sqlite').chmod(0o600)
    spec = next(
        each for each in federation_graph(settings, ('hospital_1',)) if each.name == 'trainer'
    )
    ended = run(spec, settings)
    assert ended.returncode == 1
    assert 'Ledger' in ended.stdout and 'Traceback' not in ended.stdout


def run(spec: NodeSpec, settings) -> subprocess.CompletedProcess[str]:
    variables = {**os.environ, **environment(settings, spec.domain)}
    return subprocess.run(
        command(spec),
        env=variables,
        timeout=30,
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
    )


def test_unmanaged_robot_leaves_cleanly_and_tells_its_state(live):
    live.runner.start(robot_graph(live.settings, 'robot_1'))
    nodes = ('/robot_1/env', '/robot_1/selector')
    live.wait(lambda: all(live.health(each) for each in nodes), 20.0)
    assert live.runner.stop() == {'robot_1.env': 0, 'robot_1.selector': 0}
