# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""Whole episodes as arrays, for records, evaluation and the report."""

from collections.abc import Callable
from dataclasses import dataclass

from fdrl_ros.env.actions import ACTION_COUNT
from fdrl_ros.env.expert import expert
from fdrl_ros.env.patient import Patient
from fdrl_ros.env.settings import WorldSettings
from fdrl_ros.env.surgery import SurgeryEnv
import numpy as np
from numpy.typing import NDArray

Choice = Callable[[NDArray[np.float32]], int]
Behaviour = Callable[[NDArray[np.float32], Patient, np.random.Generator], int]


@dataclass(frozen=True, eq=False)
class Episode:
    """
    One operation of T ticks.

    :param patient: who it was.
    :param states: shape (T + 1, STATE_SIZE), float32, as a policy sees them.
    :param actions: shape (T,), int64.
    :param rewards: shape (T,), float32.
    :param forces: greatest normal force within each tick, shape (T,), N.
    :param damages: done to tissue since the start, shape (T,), N s.
    :param pressures: mean arterial pressure, shape (T,), mmHg.
    :param critical: C_t, shape (T,), bool.
    :param success: the force was held.
    :param failure: 'force', 'workspace', 'vitals', 'time' or empty.
    :param terminated: the last state has no future; false when the time ran out.
    """

    patient: Patient
    states: NDArray[np.float32]
    actions: NDArray[np.int64]
    rewards: NDArray[np.float32]
    forces: NDArray[np.float64]
    damages: NDArray[np.float64]
    pressures: NDArray[np.float64]
    critical: NDArray[np.bool_]
    success: bool
    failure: str
    terminated: bool

    @property
    def length(self) -> int:
        """Return T."""
        return len(self.actions)

    @property
    def total_reward(self) -> float:
        """Return the sum of rewards."""
        return float(self.rewards.sum())


def run_episode(env: SurgeryEnv, choose: Choice, patient: Patient) -> Episode:
    """
    Operate on one patient.

    :param env: to operate in; its cohort is not asked.
    :param choose: a policy: state in, action out.
    """
    state, info = env.reset(options={'patient': patient})
    states, actions, rewards = [state], [], []
    forces, damages, pressures, critical = [], [], [], []
    terminated = truncated = False
    while not (terminated or truncated):
        action = int(choose(state))
        state, reward, terminated, truncated, info = env.step(action)
        states.append(state)
        actions.append(action)
        rewards.append(reward)
        forces.append(info['peak_force'])
        damages.append(info['damage'])
        pressures.append(info['mean_arterial_pressure'])
        critical.append(info['critical'])
    return Episode(
        patient=patient,
        states=np.array(states),
        actions=np.array(actions, np.int64),
        rewards=np.array(rewards, np.float32),
        forces=np.array(forces),
        damages=np.array(damages),
        pressures=np.array(pressures),
        critical=np.array(critical, np.bool_),
        success=info['success'],
        failure=info['failure'],
        terminated=terminated,
    )


def mixed_behaviour(expert_share: float, settings: WorldSettings | None = None) -> Behaviour:
    """
    Return a behaviour that asks the expert with a probability and else moves at random.

    :param expert_share: probability in [0, 1].
    """
    world = settings or WorldSettings()

    def behave(state: NDArray[np.float32], patient: Patient, rng: np.random.Generator) -> int:
        if rng.random() < expert_share:
            return expert(state, patient, world)[0]
        return int(rng.integers(ACTION_COUNT))

    return behave
