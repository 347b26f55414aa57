# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""How far off a value model can be beyond what it says, so that its intervals hold."""

import math
from statistics import NormalDist

import numpy as np


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
