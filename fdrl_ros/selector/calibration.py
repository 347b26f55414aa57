# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""How well a value model's estimates and intervals hold on cases that it was not fitted to."""

from dataclasses import dataclass
import math
from statistics import NormalDist

from fdrl_ros.selector.value import StateValue
import numpy as np


@dataclass(frozen=True)
class Calibration:
    """
    Measured quality of a value model.

    :param error: root mean squared error of the predicted return.
    :param baseline_error: the same for the mean of the returns as a constant prediction.
    :param coverage: fraction of returns inside the intervals for a single return.
    :param confidence: the coverage that was asked for.
    :param cases: cases measured on; each weighs the same.
    """

    error: float
    baseline_error: float
    coverage: float
    confidence: float
    cases: int


def calibration(
    model: StateValue,
    states: np.ndarray,
    returns: np.ndarray,
    cases: np.ndarray,
    confidence: float = 0.9,
) -> Calibration:
    """
    Measure an estimate on held-out cases.

    :param states: scaled, shape (N, S).
    :param returns: discounted return from each state to the end of its case, shape (N,).
    :param cases: which case each state is of, shape (N,).
    """
    _, case, sizes = np.unique(cases, return_inverse=True, return_counts=True)
    weights = 1.0 / (len(sizes) * sizes[case])
    returns = np.asarray(returns, dtype=np.float64)
    mean, _ = model.mean_and_std(states)
    low, high = model.interval(states, confidence)
    constant = float(weights @ returns)
    return Calibration(
        error=float(weights @ (returns - mean) ** 2) ** 0.5,
        baseline_error=float(weights @ (returns - constant) ** 2) ** 0.5,
        coverage=float(weights @ ((low <= returns) & (returns <= high))),
        confidence=confidence,
        cases=len(sizes),
    )


def mean_coverage(
    model: StateValue,
    states: np.ndarray,
    mean_returns: np.ndarray,
    standard_errors: np.ndarray | float,
    confidence: float = 0.9,
) -> float:
    """
    Measure how often the intervals for E[J given s] hold the Monte-Carlo mean.

    :param mean_returns: mean of many returns from each state, shape (N,).
    :param standard_errors: of those means, shape (N,) or one number.
    :returns: fraction of states, of which `confidence` is expected.
    """
    mean, std = model.mean_and_std(states)
    factor = NormalDist().inv_cdf(0.5 + confidence / 2)
    half = factor * np.sqrt(std**2 + np.square(standard_errors))
    return float(np.mean(np.abs(np.asarray(mean_returns) - mean) <= half))


def measured_misfit(
    errors: np.ndarray,
    reference_errors: np.ndarray,
    stds: np.ndarray,
    confidence: float = 0.9,
) -> float:
    """
    Return the least misfit with which intervals hold E[J given s] as often as they say.

    Of N states that the model has not seen, (N + 1) times the confidence must lie inside: so many
    does split conformal prediction ask for, that a further one lies inside as often.

    :param errors: estimate less Monte-Carlo expectation, shape (N,), at least one.
    :param reference_errors: standard errors of those expectations, shape (N,).
    :param stds: what the model says of its error so far, with no misfit, shape (N,).
    :param confidence: two-sided, in (0, 1).
    :returns: standard deviation, in returns, at least 0.
    """
    factor = NormalDist().inv_cdf(0.5 + confidence / 2)
    wanted = np.square(errors) / factor**2 - np.square(reference_errors) - np.square(stds)
    place = min(math.ceil((len(wanted) + 1) * confidence), len(wanted)) - 1
    return math.sqrt(max(float(np.sort(wanted)[place]), 0.0))
