# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""What the selector's node does to be prompt: what it asks for, and what it publishes first."""

from types import SimpleNamespace

from fdrl_ros.nodes import selector as selector_module
from fdrl_ros.selector import Reason, Selection
from fdrl_ros.selector.control.limiter import SetPoint
from fdrl_ros.selector.control.loop import Cycle
import numpy as np
import pytest
from rclpy.lifecycle import TransitionCallbackReturn
from support.node_process import Process


@pytest.fixture
def activated(directory, lone_domain):
    """Return what runs the node, active, with parameters."""
    made = []

    def run(*parameters):
        process = Process('/robot_1/selector', directory, lone_domain, *parameters)
        made.append(process)
        process.node.trigger_configure()
        assert process.node.trigger_activate() == TransitionCallbackReturn.SUCCESS
        return process.node

    yield run
    for each in made:
        each.close()


def test_processors_are_kept_awake_and_the_priority_is_had_while_the_node_is_active(
    activated, monkeypatch
):
    held = []

    def without_sleep():
        held.append('awake')
        return lambda: held.remove('awake')

    def with_priority(priority, complain):
        held.append(priority)
        return lambda: complain(f'thread {held.pop()} stays as it is scheduled')

    monkeypatch.setattr(selector_module, 'without_sleep', without_sleep)
    monkeypatch.setattr(selector_module, 'with_priority', with_priority)
    node = activated('awake:=true', 'priority:=50')
    assert sorted(held, key=str) == [50, 'awake']
    assert node.trigger_deactivate() == TransitionCallbackReturn.SUCCESS
    assert not held and node.fault is None and node.state_name == 'inactive'


def test_what_the_system_does_not_permit_keeps_no_node_from_running(activated, monkeypatch):
    def refuse(*_):
        raise PermissionError('not permitted')

    monkeypatch.setattr(selector_module, 'without_sleep', refuse)
    monkeypatch.setattr(selector_module, 'with_priority', refuse)
    node = activated('awake:=true', 'priority:=50')
    assert node.fault is None and node.state_name == 'active'


def test_an_action_is_told_before_its_set_point_unless_the_tip_is_drawn_back(
    activated, monkeypatch
):
    monkeypatch.setattr(
        selector_module, 'without_sleep', lambda: pytest.fail('it was not told to')
    )
    control, published = activated('armed:=true').control, []
    for name in ('action', 'servo', 'jaw'):
        publisher = SimpleNamespace(publish=lambda message, name=name: published.append(name))
        monkeypatch.setattr(control, name, publisher)
    chosen = Selection('global', 3, 0.0, 0.0, Reason.BEST, 0.0)
    for retracting in (False, True):
        control.publish(
            Cycle(chosen, SetPoint(np.array([0.0, 0.0, -0.1]), False, retracting, 0.2))
        )
    assert published == ['action', 'servo', 'jaw', 'servo', 'jaw', 'action']


def test_diagnostics_tell_how_old_states_are_when_the_command_leaves(activated, monkeypatch):
    node = activated('armed:=true')
    control, setpoint = node.control, SetPoint(np.array([0.0, 0.0, -0.1]), False, False, 0.2)
    assert node.health().values['latency'] == ''
    for age in (0.001, 0.001, 0.2):
        stamp = node.get_clock().now().nanoseconds - int(1e9 * age)
        monkeypatch.setattr(control, '_operation', SimpleNamespace(stamp=stamp))
        for _ in range(2):  # the second command answers no newer state
            control.publish(Cycle(None, setpoint))
    assert control.late_commands == 1
    told = node.health().values['latency']
    assert told.startswith('median ') and told.endswith('of 30 ms; 1 late')
