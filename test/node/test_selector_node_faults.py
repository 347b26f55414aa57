# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""Faults of states, clock, policy and arm at the node itself: held for, told, and over again."""

from collections.abc import Iterator
import math
import time
from types import SimpleNamespace

from builtin_interfaces.msg import Time
from diagnostic_msgs.msg import DiagnosticArray
from fdrl_ros.deployment.bringup import robot_graph, RoomArguments
import fdrl_ros.msg as ros
from fdrl_ros.nodes.arm.robot_messages import stamp, state_fields
from fdrl_ros.nodes.common import qos
from fdrl_ros.nodes.selector import SelectorNode
from fdrl_ros.selector import Candidate
from fdrl_ros.selector.control.loop import IDLE, PERIOD
from fdrl_ros.surgery.gym.actions import TICK
from fdrl_ros.surgery.gym.state import layout_of, PATIENT_LAYOUT
import pytest
from rosgraph_msgs.msg import Clock
from support.foreign_robot import ForeignRobot, moving, PromptRobot, reason, released
from support.node_process import Process
from support.operating_room import Room


def test_log_and_diagnostics_name_what_is_wrong_with_a_state(room, runner, settings):
    arm = ForeignRobot(room)
    room.hear(DiagnosticArray, '/diagnostics', qos.DIAGNOSTICS)
    runner.start(robot_graph(settings, 'robot_1')[1:])
    log = runner.log_file('robot_1.selector')

    def said() -> list[str]:
        return [status.message for _, each in room.heard['/diagnostics'] for status in each.status]

    def told(words: str) -> bool:
        words = f'holding: {words}'
        return words in log.read_text() and any(each.startswith(words) for each in said())

    arm.state = 'PAUSED'  # without a policy there are no set-points to wait for
    arm.procedure = 'appendectomy'
    arm.say_until(lambda: told("mismatch: procedure 'appendectomy': expected one of reach"))
    arm.procedure, halves = 'palpation', arm.halves

    def strangers(stamp: Time) -> tuple[ros.PatientState, ros.OperationState]:
        vitals, operation = halves(stamp)
        vitals.patient = 'b'
        return vitals, operation

    arm.halves = strangers
    words = "mismatch: patient 'somebody' in the operation, 'b' in the vital signs"
    arm.say_until(lambda: told(words))

    def foreign(stamp: Time) -> tuple[ros.PatientState, ros.OperationState]:
        vitals, operation = halves(stamp)
        vitals.layout = other.layout
        return vitals, operation

    _, other = state_fields(arm.clock())
    other.scales[1] = 1.0
    other.layout = layout_of(other.names, other.units, other.scales)
    words = f"mismatch: vital signs has layout '{other.layout}', expected '{PATIENT_LAYOUT}'"
    arm.halves = foreign
    arm.say_until(lambda: told(f'{words}: no state_fields told what it is of'))
    room.node.create_publisher(ros.StateFields, 'state_fields', qos.LATCHED).publish(other)
    arm.say_until(lambda: told(f'{words}: scale of heart_rate is 1.0, expected 100.0'))
    arm.halves, arm.bad = halves, {'force': math.nan}
    arm.say_until(lambda: told('not_finite: force is nan'))
    arm.bad = {'heart_rate': 900.0}
    arm.say_until(lambda: told('out_of_range: heart_rate is 900 1/min, out of range'))
    arm.bad = {'heart_rate': 901.0}
    for _ in range(2):  # the log is looked at as often as diagnostics are told
        room.heard['/diagnostics'].clear()
        arm.say_until(lambda: any('is 901' in each for each in said()))
    assert log.read_text().count('holding: out_of_range') == 1, 'values alone are no news'


def test_a_closed_risk_gate_pauses_the_arm_and_resumes_it(room, runner, settings, directory):
    arm = ForeignRobot(room)
    publish = room.node.create_publisher
    publish(ros.GlobalPolicy, '/federation/policy', qos.LATCHED).publish(released(directory))
    runner.start(robot_graph(settings, 'robot_1')[1:])
    arm.say_until(moving(room), 90.0)
    orders = room.heard[arm.command]
    assert not orders
    begun = len(arm.actions)  # a first state may arrive before the arm has said that it is enabled
    arm.bad = {'force': 11.0}
    arm.say_until(lambda: reason(room) == 'risk_gate')
    arm.bad = {}
    arm.say_until(lambda: arm.state == 'PAUSED')
    set_points = len(room.heard[arm.servo])
    arm.say_until(lambda: reason(room) in ('paused', 'risk_gate'))
    assert len(room.heard[arm.servo]) <= set_points + 1, 'one may have been on its way'
    arm.say_until(lambda: arm.state == 'ENABLED')
    arm.say_until(moving(room))
    words = [each.string for _, each in orders]
    assert words[0] == 'pause' and words[-1] == 'resume' and words.count('resume') == 1
    told = [each.reason for each in arm.actions[begun:]]
    assert told.index('risk_gate') < told.index('paused'), 'it closes first, then the arm pauses'


def test_simulated_time_that_leaps_is_held_for_and_recovers(room, runner, settings, directory):
    arm = PromptRobot(room)
    clock = room.node.create_publisher(Clock, '/clock', qos.CLOCK)
    simulated, began = [1_000.0], time.monotonic()

    def now() -> Time:
        seconds = simulated[0] + time.monotonic() - began
        return Time(sec=int(seconds), nanosec=int(seconds % 1.0 * 1e9))

    def tick() -> Time:
        stamp = now()
        clock.publish(Clock(clock=stamp))
        return stamp

    arm.clock = tick
    publish = room.node.create_publisher
    publish(ros.GlobalPolicy, '/federation/policy', qos.LATCHED).publish(released(directory))
    arguments = RoomArguments(use_sim_time=True)
    runner.start(robot_graph(settings, 'robot_1', room=arguments)[1:])
    arm.say_until(moving(room), 90.0)
    for leap in (100.0, -300.0, 50.0):
        begun = len(room.heard['action'])
        simulated[0] += leap
        arm.say_until(lambda begun=begun: 'clock' in reasons(arm, begun))
        arm.say_until(moving(room))
        after = room.last('action').header.stamp
        assert abs(after.sec - now().sec) <= 5, 'stamps are of the new time'


def reasons(arm: ForeignRobot, begun: int) -> set[str]:
    return {each.reason for each in arm.actions[begun:]}


class Both:
    """The executors of the node and of the room, in turns; the node's can be kept from running."""

    def __init__(self, node, room) -> None:
        self.node, self.room = node, room
        self.stopped = False

    def spin_once(self, timeout_sec: float) -> None:
        self.room.spin_once(timeout_sec=timeout_sec / 2)
        if not self.stopped:
            for _ in range(8):
                self.node.spin_once(timeout_sec=0.0)

    def remove_node(self, node) -> None:
        self.room.remove_node(node)


@pytest.fixture
def inside(directory, lone_domain) -> Iterator[tuple[Process, ForeignRobot, Both]]:
    """Give a selector in this very process, whose policy the test exchanges, and its arm."""
    process = Process('/robot_1/selector', directory, lone_domain, 'armed:=true')
    process.node.trigger_configure()
    process.node.trigger_activate()
    room = Room(lone_domain)
    both = room.executor = Both(process.executor, room.executor)
    yield process, ForeignRobot(room), both
    process.close()
    room.close()


def test_arm_is_not_paused_by_a_gate_that_hears_of_it_no_more(inside, monkeypatch):
    process, arm, both = inside
    process.node.loop.selector.set_candidates([Candidate('global', lambda state: 4)])
    arm.say_until(moving(arm.room))
    both.stopped = True
    control, sent, now = process.node.control, [], [process.node.now]
    for clock in ('now', 'time'):
        monkeypatch.setattr(SelectorNode, clock, property(lambda self: now[0]))
    monkeypatch.setattr(control, '_state', SimpleNamespace(publish=sent.append))
    process.node.loop.selector.gate.closed = True
    control.run_watchdog()
    assert [each.string for each in sent] == ['pause']
    for _ in range(round(5.0 * IDLE / PERIOD)):
        now[0] += PERIOD
        control.run_watchdog()
    assert len(sent) == 1


def test_silence_is_told_within_a_period_of_the_node_s_own_clock(inside, monkeypatch):
    process, arm, both = inside
    process.node.loop.selector.set_candidates([Candidate('global', lambda state: 4)])
    arm.say_until(moving(arm.room))
    both.stopped = True
    control, told = process.node.control, []
    now = [time.monotonic() + 1.0]
    for clock in ('now', 'time'):
        monkeypatch.setattr(SelectorNode, clock, property(lambda self: now[0]))
    monkeypatch.setattr(control, 'action', SimpleNamespace(publish=told.append))
    control.run_watchdog()
    begun = arm.room.node.get_clock().now().nanoseconds
    for beat in range(30):  # states again, then none
        now[0] += PERIOD
        arm.beat += 1
        patient, operation = arm.halves(stamp(begun + beat * 10_000_000))
        control.receive_patient(patient)
        control.receive_operation(operation)
        control.run_watchdog()
    assert told[-1].policy == 'global', told[-1].reason
    last, count = now[0], len(told)
    while len(told) == count:
        now[0] += PERIOD
        control.run_watchdog()
    assert told[-1].reason == 'stale' and now[0] - last <= TICK + 1e-9
