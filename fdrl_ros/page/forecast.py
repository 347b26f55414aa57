# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""
How many more rounds a hospital's budget pays for, from the epsilon that it published and the plan.

Nothing is asked of a hospital: its published epsilon says how many rounds of the plan it has paid,
and the plan's accountant says what the next ones cost.
"""

from bisect import bisect_right
from collections.abc import Callable
from functools import cached_property
import math
from typing import Final

from fdrl_ros.deployment.events import PrivacySpent
from fdrl_ros.deployment.plan import Plan
from fdrl_ros.errors import PrivacyError
from fdrl_ros.learner.privacy_cost import ChargedMechanism, RecordCounts
from fdrl_ros.privacy.accountant.accountant import Charge, epsilon_pld, epsilon_rdp

MOST_ROUNDS: Final = 1000
"""More than these are not counted."""

_SAME: Final = 1e-3  # relative difference of two epsilons of the same rounds


class Forecast:
    """
    What the rounds of a plan cost a hospital.

    :param plan: of the federation.
    """

    def __init__(self, plan: Plan) -> None:
        self._plan = plan

    def pays_for(self, spent: PrivacySpent) -> int | None:
        """
        Return how many more rounds a hospital's budget pays for.

        :param spent: what its ledger says.
        :returns: at most :data:`MOST_ROUNDS`. None where that cannot be known from outside: there
            is no budget, or what was spent is not that of whole rounds of the plan, as with
            records of its own, other federations on one account, or a home policy.
        """
        if self._mechanism is None or not math.isfinite(spent.budget):
            return None
        if spent.delta != self._plan.privacy.delta or not math.isfinite(spent.epsilon):
            return None
        rounds = range(1, MOST_ROUNDS + 1)
        done = bisect_right(rounds, spent.epsilon * (1.0 + _SAME), key=self._epsilon)
        if abs(self._epsilon(done) - spent.epsilon) > _SAME * spent.epsilon:
            return None
        paid = bisect_right(rounds, spent.budget, key=self._least_epsilon(spent.budget))
        return max(0, paid - done)

    @cached_property
    def _mechanism(self) -> ChargedMechanism | None:
        plan = self._plan
        if 'transition' in (plan.privacy.unit, plan.privacy.clipped):
            return None  # how many transitions a hospital has is private
        patients = plan.collection.patients
        counts = RecordCounts(patients, patients, plan.privacy.most_transitions)
        try:
            return ChargedMechanism.from_settings(counts, plan.learner, plan.privacy)
        except PrivacyError:
            return None

    def _charges(self, rounds: int) -> list[Charge]:
        mechanism = self._mechanism
        assert mechanism is not None
        return [mechanism.charge(rounds * self._plan.learner.epochs * mechanism.steps_of_epoch)]

    def _epsilon(self, rounds: int) -> float:
        return epsilon_pld(self._charges(rounds), self._plan.privacy.delta) if rounds else 0.0

    def _least_epsilon(self, budget: float) -> Callable[[int], float]:
        """Return a cost of rounds that is quick where a bound tells that the budget pays."""
        delta = self._plan.privacy.delta

        def cost(rounds: int) -> float:
            quick = epsilon_rdp(self._charges(rounds), delta)
            return quick if quick <= budget else self._epsilon(rounds)

        return cost
