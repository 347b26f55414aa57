# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""The paper's world: what it states, that it is solved exactly, and what H does to it."""

import functools
import hashlib
import subprocess
import sys
import warnings

from fdrl_ros.errors import SettingError, StateError
from fdrl_ros.worlds.paper import law
from fdrl_ros.worlds.paper.env import (
    distance,
    ENV_ID,
    HORIZON,
    PaperHospital,
    PaperWorldEnv,
    STATES,
)
from fdrl_ros.worlds.paper.law import ended, GRID, Law, LEANS
import gymnasium
from gymnasium.utils.env_checker import check_env
from hypothesis import given, settings, strategies
import numpy as np
import pytest

FAR = PaperHospital(1, heterogeneity=0.8, seed=3)
GOING = ~ended(GRID)
KERNELS = [FAR.law.transitions(action) for action in range(3)]


@functools.cache
def federation(heterogeneity, seed=0):
    return [PaperHospital(each, 3, heterogeneity, seed) for each in range(3)]


def walk(env, seed, steps=200):
    """Return the hash of everything that an env says on a seeded random walk."""
    digest = hashlib.sha256(env.reset(seed=seed)[0].tobytes())
    rng = np.random.default_rng(seed)
    for _ in range(steps):
        state, reward, terminated, truncated, info = env.step(int(rng.integers(3)))
        digest.update(state.tobytes() + np.float64(reward).tobytes() + repr(info).encode())
        if terminated or truncated:
            digest.update(env.reset()[0].tobytes())
    return digest.hexdigest()


def test_gymnasium_finds_nothing_to_warn_of():
    env = gymnasium.make(ENV_ID, hospital=PaperHospital(2, 3, 0.5))
    with warnings.catch_warnings():
        warnings.simplefilter('error')
        check_env(env.unwrapped)


def test_a_seed_gives_the_same_bits_in_another_process_and_whatever_came_before():
    env = PaperWorldEnv(FAR)
    mine = walk(env, 3)
    assert walk(env, 4) != mine
    assert walk(env, 3) == mine
    script = (
        'import runpy, sys; names = runpy.run_path(sys.argv[1]);'
        "print(names['walk'](names['PaperWorldEnv'](names['FAR']), 3),"
        " names['hashed'](names['FAR'].records(seed=5)))"
    )
    done = subprocess.run(
        [sys.executable, '-c', script, __file__], capture_output=True, text=True, check=True
    )
    assert done.stdout.split() == [mine, hashed(FAR.records(seed=5))]


def hashed(records):
    """Return the hash of records."""
    return hashlib.sha256(
        b''.join(each.tobytes() for each in records.arrays().values())
    ).hexdigest()


def test_chances_are_chances_and_what_is_impossible_stays_so():
    mild = Law((0.0,) * LEANS)
    for leans in (mild.leans, (1.0,) * LEANS, FAR.law.leans):
        own = Law(leans)
        assert np.allclose(own.moves.sum(axis=-1), 1.0, atol=1e-12)
        assert np.allclose(own.start.sum(axis=-1), 1.0, atol=1e-12)
        assert own.moves.min() >= 0.0
        assert np.array_equal(own.moves == 0.0, mild.moves == 0.0)
        assert own.start_chances()[GOING].sum() == pytest.approx(1.0)


def test_the_joint_chances_are_the_products_of_the_tables():
    rng = np.random.default_rng(1)
    for action, here, there in rng.integers((3, 1024, 1024), size=(200, 3)).tolist():
        now, after = GRID[here], GRID[there]
        product = 1.0
        for field, parent in enumerate(law.PARENTS):
            above = now[field] if parent is None else now[parent]
            product *= FAR.law.moves[field, action, above, now[field], after[field]]
        assert KERNELS[action][here, there] == pytest.approx(product, abs=1e-15)


def test_the_value_of_the_expert_solves_the_equation_of_optimality():
    """Bellman's, which has one solution."""
    own, value = FAR.law, FAR.law.value(FAR.best)
    future = np.stack([kernel @ value for kernel in KERNELS], axis=1)
    action_values = np.where(GOING[:, None], own.rewards + 0.9 * future, 0.0)
    assert np.allclose(action_values.max(axis=1), value, atol=1e-10)
    assert np.allclose(own.costs, value[:, None] - action_values, atol=1e-10)


def test_the_value_of_a_policy_is_what_patients_get():
    # A mean of 20,000 returns against the exact value; 30 steps cut off less than 0.9^30 = 0.05
    # of what few patients have left. A false alarm at 4 standard errors: 1 in 16,000.
    policy = FAR.best
    run = FAR.rollout(lambda states: policy[rows(states)], 20_000, seed=1)
    ages = np.arange(len(run.rewards)) - np.repeat(run.starts[:-1], np.diff(run.starts))
    returns = np.add.reduceat(run.rewards * 0.9**ages, run.starts[:-1])
    error = returns.std() / np.sqrt(len(returns))
    assert abs(returns.mean() - FAR.admitted_value(policy)) < 4 * error + 0.002


def rows(states):
    """Return where states are in STATES."""
    return np.rint(states * 3).astype(int) @ (4 ** np.arange(4, -1, -1))


@given(strategies.integers(0, 2**31), strategies.integers(1, 6))
@settings(deadline=None, max_examples=25)
def test_without_heterogeneity_every_hospital_is_one_law(seed, count):
    laws = {id(PaperHospital(each, count, 0.0, seed).law) for each in range(count)}
    assert len(laws) == 1


def test_hospitals_part_monotonically_and_smoothly_with_heterogeneity(seed=0):
    grid = np.linspace(0.0, 1.0, 6)
    for one, other in ((0, 1),):
        curve = np.array(
            [distance(federation(h, seed)[one], federation(h, seed)[other]) for h in grid.tolist()]
        )
        assert np.all(curve[0] == 0.0)
        assert np.all(np.diff(curve, axis=0) > 0.0)
        assert np.abs(np.diff(curve, 2, axis=0)).max() < 0.08
        assert curve.max() <= 1.0


def test_a_foreign_expert_loses():
    other = PaperHospital(0, heterogeneity=0.8, seed=3)
    for one, two in ((FAR, other), (other, FAR)):
        assert one.admitted_value(one.best) > one.admitted_value(two.best) + 1e-3
    assert (FAR.best == other.best)[GOING].mean() < 1.0


def test_records_are_transitions_of_the_law_one_for_each_patient():
    records = FAR.records(400, seed=2)
    here, there = rows(records.states), rows(records.next_states)
    chances = [KERNELS[a][i, j] for a, i, j in zip(records.actions, here, there, strict=True)]
    assert min(chances) > 0.0
    assert np.array_equal(records.starts, np.arange(401))
    assert np.array_equal(records.terminals, ended(GRID[there]))
    assert np.array_equal(records.rewards, FAR.law.reward(GRID[there]).astype(np.float32))
    assert records.states.dtype == records.next_states.dtype == np.float32
    assert hashed(records) != hashed(FAR.records(400, seed=3))
    assert set(records.actions.tolist()) == {0, 1, 2}
    run = FAR.rollout(None, 200, seed=4)  # many at once are one after another
    lengths, last = np.diff(run.starts), run.starts[1:] - 1
    assert 1 <= lengths.min() and lengths.max() <= HORIZON
    assert np.all(run.terminals[last] | (lengths == HORIZON))
    inside = np.delete(np.arange(len(run.actions)), last)
    assert not run.terminals[inside].any()
    assert np.array_equal(run.next_states[inside], run.states[inside + 1])


def test_an_env_follows_the_law_and_ends():
    env, ends = PaperWorldEnv(FAR), set()
    for seed in range(60):
        state, info = env.reset(seed=seed)
        assert not info['success']
        terminated = truncated = False
        steps = 0
        while not (terminated or truncated):
            before, action = rows(state), seed % 3
            state, reward, terminated, truncated, info = env.step(action)
            steps += 1
            assert KERNELS[action][before, rows(state)] > 0.0
            assert reward == FAR.law.reward(GRID[rows(state)])
            assert terminated == (info['success'] or info['critical'])
        assert truncated == (not terminated)
        assert not truncated or steps == HORIZON
        ends.add((info['success'], info['critical'], truncated))
        with pytest.raises(StateError, match='reset'):
            env.step(0)
    assert ends == {(True, False, False), (False, True, False), (False, False, True)}


def test_misuse_is_refused():
    env = PaperWorldEnv()
    with pytest.raises(StateError, match='reset'):
        env.step(0)
    env.reset(seed=0, options={'state': STATES[1]})
    for action in (3, -1, 0.5):
        with pytest.raises(StateError, match='action'):
            env.step(action)
    with pytest.raises(SettingError, match='options'):
        env.reset(options={'patient': 1})
    for state in (STATES[0], [0.5] * 5, [0.0] * 4, [float('nan')] * 5, [2.0] * 5):
        with pytest.raises(StateError, match='state'):
            env.reset(options={'state': state})
    for wrong in ({'hospital': 3}, {'hospitals': 0}, {'heterogeneity': 1.1}, {'seed': -1}):
        with pytest.raises(SettingError, match=next(iter(wrong))):
            PaperHospital(**wrong)
    with pytest.raises(SettingError, match='patients'):
        FAR.records(0)
    with pytest.raises(StateError, match='actions'):
        FAR.rollout(lambda states: np.full(len(states), 3), 4, seed=0)
    with pytest.raises(StateError, match='1024'):
        FAR.admitted_value(np.zeros(5, np.int64))
