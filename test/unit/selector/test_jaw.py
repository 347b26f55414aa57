# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""The jaw under the control loop: it moves within a tick, stops on hold, and passes a needle."""

import math

from fdrl_ros.selector import Limiter, Selector
from fdrl_ros.selector.control.loop import PERIOD
from fdrl_ros.surgery.arm.controller import ArmControl, straight_quaternion
from fdrl_ros.surgery.arm.kinematic_arm import JAW_OPEN
from fdrl_ros.surgery.gym.actions import CLOSE_JAW, OPEN_JAW, STAY, TICK
from fdrl_ros.surgery.gym.surgery_env import SurgeryEnv
from fdrl_ros.surgery.patient.cohort import public_cohort
from fdrl_ros.surgery.patient.patient import Patient
from fdrl_ros.surgery.tasks.expert import expert
import numpy as np
import pytest
from support.robot_loop import KINEMATIC, Robot


class Arm(Robot):
    """A robot whose arm hears CRTK's commands alone."""

    def __init__(self, policy, patient: Patient) -> None:
        super().__init__(policy, patient)
        self.arm = ArmControl(self.operation)
        self.orders: list[float | None] = []

    def obey(self, setpoint) -> None:
        position = setpoint.position.tolist()
        self.arm.servo_cp(position, straight_quaternion(position))
        self.orders.append(setpoint.jaw)
        if setpoint.jaw is not None:
            self.arm.servo_jaw(['jaw'], [setpoint.jaw])

    def advance(self, substeps: int) -> None:
        self.arm.step(substeps)
        super().advance(substeps)


def patient_of(procedure: str, index: int = 0) -> Patient:
    return public_cohort(3, procedures=(procedure,)).patient(index)


@pytest.mark.parametrize('index', [0, 2])
@pytest.mark.parametrize('procedure', ['needle_pass', 'peg_transfer', 'incision', 'follow'])
def test_expert_succeeds_through_the_limiter_as_in_the_gymnasium_env(procedure, index):
    patient = patient_of(procedure, index)
    env = SurgeryEnv(public_cohort(3), KINEMATIC)
    state, _ = env.reset(options={'patient': patient})
    wanted, ended = [], False
    while not ended:
        wanted.append(expert(state, patient, KINEMATIC)[0])
        state, _, terminated, truncated, info = env.step(wanted[-1])
        ended = terminated or truncated
    assert info['success']

    arm = Arm(lambda state: expert(state, patient, KINEMATIC)[0], patient)
    while arm.outcome is None or not (arm.outcome.terminated or arm.outcome.truncated):
        arm.publish()
    assert arm.outcome.success and arm.outcome.peak_force <= patient.procedure.force_limit
    acted = len(arm.selections)
    # The set-point glides where the env's leaps: a tick more or less at the end is all.
    assert abs(acted - len(wanted)) <= 0.15 * len(wanted) + 2


@pytest.mark.parametrize('broken', [None, math.nan, math.inf])
def test_jaw_glides_open_within_a_tick_and_no_longer(broken):
    chosen = iter([STAY, OPEN_JAW, STAY, CLOSE_JAW, *[STAY] * 20])
    arm = Arm(lambda state: next(chosen), patient_of('needle_pass'))
    if broken is not None:  # a sensor that fails once it has told where the jaw is
        take = arm.loop.receive_jaw
        arm.loop.receive_jaw = lambda opening: [take(each) for each in (opening, broken)]
    arm.run(30)
    orders = arm.orders
    first = next(index for index, each in enumerate(orders) if each is not None)
    opening = [each for each in orders[first : first + 5] if each is not None]
    np.testing.assert_allclose(opening, np.arange(1, 6) * JAW_OPEN / 5, atol=1e-9)
    closing = [each for each in orders[first + 5 :] if each is not None]
    np.testing.assert_allclose(closing, np.arange(4, -1, -1) * JAW_OPEN / 5, atol=1e-9)
    assert len(opening) == len(closing) == round(TICK / PERIOD)


def test_jaw_stays_where_the_procedure_does_not_use_it():
    arm = Arm(lambda state: OPEN_JAW, patient_of('palpation'))
    arm.run(20)
    assert [each.action for each in arm.selections].count(OPEN_JAW) >= 3
    assert set(arm.orders) == {None} and arm.operation.jaw.target == 0.0


def test_hold_stops_the_jaw_on_its_way():
    limiter = Limiter()
    limiter.reset(np.array([0.0, 0.0, -0.12]), 10.0, 0.0)
    selection = Selector().select(None, None, 10.0)
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
