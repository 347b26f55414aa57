# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""Whole operations on many patients at once, from begin to end, as flat arrays."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import count

from fdrl_ros.surgery.gym.vector_operation import VectorOperation
from fdrl_ros.surgery.patient.patient import Patient
from fdrl_ros.surgery.settings import WorldSettings
import numpy as np
from numpy.typing import NDArray

Chooser = Callable[[NDArray[np.float32], NDArray[np.int64], int], NDArray[np.int64]]
"""
Who acts: states, shape (m, STATE_SIZE), the numbers of their patients, shape (m,), and the tick
give an action for each, shape (m,).
"""


@dataclass(frozen=True, eq=False)
class Rollouts:
    """
    Operations on n patients with N ticks in all, patient after patient, each in order of time.

    :param states: before each tick, shape (N, STATE_SIZE), float32, as a policy sees them.
    :param actions: shape (N,).
    :param rewards: shape (N,).
    :param forces: greatest normal force within each tick, shape (N,), N.
    :param damages: done to tissue since the start, shape (N,), N s.
    :param critical: C_t, shape (N,), bool.
    :param cases: whose tick it was, shape (N,), from 0, rising.
    :param success: shape (n,), bool.
    :param failure: codes of failures, see :mod:`fdrl_ros.surgery.tasks.outcome`, shape (n,).
    """

    patients: tuple[Patient, ...]
    states: NDArray[np.float32]
    actions: NDArray[np.int64]
    rewards: NDArray[np.float64]
    forces: NDArray[np.float64]
    damages: NDArray[np.float64]
    critical: NDArray[np.bool_]
    cases: NDArray[np.int64]
    success: NDArray[np.bool_]
    failure: NDArray[np.int64]

    @property
    def ticks(self) -> NDArray[np.int64]:
        """Return which tick of its operation each row is, shape (N,), from 0."""
        begins = np.searchsorted(self.cases, np.arange(len(self.patients)))
        return np.arange(len(self.cases)) - begins[self.cases]


def roll_out(
    patients: Sequence[Patient],
    choose: Chooser,
    settings: WorldSettings | None = None,
    *,
    rngs: Sequence[np.random.Generator] = (),
    tick: Callable[[int], None] = lambda left: None,
) -> Rollouts:
    """
    Operate on all patients side by side, with kinematic arms.

    :param settings: of the world; its mode does not count.
    :param rngs: sources of the sensors' noise, where the settings ask for it.
    :param tick: told before each tick how many operations go on; what it raises ends all.
    :raises StateError: on actions that cannot be.
    """
    world = replace(settings or WorldSettings(), mode='kinematic')
    batch = VectorOperation(list(patients), world)
    states = batch.reset(rngs=list(rngs))
    rows = np.arange(len(patients))
    success, failure = np.zeros(len(rows), np.bool_), np.zeros(len(rows), np.int64)
    parts = []
    for number in count():
        tick(len(rows))
        actions = np.asarray(choose(states, rows, number), np.int64)
        following, rewards, terminated, truncated, info = batch.step(actions)
        told = (info[name] for name in ('peak_force', 'damage', 'critical'))
        parts.append((states, actions, rewards, *told, rows))
        over = terminated | truncated
        success[rows[over]], failure[rows[over]] = info['success'][over], info['failure'][over]
        going = np.flatnonzero(~over)
        if len(going) == 0:
            break
        if over.any():
            batch.select(going)
        states, rows = following[going], rows[going]
    batch.close()
    columns = [np.concatenate(part) for part in zip(*parts, strict=True)]
    order = np.argsort(columns[-1], kind='stable')  # within a patient time stays in order
    return Rollouts(
        tuple(patients), *(column[order] for column in columns), success=success, failure=failure
    )
