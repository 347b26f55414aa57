# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""Planning from counts in the paper's world: counts, estimates, and what many records lead to."""

from fdrl_ros.worlds.paper.env import PaperHospital
from fdrl_ros.worlds.paper.law import ACTION_COUNT, LEVELS, PARENTS, SIZE
from fdrl_ros.worlds.paper.planning import count_moves, estimate, EstimatedLaw, plan, SENSITIVITY
import numpy as np
import pytest

HOME = PaperHospital(1, 3, 0.6, 2)


def drawn(count: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return states of every kind, actions and what followed at HOME."""
    rng = np.random.default_rng(3)
    levels = rng.integers(LEVELS, size=(count, SIZE))
    actions = rng.integers(ACTION_COUNT, size=count)
    return levels, actions, HOME.law.advance(levels, actions, rng.random((count, SIZE)))


def test_counts_are_those_of_a_loop_over_records_and_fields():
    levels, actions, after = drawn(200)
    expected = np.zeros((SIZE, ACTION_COUNT, LEVELS, LEVELS, 3))
    for before, action, behind in zip(levels, actions, after, strict=True):
        for field, parent in enumerate(PARENTS):
            above = 0 if parent is None else before[parent]
            move = behind[field] - before[field] + 1
            expected[field, action, above, before[field], move] += 1
    np.testing.assert_array_equal(count_moves(levels, actions, after), expected)


def test_one_record_moves_the_counts_by_no_more_than_the_sensitivity():
    one = count_moves(*drawn(1))
    assert np.linalg.norm(one) == pytest.approx(SENSITIVITY)


def test_estimates_are_chances_and_no_level_leaves_its_range():
    noisy = np.random.default_rng(4).normal(0.0, 5.0, (SIZE, ACTION_COUNT, LEVELS, LEVELS, 3))
    chances = estimate(noisy)
    np.testing.assert_allclose(chances.sum(axis=-1), 1.0)
    assert (chances >= 0.0).all()
    assert (chances[..., 0, 0] == 0.0).all() and (chances[..., -1, -1] == 0.0).all()
    moves = EstimatedLaw(HOME.law.leans, chances).moves
    np.testing.assert_allclose(moves.sum(axis=-1), 1.0)


def test_counts_without_a_parent_are_shared_by_all_its_levels():
    counts = np.zeros((SIZE, ACTION_COUNT, LEVELS, LEVELS, 3))
    counts[0, 1, 0, 2] = 7.0, 1.0, 0.0
    chances = estimate(counts)[0, 1, :, 2]
    assert chances == pytest.approx(np.tile([8 / 11, 2 / 11, 1 / 11], (LEVELS, 1)))


def test_endless_records_give_the_true_law_and_the_best_policy():
    counts = np.zeros((SIZE, ACTION_COUNT, LEVELS, LEVELS, 3))
    for level in range(LEVELS):
        for move in range(3):
            if 0 <= level + move - 1 < LEVELS:
                counts[..., level, move] = 1e9 * HOME.law.moves[..., level, level + move - 1]
    for field, parent in enumerate(PARENTS):
        if parent is None:
            counts[field, :, 1:] = 0.0  # where count_moves leaves nothing
    law = EstimatedLaw(HOME.law.leans, estimate(counts))
    np.testing.assert_allclose(law.moves, HOME.law.moves, atol=1e-8)
    chosen = plan(counts, HOME)
    costs = HOME.law.costs[np.arange(len(chosen)), chosen]
    assert costs.max() < 1e-6
