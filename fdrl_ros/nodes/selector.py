# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""The selector's node: states in; action, risk, adaptation and set-points of tip and jaw out."""

from collections.abc import Callable
from dataclasses import dataclass
import math
import time

from fdrl_ros.deployment.robot.robot_network import public_start, robot_network
from fdrl_ros.deployment.robot.robot_policies import keep_hospital
from fdrl_ros.errors import SettingError
from fdrl_ros.nodes.common.diagnostics import Health, Level
from fdrl_ros.nodes.common.managed_node import ManagedNode, NodeSettings
from fdrl_ros.nodes.robot.candidate_updates import CandidateUpdates
from fdrl_ros.nodes.robot.robot_control import MOST_BENT, RobotControl
from fdrl_ros.runtime import kernels
from fdrl_ros.runtime.durable import make_private_directory
from fdrl_ros.runtime.realtime import with_priority, without_garbage, without_sleep
from fdrl_ros.runtime.worker_thread import Post
from fdrl_ros.selector import GateSettings, Limiter, LimiterSettings, Reason, Selector
from fdrl_ros.selector.candidates.registry import KEPT_VERSIONS
from fdrl_ros.selector.control.loop import check_limits, ControlLoop
from fdrl_ros.selector.control.plausibility import PlausibilitySettings
from fdrl_ros.selector.control.visibility import VisibilityCheck, VisibilitySettings
from fdrl_ros.settings import named_among, setting


@dataclass(frozen=True)
class SelectorNodeSettings(NodeSettings):
    """What a selector's node is told."""

    armed: bool = setting(
        False, 'publish set-points; a real arm has its own emergency stop besides'
    )
    await_arm: bool = setting(
        True,
        'while armed: send nothing before the arm has told its operating_state; false only for an '
        'arm that tells none',
    )
    needs_visibility: bool = setting(
        False,
        'hold while nothing is seen of the instrument, by the topic visibility of a segmenter',
    )
    priority: int = setting(
        0,
        'of this process in real time (SCHED_FIFO, with its memory locked), where the system '
        'permits it; 0: as any other',
        limits=(0, 99),
    )
    awake: bool = setting(
        False,
        "keep all of this machine's processors from sleeping, where the system permits it: states "
        'are answered sooner, and it takes power',
    )
    hospital: str = setting(
        '', "hospital that the robot is of: it gets that hospital's home policy; empty: of none"
    )
    kept_versions: int = setting(
        KEPT_VERSIONS, 'versions of each policy that are kept', limits=(1, 1000)
    )


class SelectorNode(ManagedNode):
    """Moves the messages of one robot's control loop, and keeps its candidates up to date."""

    executable = 'selector'
    part = 'control'
    groups = ('selector', 'shield', 'value', 'safety', 'evaluation')
    further = {
        'limiter': LimiterSettings,
        'gate': GateSettings,
        'plausibility': PlausibilitySettings,
        'visibility': VisibilitySettings,
    }
    own = SelectorNodeSettings

    def __init__(self, post: Post) -> None:
        self.loop: ControlLoop | None = None
        self.policies: CandidateUpdates | None = None
        super().__init__(post)

    def check(self) -> None:
        """Refuse limits that cannot hold together."""
        super().check()
        rules = self.plan()
        check_limits(rules.selector, self.further_settings('limiter'), rules.shield)

    def open(self) -> None:
        """Read who may release policies, and make the publishers."""
        self._check_place()
        # Read once: the control loop waits for no disk.
        self._rules = self.plan()
        self._limits = self.further_settings('limiter')
        make_private_directory(self.layout.party(self.place))
        roster = self.layout.trusted_roster(self.place)
        network = robot_network(self.layout, self._rules)
        start = public_start(self.layout, self._rules, network)
        self.get_logger().info(f'policies of {network.name}')
        kept, hospital = self.settings.kept_versions, self.settings.hospital
        hospitals = [each.name for each in roster.hospitals]
        if hospital and hospital not in hospitals:
            raise SettingError('hospital', hospital, named_among(hospital, 'hospitals', hospitals))
        keep_hospital(self.layout.party(self.place), hospital)
        self.control = RobotControl(self)
        self.policies = CandidateUpdates(
            self, self._rules, roster, (network, start), kept, hospital
        )

    def begin(self) -> None:
        """Listen to the robot and to who releases policies."""
        rules = self._rules
        gate = self.further_settings('gate')
        selector = Selector(rules.selector, gate=gate, clock=time.monotonic, shield=rules.shield)
        plausibility = self.further_settings('plausibility')
        awaited = self.settings.armed and self.settings.await_arm
        visibility = None
        if self.settings.needs_visibility:
            limits = self.further_settings('visibility')
            visibility = VisibilityCheck(limits, plausibility.clock_tolerance)
        self.loop = ControlLoop(
            selector,
            Limiter(self._limits),
            plausibility,
            arm_ready=not awaited,
            visibility=visibility,
        )
        self.control.begin(self.loop, self.settings.armed, rules.selector.change_threshold)
        assert self.policies is not None
        self.policies.begin(self.loop)
        if self.settings.armed:
            self.get_logger().info('armed: it commands the arm')
        else:
            self.get_logger().warning(
                'not armed: it chooses and tells, and commands nothing (-p armed:=true)'
            )
        if not kernels.built():
            self.get_logger().warning(f'decisions take milliseconds: {kernels.missing()}')
        self._held_for = self._told = ''
        self.every(1.0, self._tell_holds)
        self.keep(without_garbage())
        if self.settings.priority:
            complain = self.get_logger().warning
            self._ask('priority', lambda: with_priority(self.settings.priority, complain))
        if self.settings.awake:
            self._ask('processors kept awake', without_sleep)

    def _check_place(self) -> None:
        """
        Refuse a namespace that is no robot's: its folder would be somebody else's.

        :raises SettingError: if it is.
        """
        if self.place in ('', *self.plan().hospitals, *self.layout.others):
            raise SettingError(
                'the namespace', self.get_namespace(), "a robot's: --ros-args -r __ns:=/robot_1"
            )

    def _ask(self, what: str, take: Callable[[], Callable[[], None]]) -> None:
        """Take what the system may not permit, until the node is deactivated."""
        try:
            self.keep(take())
        except OSError as error:
            self.get_logger().warning(f'no {what}: {error}; the selector runs without')

    def _tell_holds(self) -> None:
        """
        Log why it holds when that changes; silence, as between two operations, is no news.

        For a malformed state the whole message is compared, so that mending one fault shows the
        next. For a value out of range only the reason is, since values differ in each state.
        """
        reason = self.control.reason
        if reason in _SILENT:
            return
        held_for = '' if reason in _WELL else reason
        words = self._why() if reason == Reason.MISMATCH else held_for
        if words == self._told:
            return
        if held_for:
            self.get_logger().warning(f'holding: {self._why()}')
        else:
            self.get_logger().info(f'{self._held_for} is over: {reason}')
        self._held_for, self._told = held_for, words

    def _why(self) -> str:
        """Return the reason, and what is wrong with the state if that is it."""
        fault = self.control.fault
        if self.control.reason == Reason.NO_POLICY and self.policies is not None:
            fault = self.policies.absence
        return f'{self.control.reason}: {fault}' if fault else self.control.reason

    def health(self) -> Health:
        """Add the candidates, and warn while the robot holds for want of a state."""
        health = super().health()
        if health.level is not Level.OK or self.loop is None or self.state_name != 'active':
            return health
        policies = self.policies
        assert policies is not None
        names = [each.name for each in self.loop.selector.candidates]
        reason = self.control.reason
        values = {
            'candidates': ', '.join(names),
            'refused': policies.refused,
            'reason': reason,
            'decision': self._decision_in_words(),
            'latency': self._latency_in_words(),
            'arm': self.control.arm,
            'armed': self.settings.armed,
            'visibility': self.control.visibility,
            'risk gate': 'closed' if self.loop.selector.gate.closed else 'open',
            'informedness': f'{self.loop.selector.following.informedness:.2f}',
            'surgeon': policies.supervision.in_words(),
        }
        if self.control.bent > MOST_BENT:
            turn = f'by {math.degrees(self.control.bent):.0f} degrees from a straight tool'
            if math.isinf(self.control.bent):
                turn = 'by no rotation'
            told = f'setpoint_cp is turned {turn}: nothing is commanded from there'
            return Health(Level.WARN, told, values)
        if reason not in _WELL:
            return Health(Level.WARN, f'holding: {self._why()}', values)
        if policies.problem:
            return Health(Level.WARN, policies.problem, values)
        return Health(Level.OK, reason if self.settings.armed else f'{reason}, not armed', values)

    def _decision_in_words(self) -> str:
        """Say how long decisions take, beside the time after which one is late."""
        found = self.control.decision
        return found.words(self._rules.selector.answer_timeout) if found else ''

    def _latency_in_words(self) -> str:
        """Say how old states are when the commands that answer them leave."""
        found = self.control.latency
        if found is None:
            return ''
        budget = found.words(self._rules.selector.state_timeout)
        return f'median {1e3 * found.median:.3g} ms, {budget}; {self.control.late_commands} late'


_WELL = frozenset(
    {Reason.BEST, Reason.KEPT, Reason.CAUTION, Reason.UNVALUED, Reason.LOCKED, Reason.SURGEON}
)
"""Reasons of a selection that are nobody's fault."""

_SILENT = frozenset({'', Reason.MISSING, Reason.STALE})
"""Reasons while nobody says a state, or none was judged yet."""


NODE = SelectorNode
