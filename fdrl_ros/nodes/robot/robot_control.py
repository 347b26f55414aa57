# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""The control loop's topics: states in; actions, risk, adaptation, set-points and pauses out."""

from collections import deque
import gc
import math

from fdrl_ros.errors import StateError
from fdrl_ros.federation.protocol.party import worth_logging
from fdrl_ros.metrics.adaptation import Adaptation, Rates
from fdrl_ros.metrics.risk import Risk
import fdrl_ros.msg as ros
from fdrl_ros.nodes.arm.robot_messages import (
    bent_by,
    joint_state,
    OperatingState,
    set_point,
    stamp,
    StringStamped,
    warn_without_crtk,
)
from fdrl_ros.nodes.common import qos
from fdrl_ros.nodes.common.managed_node import ManagedNode
from fdrl_ros.selector import PauseCommands, Selection
from fdrl_ros.selector.candidates.decision_time import DecisionTime
from fdrl_ros.selector.control.limiter import SetPoint
from fdrl_ros.selector.control.loop import ControlLoop, Cycle, PERIOD
from fdrl_ros.selector.control.observation import (
    fault_in_words,
    nanoseconds,
    Observation,
    observation,
    Reason,
    told_fields,
)
from fdrl_ros.surgery.arm.kinematics import JAW
from fdrl_ros.surgery.gym.actions import displacement
from fdrl_ros.surgery.gym.state import Field
from fdrl_ros.surgery.render import parts
from geometry_msgs.msg import PoseStamped
from rclpy.event_handler import SubscriptionEventCallbacks
from sensor_msgs.msg import JointState
from std_msgs.msg import Header

COLLECTING = 100
"""Decisions after which garbage is collected, right behind the last of them."""

MOST_BENT = math.radians(5.0)
"""Turn from a straight tool beyond which a set-point of the arm is none to begin from, rad."""

LAYOUTS = 16
"""Newest layouts of states whose fields are remembered."""

REMEMBERED = 1000
"""Newest decisions whose time is remembered."""

_FAULTY = frozenset({Reason.MISMATCH, Reason.NOT_FINITE, Reason.OUT_OF_RANGE})
"""Reasons for which the two halves of a state are at fault."""

_SEEN, _UNTOLD = 'something', 'no visibility in time'

_TOLD = (
    *('patient', 'policy', 'reason', 'value', 'uncertainty', 'expected_risk'),
    *('proposed', 'veto', 'predicted_force'),
)
"""Fields of a selection that the message has too."""


class RobotControl:
    """
    Moves the messages of one robot's control loop.

    An arm that tells its operating state is sent set-points only while it is enabled and homed;
    one that tells none always.

    :param node: whose topics these are; made while it is configured.
    """

    def __init__(self, node: ManagedNode) -> None:
        self._node = node
        self.action = node.publisher(ros.SelectedAction, 'action', qos.ACTION)
        self._risk = node.publisher(ros.Risk, 'risk', qos.EVENT)
        self._adaptation = node.publisher(ros.Adaptation, 'adaptation', qos.EVENT)
        self.servo = node.publisher(PoseStamped, 'servo_cp', qos.COMMAND)
        self.jaw = node.publisher(JointState, 'jaw/servo_jp', qos.COMMAND)
        self._state = node.publisher(StringStamped, 'state_command', qos.EVENT)

    def begin(self, loop: ControlLoop, armed: bool, threshold: float) -> None:
        """
        Listen to the robot, until the node is deactivated.

        :param armed: whether the arm is commanded.
        :param threshold: change of state that counts, in scales.
        """
        node, self._loop = self._node, loop
        self._armed, self._threshold = armed, threshold
        self.reason = ''
        self._operation: Observation | None = None
        self._patient: Observation | None = None
        self._faulty: tuple[Observation, Observation] | None = None
        self._layouts: dict[str, tuple[Field, ...]] = {}
        self._refused_fields = 0
        self.arm = ''
        """Operating state that the arm told last; empty if it told none."""
        self._pauses = PauseCommands()
        self._ordered: deque[int] = deque(maxlen=8)
        self._retracting = False
        self._published = 0
        self._decided: deque[float] = deque(maxlen=REMEMBERED)
        self._latencies: deque[float] = deque(maxlen=REMEMBERED)
        self._answered: Observation | None = None
        self._frame = ''  # what the arm calls its base
        self.bent = 0.0
        """How far the set-point's tool is from straight, rad."""
        warn_without_crtk(node, 'operating_state', 'state_command')
        node.hear(PoseStamped, 'setpoint_cp', self._receive_tip, qos.SENSOR)
        node.hear(JointState, 'jaw/setpoint_js', self._receive_jaw, qos.SENSOR)
        node.hear(OperatingState, 'operating_state', self._receive_arm, qos.SENSOR)
        # CRTK's arms publish it latched, when it changes: late subscribers have to latch too.
        # The subscription above receives from an arm that does not latch.
        kept = node.create_subscription(
            OperatingState,
            'operating_state',
            node.guarded(self._receive_arm),
            qos.LATCHED,
            event_callbacks=SubscriptionEventCallbacks(use_default_callbacks=False),
        )
        node.keep(lambda: node.destroy_subscription(kept))
        node.hear(StringStamped, 'state_command', self._receive_command, qos.EVENT)
        node.hear(ros.StateFields, 'state_fields', self._receive_fields, qos.HEARD)
        node.hear(ros.PatientState, 'patient_state', self.receive_patient, qos.SENSOR)
        node.hear(ros.OperationState, 'operation_state', self.receive_operation, qos.SENSOR)
        self.visibility = ''
        """What is seen, in words; empty where nothing has to be seen."""
        if loop.visibility is not None:
            self.visibility = _UNTOLD
            node.hear(ros.Visibility, 'visibility', self._receive_visibility, qos.SENSOR)
        node.every(PERIOD, self.run_watchdog, node.motion_clock)

    def _receive_tip(self, source: PoseStamped) -> None:
        position, self._frame = source.pose.position, source.header.frame_id
        turned = source.pose.orientation
        self.bent = bent_by((position.x, position.y, position.z), turned)
        if self.bent > MOST_BENT:
            return  # a straight tool at its place would be a jump
        at = 1e-9 * nanoseconds(source.header.stamp)
        self._loop.receive_tip((position.x, position.y, position.z), at)

    def _receive_jaw(self, source: JointState) -> None:
        if len(source.position) == 1:
            self._loop.receive_jaw(source.position[0])

    def _receive_arm(self, source: OperatingState) -> None:
        at, clock = 1e-9 * nanoseconds(source.header.stamp), self._clock
        if self._loop.receive_arm_state(source.state, source.is_homed, at, clock):
            self.arm = source.state

    def _receive_command(self, source: StringStamped) -> None:
        """Hear what others command: the gate ends no pause but its own."""
        if nanoseconds(source.header.stamp) not in self._ordered:
            self._pauses.yield_arm()

    def _receive_fields(self, source: ros.StateFields) -> None:
        """Remember what a layout is of: a state of another one than ours is explained by it."""
        try:
            fields = told_fields(source)
        except StateError as error:
            self._refused_fields += 1
            if worth_logging(self._refused_fields):
                self._node.get_logger().warning(f'refused: {error}')
            return
        self._layouts.pop(source.layout, None)
        self._layouts[source.layout] = fields
        if len(self._layouts) > LAYOUTS:
            del self._layouts[next(iter(self._layouts))]

    def _receive_visibility(self, source: ros.Visibility) -> None:
        check = self._loop.visibility
        jaw = float(source.share[parts.JAW]), float(source.confidence[parts.JAW])
        stamp = 1e-9 * nanoseconds(source.header.stamp)
        if check is not None and check.receive(source.seen, jaw, stamp, source.reason):
            self.visibility = _SEEN if source.seen else source.reason

    def receive_patient(self, source: ros.PatientState) -> None:
        """Pass vital signs to the control loop."""
        now = self._node.time
        self._patient = observation(source, now)
        self.publish(self._loop.receive_patient(self._patient, now))

    def receive_operation(self, source: ros.OperationState) -> None:
        """Pass a state of the operation to the control loop."""
        began, now = self._node.now, self._node.time
        self.publish(self._loop.run_waiting(now))
        self._operation = observation(source, now)
        cycle = self._loop.receive_operation(self._operation, now, self._clock)
        if cycle is not None and cycle.selection is not None:
            self._decided.append(self._node.now - began)
        self.publish(cycle)

    @property
    def decision(self) -> DecisionTime | None:
        """How long the newest decisions took, each from its state to its action."""
        return DecisionTime.of(self._decided) if self._decided else None

    @property
    def latency(self) -> DecisionTime | None:
        """From the stamp of a state to the first set-point behind it, by the node's clock."""
        return DecisionTime.of(self._latencies) if self._latencies else None

    @property
    def late_commands(self) -> int:
        """How many of those took longer than a state may be old."""
        limit = self._loop.selector.settings.state_timeout
        return sum(each > limit for each in self._latencies)

    @property
    def fault(self) -> str:
        """What was wrong with the last state, or why nothing is seen, if it holds for that."""
        if self.reason == Reason.NO_VISIBILITY:
            return _UNTOLD if self.visibility == _SEEN else self.visibility
        if self.reason not in _FAULTY or self._faulty is None:
            return ''
        bound = self._loop.selector.settings.state_bound
        return fault_in_words(*self._faulty, bound, self._layouts)

    @property
    def _clock(self) -> float:
        """The node's clock, which states and the arm are stamped by, s."""
        return 1e-9 * float(self._node.get_clock().now().nanoseconds)

    def run_watchdog(self) -> None:
        """Run the watchdog, and pause or resume the arm for the gate."""
        now = self._node.time
        self.publish(self._loop.watchdog(now))
        if self._loop.selector.surgeon:
            self._pauses.yield_arm()
        elif self._armed and not self._loop.is_idle(now):
            # First the tip comes out of the force, then the arm is paused.
            closed = self._loop.selector.gate.closed and not self._retracting
            word = self._pauses.next_command(closed, self.arm, self._node.now)
            if word is not None:
                command = self._node.stamped(StringStamped(string=word))
                self._ordered.append(nanoseconds(command.header.stamp))
                self._state.publish(command)
                self._node.get_logger().warning(f'risk gate: {word}')

    def publish(self, cycle: Cycle | None) -> None:
        """
        Publish the action, then the arm's set-point, then what the action was judged by.

        A set-point that draws the tip back goes first.
        """
        if cycle is None:
            return
        setpoint, chosen = cycle.setpoint, cycle.selection
        self._retracting = setpoint is not None and setpoint.retracting
        if self._retracting:
            self._command_arm(setpoint)
        header = None if chosen is None else self._publish_action(chosen)
        if not self._retracting:
            self._command_arm(setpoint)
        if chosen is not None:
            self._publish_meters(chosen, header)
            self._published += 1
            if self._published % COLLECTING == 0:
                gc.collect()

    def _command_arm(self, setpoint: SetPoint | None) -> None:
        if setpoint is None:
            return
        now = self._node.get_clock().now()
        state = self._operation
        if state is not None and state.stamp is not None and state is not self._answered:
            self._answered = state
            self._latencies.append(1e-9 * (now.nanoseconds - state.stamp))
        if not self._armed:
            return
        told = now.to_msg()
        self.servo.publish(set_point(told, setpoint.position.tolist(), self._frame))
        if setpoint.jaw is not None:
            self.jaw.publish(joint_state(told, (JAW,), (setpoint.jaw,)))

    def _publish_action(self, chosen: Selection) -> Header:
        """Publish an action, and return its header: the stamp of the state, now without one."""
        self.reason = chosen.reason
        if chosen.reason in _FAULTY and self._operation and self._patient:
            self._faulty = self._operation, self._patient
        moves = (0.0, 0.0, 0.0) if chosen.holds else displacement(chosen.action)
        number = -1 if chosen.holds else chosen.action
        told = {name: getattr(chosen, name) for name in _TOLD}
        action = ros.SelectedAction(action=number, displacement=moves, **told)
        if chosen.stamp is None:
            self._node.stamped(action)
        else:
            action.header.stamp = stamp(chosen.stamp)
        self.action.publish(action)
        return action.header

    def _publish_meters(self, chosen: Selection, header: Header) -> None:
        """Publish risk and adaptation of the state that an action answers."""
        if chosen.risk is not None:
            risk = risk_message(chosen.patient, chosen.risk)
            risk.header.stamp = header.stamp
            self._risk.publish(risk)
        adaptation = self._loop.selector.adaptation()
        if adaptation is not None:
            told = adaptation_message(chosen.patient, adaptation, self._threshold)
            told.header.stamp = header.stamp
            self._adaptation.publish(told)


def risk_message(patient: str, risk: Risk) -> ros.Risk:
    """Tell the risk of a step, and R_mit over all cases, this one and the window."""
    return ros.Risk(
        patient=patient,
        risk=risk.total,
        force=risk.force,
        damage=risk.damage,
        critical=risk.critical,
        mitigation=risk.mitigation,
        cases=risk.cases,
        steps=risk.steps,
        case_mitigation=risk.case.value,
        case_steps=risk.case.steps,
        window_mitigation=risk.window.value,
        window_cases=risk.window.cases,
        window_steps=risk.window.steps,
    )


def adaptation_message(patient: str, adaptation: Adaptation, threshold: float) -> ros.Adaptation:
    """
    Tell both rates over all cases, this one and the window.

    :param threshold: of the change that counts, in scales.
    """
    return ros.Adaptation(
        patient=patient,
        change=adaptation.change,
        threshold=threshold,
        cases=adaptation.overall.cases,
        window_cases=adaptation.window.cases,
        **_rates('', adaptation.overall),
        **_rates('case_', adaptation.case),
        **_rates('window_', adaptation.window),
    )


def _rates(prefix: str, over: Rates) -> dict[str, float]:
    return {
        f'{prefix}variation_rate': over.variation_rate,
        f'{prefix}adaptation': over.alpha_adapt,
        f'{prefix}steps': over.steps,
        f'{prefix}varied': over.changes,
        f'{prefix}answered': over.answers,
    }
