# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""The monitor: makes the two states of an operation from a real arm's own topics and a plan."""

from dataclasses import dataclass
from functools import partial
import math
from pathlib import Path
from typing import Any

from fdrl_ros.errors import FdrlError, SettingError, StateError
import fdrl_ros.msg as ros
from fdrl_ros.nodes.arm.robot_messages import state_fields
from fdrl_ros.nodes.common import qos
from fdrl_ros.nodes.common.diagnostics import Health, Level
from fdrl_ros.nodes.common.managed_node import ManagedNode, NodeSettings
from fdrl_ros.selector.control.observation import nanoseconds, PHYSICAL_RANGES
from fdrl_ros.settings import setting
from fdrl_ros.surgery.arm.kinematic_arm import JAW_OPEN
from fdrl_ros.surgery.arm.rotations import from_quaternion
from fdrl_ros.surgery.data.vital_signs import NAMES, VitalSigns
from fdrl_ros.surgery.gym.measured_operation import Measured, MeasuredOperation, OperationPlan
from fdrl_ros.surgery.gym.state import OPERATION_LAYOUT, PATIENT_FIELDS, PATIENT_LAYOUT
from fdrl_ros.surgery.tasks.registry import TASKS
from geometry_msgs.msg import PointStamped, PoseStamped, WrenchStamped
import numpy as np
from sensor_msgs.msg import JointState
from std_msgs.msg import Float64
from std_srvs.srv import Trigger

MOVED = 1e-5
"""How far the set-point has to move for the operation's time to begin, m."""

_FARTHEST = 1.0
"""From the base that a tip can be, m."""

_SILENT = 0.25
"""Time without a measured pose after which diagnostics say so, s."""


@dataclass(frozen=True)
class MonitorSettings(NodeSettings):
    """What a monitor's node is told."""

    plan: str = setting('', 'YAML file of the operation plan, as config/operation_plan.yaml')
    vitals: str = setting(
        '',
        'where vital signs come from: a CSV file, or a bag with patient_state, from the first '
        'motion command on; empty: the topics vital_signs/...',
    )
    vitals_age: float = setting(
        10.0, 'age from which vital signs are too old', limits=(0.01, 3600.0), unit='s'
    )
    input_age: float = setting(
        0.1, 'age from which a measurement of the arm is too old', limits=(0.01, 10.0), unit='s'
    )
    force: str = setting(
        'body',
        'axes of the measured force: those of the tool (body/measured_cf) or of the base '
        '(spatial/measured_cf)',
        choices=('body', 'spatial'),
    )
    surface: bool = setting(
        False, 'expect the height of the surface on the topic surface; else it rests as planned'
    )
    frame: str = setting(
        '',
        'frame that poses and the surface have to be in, with z up and the origin in the trocar; '
        'empty: any',
    )


class MonitorNode(ManagedNode):
    """
    Publishes a state for each measured pose; none while an input is missing, old or impossible.

    The time of the operation begins with the first motion command: a `servo_cp`, or a set-point
    that moves. It ends when all is done or the time is up; the service `~/start` reads the plan
    again and waits for the next one.
    """

    executable = 'monitor'
    part = 'state'
    own = MonitorSettings
    alone = True

    def open(self) -> None:
        """Read the plan and the vital signs, and make the publishers."""
        chosen = self._chosen = self.settings
        if not chosen.plan:
            raise SettingError('plan', '', 'a YAML file such as config/operation_plan.yaml')
        self._plan = OperationPlan.read(Path(chosen.plan))
        self._recorded = VitalSigns.read(Path(chosen.vitals)) if chosen.vitals else None
        self._states = (
            self.publisher(ros.OperationState, 'operation_state', qos.STATE),
            self.publisher(ros.PatientState, 'patient_state', qos.STATE),
        )
        self._fields = self.publisher(ros.StateFields, 'state_fields', qos.OUTCOME)

    def begin(self) -> None:
        """Listen to the arm."""
        self._problem = ''
        self._told = ''
        self._published_at: float | None = None
        self._begin_operation()
        hear = self.hear
        hear(PoseStamped, 'measured_cp', self._receive_tip, qos.SENSOR)
        hear(PoseStamped, 'setpoint_cp', self._receive_setpoint, qos.SENSOR)
        hear(PoseStamped, 'servo_cp', self._receive_command, qos.SENSOR)
        hear(WrenchStamped, f'{self._chosen.force}/measured_cf', self._receive_force, qos.SENSOR)
        for topic in ('jaw/measured_js', 'jaw/setpoint_js'):  # the next plan may use it
            hear(JointState, topic, partial(self._receive_jaw, topic), qos.SENSOR)
        if self._chosen.surface:
            hear(PointStamped, 'surface', self._receive_surface, qos.SENSOR)
        if self._recorded is None:
            for name in NAMES:
                hear(
                    Float64, f'vital_signs/{name}', partial(self._receive_vital, name), qos.SENSOR
                )
        self.answer(Trigger, '~/start', self._start)
        for told in state_fields(self.get_clock().now().to_msg()):
            self._fields.publish(told)
        self.every(1.0, self._log_problem)

    def _begin_operation(self) -> None:
        """Wait for the first motion command of the plan."""
        self._operation = MeasuredOperation(self._plan)
        self._uses_jaw = TASKS[self._plan.procedure].uses_jaw
        self._began: float | None = None
        self._start_at: np.ndarray | None = None
        self._commanded = False
        self._inputs: dict[str, tuple[Any, float]] = {}
        self._elsewhere: dict[str, str] = {}
        self._surface_before: tuple[float, float] | None = None

    def _start(self, request: Trigger.Request, response: Trigger.Response) -> Trigger.Response:
        """Read the plan again and begin anew."""
        try:
            self._plan = OperationPlan.read(Path(self._chosen.plan))
        except FdrlError as error:
            response.message = str(error)
            return response
        self._begin_operation()
        response.success, response.message = (
            True,
            f'{self._plan.procedure} on {self._plan.patient}',
        )
        return response

    # What is measured, and when.

    def _keep(self, name: str, value: Any) -> None:
        self._inputs[name] = value, self.time

    def _age(self, came: float) -> float:
        """Return the time since then, s; infinite if simulated time went back behind it."""
        age = self.time - came
        return age if age >= 0.0 else math.inf

    def _in_frame(self, name: str, source: PoseStamped | PointStamped) -> bool:
        """Return whether a message is in the frame wanted; if not, keep why there is no state."""
        frame, wanted = source.header.frame_id, self._chosen.frame
        if wanted and frame != wanted:
            self._elsewhere[name] = f'{name} in {frame!r}, expected {wanted!r}'
            return False
        self._elsewhere.pop(name, None)
        return True

    def _receive_setpoint(self, source: PoseStamped) -> None:
        if not self._in_frame('setpoint_cp', source):
            return
        at = source.pose.position
        position = np.array([at.x, at.y, at.z])
        self._keep('setpoint_cp', position)
        if self._start_at is None:
            self._start_at = position
        elif not np.linalg.norm(position - self._start_at) <= MOVED:
            self._commanded = True

    def _receive_command(self, source: PoseStamped) -> None:
        self._commanded = True

    def _receive_force(self, source: WrenchStamped) -> None:
        force = source.wrench.force
        self._keep('force', np.array([force.x, force.y, force.z]))

    def _receive_jaw(self, topic: str, source: JointState) -> None:
        if len(source.position) == 1:
            self._keep(topic, source.position[0] / JAW_OPEN)

    def _receive_surface(self, source: PointStamped) -> None:
        """Keep the height, and its speed since the one before."""
        if not self._in_frame('surface', source):
            return
        time, height = 1e-9 * nanoseconds(source.header.stamp), source.point.z
        before, self._surface_before = self._surface_before, (time, height)
        if before is not None and time > before[0]:
            self._keep('surface', (height, (height - before[1]) / (time - before[0])))

    def _receive_vital(self, name: str, source: Float64) -> None:
        self._keep(name, source.data)

    def _receive_tip(self, source: PoseStamped) -> None:
        """Publish the state at a measured pose, or keep why there is none."""
        if self._operation.over:
            self._problem = 'the operation is over: ~/start begins the next'
            return
        try:
            self._publish(source)
        except StateError as error:
            self._problem = str(error)
        else:
            self._problem, self._published_at = '', self.time

    def _publish(self, source: PoseStamped) -> None:
        """
        Publish both halves of the state.

        :raises StateError: if an input is missing, too old, in another frame or impossible.
        """
        self._in_frame('measured_cp', source)
        for problem in self._elsewhere.values():
            raise StateError(problem)
        time = 1e-9 * nanoseconds(source.header.stamp)
        tip, rotation = self._pose(source)
        force = self._newest('force', 'no measured force')
        if self._chosen.force == 'body':
            force = rotation @ force
        target = self._newest('setpoint_cp', 'no setpoint_cp')
        measured = Measured(tuple(target.tolist()), tip, float(force[2]))
        if self._uses_jaw:
            measured = measured._replace(
                jaw=self._newest('jaw/measured_js', 'no jaw/measured_js'),
                jaw_target=self._newest('jaw/setpoint_js', 'no jaw/setpoint_js'),
            )
        if self._chosen.surface:
            measured = measured._replace(surface=self._newest('surface', 'no surface'))
        low, high = PHYSICAL_RANGES['N']
        if not low <= measured.force <= high:
            raise StateError(f'a measured force of {measured.force:g} N')
        if self._commanded and self._began is None:
            self._began = time
            self._operation.begin(time)
        vitals = self._vitals(time)
        values = self._operation.take(measured, time)
        plan, stamp = self._plan, source.header.stamp
        operation = ros.OperationState(
            procedure=plan.procedure,
            patient=plan.patient,
            layout=OPERATION_LAYOUT,
            values=values,
        )
        patient = ros.PatientState(patient=plan.patient, layout=PATIENT_LAYOUT, values=vitals)
        operation.header.stamp = patient.header.stamp = stamp
        self._states[1].publish(patient)
        self._states[0].publish(operation)

    def _pose(self, source: PoseStamped) -> tuple[tuple[float, float, float], np.ndarray]:
        """
        Return position and rotation of the tool.

        :raises StateError: if it cannot be.
        """
        at, turned = source.pose.position, source.pose.orientation
        tip = (at.x, at.y, at.z)
        length = math.hypot(turned.x, turned.y, turned.z, turned.w)
        if not math.hypot(*tip) <= _FARTHEST:
            raise StateError(f'measured_cp at {tip}: expected a tip within {_FARTHEST:g} m')
        if not abs(length - 1.0) <= 1e-3:
            raise StateError(f'measured_cp with a quaternion of length {length:g}')
        return tip, from_quaternion((turned.x, turned.y, turned.z, turned.w))

    def _newest(self, name: str, missing: str, age: float | None = None) -> Any:
        """
        Return what an input was last.

        :raises StateError: if it never came, or is too old.
        """
        value, came = self._inputs.get(name, (None, -math.inf))
        old = self._age(came)
        if old == math.inf:
            raise StateError(missing)
        if old > (age or self._chosen.input_age):
            raise StateError(f'{missing} for {old:.1f} s')
        return value

    def _vitals(self, time: float) -> list[float]:
        """
        Return the vital signs at a time.

        :raises StateError: if one is missing, too old or impossible.
        """
        oldest = self._chosen.vitals_age
        if self._recorded is None:
            found = [self._newest(name, f'no vital_signs/{name}', oldest) for name in NAMES]
        else:
            since = 0.0 if self._began is None else time - self._began
            there = self._recorded.at(since)
            if there is None or there[1] > oldest:
                raise StateError(f'no recorded vital signs at {since:.1f} s')
            found = list(there[0])
        for each, value in zip(PATIENT_FIELDS, found, strict=True):
            low, high = PHYSICAL_RANGES[each.unit]
            if not low <= value <= high:
                raise StateError(f'{each.name} of {value:g} {each.unit}')
        return found

    # What it says of itself.

    def _why(self) -> str:
        """Return why there is no state now; empty while there is."""
        if self._problem:
            return self._problem
        if self._published_at is None or self._age(self._published_at) > _SILENT:
            return 'no measured_cp'
        return ''

    def _log_problem(self) -> None:
        """Log why there is no state when that changes; ages do not count."""
        why = self._why().partition(' for ')[0]
        if why != self._told:
            self._told = why
            if self._operation.over:
                self.get_logger().info(why)
            elif why:
                self.get_logger().warning(f'no state: {why}')
            else:
                self.get_logger().info(f'{self._plan.procedure} on {self._plan.patient}')

    def health(self) -> Health:
        """Warn while there is no state, and say why."""
        health = super().health()
        if health.level is not Level.OK or self.state_name != 'active':
            return health
        why = self._why()
        if self._operation.over:
            return Health(Level.OK, why, health.values)
        if why:
            return Health(Level.WARN, f'no state: {why}', health.values)
        told = 'waiting for the first motion command' if self._began is None else 'operating'
        return Health(Level.OK, f'{told}: {self._plan.procedure}', health.values)


NODE = MonitorNode
