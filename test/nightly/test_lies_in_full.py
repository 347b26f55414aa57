# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""
600 rounds of random lies, with restarts of the hospitals that are lied to: no lie gains anything.

Takes about fifteen minutes; run by `make nightly NIGHTLY=test/nightly/test_lies_in_full.py`. With
2t - n hospitals on its side the same liar gets more than one sum of a round soon.
"""

from collections import Counter

import pytest
from support.liar import gains_nothing, Liar, lie_at_random

SETTINGS = {
    'rounds': 200,
    'hospitals_and_corrupt': [(5, 2), (7, 2), (10, 3)],
    'rounds_lost': 40,
    'hospitals_and_too_many_corrupt': [(5, 3)],
}

pytestmark = pytest.mark.slow


def lie_for(rounds, hospitals, corrupt):
    found = Counter(hospitals=hospitals, corrupt=corrupt)
    for seed in range(rounds):
        liar = Liar(hospitals, corrupt, seed)
        noticed = lie_at_random(liar, liar.rng.randint(1, 3))
        found.update(rounds=1, messages=len(liar.said))
        found.update(
            attempts_with_lies=len(noticed),
            noticed=sum(noticed),
            rounds_with_a_sum=bool(liar.facts()),
            rounds_with_more_than_a_sum=not gains_nothing(liar),
        )
    return found


@pytest.mark.parametrize('size', SETTINGS['hospitals_and_corrupt'])
def test_random_lies_are_noticed_and_gain_nothing(size, figures):
    found = lie_for(SETTINGS['rounds'], *size)
    figures.append(dict(found))
    assert found['rounds_with_more_than_a_sum'] == 0
    assert found['noticed'] == found['attempts_with_lies'] > 100
    assert found['rounds_with_a_sum'] > 50


@pytest.mark.parametrize('size', SETTINGS['hospitals_and_too_many_corrupt'])
def test_random_lies_of_more_hospitals_gain_more_than_a_sum(size, figures):
    found = lie_for(SETTINGS['rounds_lost'], *size)
    figures.append(dict(found))
    assert found['rounds_with_more_than_a_sum'] > 0
