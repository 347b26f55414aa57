# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""The selector's node: states in; action, risk, adaptation and set-points of tip and jaw out."""

from dataclasses import dataclass
import gc
import sys
import time
from typing import Any

from fdrl_ros.crypto.keystore import make_private_directory
from fdrl_ros.env.actions import displacement
from fdrl_ros.env.arm import JAW
import fdrl_ros.msg as ros
from fdrl_ros.nodes import qos
from fdrl_ros.nodes.diagnostics import Health, Level
from fdrl_ros.nodes.managed_node import ManagedNode, NodeSettings, run_node
from fdrl_ros.nodes.measured_messages import adaptation_message, risk_message
from fdrl_ros.nodes.policies import Policies
from fdrl_ros.nodes.promptness import with_priority, without_garbage
from fdrl_ros.nodes.robot_messages import joint_state, observation, seconds, set_point
from fdrl_ros.nodes.worker import Post
from fdrl_ros.policy import Policy
from fdrl_ros.prepare import load_policy
from fdrl_ros.selector import (
    GateSettings,
    Limiter,
    LimiterSettings,
    Reason,
    Selection,
    Selector,
)
from fdrl_ros.selector.control import ControlLoop, Cycle, PERIOD
from fdrl_ros.selector.limits import check_limits
from fdrl_ros.selector.registry import KEPT_VERSIONS
from fdrl_ros.settings import setting
from geometry_msgs.msg import PoseStamped
from sensor_msgs.msg import JointState

COLLECTING = 100
"""Decisions after which garbage is collected, right behind the last of them."""


@dataclass(frozen=True)
class SelectorNodeSettings(NodeSettings):
    """What a selector's node is told."""

    armed: bool = setting(
        False, 'publish set-points; a real arm has its own emergency stop besides'
    )
    priority: int = setting(
        0,
        'of this process in real time (SCHED_FIFO, with its memory locked), where the system '
        'permits it; 0: as any other',
        minimum=0,
        maximum=99,
    )
    kept_versions: int = setting(
        KEPT_VERSIONS, 'versions of each policy that are kept', minimum=1, maximum=1000
    )


class SelectorNode(ManagedNode):
    """Moves the messages of one robot's control loop, and keeps its candidates up to date."""

    part = 'control'
    groups = ('selector', 'shield', 'value', 'safety', 'evaluation')
    further = {'limiter': LimiterSettings, 'gate': GateSettings}
    own = SelectorNodeSettings

    def __init__(self, post: Post) -> None:
        self.loop: ControlLoop | None = None
        self.policies: Policies | None = None
        self.reason = ''
        super().__init__('selector', post)

    def open(self) -> None:
        """Read who may release policies, and make the publishers."""
        # Read once: the control loop waits for no disk.
        self._rules = self.plan()
        self._limits = self.further_settings('limiter')
        check_limits(self._rules.selector, self._limits, self._rules.shield)
        make_private_directory(self.layout.party(self.place))
        roster = self.layout.trusted_roster(self.place)
        start, shape = load_policy(self.layout.pretrained)
        kept = self.settings.kept_versions
        self.policies = Policies(self, self._rules, roster, Policy(start, shape), kept)
        self._action = self.publisher(ros.SelectedAction, 'action', qos.ACTION)
        self._risk = self.publisher(ros.Risk, 'risk', qos.EVENT)
        self._adaptation = self.publisher(ros.Adaptation, 'adaptation', qos.EVENT)
        self._servo = self.publisher(PoseStamped, 'servo_cp', qos.COMMAND)
        self._jaw = self.publisher(JointState, 'jaw/servo_jp', qos.COMMAND)

    def begin(self) -> None:
        """Listen to the robot and to who releases policies."""
        self._armed = self.settings.armed
        self._threshold = self._rules.selector.change_threshold
        self.loop = ControlLoop(
            Selector(
                self._rules.selector,
                gate=self.further_settings('gate'),
                clock=time.monotonic,
                shield=self._rules.shield,
            ),
            Limiter(self._limits),
        )
        assert self.policies is not None
        self.policies.begin(self.loop)
        self.hear(PoseStamped, 'setpoint_cp', self._take_tip, qos.SENSOR)
        self.hear(JointState, 'jaw/setpoint_js', self._take_jaw, qos.SENSOR)
        self.hear(ros.PatientState, 'patient_state', self._take_patient, qos.SENSOR)
        self.hear(ros.OperationState, 'operation_state', self._take_operation, qos.SENSOR)
        self.every(PERIOD, self._watch)
        self._told = 0
        self.keep(without_garbage())
        if self.settings.priority:
            self._take_priority(self.settings.priority)

    def _take_priority(self, priority: int) -> None:
        try:
            self.keep(with_priority(priority))
        except OSError as error:
            self.get_logger().warning(f'no priority: {error}; the selector runs as any process')

    # Control.

    def _take_tip(self, source: PoseStamped) -> None:
        position = source.pose.position
        assert self.loop is not None
        self.loop.take_tip((position.x, position.y, position.z), seconds(source.header.stamp))

    def _take_jaw(self, source: JointState) -> None:
        assert self.loop is not None
        if len(source.position) == 1:
            self.loop.take_jaw(source.position[0])

    def _take_patient(self, source: Any) -> None:
        assert self.loop is not None
        self.loop.take_patient(observation(source, self.now))

    def _take_operation(self, source: Any) -> None:
        assert self.loop is not None
        now = self.now
        seen = observation(source, now)
        self._carry_out(self.loop.take_operation(seen, seconds(source.header.stamp), now))

    def _watch(self) -> None:
        assert self.loop is not None
        cycle = self.loop.watchdog(self.now)
        if cycle is not None:
            self._carry_out(cycle)

    def _carry_out(self, cycle: Cycle) -> None:
        """Command the arm first, then tell about it."""
        if cycle.setpoint is not None and self._armed:
            stamp = self.get_clock().now().to_msg()
            self._servo.publish(set_point(stamp, cycle.setpoint.position.tolist()))
            if cycle.setpoint.jaw is not None:
                self._jaw.publish(joint_state(stamp, (JAW,), (cycle.setpoint.jaw,)))
        if cycle.selection is not None:
            self._tell(cycle.selection)

    def _tell(self, chosen: Selection) -> None:
        self._publish(chosen)
        self._told += 1
        if self._told % COLLECTING == 0:
            gc.collect()

    def _publish(self, chosen: Selection) -> None:
        self.reason = chosen.reason
        moves = (0.0, 0.0, 0.0) if chosen.holds else displacement(chosen.action)
        self._action.publish(
            self.stamped(
                ros.SelectedAction(
                    patient=chosen.patient,
                    policy=chosen.policy,
                    action=-1 if chosen.holds else chosen.action,
                    displacement=moves,
                    value=chosen.value,
                    uncertainty=chosen.uncertainty,
                    reason=chosen.reason,
                    expected_risk=chosen.expected_risk,
                    proposed=chosen.proposed,
                    veto=chosen.veto,
                    predicted_force=chosen.predicted_force,
                )
            )
        )
        if chosen.risk is not None:
            self._risk.publish(self.stamped(risk_message(chosen.patient, chosen.risk)))
        if chosen.adaptation is not None:
            self._adaptation.publish(
                self.stamped(
                    adaptation_message(chosen.patient, chosen.adaptation, self._threshold)
                )
            )

    def health(self) -> Health:
        """Add the candidates, and warn while the robot holds for want of a state."""
        health = super().health()
        if health.level is not Level.OK or self.loop is None or self.state_name != 'active':
            return health
        policies = self.policies
        assert policies is not None
        names = [each.name for each in self.loop.selector.candidates]
        values = {
            'candidates': ', '.join(names),
            'refused': policies.refused,
            'reason': self.reason,
            'surgeon': policies.supervision.in_words(),
        }
        if self.reason not in _WELL:
            return Health(Level.WARN, f'holding: {self.reason}', values)
        if policies.problem:
            return Health(Level.WARN, policies.problem, values)
        return Health(Level.OK, self.reason, values)


_WELL = frozenset(
    {
        Reason.BEST,
        Reason.KEPT,
        Reason.CAUTION,
        Reason.UNVALUED,
        Reason.LOCKED,
        Reason.SURGEON,
    }
)
"""Reasons of a selection that are nobody's fault."""


def main() -> int:
    """Run the node."""
    return run_node(SelectorNode)


if __name__ == '__main__':
    sys.exit(main())
