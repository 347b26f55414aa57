# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""
A coalition of both servers and t - 1 hospitals tries to tell two worlds apart, 200 rounds each.

Takes about fifteen minutes; run by `make nightly NIGHTLY=test/nightly/test_coalition_in_full.py`.
With one share more the same distinguishers are right every time.
"""

import pytest
from support.worlds import count_wins, LOST, SAFE

SETTINGS = {'seed': 2026, 'rounds': 200, 'rounds_with_one_share_more': 20}

# Five standard deviations of a fair coin: one of the 28 counts is beyond it once in 60,000 runs.
MOST = 100 + 5 * 200**0.5 / 2

pytestmark = pytest.mark.slow


@pytest.mark.parametrize('name', SAFE)
def test_no_distinguisher_has_an_advantage_over_a_coin(name, figures):
    wins = count_wins(SAFE[name], SETTINGS['rounds'], SETTINGS['seed'])
    figures.append({'scenario': name, 'rounds': SETTINGS['rounds'], 'right': wins})
    assert all(SETTINGS['rounds'] - MOST <= each <= MOST for each in wins.values())


@pytest.mark.parametrize('name', LOST)
def test_with_one_share_more_every_distinguisher_is_always_right(name, figures):
    rounds = SETTINGS['rounds_with_one_share_more']
    wins = count_wins(LOST[name], rounds, SETTINGS['seed'])
    figures.append({'scenario': name, 'rounds': rounds, 'right': wins})
    assert set(wins.values()) == {rounds}
