# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""A selector that was told what cannot be does not begin and says why, by no traceback."""

from dataclasses import replace
from pathlib import Path

from fdrl_ros.deployment.bringup import robot_graph
from fdrl_ros.deployment.layout import Layout
import fdrl_ros.msg as ros
from fdrl_ros.nodes.common import qos
from fdrl_ros.nodes.parties.conversion import to_ros
from fdrl_ros.selector.candidates.supervision import Supervision, SUPERVISION_FILE
import pytest
from rclpy.lifecycle import TransitionCallbackReturn
from support.foreign_robot import reason, StillRobot
from support.node_process import Process, run
from support.signed_policies import global_policy


def in_plan(old: str, new: str):
    def spoil(directory: Path) -> None:
        plan = Layout(directory).plan
        text = plan.read_text()
        assert old in text
        plan.write_text(text.replace(old, new))

    return spoil


def without_start(directory: Path) -> None:
    Layout(directory).pretrained.write_bytes(b'no policy')


def with_damaged_graph(directory: Path) -> None:
    Layout(directory).graph.write_bytes(b'damaged')


def supervised(text: str):
    def spoil(directory: Path) -> None:
        (Layout(directory).party('robot_1') / SUPERVISION_FILE).write_text(text)

    return spoil


@pytest.mark.parametrize(
    ('spoil', 'parameters', 'words'),
    [
        (in_plan('palpation', 'tonsillectomy'), {}, "federation.procedures = 'tonsillectomy"),
        (None, {'federation.procedures': ''}, "federation.procedures = '': expected one of the "),
        (None, {'selector.patience': 0.5, 'selector.dwell': 2.0}, 'selector.dwell = 2.0: expect'),
        (None, {'hospital': 'hospital_9'}, "hospital = 'hospital_9': expected one of the "),
        (without_start, {}, 'PolicyError'),
        (with_damaged_graph, {}, 'network.onnx: '),
        (supervised('{'), {}, 'it holds what the surgeon vetoed, locked and took over'),
        (
            supervised(Supervision().with_pin('global', 'ab' * 32).to_json()),
            {},
            'global is pinned to abababababab, which is not here',
        ),
    ],
)
def test_what_cannot_be_ends_the_node_with_the_reason(
    settings, directory, spoil, parameters, words
):
    if spoil is not None:
        spoil(directory)
    spec = robot_graph(settings, 'robot_1')[1]
    code, said = run(replace(spec, parameters={**spec.parameters, **parameters}), settings)
    assert code == 1
    assert words in said and 'Traceback' not in said


@pytest.mark.parametrize('namespace', ['/', '/federation/aggregator'])
def test_node_in_no_robot_s_namespace_ends_with_the_reason_and_writes_nothing(
    settings, directory, namespace
):
    before = sorted(directory.rglob('*'))
    code, said = run(replace(robot_graph(settings, 'robot_1')[1], namespace=namespace), settings)
    assert code == 1
    assert "expected a robot's: --ros-args -r __ns:=/robot_1" in said
    assert 'Traceback' not in said
    assert sorted(directory.rglob('*')) == before


@pytest.mark.parametrize('armed', [False, True])
def test_selector_that_is_not_armed_says_so_once_in_its_log_and_in_its_health(
    directory, lone_domain, capfd, armed
):
    process = Process('/robot_1/selector', directory, lone_domain, f'armed:={str(armed).lower()}')
    node = process.node
    try:
        assert node.trigger_configure() == TransitionCallbackReturn.SUCCESS
        assert node.trigger_activate() == TransitionCallbackReturn.SUCCESS
        node.control.reason = 'best'
        health = node.health()
    finally:
        process.close()
    assert health.summary == ('best' if armed else 'best, not armed')
    assert health.values['armed'] is armed
    assert capfd.readouterr().err.count('not armed') == (not armed)


def test_policies_of_another_shape_or_federation_are_refused_and_it_holds(
    room, runner, settings, directory
):
    patient = StillRobot(room)
    runner.start(robot_graph(settings, 'robot_1')[1:])
    publish = room.node.create_publisher
    released = publish(ros.GlobalPolicy, '/federation/policy', qos.LATCHED)
    patient.say_until(lambda: reason(room) == 'no_policy')
    patient.say_until(lambda: released.get_subscription_count() == 1)
    short = to_ros(global_policy(directory), ros.GlobalPolicy())
    del short.weights[-4:]
    empty = to_ros(global_policy(directory), ros.GlobalPolicy())
    del empty.weights[:]
    foreign = to_ros(global_policy(directory), ros.GlobalPolicy())
    foreign.envelope.federation = 'another'
    log = runner.log_file('robot_1.selector')
    for number, message in enumerate((short, empty, foreign, ros.GlobalPolicy()), 1):
        released.publish(message)
        patient.say_until(lambda n=number: log.read_text().count('refused: ') >= n)
    patient.say_until(lambda: reason(room) == 'no_policy')
    patient.say_until(lambda: 'holding: no_policy: none was received' in log.read_text())
    assert log.read_text().count('holding: ') == 1, 'it is said once'
    assert 'Traceback' not in log.read_text()
    assert not room.heard['servo_cp'], 'a robot without a policy commands nothing'
