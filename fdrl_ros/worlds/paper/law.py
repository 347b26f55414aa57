# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""
The law of one hospital of the paper's world: patients, dynamics, rewards, and its exact solution.

Every number of :mod:`fdrl_ros.worlds.paper.env` is here, as tables of chances and weights. The
paper (FDRL, section IV-A) gives none of them: all are our choice.
"""

from dataclasses import dataclass
from functools import cached_property, lru_cache
import itertools
import math

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]

FIELDS = ('misplacement', 'force', 'damage', 'shock', 'remaining')
ACTIONS = ('proceed', 'correct', 'stabilise')
LEVELS = 4
SIZE = len(FIELDS)
ACTION_COUNT = len(ACTIONS)
STATE_COUNT = LEVELS**SIZE
DISCOUNT = 0.9
"""Gamma of FDRL Eq. 1."""

PARENTS = (None, 0, 1, 2, 0)
"""The field, beside itself, whose level a field's next level depends on."""

GRID: NDArray[np.int64] = np.array(list(itertools.product(range(LEVELS), repeat=SIZE)))
"""Levels of all states, shape (1024, 5), the last field fastest; read-only."""
GRID.setflags(write=False)

# Chances of a patient's level on admission at H = 0, field by field. Nobody arrives collapsed
# (shock 3) or done (remaining 0).
_START: Array = np.array(
    [
        (0.25, 0.25, 0.25, 0.25),
        (0.40, 0.30, 0.20, 0.10),
        (0.40, 0.30, 0.20, 0.10),
        (0.50, 0.30, 0.20, 0.00),
        (0.00, 0.30, 0.40, 0.30),
    ]
)

# Chances that a level falls by one and rises by one, at H = 0: [field][action][parent's level];
# one row where no parent matters. The rest is the chance to stay; beyond 0 and 3 nothing moves.
_MOVES: tuple[tuple[tuple[tuple[float, float], ...], ...], ...] = (
    (((0.05, 0.35),), ((0.75, 0.05),), ((0.05, 0.10),)),
    (((0.15, 0.20), (0.15, 0.35), (0.15, 0.50), (0.15, 0.65)), ((0.70, 0.05),), ((0.30, 0.05),)),
    (
        ((0.02, 0.02), (0.02, 0.10), (0.02, 0.25), (0.02, 0.50)),
        ((0.02, 0.02), (0.02, 0.10), (0.02, 0.25), (0.02, 0.50)),
        ((0.35, 0.01), (0.35, 0.05), (0.25, 0.15), (0.15, 0.30)),
    ),
    (
        ((0.10, 0.03), (0.10, 0.10), (0.10, 0.20), (0.10, 0.35)),
        ((0.10, 0.03), (0.10, 0.10), (0.10, 0.20), (0.10, 0.35)),
        ((0.65, 0.02), (0.60, 0.04), (0.55, 0.08), (0.50, 0.15)),
    ),
    (((0.75, 0.00), (0.50, 0.00), (0.25, 0.00), (0.05, 0.00)), ((0.00, 0.00),), ((0.00, 0.00),)),
)
_SUCCESS, _COLLAPSE, _TIME = 1.0, -1.0, -0.02
_WEIGHTS = (0.0, 0.10, 0.10, 0.05, 0.0)
"""What the highest level of each field costs in every step, at H = 0."""

# How far a lean of one moves a hospital.
_START_TILT, _MOVE_TILT, _EMPHASIS = 0.6, 0.6, math.log(2.5)
LEANS = 3 * SIZE
"""Numbers that set a hospital's law: a tilt of patients, moves and weights for each field."""


@dataclass(frozen=True)
class Law:
    """
    Patients, dynamics and rewards of a hospital, and the optimal policy under them.

    Chances are tilted exponentially, P' ~ P exp(lean x change of level), so they stay chances,
    what is impossible stays so, and all is smooth in the leans; no lean leaves P as it is.

    :param leans: shape (LEANS,): tilts of the start, of the moves and of the weights, by field.
    """

    leans: tuple[float, ...]

    @cached_property
    def start(self) -> Array:
        """Return the chances of each level on admission, shape (5, 4)."""
        tilt = np.array(self.leans[:SIZE])[:, None] * _START_TILT
        chances = _START * np.exp(tilt * np.arange(LEVELS))
        return chances / chances.sum(axis=1, keepdims=True)

    @cached_property
    def moves(self) -> Array:
        """Return the chances of the next level: [field, action, parent's level, level, next]."""
        moves = np.zeros((SIZE, ACTION_COUNT, LEVELS, LEVELS, LEVELS))
        for field, action, above, level in np.ndindex(*moves.shape[:4]):
            rows = _MOVES[field][action]
            fall, rise = rows[above % len(rows)]
            fall, rise = fall * (level > 0), rise * (level < LEVELS - 1)
            tilt = math.exp(_MOVE_TILT * self.leans[SIZE + field])
            chances = np.zeros(LEVELS + 2)
            chances[level : level + 3] = fall / tilt, 1.0 - fall - rise, rise * tilt
            moves[field, action, above, level] = chances[1:-1] / chances.sum()
        return moves

    @cached_property
    def thresholds(self) -> Array:
        """Return running sums of :attr:`moves`, the last three left out: u >= them moves up."""
        sums = np.cumsum(self.moves, axis=-1)[..., :-1]
        sums[sums > 1.0 - 1e-12] = 1.0  # rounding must not make the impossible possible
        return sums

    @cached_property
    def weights(self) -> Array:
        """Return what the highest level of each field costs in a step, shape (5,)."""
        emphasis = np.array(self.leans[2 * SIZE :]) * _EMPHASIS
        return np.array(_WEIGHTS) * np.exp(emphasis)

    def reward(self, levels: NDArray[np.int64]) -> Array:
        """
        Return the reward r(s') of coming to states.

        :param levels: shape (..., 5).
        :returns: shape (...).
        """
        failed = collapsed(levels)
        bonus = np.where(failed, _COLLAPSE, np.where(finished(levels), _SUCCESS, 0.0))
        return _TIME + bonus - (levels * self.weights).sum(axis=-1) / (LEVELS - 1)

    def advance(
        self, levels: NDArray[np.int64], actions: NDArray[np.int64], uniforms: Array
    ) -> NDArray[np.int64]:
        """
        Draw the next levels, by inversion.

        :param levels: shape (n, 5).
        :param actions: shape (n,).
        :param uniforms: in [0, 1), shape (n, 5).
        """
        bounds = np.stack(
            [
                self.thresholds[field, actions, levels[:, _above(field)], levels[:, field]]
                for field in range(SIZE)
            ],
            axis=1,
        )
        return (uniforms[:, :, None] >= bounds).sum(axis=-1)

    def admit(self, uniforms: Array) -> NDArray[np.int64]:
        """
        Draw patients on admission, by inversion.

        :param uniforms: in [0, 1), shape (n, 5).
        :returns: levels, shape (n, 5).
        """
        bounds = np.cumsum(self.start, axis=1)[:, :-1]
        bounds[bounds > 1.0 - 1e-12] = 1.0
        return (uniforms[:, :, None] >= bounds).sum(axis=-1)

    def start_chances(self) -> Array:
        """Return the chance that a patient is admitted in each state, shape (1024,)."""
        return np.prod(self.start[np.arange(SIZE), GRID], axis=1)

    def transitions(self, action: int) -> Array:
        """Return P(s' | s, a) for one action, shape (1024, 1024), rows s."""
        joint = np.ones((STATE_COUNT, 1))
        for field in range(SIZE):
            own = self.moves[field, action, GRID[:, _above(field)], GRID[:, field]]
            joint = (joint[:, :, None] * own[:, None, :]).reshape(STATE_COUNT, -1)
        return joint

    @cached_property
    def rewards(self) -> Array:
        """Return R(s, a), the expected reward, shape (1024, 3); 0 where an operation is over."""
        gain = self.reward(GRID)
        expected = [self.transitions(action) @ gain for action in range(ACTION_COUNT)]
        return np.where(ended(GRID)[:, None], 0.0, np.stack(expected, axis=1))

    def value(self, policy: NDArray[np.int64] | Array) -> Array:
        """
        Return the exact value of a policy in every state, by one linear solve.

        :param policy: action in each state of GRID, shape (1024,), or the chance of each action,
            shape (1024, 3).
        :returns: V, shape (1024,).
        """
        shares = policy if policy.ndim == 2 else np.eye(ACTION_COUNT)[policy]
        chances = np.zeros((STATE_COUNT, STATE_COUNT))
        for action in range(ACTION_COUNT):
            rows = shares[:, action] > 0.0
            share = shares[rows, action, None]
            chances[rows] += share * self.transitions(action)[rows]
        chances *= ~ended(GRID)[:, None]
        own = (shares * self.rewards).sum(axis=1)
        return np.asarray(np.linalg.solve(np.eye(STATE_COUNT) - DISCOUNT * chances, own))

    @cached_property
    def costs(self) -> Array:
        """
        Return V*(s) - Q*(s, a), shape (1024, 3), by policy iteration: exact up to rounding.

        The best action costs 0; so does every action where the operation is over.
        """
        going = ~ended(GRID)[:, None]
        kernels = [self.transitions(action) for action in range(ACTION_COUNT)]
        policy = np.argmax(self.rewards, axis=1)
        while True:
            value = self.value(policy)
            future = np.stack([kernel @ value for kernel in kernels], axis=1)
            action_values = self.rewards + DISCOUNT * future * going
            best = action_values.max(axis=1)
            better = best > action_values[np.arange(STATE_COUNT), policy] + 1e-12
            if not better.any():
                return np.maximum(best[:, None] - action_values, 0.0)
            policy = np.where(better, np.argmax(action_values, axis=1), policy)


@lru_cache(maxsize=32)
def law(leans: tuple[float, ...]) -> Law:
    """Return the law of these leans; equal leans are given the same object."""
    return Law(leans)


def _above(field: int) -> int:
    """Return the field that a field depends on; without one, any: its rows are all the same."""
    parent = PARENTS[field]
    return field if parent is None else parent


def index_of(levels: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the rows of GRID at which states are, shape (...) of levels (..., 5)."""
    return levels @ (LEVELS ** np.arange(SIZE - 1, -1, -1))


def collapsed(levels: NDArray[np.int64]) -> NDArray[np.bool_]:
    """Return which patients are lost: shock at its highest level."""
    return np.asarray(levels[..., FIELDS.index('shock')] == LEVELS - 1)


def finished(levels: NDArray[np.int64]) -> NDArray[np.bool_]:
    """Return which operations are done: nothing remains."""
    return np.asarray(levels[..., FIELDS.index('remaining')] == 0)


def ended(levels: NDArray[np.int64]) -> NDArray[np.bool_]:
    """Return which states are terminal."""
    return collapsed(levels) | finished(levels)
