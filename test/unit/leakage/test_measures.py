# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""AUC, TPR and PLR against closed forms; tolerances are five standard errors, by seed."""

import math

from fdrl_ros.errors import SettingError
from fdrl_ros.leakage.measures import information, leakage_rate, Roc
from fdrl_ros.privacy.accountant.leakage_bounds import gaussian_bounds
from hypothesis import given, settings
from hypothesis import strategies as st
import numpy as np
import pytest

MODELS, RECORDS = 200, 300


def gaussian(mu: float, seed: int = 1, scale: float = 1.0) -> tuple[np.ndarray, np.ndarray]:
    """Return scores N(0, 1) of others and N(mu, scale) of members."""
    rng = np.random.default_rng(seed)
    members = rng.random((MODELS, RECORDS)) < 0.5
    scores = rng.normal(size=members.shape)
    return np.where(members, mu + scale * scores, scores), members


@pytest.mark.parametrize('mu', [0.0, 0.5, 2.0])
def test_gaussian_scores_have_the_gaussian_auc_tpr_and_information(mu: float) -> None:
    scores, members = gaussian(mu)
    exact, rng = gaussian_bounds(mu, 0.01), np.random.default_rng(2)
    auc, tpr = Roc(scores, members).bootstrapped(0.01, rng, 100)
    told = leakage_rate(scores, members, rng, 100)
    for found, value in zip((auc, tpr, told), exact, strict=True):
        assert found.error > 0.0 and abs(found.value - value) < 5.0 * found.error
        assert found.low <= found.value <= found.high
        assert found.surely_above == pytest.approx(found.value - 3.09 * found.error, abs=1e-4)


def test_information_is_exact_where_only_variances_differ() -> None:
    scores, members = gaussian(0.0, scale=3.0)
    at = np.linspace(-40.0, 40.0, 80001)
    one = np.exp(-(at**2) / 18.0) / (3.0 * math.sqrt(2.0 * math.pi))
    other = np.exp(-(at**2) / 2.0) / math.sqrt(2.0 * math.pi)
    mean = (one + other) / 2.0
    with np.errstate(divide='ignore', invalid='ignore'):
        parts = np.nan_to_num(one * np.log2(one / mean)) + np.nan_to_num(
            other * np.log2(other / mean)
        )
    told = leakage_rate(scores, members, np.random.default_rng(1), 100)
    assert abs(told.value - np.trapezoid(parts, at) / 2.0) < 5.0 * told.error + 0.003


def entropy(chance: float) -> float:
    """Return the entropy of a coin in bits."""
    return -chance * math.log2(chance) - (1.0 - chance) * math.log2(1.0 - chance)


@pytest.mark.parametrize('flipped', [0.01, 0.1, 0.4])
def test_a_bit_that_is_flipped_at_times_tells_one_less_the_entropy_of_that(
    flipped: float,
) -> None:
    """FDRL Eq. 14 and 15 of a binary symmetric channel: I / H = 1 - h2(flipped), H = 1 bit."""
    rng = np.random.default_rng(4)
    members = rng.random((MODELS, RECORDS)) < 0.5
    scores = (members ^ (rng.random(members.shape) < flipped)).astype(float)
    told = leakage_rate(scores, members, rng, 100)
    assert abs(told.value - (1.0 - entropy(flipped))) < 5.0 * told.error + 1e-4


def test_the_rate_of_all_records_is_the_mean_over_hospitals() -> None:
    """FDRL Eq. 16, where every hospital has as many records; scores are log-likelihood ratios."""
    rng, chances = np.random.default_rng(5), np.repeat([0.05, 0.2, 0.45], RECORDS // 3)
    members = rng.random((MODELS, RECORDS)) < 0.5
    shown = members ^ (rng.random(members.shape) < chances)
    scores = np.where(shown, 1.0, -1.0) * np.log((1.0 - chances) / chances)
    told = leakage_rate(scores, members, rng, 100)
    exact = np.mean([1.0 - entropy(each) for each in (0.05, 0.2, 0.45)])
    assert abs(told.value - exact) < 5.0 * told.error + 1e-3
    each = [
        leakage_rate(scores[:, own], members[:, own], rng, 100).value
        for own in np.split(np.arange(RECORDS), 3)
    ]
    assert told.value == pytest.approx(np.mean(each), abs=2e-3)


def test_shuffled_labels_tell_nothing() -> None:
    scores, _ = gaussian(3.0)
    members = np.random.default_rng(9).random(scores.shape) < 0.5
    rng = np.random.default_rng(2)
    auc, tpr = Roc(scores, members).bootstrapped(0.01, rng, 100)
    told = leakage_rate(scores, members, rng, 100)
    for found, chance in ((auc, 0.5), (tpr, 0.01), (told, 0.0)):
        assert abs(found.value - chance) < 5.0 * found.error


def test_a_score_that_is_the_bit_tells_all_of_it() -> None:
    _, members = gaussian(0.0)
    roc = Roc(members.astype(float), members)
    assert roc.auc() == 1.0 and roc.tpr_at(0.001) == 1.0
    assert information(members.astype(float), members, np.random.default_rng(1)).mean() > 0.99


def test_equal_scores_are_chance_and_small_examples_are_exact() -> None:
    members = np.array([[True, False, True, False]])
    assert Roc(np.zeros((1, 4)), members).auc() == 0.5
    roc = Roc(np.array([[3.0, 2.0, 1.0, 0.0]]), members)
    assert roc.auc() == 0.75 and roc.tpr_at(0.0) == 0.5 and roc.tpr_at(0.5) == 1.0


@settings(max_examples=50, deadline=None)
@given(st.integers(0, 2**32 - 1))
def test_auc_is_the_share_of_right_pairs_and_turns_with_the_sign(seed: int) -> None:
    rng = np.random.default_rng(seed)
    scores = rng.integers(5, size=(3, 8)).astype(float)
    members = rng.random((3, 8)) < 0.5
    members[0, :2] = True, False
    inside, outside = scores[members][:, None], scores[~members][None]
    pairs = np.mean((inside > outside) + 0.5 * (inside == outside))
    roc = Roc(scores, members)
    assert roc.auc() == pytest.approx(pairs)
    assert Roc(-scores, members).auc() == pytest.approx(1.0 - pairs)
    # A model that counts twice is a model that is there twice.
    weights = np.array([2.0, 1.0, 0.0])
    rows = [0, 0, 1]
    if members[rows].any() and not members[rows].all():
        assert roc.auc(weights) == pytest.approx(Roc(scores[rows], members[rows]).auc())


def test_what_has_no_roc_is_refused() -> None:
    members = np.array([[True, False]])
    with pytest.raises(SettingError, match='scores'):
        Roc(np.array([[math.nan, 1.0]]), members)
    with pytest.raises(SettingError, match='members'):
        Roc(np.zeros((1, 2)), np.array([[True, True]]))
    with pytest.raises(SettingError, match='members'):
        Roc(np.zeros((2, 1)), members)
    with pytest.raises(SettingError, match='models'):
        information(np.zeros((1, 2)), members, np.random.default_rng(1))
