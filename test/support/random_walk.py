# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""Seeded random walks through surgical envs, to compare what envs say bit by bit."""

from collections.abc import Iterator
import hashlib

from fdrl_ros.surgery.gym.actions import ACTION_COUNT
from fdrl_ros.surgery.gym.surgery_env import SurgeryEnv
from fdrl_ros.surgery.settings import WorldSettings
import numpy as np


def walk(env: SurgeryEnv, seed: int, steps: int = 30) -> Iterator[bytes]:
    """Yield everything that an env says at its reset and at each step."""
    state, _info = env.reset(seed=seed)
    yield state.tobytes()
    rng = np.random.default_rng(seed)
    for _ in range(steps):
        state, reward, terminated, truncated, info = env.step(int(rng.integers(ACTION_COUNT)))
        numbers = [*state, reward, info['force'], info['mean_arterial_pressure']]
        if terminated or truncated:
            numbers += env.reset()[0].tolist()
        yield np.array(numbers).tobytes()


def digest(mode: str) -> str:
    """Return a hash of walks through all procedures."""
    env = SurgeryEnv(settings=WorldSettings(mode=mode), procedures='all', heterogeneity=1.0)
    said = b''.join(part for seed in range(7) for part in walk(env, seed, 12))
    env.close()
    return hashlib.sha256(said).hexdigest()
