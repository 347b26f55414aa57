# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""
What a policy is worth in a state: episodes on public patients of all kinds (FDRL Eq. 7).

The patients are made up over the whole range of H = 1, so that the estimate covers whom a robot
may meet; none is of a hospital or drawn as a hospital's are, so the estimate costs no epsilon.
"""

from collections.abc import Callable

from fdrl_ros.env.actions import ACTION_COUNT
from fdrl_ros.env.episode import run_episode
from fdrl_ros.env.patient import Patient
from fdrl_ros.env.surgery import SurgeryEnv
from fdrl_ros.plan import Plan
from fdrl_ros.policy import Policy
from fdrl_ros.selector import fit_value, returns_to_go, ValueModel
from fdrl_ros.trainer.learner import TrainingStopped
import numpy as np

FIRST = 10**6
"""Number of the first of these patients: pre-training and validation use lower ones."""

_STREAM = 5  # of the generators of these episodes
_LONGEST_PRELUDE = 20


def public_patient(index: int, plan: Plan) -> Patient:
    """Return one of the public patients of all kinds."""
    return plan.public_cohort(1.0).patient(FIRST + index)


def public_returns(
    policy: Policy,
    plan: Plan,
    *,
    progress: Callable[[int, int], None] = lambda done, count: None,
    stopped: Callable[[], bool] = lambda: False,
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """
    Operate on public patients and note what followed from each state.

    On every other patient some random moves come first: a selector may hand over in states that
    the policy alone would not come into.

    :returns: states (n, STATE_SIZE), discounted returns (n,), number of the case (n,).
    :raises TrainingStopped: as soon as `stopped` says so.
    """
    seed, count = plan.federation.seed, plan.evaluation.value_patients
    states, returns, cases = [], [], []
    env = SurgeryEnv(settings=plan.world)
    try:
        for index in range(count):
            if stopped():
                raise TrainingStopped('stopped by the user')
            rng = np.random.default_rng([_STREAM, seed, index])
            env.np_random = rng
            prelude = int(rng.integers(_LONGEST_PRELUDE)) if index % 2 else 0
            episode = run_episode(
                env, _after_prelude(policy, prelude, rng), public_patient(index, plan)
            )
            if prelude < episode.length:
                following = returns_to_go(episode.rewards, plan.value.discount)
                states.append(episode.states[prelude:-1])
                returns.append(following[prelude:])
                cases.append(np.full(episode.length - prelude, index))
            progress(index + 1, count)
    finally:
        env.close()
    return np.concatenate(states), np.concatenate(returns), np.concatenate(cases)


def fit_public_value(
    policy: Policy,
    plan: Plan,
    *,
    progress: Callable[[int, int], None] = lambda done, count: None,
    stopped: Callable[[], bool] = lambda: False,
) -> ValueModel:
    """Fit the estimate of a policy's return from its public episodes."""
    states, returns, cases = public_returns(policy, plan, progress=progress, stopped=stopped)
    rng = np.random.default_rng([_STREAM, plan.federation.seed])
    return fit_value(states, returns, cases, rng, policy=policy.digest.hex(), settings=plan.value)


def _after_prelude(
    policy: Policy, prelude: int, rng: np.random.Generator
) -> Callable[[np.ndarray], int]:
    """Return the policy, preceded by some random moves."""
    ticks = iter(range(prelude))

    def choose(state: np.ndarray) -> int:
        if next(ticks, None) is not None:
            return int(rng.integers(ACTION_COUNT))
        return policy(state)

    return choose
