# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""What further rounds would cost, and how many of them a budget still pays for."""

from collections.abc import Sequence
from typing import NamedTuple

from fdrl_ros.privacy.accountant.accountant import Charge, epsilon_pld

MOST = 1000
"""Rounds that are looked ahead, at most."""


class Forecast(NamedTuple):
    """
    What comes after what was spent.

    :param epsilon: spent after one more round, by the tight accountant.
    :param rounds: further rounds that the budget pays for; :data:`MOST` means that many or more.
    """

    epsilon: float
    rounds: int


def forecast(
    history: Sequence[Charge], of_round: Sequence[Charge], *, delta: float, budget: float
) -> Forecast:
    """
    Return what further rounds like the newest one cost.

    :param history: everything that was charged.
    :param of_round: charges of one round.
    :param budget: the epsilon that may be spent in all.
    :raises PrivacyError: if a charge or delta is not valid.
    """

    def after(rounds: int) -> float:
        return epsilon_pld([*history, *(list(of_round) * rounds)], delta)

    first = after(1)
    paid, unpaid = 0, 1
    while unpaid <= MOST and (first if unpaid == 1 else after(unpaid)) <= budget:
        paid, unpaid = unpaid, 2 * unpaid
    unpaid = min(unpaid, MOST + 1)
    while unpaid - paid > 1:
        middle = (paid + unpaid) // 2
        if after(middle) <= budget:
            paid = middle
        else:
            unpaid = middle
    return Forecast(first, min(paid, MOST))
