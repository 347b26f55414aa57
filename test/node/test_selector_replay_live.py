# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""What the node decided live, with faults in between, is decided again on what was recorded."""

from dataclasses import replace
import json
import math
import time

from click.testing import CliRunner
from fdrl_ros.cli import commands
from fdrl_ros.deployment.bringup import robot_graph
from fdrl_ros.deployment.robot.robot_policies import RobotPolicies
import fdrl_ros.msg as ros
from fdrl_ros.nodes.arm.robot_messages import OperatingState
from fdrl_ros.nodes.arm.robot_messages import stamp as to_stamp
from fdrl_ros.nodes.common import qos
from fdrl_ros.nodes.parties.conversion import to_ros
from fdrl_ros.selector.replay import compare, decisions, recorded_actions, replay, ReplaySettings
from geometry_msgs.msg import PoseStamped
import pytest
from support.foreign_robot import ForeignRobot, reason, released
from support.recorder import Recorder
from support.signed_policies import own_policy

pytest.importorskip('rosbags.rosbag2')

STATES = {
    'setpoint_cp': PoseStamped,
    'patient_state': ros.PatientState,
    'operation_state': ros.OperationState,
    'operating_state': OperatingState,
    'visibility': ros.Visibility,
}


class SeenRobot(ForeignRobot):
    """An arm of which a segmenter tells what it sees, after each state."""

    def __init__(self, room) -> None:
        super().__init__(room)
        self.seen, self.jaw = True, 0.01
        self.recorder: Recorder | None = None
        self.topics['visibility'] = room.node.create_publisher(
            ros.Visibility, 'visibility', qos.SEEN
        )

    def answered(self, stamp: int, patience: float = 0.1) -> None:
        super().answered(stamp, patience)
        heard = self.recorder.count('visibility')
        told = ros.Visibility(
            seen=self.seen, share=[0.9, 0.0, 0.0, self.jaw], confidence=[0.9] * 4
        )
        told.header.stamp = to_stamp(stamp)
        self.topics['visibility'].publish(told)
        # Which of two topics is heard first is chance: the next state comes after this.
        self.room.wait(lambda: self.recorder.count('visibility') > heard)


@pytest.fixture
def robot(room, runner, settings, directory):
    """Give an arm, and a selector whose two policies are candidates from its first state on."""
    arm = SeenRobot(room)
    spec = robot_graph(settings, 'robot_1')[1]
    # Whether a state or the arm's is heard first is chance: it would be the first decision.
    given = {'await_arm': False, 'needs_visibility': True}
    spec = replace(spec, parameters={**spec.parameters, **given})
    room.hear(ros.Policies, 'policies', qos.LATCHED)
    publish = room.node.create_publisher
    publish(ros.GlobalPolicy, '/federation/policy', qos.LATCHED).publish(released(directory))
    publish(ros.HospitalPolicy, '/hospital_1/policy', qos.LATCHED).publish(
        to_ros(own_policy(directory, 'hospital_1', 3), ros.HospitalPolicy())
    )
    runner.start([spec])

    def candidates() -> int:
        told = room.last('policies')
        return [each.status for each in told.policies].count('candidate') if told else 0

    room.wait(lambda: candidates() == 2, 120.0)
    runner.stop()
    del room.heard['policies'][:], room.heard['action'][:]
    recorder = arm.recorder = Recorder(room, STATES | {'action': ros.SelectedAction}, qos.EVENT)
    runner.start([spec])
    # Who hears the first state is heard, too: the node, the recorder.
    room.wait(lambda: candidates() == 2)
    heard = [arm.topics[each] for each in STATES]
    room.wait(lambda: min(each.get_subscription_count() for each in heard) == 2)
    room.wait(lambda: room.node.count_publishers('action') == 1)
    return arm, recorder


def beats(arm: ForeignRobot, count: int) -> None:
    """Say so many states, each when the one before was answered."""
    for _ in range(count):
        arm.answered(arm.say())


def until(arm: ForeignRobot, why: str) -> None:
    """Say states until the selector's newest reason is this one."""
    arm.say_until(lambda: reason(arm.room) == why)


def silence(arm: ForeignRobot, seconds: float) -> None:
    ends = time.monotonic() + seconds
    arm.room.wait(lambda: time.monotonic() > ends, seconds + 5.0)


def same(one, other) -> bool:
    """Tell whether two actions are one; NaN is not equal to itself."""
    return one is not None and repr(one) == repr(other)


def test_the_same_states_give_the_same_decisions(robot, room, directory, tmp_path):
    arm, recorder = robot
    beats(arm, 60)
    arm.bad = {'heart_rate': math.nan}
    beats(arm, 12)
    arm.bad = {}
    beats(arm, 40)
    arm.frozen = True
    beats(arm, 30)
    until(arm, 'frozen')
    arm.frozen = False
    beats(arm, 40)
    arm.seen = False
    beats(arm, 6)
    until(arm, 'no_visibility')
    arm.seen, arm.jaw = True, 0.0
    beats(arm, 40)
    arm.jaw = 0.01
    arm.silent = ('patient_state',)
    beats(arm, 6)
    until(arm, 'stale')
    arm.silent = ()
    beats(arm, 40)
    for _ in range(10):  # on a busy machine all decisions after a gap may be late
        silence(arm, 0.5)
        beats(arm, 40)
        if any(each.reason == 'clock' for each in arm.actions):
            break
    arm.bad = {'force': 11.0}
    beats(arm, 10)
    arm.bad = {}
    beats(arm, 160)
    arm.say_until(lambda: reason(room) not in ('risk_gate', 'paused'))
    assert room.last('risk').cases == 1
    arm.bad = {'time_left': 0.9}
    beats(arm, 20)
    arm.bad = {}  # the same patient again, with all the time there is
    beats(arm, 20)
    assert room.last('risk').cases == 2
    room.wait(lambda: same(recorder.last('action'), room.last('action')))
    bag = tmp_path / 'bag'
    recorder.save(bag)

    found = RobotPolicies.of(directory, 'robot_1')
    candidates = found.registry.candidates(found.supervision)
    actions = recorded_actions(bag)
    live = decisions(actions)
    assert len(live) > 60
    told = {each.reason for each in actions}
    assert told >= {'not_finite', 'frozen', 'stale', 'clock', 'risk_gate', 'paused'}
    assert 'no_visibility' in told
    # A busy machine may have let a state be late: then its clock said where it decided.
    late = [each for each in actions if each.reason == 'late']
    rules = ReplaySettings(found.plan.selector, shield=found.plan.shield, needs_visibility=True)
    chosen = replay(bag, candidates, rules, decided=live if late else None)
    compared = compare(actions, chosen)
    # Whether the node hears a state, or what was seen before it, first is chance if it is busy:
    # once after each of the two changes it may decide by the older one.
    unseen = 'no_visibility'
    behind = [each for each in compared.differ if unseen in each.recorded + each.replayed]
    assert list(compared.differ) == behind and len(behind) <= 2, (compared.differ[:5], len(late))
    assert compared.agree == len(live) - len(behind)
    assert max(each.risk.cases for each in chosen if each.risk is not None) == 2
    again = {each.stamp: each for each in chosen if each.risk is not None}
    for each in behind:
        again.pop(each.stamp, None)
    for each in actions:
        stamp = each.header.stamp.sec * 10**9 + each.header.stamp.nanosec
        if stamp in again and each.reason != 'late':
            one = again[stamp]
            numbers = (one.value, one.uncertainty, one.expected_risk, one.predicted_force)
            theirs = (each.value, each.uncertainty, each.expected_risk, each.predicted_force)
            assert repr(tuple(map(float, numbers))) == repr(tuple(map(float, theirs)))
            assert (one.proposed, one.veto) == (each.proposed, each.veto)

    words = ['selector', 'replay', str(bag), '--policies', str(directory), '--json']
    words += ['--needs-visibility']
    words += ['--follow'] if late else []
    done = CliRunner().invoke(commands.main, words)
    assert done.exit_code == 0, done.output
    document = json.loads(done.output)
    assert document['decisions'] == len(live)
    assert document['comparison']['agree'] == len(live) - len(behind)
