# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""
The controller of the simulated arm: CRTK's commands in, set-points out at 100 Hz.

It drives the arm of an operation, or the arm in free space. A servo command takes the place of
whatever went on; a move runs to its end unless something takes its place; a velocity counts for
:data:`.velocity.TIMEOUT`. What is refused, a command of motion or of state, raises and changes
nothing here; who passed it on makes the arm hold
(:class:`fdrl_ros.nodes.arm.arm_interface.ArmInterface`).
"""

from collections.abc import Sequence
import math

from fdrl_ros.surgery.arm.free_motion import DrivenArm
from fdrl_ros.surgery.arm.kinematics import (
    inverse_kinematics,
    JAW,
    JAW_LIMITS,
    JOINTS,
    LOWER,
    Point,
    straight_joints,
    UnreachableError,
    UPPER,
    Vector,
)
from fdrl_ros.surgery.arm.motion import follow_joints, JawMove, JointMove, LineMove
from fdrl_ros.surgery.arm.operating_state import CommandError, OperatingState
from fdrl_ros.surgery.arm.rotations import (
    angle_between,
    from_quaternion,
    Quaternion,
    quaternion_of,
)
from fdrl_ros.surgery.arm.velocity import JointVelocity, TIMEOUT, TipVelocity
from fdrl_ros.surgery.gym.actions import SUBSTEP
import numpy as np

STRAIGHT_TOLERANCE = 1e-3
"""Angle within which a pose is one of the straight wrist, rad."""

UNIT_TOLERANCE = 1e-2
"""How far from 1 the length of a quaternion may be."""

FARTHEST = 1.0
"""Greatest coordinate of a pose, m: no such arm reaches farther."""

_SLACK = 1e-9

Move = JointMove | LineMove


def _straight_rows(position: Sequence[float]) -> Sequence[Sequence[float]]:
    """
    Return how a tool with a straight wrist is turned when its tip is at a point, row by row.

    Whether the arm reaches the point is not asked; where no arm does, there is no turn at all. It
    is the matrix of :func:`.kinematics.forward` without roll and wrist, by sines and cosines: a
    set-point needs it a hundred times a second.
    """
    x, y, z = position
    across = math.sqrt(x * x + z * z)
    reach = math.sqrt(across * across + y * y)
    if not (0.0 < across and reach < math.inf):
        return (1.0, 0.0, 0.0), (0.0, 1.0, 0.0), (0.0, 0.0, 1.0)
    sy, cy, sp, cp = x / across, -z / across, -y / reach, across / reach
    return (sp * sy, cy, cp * sy), (cp, 0.0, -sp), (-sp * cy, sy, -cp * cy)


def straight_quaternion(position: Sequence[float]) -> Quaternion:
    """Return the turn of a straight tool with its tip at a point (m) as x, y, z, w."""
    return quaternion_of(_straight_rows(position))


def _ordered(names: Sequence[str], values: Sequence[float], known: Sequence[str]) -> list[float]:
    """Return the values in the order of the joints: named, numbered from "0" on, or unnamed."""
    if len(values) != len(known):
        raise CommandError(f'{len(values)} joints: expected {len(known)} ({", ".join(known)})')
    numbers = [str(index) for index in range(len(known))]
    for accepted in (known, numbers):
        if sorted(names) == sorted(accepted):
            return [values[list(names).index(name)] for name in accepted]
    if names:
        raise CommandError(
            f'joints {list(names)!r}: expected {", ".join(known)}; or "0" to '
            f'"{len(known) - 1}"; or no names'
        )
    return list(values)


def _within(name: str, value: float, low: float, high: float) -> float:
    if not low - _SLACK <= value <= high + _SLACK:  # so that NaN is refused
        raise CommandError(f'{name} = {value!r}: expected {low:g} to {high:g}')
    return min(max(value, low), high)


def joints_command(names: Sequence[str], positions: Sequence[float]) -> Vector:
    """
    Read joint positions.

    :param names: of JOINTS in any order, "0" to "5", or none.
    :param positions: rad and m.
    :returns: in the order of JOINTS, shape (6,).
    :raises CommandError: if they are not six within the limits, by these names.
    """
    values = _ordered(names, positions, JOINTS)
    limits = zip(JOINTS, values, LOWER.tolist(), UPPER.tolist(), strict=True)
    return np.array([_within(*limit) for limit in limits], np.float64)


def _farther(start: Vector, names: Sequence[str], steps: Sequence[float]) -> Vector:
    """Return joints that are so far from others, or refuse what leads beyond a limit."""
    return joints_command((), (start + np.array(_ordered(names, steps, JOINTS))).tolist())


def jaw_command(names: Sequence[str], positions: Sequence[float]) -> float:
    """
    Read an opening of the jaw.

    :param names: "jaw", "0", or none.
    :param positions: one, rad.
    :raises CommandError: if it is not one within the limits.
    """
    return _within(JAW, _ordered(names, positions, (JAW,))[0], *JAW_LIMITS)


def pose_command(position: Sequence[float], quaternion: Sequence[float]) -> tuple[Point, Vector]:
    """
    Read a pose of the tip in the base frame; whether the arm reaches it is not asked here.

    :param position: x, y, z, m.
    :param quaternion: x, y, z, w.
    :returns: position and rotation matrix.
    :raises CommandError: if a coordinate is no number or beyond any arm, or the quaternion is not
        of length 1.
    """
    if len(position) != 3 or not all(abs(number) <= FARTHEST for number in position):
        raise CommandError(
            f'position {tuple(position)!r}: expected three metres within {FARTHEST:g}'
        )
    length = math.hypot(*quaternion)
    if len(quaternion) != 4 or not abs(length - 1.0) <= UNIT_TOLERANCE:
        raise CommandError(
            f'orientation {tuple(quaternion)!r}: expected a quaternion of length 1, not '
            f'{length:.3g}'
        )
    x, y, z = position
    qx, qy, qz, qw = (number / length for number in quaternion)
    return (float(x), float(y), float(z)), from_quaternion((qx, qy, qz, qw))


class ArmControl:
    """
    Drives the arm of one operation after another, and the free arm between them.

    :param driven: whose targets are set; nobody else sets them.
    """

    def __init__(self, driven: DrivenArm) -> None:
        self.operating_state = OperatingState()
        self.drive(driven)

    def drive(self, driven: DrivenArm) -> None:
        """Set the targets of another arm, or of the same after it was placed: nothing moves."""
        self._driven = driven
        self._goal: Vector | Point | None = None
        self._velocity: tuple[TipVelocity | JointVelocity, float] | None = None
        self._move: tuple[Move, float] | None = None
        self._jaw_move: tuple[JawMove, float] | None = None
        self._note_busy()

    # What CRTK asks for.

    def command(self, word: str) -> None:
        """
        Obey a state command; the arm holds unless it is ready afterwards.

        :raises CommandError: if it is refused.
        """
        self.operating_state.command(word)
        if not self.operating_state.is_ready:
            self.hold()

    def fail(self) -> None:
        """Enter FAULT and hold."""
        self.operating_state.fail()
        self.hold()

    def hold(self) -> None:
        """Stay where the set-point is now; always obeyed."""
        self.drive(self._driven)
        self._driven.halt()

    def servo_cp(self, position: Sequence[float], quaternion: Sequence[float]) -> None:
        """
        Go to a pose at once, as fast as the limits allow.

        :param position: of the tip in the base frame, m.
        :param quaternion: x, y, z, w.
        :raises StateError: if the pose is none or out of reach, or the arm is not ready.
        """
        self.operating_state.require_ready('servo_cp')
        point, rotation = pose_command(position, quaternion)
        if angle_between(np.array(_straight_rows(point)), rotation) > STRAIGHT_TOLERANCE:
            roll = float(self._driven.setpoint_joints()[3])
            self._go(inverse_kinematics(point, rotation, roll))
        else:
            straight_joints(*point)  # refuses it if out of reach
            self._go(point)

    def servo_jp(self, names: Sequence[str], positions: Sequence[float]) -> None:
        """
        Take these joints at once, as fast as the limits allow.

        :raises StateError: if they are none or out of limits, or the arm is not ready.
        """
        self.operating_state.require_ready('servo_jp')
        self._go(joints_command(names, positions))

    def servo_jr(self, names: Sequence[str], steps: Sequence[float]) -> None:
        """
        Add to the joints at once: to those that the servo command under way asked for.

        :raises StateError: as :meth:`servo_jp`.
        """
        self.operating_state.require_ready('servo_jr')
        goal = self._goal if isinstance(self._goal, np.ndarray) else self._driven.setpoint_joints()
        self._go(_farther(goal, names, steps))

    def servo_jv(self, names: Sequence[str], speeds: Sequence[float]) -> None:
        """
        Move the joints at these speeds, for :data:`.velocity.TIMEOUT` at most.

        :raises StateError: if they are none, or the arm is not ready.
        """
        self.operating_state.require_ready('servo_jv')
        self._go(velocity=JointVelocity(_ordered(names, speeds, JOINTS)))

    def servo_cv(self, linear: Sequence[float], angular: Sequence[float]) -> None:
        """
        Move the tip and turn the tool at these speeds, for :data:`.velocity.TIMEOUT` at most.

        :param linear: in the base frame, m/s.
        :param angular: in the base frame, rad/s.
        :raises StateError: if they are none, or the arm is not ready.
        """
        self.operating_state.require_ready('servo_cv')
        self._go(velocity=TipVelocity(linear, angular))

    def move_cp(self, position: Sequence[float], quaternion: Sequence[float]) -> None:
        """
        Move to a pose along a straight line, from rest to rest.

        :raises StateError: as :meth:`servo_cp`, and if a place on the way is out of reach.
        """
        self.operating_state.require_ready('move_cp')
        point, rotation = pose_command(position, quaternion)
        self._go(move=LineMove(self._driven.setpoint_joints(), np.array(point), rotation))

    def move_jp(self, names: Sequence[str], positions: Sequence[float]) -> None:
        """
        Move the joints to their goals, arriving together, from rest to rest.

        :raises StateError: as :meth:`servo_jp`.
        """
        self.operating_state.require_ready('move_jp')
        self._go(move=JointMove(self._driven.setpoint_joints(), joints_command(names, positions)))

    def move_jr(self, names: Sequence[str], steps: Sequence[float]) -> None:
        """
        Move the joints on from the set-point, arriving together, from rest to rest.

        :raises StateError: as :meth:`servo_jp`.
        """
        self.operating_state.require_ready('move_jr')
        start = self._driven.setpoint_joints()
        self._go(move=JointMove(start, _farther(start, names, steps)))

    def servo_jaw(self, names: Sequence[str], positions: Sequence[float]) -> None:
        """
        Open the jaw to an angle at once; the jaw itself limits its speed.

        :raises StateError: if the angle is none or out of limits, or the arm is not ready.
        """
        self.operating_state.require_ready('jaw/servo_jp')
        angle = jaw_command(names, positions)
        self._jaw_move = None
        self._driven.aim_jaw(angle)
        self._note_busy()

    def move_jaw(self, names: Sequence[str], positions: Sequence[float]) -> None:
        """
        Open the jaw to an angle, from rest to rest.

        :raises StateError: as :meth:`servo_jaw`.
        """
        self.operating_state.require_ready('jaw/move_jp')
        angle = jaw_command(names, positions)
        self._jaw_move = JawMove(self._driven.jaw.target, angle), 0.0
        self._note_busy()

    # Time.

    def step(self, substeps: int) -> None:
        """
        Set the targets for the sub-steps that the operation advances by next.

        :raises UnreachableError: if a move or a velocity leads out of reach; the arm holds.
        """
        period = substeps * SUBSTEP
        if self._move is not None:
            move, time = self._move
            time += period
            try:
                joints = move.joints(time)
            except UnreachableError:  # between two places that were looked at
                self.hold()
                raise
            self._driven.set_joint_target(joints.tolist(), substeps)
            self._move = (move, time) if time < move.duration else None
        elif self._velocity is not None:
            velocity, left = self._velocity
            try:
                joints = velocity.joints(self._driven.setpoint_joints(), period)
            except UnreachableError:
                self.hold()
                raise
            self._driven.set_joint_target(joints.tolist(), substeps)
            left -= period
            self._velocity = (velocity, left) if left > _SLACK else None
        elif self._goal is not None:
            self._follow(self._goal, substeps)
        if self._jaw_move is not None:
            opening, time = self._jaw_move
            time += period
            self._driven.aim_jaw(opening.angle(time))
            self._jaw_move = (opening, time) if time < opening.duration else None
        self._note_busy()

    # Within.

    def _go(
        self,
        goal: Vector | Point | None = None,
        move: Move | None = None,
        velocity: TipVelocity | JointVelocity | None = None,
    ) -> None:
        """Take a servo goal, a move or a velocity in place of whatever went on."""
        self._goal, self._move = goal, None if move is None else (move, 0.0)
        self._velocity = None if velocity is None else (velocity, TIMEOUT)
        self._note_busy()

    def _follow(self, goal: Vector | Point, substeps: int) -> None:
        """Go on towards a servo goal; a straight wrist is driven by its tip alone."""
        now = self._driven.setpoint_joints()
        if isinstance(goal, tuple):
            if not now[3:].any():
                self._driven.set_target(goal)
                self._goal = None
                return
            goal = np.array([*straight_joints(*goal), 0.0, 0.0, 0.0])
        after = follow_joints(now, goal, substeps * SUBSTEP)
        self._driven.set_joint_target(after.tolist(), substeps)

    def _note_busy(self) -> None:
        self.operating_state.is_busy = self._move is not None or self._jaw_move is not None
