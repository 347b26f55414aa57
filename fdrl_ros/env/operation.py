# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""
One patient on one arm: set-points in, state and outcome out.

The ROS node drives it by set-points at 100 Hz, the Gymnasium env by discrete actions; physics,
states, rewards and endings are the same. Simulated, for research: not a medical device.
"""

from dataclasses import dataclass
import math

from fdrl_ros.env.actions import MAXIMUM_SPEED, SUBSTEP
from fdrl_ros.env.arm import straight_joints
from fdrl_ros.env.constants import constant
from fdrl_ros.env.expert import remaining_distance
from fdrl_ros.env.patient import Patient
from fdrl_ros.env.physiology import Physiology
from fdrl_ros.env.placement import Arm, KinematicArm
from fdrl_ros.env.settings import WorldSettings
from fdrl_ros.env.state import scale
from fdrl_ros.env.tissue import Tissue
from fdrl_ros.errors import StateError
import numpy as np
from numpy.typing import NDArray

Point = tuple[float, float, float]

TOUCH_FORCE = constant('tissue.touch_force')
HARD_STOP = constant('tissue.hard_stop')
LATERAL = constant('workspace.lateral')
ABOVE = constant('workspace.above')
LATERAL_TOLERANCE = constant('workspace.lateral_tolerance')
FAILURES = ('force', 'workspace', 'vitals', 'time')

_NOTHING: Point = (0.0, 0.0, 0.0)
_STRIDE = MAXIMUM_SPEED * SUBSTEP


def _arm(mode: str) -> Arm:
    if mode == 'kinematic':
        return KinematicArm()
    from fdrl_ros.env.simulation import DynamicArm  # loads PyBullet, which not all users need

    return DynamicArm()


@dataclass(frozen=True)
class Outcome:
    """
    What one tick brought.

    :param reward: with the hospital's emphasis.
    :param peak_force: greatest normal force within the tick, N.
    :param damage: done to tissue since the start, N s.
    :param critical: C_t of FDRL Eq. 10: force above the hard stop, a breach, or hypotension.
    :param success: the force was held long enough.
    :param failure: one of FAILURES, or empty.
    :param terminated: by success or by a failure other than time.
    :param truncated: the time is up.
    """

    reward: float
    peak_force: float
    damage: float
    critical: bool
    success: bool
    failure: str
    terminated: bool
    truncated: bool


class Operation:
    """
    One operation at a time; :meth:`reset` starts the next.

    :param settings: of the world.
    :param rng: source of the force sensor's noise; needed only when the settings ask for noise.
    """

    def __init__(
        self, settings: WorldSettings | None = None, rng: np.random.Generator | None = None
    ) -> None:
        self.settings = settings or WorldSettings()
        self.rng = rng
        self.arm: Arm = _arm(self.settings.mode)
        self._patient: Patient | None = None

    @property
    def patient(self) -> Patient:
        """
        Return who is on the table.

        :raises StateError: before the first reset.
        """
        if self._patient is None:
            raise StateError('no patient yet: reset the operation first')
        return self._patient

    def reset(self, patient: Patient) -> None:
        """Put a patient on the table and the tip at the patient's start."""
        self.arm.place(patient.start, patient.servo_lag)
        self._patient = patient
        self.tissue = Tissue(patient)
        self.physiology = Physiology(patient)
        self.target: Point = patient.start
        self.setpoint: Point = patient.start
        self.substeps = 0
        self.ticks = 0
        self.held = 0.0
        """Time within the band without a break, s."""
        self.force: Point = _NOTHING
        """Force on the tip in the base frame, N."""
        self.measured_force = 0.0
        """What the sensor says of the normal force, N."""
        self.damage = 0.0
        self.peak_force = 0.0
        self.touched: float | None = None
        """Height at which contact was first felt, m."""
        self._tick_substeps = 0
        self._tick_damage = 0.0
        self._tick_force = 0.0
        self.force_rate = 0.0
        """Change of the measured force over the last tick, N/s."""
        self._remaining = self._distance()
        self.done = False

    @property
    def time(self) -> float:
        """Return the time since the start, s."""
        return self.substeps * SUBSTEP

    def set_target(self, position: tuple[float, float, float]) -> None:
        """
        Ask the tip to go somewhere, as CRTK's servo_cp does; the newest call counts.

        The set-point follows at no more than 50 mm/s.

        :param position: in the base frame, m.
        :raises UnreachableError: if the arm cannot go there; the old target stays.
        """
        self.patient  # noqa: B018 (refuses before the first reset)
        x, y, z = position
        straight_joints(x, y, z)
        self.target = (float(x), float(y), float(z))

    def advance(self, substeps: int) -> None:
        """Let the arm, the tissue and the patient's breathing move on by sub-steps of 1/240 s."""
        arm, tissue, target = self.arm, self.tissue, self.target
        setpoint, force, warn = self.setpoint, self.force, self.patient.procedure.warn_force
        peak, damage = self.peak_force, 0.0
        for step in range(self.substeps + 1, self.substeps + substeps + 1):
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
            height, rise = tissue.surface(step * SUBSTEP)
            depth = height - arm.position[2]
            force = _NOTHING
            if depth > 0.0:
                speed_x, speed_y, speed_z = arm.velocity
                normal = tissue.normal_force(depth, rise - speed_z)
                if normal > 0.0:
                    force = (*tissue.friction_force(normal, speed_x, speed_y), normal)
                    if normal > peak:
                        peak = normal
                    if normal > warn:
                        damage += (normal - warn) * SUBSTEP
                    if self.touched is None and normal >= TOUCH_FORCE:
                        self.touched = arm.position[2]
        self.setpoint, self.force, self.peak_force = setpoint, force, peak
        self.substeps += substeps
        self._tick_substeps += substeps
        self._tick_damage += damage
        self.damage += damage
        self.measured_force = force[2]
        if self.settings.force_noise > 0.0:
            if self.rng is None:
                raise StateError('force noise needs a random generator')
            noise = self.settings.force_noise * float(self.rng.standard_normal())
            self.measured_force = max(0.0, force[2] + noise)

    def tick(self) -> Outcome:
        """
        Judge what happened since the last tick, once every 12 sub-steps.

        :raises StateError: if nothing happened since.
        """
        if self._tick_substeps == 0:
            raise StateError('no time has passed since the last tick: advance first')
        patient, settings, procedure = self.patient, self.settings, self.patient.procedure
        period = self._tick_substeps * SUBSTEP
        self.ticks += 1
        normal, peak = self.force[2], self.peak_force
        self.physiology.advance(period, normal, self._tick_damage)
        x, y, z = self._tip_error()
        breach = abs(x) > LATERAL or abs(y) > LATERAL or z > ABOVE or -z > patient.thickness
        held = (
            abs(normal - procedure.target_force) <= procedure.tolerance
            and abs(x) <= LATERAL_TOLERANCE
            and abs(y) <= LATERAL_TOLERANCE
        )
        before = self.hold_fraction
        self.held = self.held + period if held else 0.0
        critical = peak > HARD_STOP or breach or self.physiology.hypotensive
        success, failure = False, ''
        if peak > procedure.force_limit:
            failure = 'force'
        elif breach:
            failure = 'workspace'
        elif self.physiology.hypotensive:
            failure = 'vitals'
        elif self.hold_fraction >= 1.0:
            success = True
        elif self.ticks >= settings.horizon:
            failure = 'time'
        truncated = failure == 'time'
        terminated = success or (failure != '' and not truncated)
        remaining = self._distance()
        excess = max(0.0, normal - procedure.target_force - procedure.tolerance)
        reward = (
            settings.progress_reward * (self._remaining - remaining)
            + settings.hold_reward * (self.hold_fraction - before)
            - settings.force_penalty * patient.force_emphasis * excess / procedure.target_force
            - settings.time_penalty * patient.time_emphasis
        )
        if success:
            reward += settings.success_reward
        elif terminated:
            reward -= settings.failure_penalty * patient.force_emphasis
        self._remaining = remaining
        self.force_rate = (self.measured_force - self._tick_force) / period
        self._tick_force = self.measured_force
        self._tick_substeps = 0
        self._tick_damage = 0.0
        self.peak_force = 0.0
        self.done = terminated or truncated
        return Outcome(
            reward, peak, self.damage, critical, success, failure, terminated, truncated
        )

    @property
    def hold_fraction(self) -> float:
        """Return which part of the holding time is done."""
        fraction = self.held / self.patient.procedure.hold_time
        return 1.0 if fraction > 1.0 - 1e-9 else fraction

    def values(self) -> list[float]:
        """Return the state in the order and units of STATE_FIELDS, for the two topics."""
        patient, procedure = self.patient, self.patient.procedure
        goal, setpoint, force = patient.goal, self.target, self.measured_force
        return [
            1.0 if procedure.name == 'palpation' else 0.0,
            1.0 if procedure.name == 'retraction' else 0.0,
            setpoint[0] - goal[0],
            setpoint[1] - goal[1],
            setpoint[2] - goal[2],
            self.arm.position[2] - setpoint[2],
            0.0 if self.touched is None else max(0.0, self.touched - setpoint[2]),
            1.0 if force >= TOUCH_FORCE else 0.0,
            force,
            (procedure.target_force - force) / procedure.target_force,
            procedure.force_limit,
            self.force_rate,
            1.0 - self.ticks / self.settings.horizon,
            self.hold_fraction,
            *self.physiology.values(),
        ]

    def state(self) -> NDArray[np.float32]:
        """Return the state as a policy sees it, shape (STATE_SIZE,)."""
        return scale(self.values())

    def close(self) -> None:
        """Give back the physics client."""
        self.arm.close()

    def _tip_error(self) -> Point:
        tip, goal = self.arm.position, self.patient.goal
        return tip[0] - goal[0], tip[1] - goal[1], tip[2] - goal[2]

    def _distance(self) -> float:
        goal, target = self.patient.goal, self.target
        error = (target[0] - goal[0], target[1] - goal[1], target[2] - goal[2])
        return remaining_distance(self.tissue, self.patient, error, self.time)
