# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""Every node: described parameters, refusals with a reason, and no trace after cleaning up."""

from dataclasses import replace
import os
from pathlib import Path
import resource
import subprocess
import sys
import time

from fdrl_ros.action import Operate
from fdrl_ros.deployment.bringup import (
    BringupSettings,
    environment,
    federation_graph,
    robot_graph,
)
from fdrl_ros.deployment.plan import Plan
from fdrl_ros.deployment.runner import command, Runner
from fdrl_ros.deployment.supervision import Ending
from fdrl_ros.msg import OperationState
from fdrl_ros.nodes.common import qos
from fdrl_ros.nodes.selector import SelectorNode
from lifecycle_msgs.msg import Transition
from lifecycle_msgs.srv import ChangeState
import pytest
import rclpy
from rclpy.action import ActionClient
from rclpy.lifecycle import TransitionCallbackReturn
from rclpy.parameter import Parameter
from support.node_process import begin, NODES, Process
from support.operating_room import Room
from support.untrained_segmenter import needed

FIXED = {'/diagnostics', '/parameter_events', '/rosout', '/clock'}
"""Topics that all nodes of a domain share, as REP 107 and ROS itself have it."""


@pytest.fixture
def process(request, directory, lone_domain, tmp_path):
    more = needed(request.param, tmp_path)
    with Process(request.param, directory, lone_domain, *more) as made:
        yield made


def only(name):
    """Have the fixture `process` be one node."""
    return pytest.mark.parametrize('process', [name], indirect=True)


def entities(node) -> list[str]:
    return [
        *(each.topic_name for each in node.publishers),
        *(each.topic_name for each in node.subscriptions),
        *(each.srv_name for each in node.services),
        *(each.srv_name for each in node.clients),
        *(str(each.timer_period_ns) for each in node.timers),
        *(type(each).__name__ for each in node.waitables),
    ]


def address_space() -> int:
    """Return the virtual memory of this process, B."""
    return resource.getpagesize() * int(Path('/proc/self/statm').read_text().split()[0])


@pytest.mark.parametrize('process', [f'/north{each}' for each in NODES], indirect=True)
def test_node_describes_its_parameters_moves_with_its_namespace_and_cleans_up(process):
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
    before, reserved = sorted(entities(node)), address_space()
    for _ in range(2):
        assert node.trigger_configure() == TransitionCallbackReturn.SUCCESS
        assert node.trigger_activate() == TransitionCallbackReturn.SUCCESS
        for _ in range(10):
            process.spin()
        assert node.fault is None
        assert len(entities(node)) > len(before)
        assert address_space() < reserved + 2e9, 'no memory for the longest message of every topic'
        ends = [*node.publishers, *node.subscriptions]
        topics = {each.topic_name for each in ends} - FIXED
        assert all(each.startswith('/north/') for each in topics), topics
        own = f'{node.get_fully_qualified_name()}/'
        assert all(
            each.service_name.startswith(own)
            for each in node.services
            if each.service_name.rpartition('/')[2]
            not in ('forward_kinematics', 'inverse_kinematics')
        ), 'but for those that CRTK names'
        assert all(each.service_name.startswith('/north/') for each in node.clients)
        assert node.trigger_deactivate() == TransitionCallbackReturn.SUCCESS
        assert node.worker is None
        assert node.trigger_cleanup() == TransitionCallbackReturn.SUCCESS
        assert sorted(entities(node)) == before


@only('/federation/aggregator')
def test_parameter_changes_are_judged_and_come_before_configuring(process, directory, tmp_path):
    node = process.node

    def change(name, value):
        return node.set_parameters([Parameter(name, value=value)])[0]

    refused = change('rounds.quorum', 1)
    assert not refused.successful and refused.reason
    assert node.describe_parameter('directory').read_only
    assert not change('directory', str(tmp_path)).successful
    assert node.settings.directory == str(directory)
    assert change('rounds.rounds', 7).successful
    node.trigger_configure()
    assert node.plan().rounds.rounds == 7
    late = change('rounds.rounds', 9)
    assert not late.successful and 'clean it up first' in late.reason


@only('/robot_1/env')
def test_transition_that_raises_closes_everything_and_the_node_can_begin_again(
    process, monkeypatch
):
    node = process.node
    (refused,) = node.set_parameters([Parameter('world.mode', value='glass')])
    assert not refused.successful and refused.reason.startswith("world.mode = 'glass': expec")
    before = sorted(entities(node))
    node.trigger_configure()
    monkeypatch.setattr(node, 'begin', lambda: node.keep(lambda: 1 / 0))
    node.trigger_activate()
    node.trigger_deactivate()
    assert node.state_name == 'unconfigured' and node.changeable
    assert node.worker is None and sorted(entities(node)) == before
    assert node.fault is not None
    monkeypatch.undo()
    node.trigger_configure()
    assert node.trigger_activate() == TransitionCallbackReturn.SUCCESS
    assert node.fault is None


@only('/robot_1/env')
def test_goal_that_fails_is_a_fault_of_the_node_and_rejected(process, lone_domain):
    room, node = Room(lone_domain), process.node
    try:
        node.trigger_configure()
        node._place = lambda patient: 1 / 0
        node.trigger_activate()
        client = ActionClient(room.node, Operate, 'env/operate')
        assert client.wait_for_server(15.0)
        future = client.send_goal_async(Operate.Goal())
        deadline = time.monotonic() + 10.0
        while not future.done() and time.monotonic() < deadline:
            process.spin(0.01)
            room.executor.spin_once(timeout_sec=0.01)
        assert not future.result().accepted
        assert isinstance(node.fault, ZeroDivisionError)
        while node.state_name != 'unconfigured' and time.monotonic() < deadline:
            process.spin()
        assert node.state_name == 'unconfigured'
    finally:
        room.close()


def test_node_that_was_shut_down_by_its_service_ends_with_0(room, settings):
    room.hear(OperationState, 'operation_state', qos.EVENT)
    shutdown = ChangeState.Request()
    shutdown.transition.id = Transition.TRANSITION_ACTIVE_SHUTDOWN
    client = room.node.create_client(ChangeState, 'env/change_state')
    with Runner(settings, Path(settings.directory) / 'log') as runner:
        runner.start(robot_graph(settings, 'robot_1', operations=1)[:1])
        room.wait(lambda: room.last('operation_state'))
        assert client.wait_for_service(15.0)
        client.call_async(shutdown)
        deaths = []
        room.wait(lambda: deaths.extend(runner.poll()) or deaths)
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


def test_what_cannot_be_ends_the_process_with_a_reason(settings, directory, tmp_path):
    (directory / 'hospital_1' / 'ledger.sqlite').write_bytes(b'not a ledger' * 100)
    (directory / 'hospital_1' / 'ledger.sqlite').chmod(0o600)
    _, aggregator, trainer = federation_graph(settings, ('hospital_1',))
    selector = robot_graph(settings, 'robot_1')[1]

    def given(**parameters):
        return replace(aggregator, parameters={**aggregator.parameters, **parameters})

    started = [
        (given(**{'rounds.quorum': 1}), 'rounds.quorum = 1: expected a whole number, at least 3'),
        (given(**{'rounds.quorums': 3}), 'rounds.quorums = 3: expected one of the 17 parameters'),
        (replace(selector, parameter_file=str(tmp_path / 'missing.yaml')), 'missing.yaml'),
        (trainer, 'Ledger'),
    ]
    processes = [(begin(spec, settings), reason) for spec, reason in started]
    for process, reason in processes:
        said, _ = process.communicate(timeout=60)
        assert process.returncode == 1 and reason in said and 'Traceback' not in said


FAULTY = """
import os, signal, sys, threading, time
from fdrl_ros.errors import StoreBusyError, StoreError
from fdrl_ros.nodes.common import managed_node
from fdrl_ros.nodes.common.managed_node import run_node
from fdrl_ros.nodes.env import EnvNode
managed_node.LOCK_PERIOD, managed_node.LOCK_PATIENCE = 0.1, 0.5
attempts = []
class Faulty(EnvNode):
    def {when}(self):
        super().{when}()
        {what}
sys.exit(run_node(Faulty))
"""


RELEASED = """attempts.append(1)
        if len(attempts) < 3: raise StoreBusyError("taken")
        os.kill(os.getpid(), signal.SIGINT)"""
"""Another process lets go of the node's state in time."""

STOPPED = """managed_node.LOCK_PATIENCE = 60.0
        os.kill(os.getpid(), signal.SIGINT)
        raise StoreBusyError("taken")"""
"""The node is stopped while it waits for that."""

OVERLOADED = """self.every(0.001, lambda: time.sleep(0.002))
        threading.Timer(1.0, os.kill, (os.getpid(), signal.SIGINT)).start()"""
"""A timer is overdue always, and then the node is stopped."""


@pytest.mark.parametrize(
    ('when', 'what', 'ending'),
    [
        ('open', 'raise StoreError("no disk")', Ending.REFUSED),
        ('begin', 'raise StoreBusyError("taken")', Ending.REFUSED),
        ('open', RELEASED, Ending.STOPPED),
        ('begin', RELEASED, Ending.STOPPED),
        ('begin', STOPPED, Ending.STOPPED),
        ('begin', OVERLOADED, Ending.STOPPED),
        ('begin', 'self.every(0.01, lambda: 1 / 0)', Ending.DIED),
    ],
)
def test_exit_code_tells_a_fault_at_run_time_from_a_refusal(settings, when, what, ending):
    spec = robot_graph(settings, 'robot_1')[0]
    words = command(spec)
    program = FAULTY.format(when=when, what=what)
    done = subprocess.run(
        [sys.executable, '-c', program, *words[words.index('--ros-args') :]],
        env={**os.environ, **environment(settings, spec.domain)},
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert Ending.of(done.returncode) is ending
    said = done.stdout + done.stderr
    assert said.count('[FATAL]') == (ending is not Ending.STOPPED), said


BOUND = """
import os, rclpy
from pathlib import Path
rclpy.init()
node = rclpy.create_node('somebody')
own = set()
for each in Path('/proc/self/fd').iterdir():
    try: own.add(os.readlink(each))
    except FileNotFoundError: pass
for kind in ('tcp', 'tcp6', 'udp', 'udp6'):
    for line in Path('/proc/self/net', kind).read_text().splitlines()[1:]:
        words = line.split()
        if f'socket:[{words[9]}]' in own:
            print(words[1].split(':')[0])
if '/dev/shm/fastrtps' in Path('/proc/self/maps').read_text():
    print('shared memory')
"""
"""Print the address of each socket of a node."""


def test_nodes_of_one_host_have_sockets_on_loopback_alone_and_share_no_memory(lone_domain):
    variables = environment(BringupSettings(), lone_domain)
    done = subprocess.run(
        [sys.executable, '-c', BOUND],
        env={**os.environ, **variables},
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    assert set(done.stdout.split('\n')) == {'0100007F', ''}, done.stdout  # 127.0.0.1


def test_unmanaged_robot_leaves_cleanly_and_tells_its_state(live):
    live.runner.start(robot_graph(live.settings, 'robot_1'))
    nodes = ('/robot_1/env', '/robot_1/selector')
    live.wait(lambda: all(live.health(each) for each in nodes))
    assert live.runner.stop() == {'robot_1.env': 0, 'robot_1.selector': 0}
