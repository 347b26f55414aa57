# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""What is closed refuses, PyBullet clients are never mixed up, and PyBullet does not greet."""

import gc
import os
import subprocess
import sys

from fdrl_ros.errors import StateError
from fdrl_ros.surgery.arm.pybullet_client import without_greeting
from fdrl_ros.surgery.arm.simulated_arm import DynamicArm
from fdrl_ros.surgery.gym.actions import ACTIONS, SUBSTEPS
from fdrl_ros.surgery.gym.operation import Operation
from fdrl_ros.surgery.gym.surgery_env import SurgeryEnv
from fdrl_ros.surgery.gym.vector_env import VectorSurgeryEnv
from fdrl_ros.surgery.gym.vector_operation import VectorOperation
from fdrl_ros.surgery.patient.cohort import Cohort, public_cohort
from fdrl_ros.surgery.render.picture import picture
from fdrl_ros.surgery.settings import WorldSettings
from fdrl_ros.surgery.tasks.expert import vector_expert_costs
import numpy as np
import pybullet
import pytest

PATIENT = public_cohort(0).patient(0)
MODES = pytest.mark.parametrize('mode', ['dynamic', 'kinematic'])
STILL = (0.0, 0.0, 0.0)


def refuses(*calls, what='env'):
    """Hold every one of the calls against the one error that a closed thing answers with."""
    for call in calls:
        with pytest.raises(StateError, match=f'the {what} is closed'):
            call()


def env_of(mode, **given):
    env = SurgeryEnv(settings=WorldSettings(mode=mode), **given)
    env.reset(options={'patient': PATIENT})
    return env


@MODES
def test_a_closed_env_refuses_everything_and_touches_no_other(mode):
    unused = SurgeryEnv(settings=WorldSettings(mode=mode))
    unused.close()
    refuses(unused.reset, unused.render, lambda: unused.step(1), lambda: unused.patient)
    closed = env_of(mode, render_mode='rgb_array')
    closed.step(1)
    closed.render()
    closed.close(), closed.close()
    other, alone = env_of(mode, render_mode='rgb_array'), env_of(mode)
    refuses(
        lambda: [closed.step(1) for _ in range(20)],
        lambda: closed.step('no action'),
        lambda: closed.reset(seed=1, options={'patient': PATIENT}),
        closed.render,
        lambda: closed.patient,
    )
    for action in (1, 1, 4, 4, 4, 12):
        assert np.array_equal(other.step(action)[0], alone.step(action)[0])
    assert other.render() is not None
    other.close(), alone.close()


@MODES
def test_a_closed_operation_refuses_everything(mode):
    operation = Operation(WorldSettings(mode=mode))
    operation.reset(PATIENT)
    operation.close(), operation.close()
    refuses(
        lambda: operation.reset(PATIENT),
        lambda: operation.time,
        lambda: operation.waypoint,
        lambda: operation.set_target(PATIENT.goal),
        lambda: operation.set_joint_target([0.0, 0.0, 0.1, 0.0, 0.0, 0.0], 2),
        operation.halt,
        lambda: operation.act(ACTIONS[1]),
        lambda: operation.advance(SUBSTEPS),
        operation.tick,
        operation.state,
        lambda: picture(operation, 16, 16),
        what='operation',
    )


def test_every_call_of_a_closed_arm_is_refused_before_pybullet_hears_of_it():
    held = [0.1, 0.1, 0.1, 0.2, 0.2, 0.2]
    for bent in (False, True):
        arm = DynamicArm()
        arm.place(PATIENT.start, 0.02)
        if bent:
            arm.step_joints(held, STILL)
        client = arm.client
        arm.close(), arm.close()
        other = DynamicArm()
        other.place(PATIENT.start, 0.02)
        assert other.client == client
        before = other.joints().tolist()
        refuses(
            lambda arm=arm: arm.place(PATIENT.goal, 0.02),
            lambda arm=arm: arm.step(PATIENT.goal, STILL),
            lambda arm=arm: arm.step(PATIENT.goal, (0.0, 0.0, 1.0)),
            lambda arm=arm: arm.step_joints(held, STILL),
            arm.joints,
            arm.efforts,
            what='arm',
        )
        assert other.joints().tolist() == before
        other.close()


def test_who_is_closed_and_forgotten_disconnects_nobody():
    forgotten, closed = DynamicArm(), DynamicArm()
    client = forgotten.client
    del forgotten
    gc.collect()
    assert not pybullet.isConnected(client)
    closed.close()
    others = [DynamicArm() for _ in range(3)]
    closed.close()
    del closed
    gc.collect()
    for each in others:
        assert pybullet.isConnected(each.client)
        each.place(PATIENT.start, 0.02)
        each.close()


def test_closed_batches_and_vector_envs_refuse_everything():
    batch = VectorOperation([PATIENT, PATIENT])
    batch.reset()
    stay = np.full(2, 12)
    batch.close(), batch.close()
    refuses(
        batch.reset,
        lambda: batch.reset([PATIENT]),
        lambda: batch.replace(0, PATIENT),
        lambda: batch.select([0]),
        lambda: batch.step(stay),
        batch.motion,
        batch.values,
        batch.states,
        batch.info,
        lambda: vector_expert_costs(batch),
        what='batch',
    )
    env = VectorSurgeryEnv(2, Cohort(0, 3, 0.5, 1))
    env.reset(seed=0)
    env.close(), env.close()
    refuses(env.reset, lambda: env.reset(seed=1), lambda: env.step(stay))


def test_importing_the_arm_prints_nothing():
    words = [sys.executable, '-c', 'import fdrl_ros.surgery.arm.simulated_arm']
    done = subprocess.run(words, capture_output=True, check=True)
    assert done.stdout + done.stderr == b''


def test_other_words_than_the_greeting_are_passed_on(capfd):
    with without_greeting(2):
        os.write(2, b'libGL is missing\npybullet build time: today\nand more')
    assert capfd.readouterr().err == 'libGL is missing\nand more'


def test_an_error_is_neither_hidden_nor_its_words(capfd):
    with pytest.raises(ImportError), without_greeting(2):
        os.write(2, b'why\n')
        raise ImportError
    assert capfd.readouterr().err == 'why\n'
