# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""The jaw under the control loop: it moves within a tick, stops on hold, and passes a needle."""

from fdrl_ros.selector import Candidate, Limiter, Observation, Selector
from fdrl_ros.selector.control.loop import ControlLoop, PERIOD
from fdrl_ros.surgery.arm.controller import ArmControl, straight_rotation
from fdrl_ros.surgery.arm.placement import JAW_OPEN
from fdrl_ros.surgery.arm.rotations import to_quaternion
from fdrl_ros.surgery.gym.actions import CLOSE_JAW, OPEN_JAW, STAY, SUBSTEPS, TICK
from fdrl_ros.surgery.gym.operation import Operation
from fdrl_ros.surgery.gym.state import OPERATION_FIELDS, OPERATION_SIZE, PATIENT_FIELDS
from fdrl_ros.surgery.gym.surgery_env import SurgeryEnv
from fdrl_ros.surgery.patient.cohort import public_cohort
from fdrl_ros.surgery.patient.patient import Patient
from fdrl_ros.surgery.settings import WorldSettings
from fdrl_ros.surgery.tasks.expert import expert
import numpy as np
import pytest

WORLD = WorldSettings(mode='kinematic')


class Room:
    """An operation that hears CRTK's commands alone, under a control loop."""

    def __init__(self, patient: Patient, policy) -> None:
        self.operation = Operation(WORLD)
        self.operation.reset(patient)
        self.arm = ArmControl(self.operation)
        self.arm.engage()
        selector = Selector()
        selector.set_candidates([Candidate('global', policy)])
        self.loop = ControlLoop(selector, Limiter())
        self.cycle = 0
        self.orders: list[float | None] = []
        self.actions: list[int] = []

    def run_period(self) -> None:
        """Say the state, obey the set-points, let 10 ms pass."""
        now, values = 100.0 + self.cycle * PERIOD, self.operation.values()
        self.loop.receive_tip(self.operation.setpoint, now)
        self.loop.receive_jaw(self.operation.jaw.target)
        self.loop.receive_patient(self.half(PATIENT_FIELDS, values[OPERATION_SIZE:], now), now)
        cycle = self.loop.receive_operation(
            self.half(OPERATION_FIELDS, values[:OPERATION_SIZE], now), now
        )
        if cycle.selection is not None:
            self.actions.append(cycle.selection.action)
        if cycle.setpoint is not None:
            position = cycle.setpoint.position.tolist()
            self.arm.servo_cp(position, to_quaternion(straight_rotation(position)))
            self.orders.append(cycle.setpoint.jaw)
            if cycle.setpoint.jaw is not None:
                self.arm.servo_jaw(['jaw'], [cycle.setpoint.jaw])
        phase = self.cycle % 5
        substeps = (phase + 1) * SUBSTEPS // 5 - phase * SUBSTEPS // 5
        self.arm.step(substeps)
        self.operation.advance(substeps)
        self.cycle += 1

    def half(self, fields, values, now: float) -> Observation:
        patient = self.operation.patient
        return Observation(
            patient=patient.name,
            names=tuple(each.name for each in fields),
            values=np.array(values),
            scales=np.array([each.scale for each in fields]),
            received=now,
            procedure=patient.procedure.name,
        )


def patient_of(procedure: str, index: int = 0) -> Patient:
    return public_cohort(3, procedures=(procedure,)).patient(index)


@pytest.mark.parametrize('index', [0, 2])
@pytest.mark.parametrize('procedure', ['needle_pass', 'peg_transfer', 'incision', 'follow'])
def test_expert_succeeds_through_the_limiter_as_in_the_gymnasium_env(procedure, index):
    patient = patient_of(procedure, index)
    env = SurgeryEnv(public_cohort(3), WORLD)
    state, _ = env.reset(options={'patient': patient})
    wanted, ended = [], False
    while not ended:
        wanted.append(expert(state, patient, WORLD)[0])
        state, _, terminated, truncated, info = env.step(wanted[-1])
        ended = terminated or truncated
    assert info['success']

    room = Room(patient, lambda state: expert(state, patient, WORLD)[0])
    done = None
    while done is None or not (done.terminated or done.truncated):
        room.run_period()
        if room.cycle % 5 == 0:
            done = room.operation.tick()
    assert done.success and done.peak_force <= patient.procedure.force_limit
    # The set-point glides where the env's leaps: a tick more or less at the end is all.
    assert abs(len(room.actions) - len(wanted)) <= 0.15 * len(wanted) + 2


def test_jaw_glides_open_within_a_tick_and_no_longer():
    chosen = iter([STAY, OPEN_JAW, STAY, CLOSE_JAW, *[STAY] * 20])
    room = Room(patient_of('needle_pass'), lambda state: next(chosen))
    for _ in range(30):
        room.run_period()
    orders = room.orders
    first = next(index for index, each in enumerate(orders) if each is not None)
    opening = [each for each in orders[first : first + 5] if each is not None]
    np.testing.assert_allclose(opening, np.arange(1, 6) * JAW_OPEN / 5, atol=1e-9)
    closing = [each for each in orders[first + 5 :] if each is not None]
    np.testing.assert_allclose(closing, np.arange(4, -1, -1) * JAW_OPEN / 5, atol=1e-9)
    assert len(opening) == len(closing) == round(TICK / PERIOD)


def test_jaw_stays_where_the_procedure_does_not_use_it():
    room = Room(patient_of('palpation'), lambda state: OPEN_JAW)
    for _ in range(20):
        room.run_period()
    assert room.actions.count(OPEN_JAW) >= 3 and set(room.orders) == {None}
    assert room.operation.jaw.target == 0.0


def test_hold_stops_the_jaw_on_its_way():
    limiter = Limiter()
    limiter.reset(np.array([0.0, 0.0, -0.12]), 10.0, 0.0)
    room = Room(patient_of('needle_pass'), lambda state: OPEN_JAW)
    room.run_period()
    selection = room.loop.selector.select(None, None, 10.0)
    assert selection.holds
    limiter.turn_jaw(JAW_OPEN, 10.0)
    half = limiter.setpoint(10.0 + TICK / 2)
    assert half is not None and half.jaw == pytest.approx(JAW_OPEN / 2)
    limiter.accept(selection, 10.0 + TICK / 2)
    after = limiter.setpoint(10.0 + TICK)
    assert after is not None and after.jaw is None
    limiter.turn_jaw(0.0, 11.0)
    back = limiter.setpoint(11.0)
    assert back is not None and back.jaw == pytest.approx(JAW_OPEN / 2), 'from where it stopped'
