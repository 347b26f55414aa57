# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""The simulated operating room: one arm on one patient in real time, obeying CRTK's servo_cp."""

from dataclasses import dataclass, replace
import math
import sys
from typing import Any

from fdrl_ros.env.actions import SUBSTEPS, TICK
from fdrl_ros.env.operation import Operation
from fdrl_ros.env.operation import Outcome as Judgement
from fdrl_ros.env.patient import mixture, Patient
from fdrl_ros.env.procedures import procedure_named
from fdrl_ros.errors import FdrlError, StateError
import fdrl_ros.msg as ros
from fdrl_ros.nodes import qos
from fdrl_ros.nodes.diagnostics import Health
from fdrl_ros.nodes.managed_node import ManagedNode, NodeSettings, run_node
from fdrl_ros.nodes.markers import operation_markers
from fdrl_ros.nodes.robot_messages import measured, seconds, states
from fdrl_ros.nodes.worker import Post
from fdrl_ros.selector.control import IDLE
from fdrl_ros.settings import setting
from fdrl_ros.srv import Operate
from geometry_msgs.msg import PoseStamped, WrenchStamped
import numpy as np
from sensor_msgs.msg import JointState
from visualization_msgs.msg import MarkerArray

PERIOD = 0.01
CYCLES = round(TICK / PERIOD)
"""Cycles of 100 Hz in one policy tick; the 12 sub-steps are spread over them."""

PAUSE = IDLE + 0.5
"""Between two operations, second: the selector holds for the one before no more."""

_MEASURED = {
    'measured_js': JointState,
    'jaw/measured_js': JointState,
    'joint_states': JointState,
    'measured_cp': PoseStamped,
    'setpoint_cp': PoseStamped,
    'body/measured_cf': WrenchStamped,
}


@dataclass(frozen=True)
class EnvSettings(NodeSettings):
    """What an env's node is told."""

    operations: int = setting(
        0, 'patients operated on by itself, one after the other; -1 for no end', minimum=-1
    )
    first_patient: int = setting(0, 'number of the first of them', minimum=0)


class EnvNode(ManagedNode):
    """
    Wraps :class:`fdrl_ros.env.operation.Operation` in real time.

    An operation's time begins with the first set-point, so that no patient waits for a selector.
    """

    part = 'operation'
    groups = ('federation', 'world')
    own = EnvSettings

    def __init__(self, post: Post) -> None:
        self.operating = False
        super().__init__('env', post)

    def open(self) -> None:
        """Make the world and the publishers."""
        plan = self.plan()
        chosen = plan.federation
        self._patients = mixture(chosen.hospitals, chosen.heterogeneity, chosen.seed)
        self._operation = Operation(plan.world, np.random.default_rng(chosen.seed))
        self.keep(self._operation.close)
        self._measured = {
            topic: self.publisher(kind, topic, qos.STATE) for topic, kind in _MEASURED.items()
        }
        self._states = (
            self.publisher(ros.OperationState, 'operation_state', qos.STATE),
            self.publisher(ros.PatientState, 'patient_state', qos.STATE),
        )
        self._outcome = self.publisher(ros.Outcome, 'outcome', qos.EVENT)
        self._markers = self.publisher(MarkerArray, 'markers', qos.PICTURE)
        self._placed = False

    def begin(self) -> None:
        """Take commands and let time pass."""
        self.operating = self._moving = False
        self._command: tuple[float, float, float] | None = None
        self._cycle_number = 0
        self._next, self._left = self.settings.first_patient, self.settings.operations
        self._next_at, self._placed_at = self.now, 0.0
        self.hear(PoseStamped, 'servo_cp', self._take_command, qos.COMMAND)
        self.answer(Operate, '~/operate', self._operate)
        self.every(PERIOD, self._cycle)
        self.every(0.1, self._draw)

    def _take_command(self, command: PoseStamped) -> None:
        """Keep the newest set-point; one of before this patient, or that is none, is refused."""
        if seconds(command.header.stamp) < self._placed_at:
            return
        position = command.pose.position
        wanted = (position.x, position.y, position.z)
        if all(math.isfinite(each) for each in wanted):
            self._command = wanted
            self._moving = self._moving or self.operating
        else:
            self.get_logger().warning(f'refused the set-point {wanted}', throttle_duration_sec=1.0)

    def _operate(self, request: Any, response: Any) -> Any:
        """Put the asked patient on the table."""
        try:
            if self.operating:
                raise StateError(f'{self._operation.patient.name} is on the table')
            patient = self._patients.patient(request.index, 'test')
            if request.procedure:
                patient = replace(patient, procedure=procedure_named(request.procedure))
            self._place(patient)
        except FdrlError as error:
            response.success, response.message = False, str(error)
            return response
        response.success, response.message = True, patient.name
        return response

    def _place(self, patient: Patient) -> None:
        self._operation.reset(patient)
        self.operating, self._moving, self._placed = True, False, True
        self._command = None
        self._placed_at = seconds(self.get_clock().now().to_msg())
        self._cycle_number, self._peak = 0, 0.0

    def _cycle(self) -> None:
        """Let 10 ms pass and publish."""
        if not self.operating and self._left != 0 and self.now >= self._next_at:
            self._place(self._patients.patient(self._next, 'test'))
            self._next += 1
            self._left -= self._left > 0
        if self.operating and self._moving:
            self._advance()
        if not self._placed:
            return
        stamp = self.get_clock().now().to_msg()
        for topic, message in measured(stamp, self._operation).items():
            self._measured[topic].publish(message)
        if self.operating:
            operation_state, patient_state = states(stamp, self._operation)
            self._states[1].publish(patient_state)
            self._states[0].publish(operation_state)

    def _advance(self) -> None:
        """Follow the newest set-point; judge at the end of a tick."""
        operation = self._operation
        if self._command is not None:
            try:
                operation.set_target(self._command)
            except StateError as error:
                self.get_logger().warning(f'refused: {error}', throttle_duration_sec=1.0)
            self._command = None
        before = self._cycle_number * SUBSTEPS // CYCLES
        self._cycle_number += 1
        operation.advance(self._cycle_number * SUBSTEPS // CYCLES - before)
        if self._cycle_number == CYCLES:
            self._cycle_number = 0
            judgement = operation.tick()
            self._peak = max(self._peak, judgement.peak_force)
            if operation.done:
                self._finish(judgement)

    def _finish(self, judgement: Judgement) -> None:
        patient = self._operation.patient
        self.operating = False
        self._next_at = self.now + PAUSE
        self._outcome.publish(
            self.stamped(
                ros.Outcome(
                    patient=patient.name,
                    procedure=patient.procedure.name,
                    success=judgement.success,
                    failure=judgement.failure,
                    steps=self._operation.ticks,
                    peak_force=self._peak,
                    damage=judgement.damage,
                )
            )
        )
        how = 'success' if judgement.success else f'failure: {judgement.failure}'
        self.get_logger().info(f'{patient.name}: {how} after {self._operation.time:.1f} s')

    def _draw(self) -> None:
        if self._placed:
            stamp = self.get_clock().now().to_msg()
            self._markers.publish(operation_markers(stamp, self._operation))

    def health(self) -> Health:
        """Add who is on the table."""
        health = super().health()
        if not self.operating or self.fault or self.state_name != 'active':
            return health
        return Health(health.level, f'operating on {self._operation.patient.name}', health.values)


def main() -> int:
    """Run the node."""
    return run_node(EnvNode)


if __name__ == '__main__':
    sys.exit(main())
