# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""Plans of which a whole run takes about a second, for tests of what comes after it."""

from fdrl_ros.deployment.plan import Plan

TINY_PLAN = {
    'federation': {'noise': 'seeded', 'procedures': 'palpation, retraction'},
    'rounds': {'rounds': 2},
    'learner': {'hidden': 8, 'epochs': 1},
    'home': {'epochs': 0},
    'privacy': {'batch': 4, 'noise_multiplier': 2.0, 'budget': 8.0, 'delta': 1e-4},
    'collection': {'patients': 8},
    'pretraining': {'patients': 4, 'steps': 20, 'batch': 256},
    'validation': {'patients': 2, 'margin': 1.0},
    'evaluation': {'workers': 1},
    'world': {'mode': 'kinematic', 'horizon': 10},
}
SMALL_PLAN = Plan().changed(
    {
        **TINY_PLAN,
        'federation': {'noise': 'seeded', 'procedures': 'reach, palpation'},
        'rounds': {'rounds': 1},
        'privacy': {'batch': 4},
        'world': {'mode': 'kinematic', 'horizon': 12},
    }
)
