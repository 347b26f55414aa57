# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""What leaks wholly is charged: masses beyond the grid of losses, numbers beyond those listed."""

import math

from fdrl_ros.privacy.accountant.accountant import Account, Charge
from fdrl_ros.privacy.accountant.loss_distribution import (
    Composition,
    gaussian_epsilon,
    saddle_points,
    Solution,
)
from fdrl_ros.privacy.accountant.one_step import inclusions, one_step
import pytest

DELTA = 1e-3
INTERVAL = 1e-3


def composed(sigma: float, q: float, group: int, steps: int, share: float) -> Solution:
    """Compose steps, of which each may move this share of delta / steps to an infinite loss."""
    history, negligible = {(sigma, q, group): steps}, share * DELTA / steps
    tilts, _ = saddle_points(history, INTERVAL, negligible, DELTA)
    composition = Composition(INTERVAL, tilts, 2**16, negligible)
    composition.extend_to(history)
    return composition.epsilon(DELTA)


def test_mass_at_an_infinite_loss_is_taken_from_delta():
    """Three whole releases are one of root 3 times the ratio, whose epsilon is known exactly."""
    exact, last = gaussian_epsilon(math.sqrt(3.0), DELTA), 0.0
    for share in (0.0, 0.3, 0.6, 0.9):
        found = composed(1.0, 1.0, 1, 3, share).epsilon
        lost = 3.0 * one_step(1.0, 1.0, 1, INTERVAL, share * DELTA / 3.0)[0].lost
        # At most all of what was moved counts at this epsilon in the exact curve, too.
        assert exact - 1e-9 <= found <= gaussian_epsilon(math.sqrt(3.0), DELTA - lost) + 1e-3
        assert found > last
        last = found


@pytest.mark.parametrize('mechanism', [(1.0, 0.1, 1, 20), (2.0, 0.3, 3, 10)])
def test_whatever_is_moved_to_an_infinite_loss_epsilon_only_grows(mechanism):
    found = [composed(*mechanism, share).epsilon for share in (0.0, 0.3, 0.6, 0.9)]
    assert found == sorted(found) and found[-1] > found[0]


def test_more_infinite_losses_than_delta_have_no_epsilon():
    assert composed(1.0, 1.0, 1, 3, 0.9).epsilon < math.inf
    assert math.isinf(composed(1.0, 1.0, 1, 3, 3.0).epsilon)


def test_numbers_who_join_beyond_those_listed_are_taken_from_delta():
    """Some 10^10 steps, whose chance of a number that is not listed is delta together."""
    group, q, sigma = 200, 0.1, 1e6
    steps = math.ceil(1e-10 / inclusions(group, q).forgotten)
    assert math.isfinite(Account(1e-10, [Charge(sigma, q, steps // 2, group)]).epsilon_rdp())
    spent = Account(1e-10, [Charge(sigma, q, steps, group)])
    assert math.isinf(spent.epsilon_rdp())
    assert math.isinf(spent.epsilon_pld())
