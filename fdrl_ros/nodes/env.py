# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""The simulated operating room: one arm on one patient in real time, obeying CRTK's commands."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from fdrl_ros.deployment.bringup import PICTURE
from fdrl_ros.deployment.frame_settings import FrameSettings
from fdrl_ros.deployment.interfaces import RECORDER
from fdrl_ros.deployment.settings import hospital_names
from fdrl_ros.errors import SettingError, StateError
import fdrl_ros.msg as ros
from fdrl_ros.nodes.arm.arm_interface import ArmInterface
from fdrl_ros.nodes.arm.endoscope_view import EndoscopeView
from fdrl_ros.nodes.arm.markers import operation_markers
from fdrl_ros.nodes.arm.operate_action import OperateAction
from fdrl_ros.nodes.arm.robot_messages import state_fields, states, with_frames
from fdrl_ros.nodes.arm.simulation_clock import SimulationClock
from fdrl_ros.nodes.common import qos
from fdrl_ros.nodes.common.diagnostics import Health, Level
from fdrl_ros.nodes.common.managed_node import ManagedNode, NodeSettings
from fdrl_ros.runtime.worker_thread import Post
from fdrl_ros.settings import named_among, setting
from fdrl_ros.surgery.arm.operating_state import State
from fdrl_ros.surgery.gym.actions import SUBSTEPS, TICK
from fdrl_ros.surgery.gym.operation import Operation
from fdrl_ros.surgery.patient.cohort import Cohort, Mixture, mixture
from fdrl_ros.surgery.patient.patient import Patient
from fdrl_ros.surgery.render.camera import Camera
from fdrl_ros.surgery.tasks.outcome import HARD_STOP, TickOutcome
from fdrl_ros.surgery.tasks.procedures import procedure_named, PROCEDURES, TRAITS
from rclpy.clock import Clock
from std_srvs.srv import Trigger
from visualization_msgs.msg import MarkerArray

PERIOD = 0.01
"""Between two set-points, second."""

CYCLES = round(TICK / PERIOD)
"""Cycles of 100 Hz in one policy tick; the 12 sub-steps are spread over them."""

PAUSE = 1.5
"""Between two operations, second: the selector has long been silent about the one before."""

RECORDER_PATIENCE = 30.0
"""Longest wait for a recorder, second."""

ABORTED = 'aborted'
"""Failure of an operation that `reset`, a canceled goal, or the node's deactivation ended."""

NOT_BEGUN = 'not_begun'
"""Failure of a goal's operation that nobody began."""


@dataclass(frozen=True)
class EnvSettings(NodeSettings, FrameSettings):
    """What an env's node is told."""

    operations: int = setting(
        0, 'patients operated on by itself, one after the other; -1 for no end', minimum=-1
    )
    first_patient: int = setting(0, 'number of the first of them', minimum=0)
    recorded: bool = setting(
        False,
        'the first of them waits until a recorder (`fdrl record`) hears the operation, half a '
        'minute at most',
    )
    hospital: str = setting(
        '', 'hospital whose patients come; empty: those of all hospitals in turn'
    )
    real_time_factor: float = setting(
        1.0,
        'how fast time passes with use_sim_time, where this node makes /clock; 0: as fast as '
        'whoever commands the arm answers',
        limits=(0.0, 100.0),
    )
    goal_timeout: float = setting(
        120.0,
        "longest time that a goal's patient waits on the table for the first motion command; 0: "
        'as long as it takes',
        limits=(0.0, 86400.0),
        unit='s',
    )
    endoscope: bool = setting(False, "draw and publish the endoscope's pictures")
    endoscope_rate: float = setting(
        10.0, 'most pictures of the endoscope', limits=(0.5, 15.0), unit='1/s'
    )
    endoscope_width: int = setting(
        PICTURE[0], 'width of its pictures', limits=(16, 2048), unit='pixels'
    )
    endoscope_height: int = setting(
        PICTURE[1], 'height of its pictures', limits=(16, 2048), unit='pixels'
    )


class EnvNode(ManagedNode):
    """
    Wraps :class:`fdrl_ros.surgery.gym.operation.Operation` in real time, or makes /clock.

    An operation's time begins with the first motion command, so that no patient waits for a
    selector. The arm obeys CRTK's commands and nothing else. With use_sim_time this node is the
    source of simulated time: see :class:`fdrl_ros.nodes.arm.simulation_clock.SimulationClock`.
    """

    executable = 'env'
    part = 'operation'
    groups = ('federation', 'world')
    own = EnvSettings
    alone = True

    def __init__(self, post: Post) -> None:
        self.operating = False
        self.simulation: SimulationClock | None = None
        super().__init__(post)

    def get_clock(self) -> Clock:
        """Return the clock of all stamps: the one that this node makes, if it does."""
        return super().get_clock() if self.simulation is None else self.simulation.clock

    def check(self) -> None:
        """Refuse a hospital that is not in the federation."""
        super().check()
        names, hospital = hospital_names(self.plan().federation.hospitals), self.settings.hospital
        if hospital and hospital not in names:
            raise SettingError('hospital', hospital, named_among(hospital, 'hospitals', names))

    def open(self) -> None:
        """Make the world and the publishers."""
        plan = self.plan()
        chosen = plan.federation
        everybody = partial(
            mixture,
            chosen.hospitals,
            chosen.heterogeneity,
            chosen.seed,
            conditions=chosen.conditions,
        )
        self._mixture: Callable[[tuple[str, ...]], Mixture | Cohort] = everybody
        if hospital := self.settings.hospital:
            number = hospital_names(chosen.hospitals).index(hospital)
            self._mixture = lambda procedures: everybody(procedures).cohorts[number]
        self._patients = self._mixture(chosen.names)
        self._goal_timeout = self.settings.goal_timeout
        self._operation = Operation(plan.world)
        self.keep(self._operation.close)
        self.simulation = None
        if self.get_parameter('use_sim_time').value:
            factor = self.settings.real_time_factor
            self.simulation = SimulationClock(self, self, PERIOD, factor)
        self._mount = self.settings.mount()
        self.arm = ArmInterface(self, self._operation, self._mount)
        self._states = (
            self.publisher(ros.OperationState, 'operation_state', qos.STATE),
            self.publisher(ros.PatientState, 'patient_state', qos.STATE),
        )
        self._fields = self.publisher(ros.StateFields, 'state_fields', qos.OUTCOME)
        self._outcome = self.publisher(ros.Outcome, 'outcome', qos.OUTCOME)
        self._markers = self.publisher(MarkerArray, 'markers', qos.PICTURE)
        self._endoscope = None
        if self.settings.endoscope:
            camera = Camera(
                self.settings.endoscope_width,
                self.settings.endoscope_height,
                self.settings.endoscope_rate,
            )
            self._endoscope = EndoscopeView(self, self._operation, camera, self._mount)
        self._placed = False

    def begin(self) -> None:
        """Take commands and let time pass."""
        self.operating = False
        self._cycle_number = 0
        self._asked: Patient | None = None
        self._begin_patients()
        self.arm.begin()
        self.operate = OperateAction(self, self._operation, self._bring, self._stop)
        self.keep(self._stop)
        for told in state_fields(self.get_clock().now().to_msg()):
            self._fields.publish(told)
        if self._endoscope is not None:
            self._endoscope.begin(lambda: self._placed)
        self.answer(Trigger, '~/reset', self._reset)
        self.answer(Trigger, '~/procedures', self._procedures)
        if self.simulation is None:
            self.every(PERIOD, self.pass_cycle)
        else:
            self.arm.on_command = self.simulation.note_command
            self.simulation.begin()
        self.every(0.1, self._draw, self.motion_clock)

    # Services.

    def _bring(self, procedure: str, index: int) -> None:
        """
        Put the patient of a goal on the table, now or after the pause between two operations.

        One who still waits for that is sent away.

        A paused arm takes the goal: a selector that paused it resumes it for a new patient.

        :raises FdrlError: if somebody is on the table, the arm is not enabled and homed, or there
            is no such procedure.
        """
        if self.operating:
            raise StateError(f'{self._operation.patient.name} is on the table')
        state = self.arm.control.operating_state
        if state.state is not State.PAUSED or not state.is_homed:
            state.require_ready('a goal')
        patients = self._patients
        if procedure:
            patients = self._mixture((procedure_named(procedure).name,))
        self._bring_next(patients.patient(index, 'test'))
        self._place_next()

    def _stop(self) -> None:
        """End the operation, or send away the patient who waits for one."""
        self._abort()
        if self._asked is not None:
            patient, self._asked = self._asked, None
            self.operate.end(outcome_of(patient, ABORTED))

    def _reset(self, request: Trigger.Request, response: Trigger.Response) -> Trigger.Response:
        """Abort the operation, if there is one, and have the next patient brought."""
        self._abort()
        patient = self._next_patient()
        self._bring_next(patient)
        wait = max(0.0, self._next_at - self.time)
        response.success, response.message = True, f'{patient.name} in {wait:.1f} s'
        return response

    def _bring_next(self, patient: Patient) -> None:
        """Have a patient come next, instead of one who waits."""
        if self._asked is not None:
            self.get_logger().info(f'{patient.name} comes instead of {self._asked.name}')
            self.operate.end(outcome_of(self._asked, ABORTED))
        self._asked = patient

    def _abort(self) -> None:
        """End the operation, if there is one."""
        if self.operating:
            peak = max(self._peak, self._operation.peak_force)
            self._finish(ABORTED, peak, self._operation.damage)

    def _procedures(
        self, request: Trigger.Request, response: Trigger.Response
    ) -> Trigger.Response:
        """Tell the procedures, one a line."""
        response.success, response.message = True, procedure_list()
        return response

    # Patients.

    def _begin_patients(self) -> None:
        """Have the first patient come next, at once."""
        self._next, self._left = self.settings.first_patient, self.settings.operations
        self._asked = None
        self._next_at = self.time
        self._awaits_recorder = self.settings.recorded
        self._began_at = self.now

    def _next_patient(self) -> Patient:
        patient = self._patients.patient(self._next, 'test')
        self._next += 1
        return patient

    def _place_next(self) -> None:
        """Put the next patient on the table if it is time."""
        stands = self.simulation is not None and not self.simulation.time.passes
        if self.operating or stands or self.time < self._next_at:
            return
        if self._asked is not None:
            patient, self._asked = self._asked, None
            self._place(patient)
        elif self._left != 0 and self._is_recorded():
            self._left -= self._left > 0
            self._recover()
            self._place(self._next_patient())

    def _is_recorded(self) -> bool:
        """Say whether a recorder hears what begins now, or nobody waits for one."""
        if not self._awaits_recorder:
            return True
        # A recorder hears the states last, once it hears everything else.
        topic = self._states[0].topic_name
        here = any(
            each.node_name == RECORDER for each in self.get_subscriptions_info_by_topic(topic)
        )
        if not here and self.now - self._began_at < RECORDER_PATIENCE:
            return False
        if not here:
            self.get_logger().warning(f'no recorder came in {RECORDER_PATIENCE:g} s: it begins')
        self._awaits_recorder = False
        return True

    def _recover(self) -> None:
        """Do what staff would, where nobody attends: lead the arm out of a fault."""
        if self.arm.control.operating_state.state is State.FAULT:
            self.get_logger().warning('nobody attends: enabling and homing the arm after a fault')
            self.arm.control.command('enable')
            self.arm.control.command('home')

    def _place(self, patient: Patient) -> None:
        self._operation.reset(patient)
        self.operating = self._placed = True
        self._cycle_number, self._peak = 0, 0.0
        self._placed_at = self.now
        self.arm.begin_operation()

    # Time.

    def is_free(self) -> bool:
        """Say whether nobody is on the table."""
        return not self.operating

    def return_to_start(self) -> None:
        """End the operation, or who waits for it; bring the arm home; begin with patient one."""
        self._stop()
        self.arm.return_home()
        self._begin_patients()

    def follow_clock_back(self) -> None:
        """Go on after the simulated clock was set back."""
        self.arm.follow_clock_back()
        self._next_at = min(self._next_at, self.time + PAUSE)
        self._placed_at = self.now

    def pass_cycle(self) -> None:
        """Let 10 ms pass and publish."""
        self._place_next()
        if not self.operating:
            self._move_freely()
        elif self.arm.commanded:
            self._advance()
        elif self._is_forgotten():
            self._finish(NOT_BEGUN, 0.0, 0.0)
        stamp = self.get_clock().now().to_msg()
        # After n cycles the arm was advanced by the whole sub-steps of n * 10 ms. What is told is
        # one sub-step behind that time, between two, so that each cycle is as far as the next.
        lag = 1.0 - (self._cycle_number * SUBSTEPS % CYCLES) / CYCLES
        self.arm.publish(stamp, lag)
        if self.operating:
            operation_state, patient_state = states(stamp, self._operation)
            self._states[1].publish(patient_state)
            self._states[0].publish(operation_state)

    def _is_forgotten(self) -> bool:
        """Say whether the patient of a goal has waited for too long."""
        longest = self._goal_timeout
        return self.operate.has_goal and 0.0 < longest < self.now - self._placed_at

    def _next_substeps(self) -> int:
        """Begin the next cycle, and return how many sub-steps it has."""
        before = self._cycle_number * SUBSTEPS // CYCLES
        self._cycle_number += 1
        return self._cycle_number * SUBSTEPS // CYCLES - before

    def _move_freely(self) -> None:
        """Follow the commands with nobody on the table."""
        substeps = self._next_substeps()
        self._cycle_number %= CYCLES
        self.arm.step(substeps)
        self.arm.free.advance(substeps)

    def _advance(self) -> None:
        """Follow the commands; judge at the end of a tick."""
        operation = self._operation
        substeps = self._next_substeps()
        self.arm.step(substeps)
        operation.advance(substeps)
        if self._cycle_number == CYCLES:
            self._cycle_number = 0
            judgement = operation.tick()
            self._peak = max(self._peak, judgement.peak_force)
            if operation.done:
                self._end(judgement)

    def _end(self, judgement: TickOutcome) -> None:
        if judgement.failure == 'force' and judgement.peak_force > HARD_STOP:
            self.arm.control.fail()
        self._finish(judgement.failure, self._peak, judgement.damage)

    def _finish(self, failure: str, peak_force: float, damage: float) -> None:
        """Tell how it ended; an empty failure is success."""
        patient = self._operation.patient
        self.operating, self._cycle_number = False, 0
        self._next_at = self.time + PAUSE
        self.arm.end_operation()
        outcome = outcome_of(patient, failure, self._operation.ticks, peak_force, damage)
        self._outcome.publish(self.stamped(outcome))
        self.operate.end(outcome)
        how = f'failure: {failure}' if failure else 'success'
        self.get_logger().info(f'{patient.name}: {how} after {self._operation.time:.1f} s')

    def _draw(self) -> None:
        self.operate.report(self.operating)
        if self._placed:
            stamp = self.get_clock().now().to_msg()
            markers = operation_markers(stamp, self._operation, self.operating)
            for each in markers.markers:
                with_frames(each, self._mount)
            self._markers.publish(markers)

    def health(self) -> Health:
        """Add who is on the table and what the arm is ready for."""
        health = super().health()
        if self.fault or self.state_name != 'active':
            return health
        arm = self.arm.control.operating_state
        values = {**health.values, 'arm': str(arm.state), 'homed': arm.is_homed}
        level, summary = health.level, health.summary
        if self.simulation is not None:
            values['simulated time'] = self.simulation.in_words()
            if self.count_publishers(self.resolve_topic_name('/clock')) > 1:
                level, summary = Level.WARN, 'somebody else makes /clock too'
        if self.operating:
            summary = f'operating on {self._operation.patient.name}'
        if not arm.is_ready:
            homed = 'homed' if arm.is_homed else 'not homed'
            level, summary = Level.WARN, f'the arm is {arm.state}, {homed}'
        return Health(level, summary, values)


def outcome_of(
    patient: Patient, failure: str, steps: int = 0, peak_force: float = 0.0, damage: float = 0.0
) -> ros.Outcome:
    """
    Tell how an operation ended.

    :param failure: empty on success.
    """
    return ros.Outcome(
        patient=patient.name,
        procedure=patient.procedure.name,
        success=not failure,
        failure=failure,
        steps=steps,
        peak_force=peak_force,
        damage=damage,
    )


def procedure_list() -> str:
    """Say in a line for each procedure what it is and what ends it."""
    lines = []
    for procedure in PROCEDURES:
        force = f', {procedure.target_force:g} N' if procedure.target_force else ''
        lines.append(
            f'{procedure.name}: {TRAITS[procedure.name].purpose}{force}; '
            f'at most {procedure.force_limit:g} N and {procedure.horizon * TICK:g} s'
        )
    return '\n'.join(lines)


NODE = EnvNode
