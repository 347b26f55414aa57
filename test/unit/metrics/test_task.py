# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""Task accuracy: exact and tolerant, chance and ceiling, and the hashed set of states."""

from fdrl_ros.errors import RecordsError, StateError
from fdrl_ros.metrics.task import StateSet, task_accuracy, TOLERANCE
from hypothesis import given
from hypothesis import strategies as st
import numpy as np
import pytest


def make_set(seed=0, count=40, actions=13):
    rng = np.random.default_rng(seed)
    costs = rng.choice(np.arange(0, 1e-3, 1e-4), size=(count, actions))
    return StateSet(
        states=rng.normal(size=(count, 5)),
        costs=costs,
        expert=costs.argmin(axis=1),
        cases=rng.integers(0, 6, size=count),
    )


def slow_accuracy(state_set, actions):
    exact, tolerant = [], []
    for case in sorted(set(state_set.cases.tolist())):
        rows = [i for i in range(len(actions)) if state_set.cases[i] == case]
        exact.append(np.mean([actions[i] == state_set.expert[i] for i in rows]))
        tolerant.append(
            np.mean(
                [
                    state_set.costs[i, actions[i]] <= min(state_set.costs[i]) + TOLERANCE + 1e-12
                    for i in rows
                ]
            )
        )
    return np.mean(exact), np.mean(tolerant)


@given(st.integers(0, 2**32 - 1))
def test_equals_the_slow_count_over_cases(seed):
    state_set = make_set(seed)
    actions = np.random.default_rng(seed + 1).integers(0, 13, size=40)
    result = task_accuracy(state_set, actions)
    exact, tolerant = slow_accuracy(state_set, actions)
    assert result.exact == pytest.approx(exact)
    assert result.tolerant == pytest.approx(tolerant)
    assert 0 <= result.exact <= result.tolerant <= result.ceiling_tolerant + 1e-12
    expert = task_accuracy(state_set, state_set.expert)
    assert (expert.exact, expert.tolerant) == pytest.approx((1.0, 1.0))


def test_the_tolerance_is_a_quarter_of_the_fine_step():
    costs = np.array([[0.0, 0.124e-3, 0.126e-3]] * 3)
    state_set = StateSet(np.arange(3.0)[:, None], costs, np.zeros(3, int), np.zeros(3, int))
    result = task_accuracy(state_set, np.array([0, 1, 2]))
    assert result.tolerant == pytest.approx(2 / 3)
    assert result.exact == pytest.approx(1 / 3)


def test_chance_is_what_random_actions_reach():
    state_set = make_set()
    rng = np.random.default_rng(1)
    drawn = [task_accuracy(state_set, rng.integers(0, 13, size=40)) for _ in range(200)]
    result = drawn[0]
    assert result.chance_exact == pytest.approx(1 / 13)
    # Six standard errors of the mean of 200 sets.
    spread = np.std([x.tolerant for x in drawn]) / np.sqrt(200)
    assert abs(np.mean([x.tolerant for x in drawn]) - result.chance_tolerant) < 6 * spread


def test_the_ceiling_counts_states_that_the_policy_cannot_tell_apart():
    costs = np.array([[0.0, 1.0], [1.0, 0.0], [1.0, 0.0]])
    twins = StateSet(np.zeros((3, 2)), costs, costs.argmin(axis=1), np.zeros(3, int))
    assert task_accuracy(twins, np.array([1, 1, 1])).ceiling_exact == pytest.approx(2 / 3)


@pytest.mark.parametrize(
    'actions', [np.zeros(3, int), np.full(40, 13), np.zeros(40), np.full(40, -1)]
)
def test_what_is_no_action_is_refused(actions):
    with pytest.raises(StateError):
        task_accuracy(make_set(), actions)


def test_a_set_travels_unchanged_and_another_is_refused(tmp_path):
    state_set = make_set()
    state_set.save(tmp_path / 'set.npz')
    loaded = StateSet.load(tmp_path / 'set.npz', digest=state_set.digest)
    assert loaded.digest == state_set.digest
    np.testing.assert_array_equal(loaded.costs, state_set.costs)
    with pytest.raises(RecordsError, match='digest'):
        StateSet.load(tmp_path / 'set.npz', digest=make_set(2).digest)


def test_a_changed_number_is_noticed(tmp_path):
    one, other = make_set(1), make_set(2)
    arrays = {name: getattr(other, name) for name in ('states', 'costs', 'expert', 'cases')}
    np.savez(tmp_path / 'set.npz', digest=np.array(one.digest), **arrays)
    with pytest.raises(RecordsError, match='digest'):
        StateSet.load(tmp_path / 'set.npz')


@pytest.mark.parametrize('content', [b'', b'not an archive', b'PK\x03\x04 cut'])
def test_a_file_that_is_no_set_is_refused(tmp_path, content):
    (tmp_path / 'set.npz').write_bytes(content)
    with pytest.raises(RecordsError):
        StateSet.load(tmp_path / 'set.npz')


def test_the_digest_tells_every_array():
    base = make_set()
    changed = StateSet(base.states, base.costs, base.expert, base.cases + 1)
    assert base.digest != changed.digest
    with pytest.raises(ValueError, match='read-only'):
        base.states[0, 0] = 1.0


@pytest.mark.parametrize(
    ('name', 'value'),
    [
        ('states', np.full((40, 5), np.nan)),
        ('costs', np.zeros((39, 13))),
        ('expert', np.full(40, 13)),
        ('cases', np.zeros(39, int)),
    ],
)
def test_a_set_that_contradicts_itself_is_refused(name, value):
    base = make_set()
    arrays = {each: getattr(base, each) for each in ('states', 'costs', 'expert', 'cases')}
    with pytest.raises(StateError):
        StateSet(**{**arrays, name: value})
