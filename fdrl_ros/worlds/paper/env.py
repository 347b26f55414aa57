# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""
The synthetic world of the FDRL paper (section IV), as one exactly solvable MDP per hospital.

**What the paper says.** Surgical tasks are MDPs; the state has five dimensions and stands for
vital signs, imaging and physiology, there are three actions (tool movements, incision strategies,
other interventions), three hospitals with 100 samples each, and a heterogeneity factor H from 0
(identical hospitals) to 1. Rewards penalise errors and reward precision.

**What it leaves open**, and is our choice here: what the five numbers and three actions are, their
ranges, every transition chance, every reward, the horizon, the discount, how a sample was drawn
and what H changes by how much. It published no code. Results in this world therefore compare
methods with each other, not with the paper's figures digit by digit.

**States.** Five levels from 0 (good) to 3 (bad), so 1024 states in all: misplacement of the tool,
force on the tissue, damage of the tissue, shock (departure of the vital signs), and the stages
that remain. A policy sees level / 3, float32. Terminal: shock 3 (collapse: failure), else
remaining 0 (success). After 30 steps the time is up (truncation; the state has no clock).

**Actions.** 0 proceed: a stage may be finished, sooner with a well-placed tool; force and
misplacement rise. 1 correct: the tool is placed anew, force falls. 2 stabilise: treat the patient;
shock and damage fall.

**Dynamics.** In a step each level falls by one, stays or rises by one, independently given the
state, by a chance that depends on the action, the level itself and one cause: force and remaining
on misplacement, damage on force, shock on damage, misplacement on none. Tables:
:mod:`fdrl_ros.worlds.paper.law`.

**Reward** of coming to s': -0.02 for the step, +1 for success, -1 for collapse, and a cost in
proportion to the levels of force, damage and shock. Discount 0.9.

**H.** Hospital i leans by l_i in [-1, 1] in each of 15 ways: five tilts of the patients on
admission, five of the dynamics, five of the weights of the reward. Along each way the hospitals
are evenly spaced, in an order that the seed shuffles. Chances are tilted exponentially by H l_i
and weights multiplied by 2.5^(H l_i), so the law is smooth in H, and at H = 0 every hospital *is*
the same law.

**Expert.** Policy iteration with exact linear solves gives Q* for every state and action; the
expert is a pure function that returns the best action and V* - Q* of all three.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

from fdrl_ros.errors import SettingError, StateError
from fdrl_ros.learner.records.records import Records
from fdrl_ros.runtime.random_streams import PaperStream
from fdrl_ros.runtime.ranges import check_hospital, check_whole
from fdrl_ros.worlds.paper.law import (
    ACTION_COUNT,
    Array,
    collapsed,
    ended,
    finished,
    GRID,
    index_of,
    Law,
    law,
    LEANS,
    LEVELS,
    SIZE,
    STATE_COUNT,
)
import gymnasium
import numpy as np
from numpy.typing import NDArray

ENV_ID = 'fdrl_ros/PaperWorld-v0'
HOSPITALS = 3
"""Hospitals in the paper, section IV-B."""

RECORDS = 100
"""Samples of a hospital in the paper, section IV-B."""

HORIZON = 30
"""Steps after which an operation is cut off."""

STATES: NDArray[np.float32] = (GRID / (LEVELS - 1)).astype(np.float32)
"""All states as a policy sees them, shape (1024, 5), in the order of every exact table."""
STATES.setflags(write=False)

Policy = Callable[[NDArray[np.float32]], NDArray[np.int64]]
"""States, shape (n, 5), to actions, shape (n,)."""


class Distance(NamedTuple):
    """How far two hospitals are apart, each part in [0, 1]."""

    patients: float
    dynamics: float
    reward: float

    @property
    def total(self) -> float:
        """Return the mean of the parts."""
        return sum(self) / len(self)


@dataclass(frozen=True)
class PaperHospital:
    """
    One hospital of the paper's world.

    :param hospital: from 0.
    :param hospitals: how many there are.
    :param heterogeneity: H in [0, 1].
    :param seed: of the whole federation.
    """

    hospital: int = 0
    hospitals: int = HOSPITALS
    heterogeneity: float = 0.0
    seed: int = 0

    def __post_init__(self) -> None:
        """Refuse what is no hospital."""
        check_hospital(self.hospital, self.hospitals, self.heterogeneity, self.seed)

    @cached_property
    def law(self) -> Law:
        """Return patients, dynamics and rewards; at H = 0 one object for all hospitals."""
        rng = np.random.default_rng([PaperStream.LEANS, self.seed])
        places = np.linspace(-1.0, 1.0, self.hospitals) if self.hospitals > 1 else np.zeros(1)
        leans = [rng.permutation(places)[self.hospital] for _ in range(LEANS)]
        return law(tuple(self.heterogeneity * float(each) for each in leans))

    @cached_property
    def best(self) -> NDArray[np.int64]:
        """Return the expert's action in every state, shape (1024,); of equals the first."""
        return np.argmin(self.law.costs, axis=1)

    def expert(self, state: NDArray[np.float32]) -> tuple[int, Array]:
        """
        Return the best action in a state and what each costs, V* - Q*, shape (3,).

        :raises StateError: if it is no state of this world.
        """
        index = int(index_of(levels_of(state)[None])[0])
        return int(self.best[index]), self.law.costs[index].copy()

    def admitted_value(self, policy: NDArray[np.int64]) -> float:
        """
        Return a policy's exact expected discounted return over this hospital's patients.

        :param policy: action in each of STATES, shape (1024,).
        """
        return float(
            self.law.start_chances() @ self.law.value(_checked_actions(policy, STATE_COUNT))
        )

    def rollout(
        self, policy: Policy | None, patients: int, seed: int, steps: int = HORIZON
    ) -> Records:
        """
        Operate on many patients at once, each until the end or for so many steps.

        :param policy: states in, actions out; without one, every action at random.
        :param patients: how many.
        :param seed: of patients, dynamics and random actions; each hospital has its own stream.
        :param steps: most transitions of one patient.
        """
        for name, value, least in (
            ('patients', patients, 1),
            ('steps', steps, 1),
            ('seed', seed, 0),
        ):
            check_whole(name, value, least)
        rng = np.random.default_rng([PaperStream.RECORDS, seed, self.seed, self.hospital])
        levels = self.law.admit(rng.random((patients, SIZE)))
        going = np.arange(patients)
        taken: list[tuple[NDArray[np.generic], ...]] = []
        for _ in range(steps):
            # Drawn for all, going or not: how long one operation takes changes no other.
            random_actions = rng.integers(ACTION_COUNT, size=patients)[going]
            uniforms = rng.random((patients, SIZE))[going]
            now = levels[going]
            actions = random_actions if policy is None else policy(seen(now))
            actions = _checked_actions(actions, len(going))
            after = self.law.advance(now, actions, uniforms)
            over = ended(after)
            taken.append((going, now, actions, self.law.reward(after), after, over))
            levels[going] = after
            going = going[~over]
            if not len(going):
                break
        columns = [np.concatenate(each) for each in zip(*taken, strict=True)]
        who, now, actions, rewards, after, over = columns
        order = np.argsort(who, kind='stable')
        return Records(
            states=seen(now[order]),
            actions=actions[order],
            rewards=rewards[order].astype(np.float32),
            next_states=seen(after[order]),
            terminals=over[order],
            starts=np.searchsorted(who[order], np.arange(patients + 1)),
            patients=np.array(
                [f'hospital_{self.hospital + 1}_{each}' for each in range(patients)]
            ),
        )

    def records(self, n: int = RECORDS, seed: int = 0) -> Records:
        """
        Return D_i: n samples (s, a, r, s') of Algorithm 1, line 7, one for each of n patients.

        The paper does not say how they came about: here each is the first step of an own
        patient under a random action, so one sample is one patient is one privacy unit.
        """
        return self.rollout(None, n, seed, steps=1)


def distance(one: PaperHospital, other: PaperHospital) -> Distance:
    """
    Return exact distances between two hospitals; all are 0 at H = 0.

    Patients and dynamics: total variation, of the latter the mean over all states in which an
    operation goes on and all actions. Reward: the mean difference of r over all states, divided
    by 2, what lies between success and collapse.
    """
    mine, theirs = one.law, other.law
    patients = np.abs(mine.start_chances() - theirs.start_chances()).sum() / 2
    going = ~ended(GRID)
    dynamics = [
        np.abs(mine.transitions(action) - theirs.transitions(action))[going].sum(axis=1).mean() / 2
        for action in range(ACTION_COUNT)
    ]
    reward = np.abs(mine.reward(GRID) - theirs.reward(GRID)).mean() / 2
    return Distance(float(patients), float(np.mean(dynamics)), float(reward))


def seen(levels: NDArray[np.int64]) -> NDArray[np.float32]:
    """Return levels as a policy sees them: divided by 3, float32, same shape."""
    return STATES[index_of(levels)]


def levels_of(state: object) -> NDArray[np.int64]:
    """
    Return the levels of one state that a policy saw.

    :raises StateError: if it is no state of this world.
    """
    values = np.asarray(state, np.float64) * (LEVELS - 1)
    if values.shape != (SIZE,) or not np.isfinite(values).all():
        raise StateError(f'state {state!r}: expected {SIZE} finite numbers')
    levels = np.rint(values).astype(np.int64)
    if np.abs(values - levels).max() > 1e-5 or levels.min() < 0 or levels.max() >= LEVELS:
        raise StateError(f'state {state!r}: expected thirds from 0 to 1')
    return levels


def _checked_actions(actions: object, count: int) -> NDArray[np.int64]:
    array = np.asarray(actions)
    if array.shape != (count,) or not np.issubdtype(array.dtype, np.integer):
        raise StateError(f'actions of shape {array.shape}: expected {count} whole numbers')
    if count and not 0 <= array.min() <= array.max() < ACTION_COUNT:
        raise StateError(f'actions {array!r}: expected 0 to {ACTION_COUNT - 1}')
    return array.astype(np.int64)


class PaperWorldEnv(gymnasium.Env[NDArray[np.float32], np.int64]):
    """
    The paper's world as a Gymnasium env: one patient of one hospital after another.

    :param hospital: whose patients; hospital 0 at H = 0 unless told otherwise.
    :param record_steps: transitions of an operation that is recorded, for the task.
    """

    metadata: dict[str, object] = {'render_modes': []}

    def __init__(self, hospital: PaperHospital | None = None, record_steps: int = HORIZON) -> None:
        self.record_steps = record_steps
        self.hospital = hospital or PaperHospital()
        self.render_mode = None
        self.action_space = gymnasium.spaces.Discrete(ACTION_COUNT)
        self.observation_space = gymnasium.spaces.Box(0.0, 1.0, (SIZE,), np.float32)
        self._levels: NDArray[np.int64] | None = None
        self._steps = 0

    def reset(
        self, *, seed: int | None = None, options: Mapping[str, object] | None = None
    ) -> tuple[NDArray[np.float32], dict[str, object]]:
        """
        Admit the next patient, or one in the state `options['state']`.

        :raises SettingError: on another option.
        :raises StateError: if the state is none of this world, or one where all is over.
        """
        super().reset(seed=seed)
        given = dict(options or {})
        state = given.pop('state', None)
        if given:
            raise SettingError('options', sorted(given), "only 'state'")
        if state is None:
            levels = self.hospital.law.admit(self.np_random.random((1, SIZE)))
        else:
            levels = levels_of(state)[None]
            if ended(levels)[0]:
                raise StateError(f'state {state!r}: this operation is over')
        self._levels, self._steps = levels, 0
        return self._observation_and_info()

    def step(
        self, action: np.int64 | int
    ) -> tuple[NDArray[np.float32], float, bool, bool, dict[str, object]]:
        """
        Take one action.

        :raises StateError: on an action that does not exist, before a reset, or after the end.
        """
        chosen = _checked_actions([action], 1)
        if self._levels is None or self._steps >= HORIZON or ended(self._levels)[0]:
            raise StateError('no operation is going on: reset the env')
        uniforms = self.np_random.random((1, SIZE))
        self._levels = self.hospital.law.advance(self._levels, chosen, uniforms)
        self._steps += 1
        over = bool(ended(self._levels)[0])
        reward = float(self.hospital.law.reward(self._levels)[0])
        state, info = self._observation_and_info()
        return state, reward, over, not over and self._steps >= HORIZON, info

    def _observation_and_info(self) -> tuple[NDArray[np.float32], dict[str, object]]:
        """Return the state, and the terms of the risk D_t (FDRL Eq. 10), each in [0, 1]."""
        assert self._levels is not None
        state = seen(self._levels)[0].copy()
        lost = bool(collapsed(self._levels)[0])
        return state, {
            'force': float(state[1]),
            'damage': float(state[2]),
            'critical': lost,
            'success': bool(finished(self._levels)[0]) and not lost,
        }
