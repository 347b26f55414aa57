# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""Heat maps of actions by policy and severity, with their spread over seeds (DP-DQN Figure 4)."""

from collections.abc import Sequence
from typing import Any

from fdrl_ros.experiments.statistics import interval, SHARE
from fdrl_ros.worlds.icu_sepsis.model import LEVELS
from fdrl_ros.worlds.icu_sepsis.values import BANDS
import numpy as np
from numpy.typing import NDArray


def heat_map(runs: Sequence[dict[str, list[float]]]) -> dict[str, Any]:
    """
    Return the share of each action by band, and of each level of either drug.

    :param runs: of one policy: shares of the 25 actions by band, as
        :func:`fdrl_ros.worlds.icu_sepsis.study.study.judged` returns them.
    :returns: by band ``shares`` (25), ``vasopressor`` and ``fluid`` (5 each): mean, and where
        there are several runs low and high, the ends of the 95 % interval over them.
    """
    return {band: _of_band([run[band] for run in runs]) for band in ('all', *BANDS)}


def spread(found: dict[str, Any]) -> NDArray[np.float64] | None:
    """Return how far the interval reaches from the mean at most; None of a single run."""
    if found['low'] is None:
        return None
    mean, low, high = (np.array(found[each]) for each in ('mean', 'low', 'high'))
    further: NDArray[np.float64] = np.maximum(high - mean, mean - low)
    return further


def most_frequent(found: dict[str, Any]) -> tuple[int, int]:
    """Return the levels (vasopressor, fluid) of the most frequent action, as the paper does."""
    fluid, vasopressor = divmod(int(np.argmax(found['shares']['mean'])), LEVELS)
    return vasopressor, fluid


def _of_band(shares: Sequence[list[float]]) -> dict[str, Any]:
    grids = np.reshape(shares, (len(shares), LEVELS, LEVELS))
    return {
        'shares': _summed_up(grids.reshape(len(shares), -1)),
        'vasopressor': _summed_up(grids.sum(axis=1)),
        'fluid': _summed_up(grids.sum(axis=2)),
    }


def _summed_up(values: NDArray[np.float64]) -> dict[str, Any]:
    """Return mean and interval of each column; shares are from 0 to 1."""
    every = [interval(column.tolist(), SHARE) for column in values.T]
    found: dict[str, Any] = {'mean': [each['mean'] for each in every], 'low': None, 'high': None}
    if len(values) > 1:
        found['low'] = [each['low'] for each in every]
        found['high'] = [each['high'] for each in every]
    return found
