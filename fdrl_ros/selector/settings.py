# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""How cautious the selector is."""

from dataclasses import dataclass

from fdrl_ros.metrics.means import WINDOW
from fdrl_ros.settings import setting, Settings


@dataclass(frozen=True)
class SelectorSettings(Settings):
    """How cautious the selector is."""

    confidence: float = setting(
        0.6,
        'one-sided confidence of the lower bound of a return; the robot compares this bound with '
        'the return of holding',
        limits=(0.5, 0.999),
    )
    advantage_confidence: float = setting(
        0.6,
        'one-sided confidence of the lower bound of an advantage, by which another policy takes '
        'over: that quantile of a normal distribution, in jackknife deviations',
        limits=(0.5, 0.999),
    )
    risk_weight: float = setting(
        0.2,
        'returns that a risk D_t of 1 for one tick counts as much as, discounted as returns are',
        unit='return',
        minimum=0.0,
    )
    margin: float = setting(
        0.1,
        'lower bound of the advantage at which another policy takes over, or holding',
        unit='return',
        minimum=0.0,
    )
    home_margin: float = setting(
        0.1,
        "lower bound of the advantage over the home policy of the robot's hospital, or over the "
        'global policy where it has none, at which another policy may act',
        unit='return',
        minimum=0.0,
    )
    dwell: float = setting(
        0.15, 'shortest time between two switches', limits=(0.0, 10.0), unit='s'
    )
    patience: float = setting(
        1.0,
        'time after which a lower bound of the advantage above 0 is enough',
        limits=(0.0, 60.0),
        unit='s',
    )
    state_timeout: float = setting(
        0.03, 'age at which a state is stale', limits=(0.005, 0.04), unit='s'
    )
    state_bound: float = setting(
        100.0, 'largest plausible value of a state, in its scale', minimum=1.0
    )
    failure_pause: float = setting(
        1.0, 'time for which a failed policy is left out', limits=(0.05, 60.0), unit='s'
    )
    hold_return: float = setting(
        -1.5, 'return of holding where no model estimates it: the cost of the time', unit='return'
    )
    hold_handicap: float = setting(
        0.0,
        'taken off the return of holding where a model says it: how much bolder the robot is',
        unit='return',
        minimum=0.0,
    )
    change_threshold: float = setting(
        0.5, 'change of state that counts in Eq. 4 and 11, in scales', minimum=0.0
    )
    window: int = setting(
        WINDOW,
        'newest steps that the sliding window of the metrics holds',
        limits=(1, 1_000_000),
        unit='ticks',
    )
    answer_timeout: float = setting(
        0.02, 'time after which a choice is late', limits=(0.001, 0.04), unit='s'
    )
