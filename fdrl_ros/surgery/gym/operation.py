# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""
One patient on one arm: set-points in, state and outcome out.

The ROS node drives it by set-points at 100 Hz, the Gymnasium env by discrete actions; physics,
states, rewards and endings are the same. Simulated, for research: not a medical device.
"""

from collections import deque
from collections.abc import Sequence
import math
from typing import NamedTuple, TYPE_CHECKING

from fdrl_ros.errors import StateError
from fdrl_ros.surgery.arm.kinematic_arm import Jaw, JAW_OPEN, KinematicArm
from fdrl_ros.surgery.arm.kinematics import checked_point, straight_joints, Vector
from fdrl_ros.surgery.arm.motion import JointPath
from fdrl_ros.surgery.constants import constant
from fdrl_ros.surgery.gym.actions import Action, MAXIMUM_SPEED, SUBSTEP, SUBSTEPS, TICK
from fdrl_ros.surgery.gym.state import (
    Info,
    operation_values,
    PROCEDURE_NAMES,
    scale,
    Seen,
    TICK_INFO,
)
from fdrl_ros.surgery.patient.breathing import breathing_motion
from fdrl_ros.surgery.patient.patient import Patient
from fdrl_ros.surgery.patient.physiology import Physiology
from fdrl_ros.surgery.settings import checked_world, WorldSettings
from fdrl_ros.surgery.tasks.outcome import (
    failure_code,
    FAILURES,
    judge,
    NO_FAILURE,
    Rules,
    rules_of,
    Tick,
    TickOutcome,
)
from fdrl_ros.surgery.tasks.registry import task_of
from fdrl_ros.surgery.tasks.task import Prospect, Reading, Scene, Task
from fdrl_ros.surgery.tissue.contact import (
    contact_force,
    Felt,
    ForceSensor,
    harm,
    smoothed,
    tissue_of,
)
import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from fdrl_ros.surgery.arm.simulated_arm import DynamicArm

FORCE_LEVELS = tuple(constant(f'levels.{name}') for name in ('gentle', 'firm', 'severe'))
"""Loads that the time above is measured of, N: 0.8, 3.4 and 6.5."""

Position = tuple[float, float, float]

_NO_OUTCOME = TickOutcome(0.0, 0.0, 0.0, 0.0, False, False, '', False, False)

_NOTHING: Position = (0.0, 0.0, 0.0)
_STRIDE = MAXIMUM_SPEED * SUBSTEP
_NAMED = dict(zip(PROCEDURE_NAMES, np.eye(len(PROCEDURE_NAMES)).tolist(), strict=True))


class _Command(NamedTuple):
    """A command on its way: the sub-step after which it counts, a set-point (m) or jaw (rad)."""

    due: int
    target: Position | None = None
    jaw: float | None = None


class Operation:
    """
    One operation at a time; :meth:`reset` starts the next.

    A command reaches arm and jaw `latency` ticks after it was given; joint paths begin at once, as
    the arm itself plans them. The state shows the commanded set-point.

    :param settings: of the world.

    From a reset on there are, besides what the methods return:

    - `force`: on the tip in the base frame, with friction, N: what a wrist sensor would say;
    - `load`: what is judged: the tissue's normal force and that of rigid things, no friction, N;
    - `measured_force`: what the sensor says of the load, N, with the patient's gain and noise;
      `smooth_force`: the same smoothed over ticks, only where it is noisy; `force_rate`: its
      change over the last tick, N/s;
    - `target`: the commanded set-point, m; `setpoint`: where the arm's set-point is, m;
    - `damage`: done to tissue since the start, N s;
    - `peak_force`: greatest load since the last tick, N; `greatest_force`: of the ticks since the
      start, N; `time_above`: time with a load above each of FORCE_LEVELS, s;
    - `touched`: height at which contact was first felt, m; not a number before;
    - `remaining`: cost that is left at the end of the last tick, m;
    - `outcome`: what the last tick brought.
    """

    arm: 'KinematicArm | DynamicArm'

    def __init__(self, settings: WorldSettings | None = None) -> None:
        self.settings = checked_world(WorldSettings() if settings is None else settings)
        self.arm = KinematicArm()
        if self.settings.mode == 'dynamic':
            # Loads PyBullet, which not all users need.
            from fdrl_ros.surgery.arm.simulated_arm import DynamicArm

            self.arm = DynamicArm()
        self._patient: Patient | None = None
        self._closed = False

    @property
    def patient(self) -> Patient:
        """
        Return who is on the table.

        :raises StateError: before the first reset, and after the operation was closed.
        """
        self.check_started()
        assert self._patient is not None
        return self._patient

    def check_started(self) -> None:
        """
        Refuse before the first reset, and after the operation was closed.

        :raises StateError: then.
        """
        if self._patient is None:
            if self._closed:
                raise StateError.closed('operation')
            raise StateError('no patient yet: reset the operation first')

    def reset(self, patient: Patient) -> None:
        """
        Put a patient on the table and the tip at the patient's start.

        :raises StateError: if it is closed.
        :raises UnreachableError: if the arm does not reach the start, the goal or the destination;
            the old operation goes on.
        """
        if self._closed:
            raise StateError.closed('operation')
        if not isinstance(patient, Patient):
            raise StateError(f'patient {patient!r}: expected a Patient')
        tissue = tissue_of(patient)
        physiology = Physiology(patient, pace=self.settings.pace)
        for place in (patient.goal, patient.destination):
            straight_joints(*place)
        task = task_of(patient, tissue)
        scene, rules = task.begin(), rules_of(patient, self.settings)
        self.arm.place(patient.start, patient.servo_lag)  # nothing has changed if this refuses
        self._patient = patient
        self.tissue, self.physiology = tissue, physiology
        self.task: Task = task
        self.scene: Scene = scene
        self.rules: Rules = rules
        self._loss = failure_code(task.loss)
        self.jaw = Jaw()
        self.target = self.setpoint = self._goal = patient.start
        self._told = 0.0
        self._latency = SUBSTEPS * patient.latency
        self._sent: deque[_Command] = deque()
        self._path: JointPath | None = None
        self._sensor, self._felt = ForceSensor(patient, self.settings), Felt()
        self.substeps = self.ticks = self._tick_substeps = 0
        self.force: Position = _NOTHING
        self.load = self.measured_force = self.smooth_force = self.force_rate = 0.0
        self.peak_force = self.greatest_force = self.damage = 0.0
        self.time_above = [0.0] * len(FORCE_LEVELS)
        self.touched = math.nan
        self._tick_damage = self._tick_impulse = self._tick_force = 0.0
        self._names = _NAMED[patient.procedure.name]
        self.remaining = self._cost()
        self.outcome = _NO_OUTCOME

    @property
    def done(self) -> bool:
        """Return whether the operation has ended."""
        return self.outcome.terminated or self.outcome.truncated

    @property
    def time(self) -> float:
        """Return the time since the start, s."""
        self.check_started()
        return self.substeps * SUBSTEP

    def set_target(self, position: tuple[float, float, float]) -> None:
        """
        Ask the tip to go somewhere, as CRTK's servo_cp does; the newest call counts.

        The set-point follows at no more than 50 mm/s, the wrist straight.

        :param position: in the base frame, m.
        :raises StateError: if it is not three finite numbers; the old target stays.
        :raises UnreachableError: if the arm cannot go there; the old target stays.
        """
        self.check_started()
        self._aim(checked_point(position))

    def _aim(self, target: Position) -> None:
        straight_joints(*target)
        self.target = target
        if self._latency:
            self._sent.append(_Command(self.substeps + self._latency, target=target))
        else:
            self._goal, self._path = target, None

    def set_joint_target(self, joints: Sequence[float], substeps: int) -> None:
        """
        Have all six joints of the set-point go somewhere, evenly.

        :param joints: shape (6,), rad and m.
        :param substeps: after how many the set-point is there; who asks limits its speed.
        :raises StateError: if they are no joints of this arm; the old target stays.
        """
        path = JointPath(self.setpoint_joints(), joints, substeps)
        self._sent.clear()
        self._path, self.target = path, path.end

    def setpoint_joints(self) -> Vector:
        """Return the joints of the set-point, shape (6,), rad and m."""
        self.check_started()
        if self._path is not None:
            return self._path.joints.copy()
        return np.array([*straight_joints(*self.setpoint), 0.0, 0.0, 0.0])

    def halt(self) -> None:
        """Stay where the set-point is."""
        self.check_started()
        self._sent.clear()
        self.target = self._goal = self.setpoint
        if self._path is not None:
            self._path.halt()
        self.jaw.halt()
        self._told = self.jaw.told

    def act(self, action: Action) -> None:
        """Carry out one of the discrete actions, from the target as it is."""
        self.check_started()
        x, y, z = self.target
        dx, dy, dz = action.displacement
        if dx or dy or dz:
            self._aim((x + dx, y + dy, z + dz))
        if action.jaw is not None and self.task.uses_jaw:
            self.aim_jaw(JAW_OPEN if action.jaw else 0.0)

    def aim_jaw(self, angle: float) -> None:
        """
        Ask the jaw to open to an angle, rad.

        :raises StateError: if that is no number or outside the limits; the old target stays.
        """
        self.check_started()
        checked = Jaw()
        checked.aim(angle)
        self._told = checked.told
        if self._latency:
            self._sent.append(_Command(self.substeps + self._latency, jaw=checked.target))
        else:
            self.jaw.aim(angle)

    def advance(self, substeps: int) -> None:
        """
        Let the arm, the tissue and the patient's breathing move on.

        :param substeps: of 1/240 s each.
        :raises StateError: if they are no whole number of at least 0; then nothing moves.
        """
        if type(substeps) is not int or substeps < 0:
            raise StateError(f'{substeps!r} sub-steps: expected a whole number of at least 0')
        arm, tissue, sent = self.arm, self.tissue, self._sent
        target, path = self._goal, self._path
        setpoint, force, warn = self.setpoint, self.force, self.patient.procedure.warn_force
        rigid = self.scene.grasped and self.task.resists
        peak, damage, impulse, load = self.peak_force, 0.0, 0.0, self.load
        gentle, firm, severe = FORCE_LEVELS
        above, rest, coughs = self.time_above, tissue.rest, tissue.coughs
        stiffness, damping, bearable = tissue.stiffness, tissue.damping, tissue.bearable
        amplitude, rate, phase = tissue.amplitude, tissue.rate, tissue.phase
        sensor = self._sensor
        felt = sensor.felt_load
        feels = math.isnan(self.touched) and not sensor.noisy
        feels_force, last = arm.feels_force, self.substeps + substeps
        for step in range(self.substeps + 1, last + 1):
            while sent and sent[0].due < step:
                command = sent.popleft()
                if command.target is not None:
                    target, path = command.target, None
                if command.jaw is not None:
                    self.jaw.aim(command.jaw)
            if path is not None:
                arm.step_joints(path.step(), force)
            else:
                if setpoint is not target:
                    x, y, z = setpoint
                    dx, dy, dz = target[0] - x, target[1] - y, target[2] - z
                    distance = math.sqrt(dx * dx + dy * dy + dz * dz)
                    if distance <= _STRIDE * (1.0 + 1e-9):
                        setpoint = target
                    else:
                        share = _STRIDE / distance
                        setpoint = (x + dx * share, y + dy * share, z + dz * share)
                arm.step(setpoint, force)
            breath, rise, _ = breathing_motion(amplitude, rate, phase, coughs, step * SUBSTEP)
            depth = rest + breath - arm.position[2]
            force, load = _NOTHING, 0.0
            if depth > 0.0:
                speed_x, speed_y, speed_z = arm.velocity
                load = contact_force(stiffness, damping, depth, rise - speed_z)
                if load > 0.0:
                    if feels_force or step == last:
                        force = (*tissue.friction_force(load, speed_x, speed_y), load)
                    if feels and load >= felt:
                        self.touched, feels = arm.position[2], False
                    strain, pressure = harm(load, depth, warn, bearable)
                    damage += strain * SUBSTEP
                    damage += pressure * SUBSTEP
            if rigid:
                pull_x, pull_y = self.task.resistance(1.0, *arm.position)
                load += math.hypot(pull_x, pull_y)
                force = (force[0] + pull_x, force[1] + pull_y, force[2])
            if load > 0.0:
                impulse += load
                if load > peak:
                    peak = load
                if load > gentle:
                    above[0] += SUBSTEP
                    if load > firm:
                        above[1] += SUBSTEP
                        if load > severe:
                            above[2] += SUBSTEP
        self._goal, self._path = target, path
        self.setpoint = setpoint if path is None else path.tip
        self.force, self.load, self.peak_force = force, load, peak
        self.jaw.advance(substeps * SUBSTEP)
        self.substeps += substeps
        self._tick_substeps += substeps
        self._tick_damage += damage
        self._tick_impulse += impulse * SUBSTEP
        self.damage += damage
        self.measured_force = sensor.measure(load)

    def tick(self) -> TickOutcome:
        """
        Judge what happened since the last tick, once every 12 sub-steps.

        :raises StateError: if nothing happened since.
        """
        self.check_started()
        if self._tick_substeps == 0:
            raise StateError('no time has passed since the last tick: advance first')
        period = self._tick_substeps * SUBSTEP
        self.ticks += 1
        peak, tip, time = self.peak_force, self.arm.position, self.substeps * SUBSTEP
        # A ring that pulls at its peg harms no tissue and hurts nobody.
        normal = self.force[2]
        self.physiology.advance(period, normal, self._tick_damage)
        scene, before = self.scene, self.scene.done
        breath = self._breath(time)
        reading = Reading(tip, normal, self.jaw.opening, time, breath, period)
        lost = self._loss if self.task.progress(scene, reading) else NO_FAILURE
        remaining = self._cost()
        tick = Tick(
            self.ticks,
            tip,
            peak,
            self.load,
            lost,
            self.physiology.hypotensive,
            scene.done,
            scene.done - before,
            self.remaining - remaining,
        )
        reward, critical, success, failure, terminated, truncated = judge(
            self.rules, self.settings, tick
        )
        self.remaining = remaining
        self.force_rate = (self.measured_force - self._tick_force) / period
        self._tick_force = self.measured_force
        if self._sensor.noisy:
            self.smooth_force = smoothed(self.smooth_force, self.measured_force)
            if math.isnan(self.touched) and self.smooth_force >= self._sensor.felt:
                self.touched = tip[2]
        x, y, z = tip
        height = self.tissue.rest + self.tissue.breath(time)[0] + self.patient.calibration[2]
        self._felt.add(self.measured_force, height - z, self._contact(), z - self.target[2])
        mean = self._tick_impulse / period
        self.greatest_force = max(self.greatest_force, peak)
        self._tick_substeps, self._tick_damage, self._tick_impulse = 0, 0.0, 0.0
        self.peak_force = 0.0
        name = '' if failure == NO_FAILURE else FAILURES[failure]
        self.outcome = TickOutcome(
            reward, peak, mean, self.damage, critical, success, name, terminated, truncated
        )
        return self.outcome

    def info(self) -> Info:
        """Return what the state leaves out, see TICK_INFO."""
        outcome, body = self.outcome, self.physiology
        numbers = (
            self.load,
            outcome.peak_force,
            outcome.mean_force,
            self.greatest_force,
            self.damage,
            self.arm.position,
            self.jaw.angle,
            *body.scores(),
            body.pressure,
            outcome.critical,
            outcome.success,
            outcome.failure,
        )
        return dict(zip(TICK_INFO, numbers, strict=True))

    @property
    def waypoint(self) -> Position:
        """Return where the plan has the tip go next, m."""
        self.check_started()
        return self._waypoint(self.time)

    def _waypoint(self, time: float) -> Position:
        task, scene = self.task, self.scene
        grasped = float(scene.grasped)
        x, y, z = task.waypoint(grasped, scene.done, time, self._breath(time))
        return x, y, z

    def _breath(self, time: float) -> float:
        """Return what breathing has the surface lifted by, m, where the task depends on it."""
        return self.tissue.breath(time)[0] if self.task.watches_surface else 0.0

    def values(self) -> list[float]:
        """Return the state in the order and units of STATE_FIELDS, for the two topics."""
        self.check_started()
        target, force, jaw = self.target, self.measured_force, self.jaw
        now = self.ticks * TICK
        breath, rise = self.tissue.breath(now)
        seen = Seen(
            target,
            self._waypoint(now),
            self.arm.position,
            self.touched,
            self.tissue.rest - self.patient.goal[2] + breath,
            rise,
            self._felt.stiffness,
        )
        values = operation_values(
            self.rules,
            (self.scene.done, self.scene.grasped),
            self.ticks,
            seen,
            (force, self.force_rate, self._contact()),
            (jaw.opening, self._told),
        )
        return [*self._names, *values, *self.physiology.values()]

    def _contact(self) -> bool:
        """Return whether contact is felt."""
        felt = self.smooth_force if self._sensor.noisy else self.measured_force
        return felt >= self._sensor.felt

    def state(self) -> NDArray[np.float32]:
        """Return the state as a policy sees it, shape (STATE_SIZE,)."""
        return scale(self.values())

    def close(self) -> None:
        """Give back the physics client, and refuse whatever is asked from now on."""
        self._closed, self._patient = True, None
        self.arm.close()

    def _cost(self) -> float:
        task, scene, jaw, (x, y, z) = self.task, self.scene, self.jaw, self.target
        time = (self.substeps + self._latency) * SUBSTEP + self.patient.servo_lag
        breath, grasped = self.tissue.breath(time)[0], 1.0 if scene.grasped else 0.0
        cost: float = task.remaining(
            Prospect(x, y, z, breath, time, jaw.opening, self._told, grasped, scene.done)
        )
        return cost
