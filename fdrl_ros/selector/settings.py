# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""How cautious the selector is."""

from dataclasses import dataclass

from fdrl_ros.metrics.means import WINDOW
from fdrl_ros.settings import setting, Settings, within


@dataclass(frozen=True)
class SelectorSettings(Settings):
    """How cautious the selector is."""

    confidence: float = within(0.6, 0.5, 0.999, 'one-sided confidence of the lower bounds')
    risk_weight: float = setting(
        0.2,
        'returns that a risk D_t of 1 for one tick counts as much as, discounted as returns are',
        unit='return',
        minimum=0.0,
    )
    margin: float = setting(
        0.1, 'advantage that another policy surely needs', unit='return', minimum=0.0
    )
    dwell: float = within(0.15, 0.0, 10.0, 'shortest time between two switches', unit='s')
    patience: float = within(
        1.0, 0.0, 60.0, 'time after which any sure advantage is enough', unit='s'
    )
    state_timeout: float = within(0.03, 0.005, 0.04, 'age at which a state is stale', unit='s')
    state_bound: float = setting(
        100.0, 'largest plausible value of a state, in its scale', minimum=1.0
    )
    failure_pause: float = within(
        1.0, 0.05, 60.0, 'time for which a failed policy is left out', unit='s'
    )
    hold_return: float = setting(
        -1.5, 'return of holding where no model says it: the time lost', unit='return'
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
    window: int = within(
        WINDOW,
        1,
        1_000_000,
        'newest steps that the sliding window of the metrics holds',
        unit='ticks',
    )
    answer_timeout: float = within(
        0.02, 0.001, 0.04, 'time after which a choice is late', unit='s'
    )
