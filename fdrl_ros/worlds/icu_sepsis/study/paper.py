# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""What the DP-DQN paper reports of its own patients, to stand beside ours (section 5)."""

from typing import Any

PAPER: dict[str, Any] = {
    'fae': 'longer as epsilon falls',
    'per': 'faster with PER at epsilon 12, no change at 8, slower at 4 and 2',
    'bands': {'low': 0.6, 'medium': 4.6, 'high': -4.0},
    'mortality': 'rises as epsilon falls, ever more steeply',
    'actions': 'hardly any vasopressors, but for high SOFA under DP-DQN and the clinicians',
    'peaks': {
        'clinicians': {'high': [4, 4]},
        'DQN': {'low': [0, 4], 'medium': [0, 4], 'high': [0, 4]},
        'DP-DQN, epsilon 8': {'low': [0, 4], 'medium': [0, 4], 'high': [3, 3]},
    },
    'numbers': 'by SOFA band at epsilon 8, and the most frequent actions; the rest are curves',
}
"""
Trends in words; `bands` in points of mortality, epsilon 8 against no privacy (Figure 6); `peaks`
the most frequent pair by policy and band (Figure 4), read as (vasopressor, fluid).
"""

CURVES = {
    'fae': f'Paper, Figure 5 (a curve without numbers): {PAPER["fae"]}; {PAPER["per"]}.',
    'mortality': f'Paper, Figure 7 (a curve without numbers): {PAPER["mortality"]}.',
    'learning': 'The paper has no such figure.',
    'information': 'The paper has no such figure.',
    'actions': 'Red: where most actions are in the paper (Figure 4, which gives no shares), its '
    'pairs read as (vasopressor, fluid); no red, no word of it.',
}
"""What stands below our plots, by plot."""
