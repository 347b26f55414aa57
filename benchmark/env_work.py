# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""What of our simulated operating room is measured, as work that is repeated."""

from functools import partial
import importlib
from pathlib import Path
from typing import Any

from benchmarking import has, quiet, Skipped, Work
from fdrl_ros.surgery.arm.kinematics import forward_kinematics, inverse_kinematics, LOWER, UPPER
from fdrl_ros.surgery.arm.pybullet_client import pybullet
from fdrl_ros.surgery.gym.actions import ACTION_COUNT, SUBSTEP, SUBSTEPS, TICK
from fdrl_ros.surgery.gym.episode import run_episode
from fdrl_ros.surgery.gym.surgery_env import SurgeryEnv
from fdrl_ros.surgery.gym.vector_env import VectorSurgeryEnv
from fdrl_ros.surgery.patient.cohort import public_cohort
from fdrl_ros.surgery.patient.patient import Patient
from fdrl_ros.surgery.patient.physiology import Physiology
from fdrl_ros.surgery.settings import WorldSettings
from fdrl_ros.surgery.tasks.expert import expert
import gymnasium
import numpy as np
from numpy.typing import NDArray

PATIENTS = 24
BATCH = 64
SEED = 0
"""Of patients, random actions and poses."""


def patients() -> list[Patient]:
    """Return who is operated on."""
    cohort = public_cohort(SEED)
    return [cohort.patient(index) for index in range(PATIENTS)]


def _ask(patient: Patient, state: NDArray[np.float32]) -> int:
    return expert(state, patient)[0]


def operations(mode: str) -> Work:
    """Return work that operates on patient after patient as the expert did."""
    env = SurgeryEnv(settings=WorldSettings(mode=mode))
    episodes = [(each, run_episode(env, partial(_ask, each), each).actions) for each in patients()]
    turn = 0

    def work() -> int:
        nonlocal turn
        patient, actions = episodes[turn % PATIENTS]
        turn += 1
        env.reset(options={'patient': patient})
        done = 0
        for action in actions:
            done += 1
            _state, _reward, terminated, truncated, _info = env.step(action)
            if terminated or truncated:
                break
        return done

    return work


def batched_operations(procedures: str = 'palpation, retraction') -> Work:
    """Return work that steps 64 patients at once with random actions, replaced as they end."""
    env = VectorSurgeryEnv(BATCH, procedures=procedures)
    env.reset(seed=SEED)
    actions = np.random.default_rng(SEED).integers(ACTION_COUNT, size=(1000, BATCH))
    turn = 0

    def work() -> int:
        nonlocal turn
        env.step(actions[turn % len(actions)])
        turn += 1
        return BATCH

    return work


def resets(given: bool) -> Work:
    """Return work that resets the dynamic env, with a patient or with one that it draws."""
    env = SurgeryEnv(settings=WorldSettings(mode='dynamic'))
    env.reset(seed=SEED)
    known, turn = patients(), 0

    def work() -> int:
        nonlocal turn
        turn += 1
        env.reset(options={'patient': known[turn % PATIENTS]} if given else None)
        return 1

    return work


def inverse() -> Work:
    """Return work that solves our arm's inverse kinematics at poses all over its range."""
    rng = np.random.default_rng(SEED)
    low, high = LOWER.copy(), UPPER.copy()
    low[2], (low[3], high[3]) = 0.05, (-3.0, 3.0)  # not at the remote centre; one turn of roll
    poses = [forward_kinematics(rng.uniform(low, high)) for _ in range(200)]

    def work() -> int:
        for position, rotation in poses:
            inverse_kinematics(position, rotation)
        return len(poses)

    return work


def physiology() -> Work:
    """Return work that lets a patient's body live on, with force and a little damage."""
    who = patients()[0]

    def work() -> int:
        body = Physiology(who)
        for _ in range(1000):
            body.advance(TICK, 0.7, 0.0001)
            body.values()
        return 1000

    return work


HORIZON = 50
"""Steps after which panda-gym's own registration ends an episode."""

MISSING = 'panda-gym is missing: pip install -r requirements/benchmark.txt'


def panda() -> Any:
    """
    Return panda-gym's reaching task without wrappers.

    :raises Skipped: if panda-gym is not installed.
    """
    if not has('panda-gym'):
        raise Skipped(MISSING)
    with quiet():
        importlib.import_module('panda_gym')
        return gymnasium.make('PandaReach-v3').unwrapped


def panda_steps() -> Work:
    """Return work that is one episode of panda-gym."""
    env = panda()
    env.reset(seed=SEED)
    drawn = np.random.default_rng(SEED).uniform(-1.0, 1.0, (HORIZON, *env.action_space.shape))
    actions = list(drawn.astype(np.float32))

    def work() -> int:
        env.reset()
        for action in actions:
            env.step(action)
        return HORIZON

    return work


def panda_resets() -> Work:
    """Return work that resets panda-gym."""
    env = panda()
    env.reset(seed=SEED)

    def work() -> int:
        env.reset()
        return 1

    return work


def kuka() -> tuple[int, int]:
    """Return a client and the body of the KUKA iiwa that PyBullet ships, at our time step."""
    client = pybullet.connect(pybullet.DIRECT)
    folder = Path(importlib.import_module('pybullet_data').getDataPath())
    body = pybullet.loadURDF(
        str(folder / 'kuka_iiwa' / 'model.urdf'), useFixedBase=True, physicsClientId=client
    )
    pybullet.setTimeStep(SUBSTEP, client)
    return client, body


def bullet_steps() -> Work:
    """Return work that is 12 physics steps of a 7-joint arm, and nothing else."""
    client, _body = kuka()

    def work() -> int:
        for _ in range(SUBSTEPS):
            pybullet.stepSimulation(client)
        return 1

    return work


def bullet_inverse() -> Work:
    """Return work that solves inverse kinematics with PyBullet at poses the KUKA can take."""
    client, body = kuka()
    rng, poses = np.random.default_rng(SEED), []
    for _ in range(200):
        for joint in range(7):
            pybullet.resetJointState(body, joint, rng.uniform(-1.5, 1.5), physicsClientId=client)
        link = pybullet.getLinkState(body, 6, 0, 1, client)
        poses.append((link[4], link[5]))

    def work() -> int:
        for position, orientation in poses:
            pybullet.calculateInverseKinematics(
                body, 6, position, orientation, physicsClientId=client
            )
        return len(poses)

    return work
