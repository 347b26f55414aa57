# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""
What a robot's log tells of one operation, and the rewards that can be derived from it.

A log of a live arm has no reward and no patient behind the pseudonym: stiffness and surface were
never measured. Rewards are NaN until they are derived; a trainer refuses NaN.
"""

from dataclasses import dataclass, replace

from fdrl_ros.env.procedures import procedure_named
from fdrl_ros.env.settings import WorldSettings
from fdrl_ros.env.state import INDEX, unscale
from fdrl_ros.errors import RecordsError
import numpy as np


@dataclass(frozen=True, eq=False)
class LoggedOperation:
    """
    The transitions of one operation, in order; ticks at which the robot held are left out.

    :param patient: pseudonym.
    :param procedure: its name.
    :param states: in which an action was chosen, shape (n, STATE_SIZE), float32.
    :param actions: shape (n,), int64.
    :param rewards: shape (n,), float32; NaN where unknown.
    :param next_states: one tick later, shape (n, STATE_SIZE), float32.
    :param terminals: shape (n,), bool; true where no value follows.
    :param held: ticks at which the robot held.
    :param success: all was done.
    :param failure: why not, or empty; both without where the log broke off.
    :param peak_force: greatest force of the operation, N; NaN where the log broke off.
    :param damage: done to tissue by the end, N s; NaN where the log broke off.
    """

    patient: str
    procedure: str
    states: np.ndarray
    actions: np.ndarray
    rewards: np.ndarray
    next_states: np.ndarray
    terminals: np.ndarray
    held: int
    success: bool
    failure: str
    peak_force: float
    damage: float


def with_rewards(
    logged: LoggedOperation,
    world: WorldSettings,
    *,
    force_emphasis: float = 1.0,
    time_emphasis: float = 1.0,
) -> LoggedOperation:
    """
    Derive rewards from what was measured.

    It is the reward of :meth:`fdrl_ros.env.operation.Operation.tick` without its term of progress,
    which needs the true surface; that term adds up to the distance at the start less the one at
    the end, whatever was done in between. The force is the measured one, with its noise.

    :param world: whose weights to take.
    :param force_emphasis: weight of forces in the hospital's reward.
    :param time_emphasis: weight of time in the hospital's reward.
    :raises RecordsError: on an unknown procedure.
    """
    try:
        procedure = procedure_named(logged.procedure)
    except Exception as error:
        raise RecordsError(f'{logged.patient}: {error}') from error
    if not len(logged.actions):
        return logged
    before, after = unscale(logged.states), unscale(logged.next_states)
    free, against = procedure.target_force + procedure.tolerance, procedure.target_force
    if against == 0.0:
        free, against = procedure.warn_force, procedure.force_limit
    done, force = INDEX['done'], INDEX['force']
    excess = np.maximum(0.0, after[:, force] - free) / against
    rewards = (
        world.hold_reward * (after[:, done] - before[:, done])
        - world.force_penalty * force_emphasis * excess
        - world.time_penalty * time_emphasis
    )
    end = world.success_reward if logged.success else -world.failure_penalty * force_emphasis
    rewards = np.where(logged.terminals, rewards + end, rewards)
    return replace(logged, rewards=rewards.astype(np.float32))
