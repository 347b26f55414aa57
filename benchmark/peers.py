# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""What our simulator is compared with: panda-gym, and PyBullet with nothing around it."""

import importlib
from pathlib import Path
from typing import Any

from fdrl_ros.surgery.arm.pybullet_client import pybullet
from fdrl_ros.surgery.gym.actions import SUBSTEP, SUBSTEPS
import gymnasium
import numpy as np
from turns import has, quiet, Skipped, Work
from workloads import SEED

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
