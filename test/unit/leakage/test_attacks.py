# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""Each attack against a slow obvious version or a closed form."""

from fdrl_ros.leakage.attacks import (
    alignment,
    calibrated,
    likelihood_ratios,
    log_errors,
    loss_scores,
    ranked_candidates,
    recall,
)
from fdrl_ros.leakage.measures import Roc
from fdrl_ros.privacy.accountant.leakage_bounds import gaussian_bounds
import numpy as np
import pytest

RNG = np.random.default_rng(4)
MEMBERS = RNG.random((30, 12)) < 0.5
OBSERVED = RNG.normal(size=(30, 12)) + 2.0 * MEMBERS + 10.0 * np.arange(12)


def test_calibration_subtracts_the_mean_of_the_others() -> None:
    found = calibrated(OBSERVED)
    for model in (0, 7):
        others = np.delete(OBSERVED, model, axis=0)
        assert found[model] == pytest.approx(OBSERVED[model] - others.mean(axis=0))


@pytest.mark.parametrize('pooled', [False, True])
def test_lira_is_the_ratio_of_two_gaussians_fitted_to_the_others(pooled: bool) -> None:
    found = likelihood_ratios(OBSERVED, MEMBERS, pooled=pooled)
    for model in (0, 7):
        others, bits = np.delete(OBSERVED, model, axis=0), np.delete(MEMBERS, model, axis=0)
        moments = []
        for side in (bits, ~bits):
            columns = [others[side[:, record], record] for record in range(12)]
            variances = np.array([each.var(ddof=1) for each in columns])
            if pooled:
                variances[:] = variances.mean()
            moments.append((np.array([each.mean() for each in columns]), variances))
        logs = [
            -0.5 * ((OBSERVED[model] - mean) ** 2 / variance + np.log(variance))
            for mean, variance in moments
        ]
        assert found[model] == pytest.approx(logs[0] - logs[1])


def test_lira_tells_nothing_where_a_side_was_not_seen_twice() -> None:
    members = np.array([[True, True], [False, True], [False, False], [False, False]])
    found = likelihood_ratios(np.arange(8.0).reshape(4, 2), members)
    assert not found[:, 0].any() and not found[1, 1].any()


def test_attacks_reach_the_best_auc_on_gaussian_observations() -> None:
    # Every record has an offset of its own, which hides members from an uncalibrated score.
    rng = np.random.default_rng(5)
    members = rng.random((300, 200)) < 0.5
    observed = rng.normal(size=members.shape) + 1.5 * members + 20.0 * rng.normal(size=200)
    best = gaussian_bounds(1.5).auc
    assert Roc(observed, members).auc() < 0.6
    for scores in (calibrated(observed), likelihood_ratios(observed, members)):
        assert Roc(scores, members).auc() == pytest.approx(best, abs=0.01)


def test_a_smaller_error_scores_higher_whatever_its_sign() -> None:
    errors = np.array([2.0, -1.0, 0.0])
    assert loss_scores(errors).tolist() == [-2.0, -1.0, 0.0]
    assert loss_scores(errors, 1.5).tolist() == [-1.5, -1.0, 0.0]
    assert np.exp(log_errors(errors)) == pytest.approx([2.01, 1.01, 0.01])


def test_alignment_is_one_along_the_descent_and_zero_without_a_gradient() -> None:
    gradients = np.array([[3.0, 4.0], [-4.0, 3.0], [0.0, 0.0]])
    assert alignment(np.array([-6.0, -8.0]), gradients) == pytest.approx([1.0, 0.0, 0.0])
    assert not alignment(np.zeros(2), gradients).any()


def test_inversion_names_the_records_that_made_an_update() -> None:
    rng = np.random.default_rng(6)
    atoms = rng.normal(size=(50, 80))
    true = np.array([3, 17, 41])
    updates = np.stack([rng.normal(size=3) @ atoms[true], rng.normal(size=80)])
    ranked = ranked_candidates(updates, atoms)
    assert recall(ranked[0], true) == 1.0
    assert sorted(ranked[1].tolist()) == list(range(50))
    assert recall(np.array([3, 1, 17, 41]), true) == pytest.approx(2.0 / 3.0)
