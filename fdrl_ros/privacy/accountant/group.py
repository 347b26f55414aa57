# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""
The number of a privacy unit's records in a step: group privacy of Poisson sampling (Ganesh 2024).

Each of a unit's k records joins by its own coin of probability q and is clipped to C, so the unit
moves the sum by at most C times a Binomial(k, q) number: with the unit the output is a mixture of
Gaussians, without it one Gaussian. A stochastically larger number costs at least as much, since
every best test is a threshold. Therefore all rounding here is upwards.
"""

from functools import lru_cache
from typing import NamedTuple

from fdrl_ros.errors import PrivacyError
import numpy as np
from numpy.typing import NDArray
import scipy

LARGEST_GROUP = 2**20
"""Most records of a privacy unit."""

_FORGOTTEN = 1e-20  # chance of numbers above the list, charged to delta
_NUMBERS = 512  # at most in the list; more are merged upwards


class Inclusions(NamedTuple):
    """
    Distribution of the number of joining records.

    ``numbers`` rise, shape (numbers,); ``log_chances`` are their log-probabilities. ``forgotten``
    is the chance that more records join than the last number; such steps count as leaked.
    """

    numbers: NDArray[np.float64]
    log_chances: NDArray[np.float64]
    forgotten: float


@lru_cache(maxsize=64)
def inclusions(group: int, q: float) -> Inclusions:
    """
    Return the distribution of the number of a unit's records in a step, rounded upwards.

    :param group: k, the most records that a unit owns.
    :param q: chance of each to join, in (0, 1].
    """
    if q == 1.0:
        return Inclusions(np.array([float(group)]), np.array([0.0]), 0.0)
    j = np.arange(group + 1)
    log_chances = (
        scipy.special.gammaln(group + 1)
        - scipy.special.gammaln(j + 1)
        - scipy.special.gammaln(group - j + 1)
    )
    log_chances += scipy.special.xlogy(j, q) + scipy.special.xlog1py(group - j, -q)
    if group == 1:
        return Inclusions(j.astype(np.float64), log_chances, 0.0)
    log_chances -= scipy.special.logsumexp(log_chances)  # gammaln of a million is rounded by 1e-9
    chances = np.exp(log_chances)
    below, above = np.cumsum(chances), np.cumsum(chances[::-1])[::-1]
    least = int(np.searchsorted(below, _FORGOTTEN))
    most = int(np.searchsorted(-above, -_FORGOTTEN)) - 1
    stride = -(-(most - least) // _NUMBERS) or 1
    last = np.arange(least, most + stride, stride)
    last[-1] = min(last[-1], group)
    starts = np.concatenate(([0], last[:-1] + 1))
    joined = np.logaddexp.reduceat(log_chances[: last[-1] + 1], starts)
    forgotten = float(above[last[-1] + 1]) if last[-1] < group else 0.0
    return Inclusions(last.astype(np.float64), joined, forgotten)


def records_of_a_transition(n_steps: int = 1, frames: int = 1) -> int:
    """
    Return the group of a stored transition: how many sampled records depend on it.

    A record that starts at time t depends on the transitions t to t + n - 1 of its n-step return
    and on the f - 1 before, whose observations are in its stack of f frames. (A patient with m
    transitions owns m records, however they overlap; there the group is m.)

    :param n_steps: n of the n-step return.
    :param frames: f, observations in a state.
    :raises PrivacyError: unless both are whole numbers, 1 or above.
    """
    for name, value in (('n_steps', n_steps), ('frames', frames)):
        if isinstance(value, bool) or not isinstance(value, int | np.integer) or value < 1:
            raise PrivacyError(f'{name} = {value!r}: expected a whole number, 1 or above')
    return int(n_steps + frames - 1)
