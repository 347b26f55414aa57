# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""A plan of which a whole run takes about a second, for tests of what comes after it."""

from fdrl_ros.deployment.plan import Plan

SMALL_PLAN = Plan().changed(
    {
        'federation': {'noise': 'seeded', 'procedures': 'reach, palpation'},
        'rounds': {'rounds': 1},
        'learner': {'hidden': 8, 'epochs': 1},
        'privacy': {'batch': 4},
        'collection': {'patients': 8},
        'pretraining': {'patients': 4, 'steps': 20},
        'validation': {'patients': 2, 'margin': 1.0},
        'evaluation': {'workers': 1},
        'world': {'mode': 'kinematic', 'horizon': 12},
    }
)
