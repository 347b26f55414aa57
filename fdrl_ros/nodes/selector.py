# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""The selector's node: states in; action, risk, adaptation and set-points of tip and jaw out."""

from collections.abc import Callable
from dataclasses import dataclass
import gc
import sys
import time
from typing import Any

from fdrl_ros.crypto.keystore import make_private_directory
from fdrl_ros.env.actions import displacement
from fdrl_ros.env.arm import JAW
from fdrl_ros.errors import MessageError
from fdrl_ros.federation.message import GlobalPolicy, HospitalPolicy
from fdrl_ros.federation.party import worth_telling
import fdrl_ros.msg as ros
from fdrl_ros.nodes import qos
from fdrl_ros.nodes.convert import from_ros
from fdrl_ros.nodes.courier import Courier
from fdrl_ros.nodes.diagnostics import Health, Level
from fdrl_ros.nodes.managed_node import ManagedNode, NodeSettings, run_node
from fdrl_ros.nodes.measured_messages import adaptation_message, risk_message
from fdrl_ros.nodes.promptness import with_priority, without_garbage
from fdrl_ros.nodes.robot_messages import joint_state, observation, seconds, set_point
from fdrl_ros.nodes.valuing import value_model
from fdrl_ros.nodes.worker import Post
from fdrl_ros.policy import Policy
from fdrl_ros.prepare import load_policy
from fdrl_ros.selector import (
    Candidate,
    GateSettings,
    HOLD,
    Limiter,
    LimiterSettings,
    Selection,
    Selector,
    ValueModel,
)
from fdrl_ros.selector.control import ControlLoop, Cycle, PERIOD
from fdrl_ros.selector.shelf import PolicyShelf
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


class SelectorNode(ManagedNode):
    """Moves the messages of one robot's control loop, and keeps its candidates up to date."""

    part = 'control'
    groups = ('selector', 'shield', 'value', 'evaluation')
    further = {'limiter': LimiterSettings, 'gate': GateSettings}
    own = SelectorNodeSettings

    def __init__(self, post: Post) -> None:
        self.loop: ControlLoop | None = None
        self.refused = 0
        self.reason = ''
        self.unvalued = ''
        super().__init__('selector', post)

    def open(self) -> None:
        """Read who may release policies, and make the publishers."""
        # Read once: the control loop waits for no disk.
        self._rules = self.plan()
        self._directory = self.layout.party(self.place)
        make_private_directory(self._directory)
        self._roster = self.layout.trusted_roster(self.place)
        start, self._shape = load_policy(self.layout.pretrained)
        self._start = Policy(start, self._shape)
        self._action = self.publisher(ros.SelectedAction, 'action', qos.ACTION)
        self._risk = self.publisher(ros.Risk, 'risk', qos.EVENT)
        self._adaptation = self.publisher(ros.Adaptation, 'adaptation', qos.EVENT)
        self._servo = self.publisher(PoseStamped, 'servo_cp', qos.COMMAND)
        self._jaw = self.publisher(JointState, 'jaw/servo_jp', qos.COMMAND)

    def begin(self) -> None:
        """Listen to the robot and to who releases policies."""
        self._armed = self.settings.armed
        self._threshold = self._rules.selector.change_threshold
        self._shelf = PolicyShelf(self._roster, self._shape)
        self._hold: ValueModel | None = None
        self._valuing = False
        self.unvalued = ''
        self.loop = ControlLoop(
            Selector(
                self._rules.selector,
                gate=self.further_settings('gate'),
                clock=time.monotonic,
                shield=self._rules.shield,
            ),
            Limiter(self.further_settings('limiter')),
        )
        self.hear(PoseStamped, 'setpoint_cp', self._take_tip, qos.SENSOR)
        self.hear(JointState, 'jaw/setpoint_js', self._take_jaw, qos.SENSOR)
        self.hear(ros.PatientState, 'patient_state', self._take_patient, qos.SENSOR)
        self.hear(ros.OperationState, 'operation_state', self._take_operation, qos.SENSOR)
        courier, size = Courier(self), 4 * self._shape.n_parameters
        courier.begin()
        topic = f'{self.settings.federation}/policy'
        courier.hear(ros.GlobalPolicy, topic, size, self._taker(GlobalPolicy))
        for member in self._roster.hospitals:
            topic, take = f'/{member.name}/policy', self._taker(HospitalPolicy)
            courier.hear(ros.HospitalPolicy, topic, size, take)
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

    # Policies.

    def _taker(
        self, kind: type[GlobalPolicy] | type[HospitalPolicy]
    ) -> Callable[[Any, bytes | None], None]:
        def take(source: Any, weights: bytes | None) -> None:
            apart = {} if weights is None else {'weights': weights}
            try:
                name = self._shelf.take(from_ros(source, kind, **apart))
            except MessageError as error:
                self.refused += 1
                if worth_telling(self.refused):
                    self.get_logger().warning(f'refused: {error}')
                return
            if name:
                self._value_next()

        return take

    def _value_next(self) -> None:
        """Value the next policy on the worker, one at a time."""
        pending: tuple[str, Policy | None] | None = self._shelf.pending()
        if pending is None or self._valuing:
            return
        self._valuing = True
        # Holding is a candidate like the others: it is valued as soon as there is another.
        name, policy = (HOLD, None) if self._hold is None else pending
        plan, start = self._rules, self._start
        self.submit(
            lambda report, stopped: value_model(policy, plan, start, self._directory, stopped),
            lambda result: self._valued(name, policy, result),
        )

    def _valued(self, name: str, policy: Policy | None, result: ValueModel | Exception) -> None:
        """Take in an estimate; without one the robot goes on with the candidates it has."""
        assert self.loop is not None
        self._valuing = False
        try:
            if isinstance(result, Exception):
                raise result
            if policy is None:
                self._hold = result
            else:
                self._shelf.value(name, policy, result)
                hold = Candidate(HOLD, None, self._hold)
                self.loop.selector.set_candidates([*self._shelf.candidates(), hold])
        except Exception as error:  # whatever it is, the arm must not lose its control loop
            self.unvalued = f'the {name} policy could not be valued: {error}'
            self.get_logger().error(self.unvalued)
            if policy is None:
                return
            self._shelf.give_up(policy)
        else:
            self.unvalued = ''
            if policy is not None:
                self.get_logger().info(f'the {name} policy is a candidate')
        self._value_next()

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
        names = [each.name for each in self.loop.selector.candidates]
        values = {'candidates': ', '.join(names), 'refused': self.refused, 'reason': self.reason}
        wanting = self.reason not in ('best', 'kept', 'caution', 'unvalued')
        if wanting:
            return Health(Level.WARN, f'holding: {self.reason}', values)
        if self.unvalued:
            return Health(Level.WARN, self.unvalued, values)
        return Health(Level.OK, self.reason, values)


def main() -> int:
    """Run the node."""
    return run_node(SelectorNode)


if __name__ == '__main__':
    sys.exit(main())
