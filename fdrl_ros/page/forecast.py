# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""
How many more rounds a hospital's budget pays for, from the epsilon that it published and the plan.

Nothing is asked of a hospital: its published epsilon says how many rounds of the plan it has paid,
and the plan's accountant says what the next ones cost.
"""

from bisect import bisect_right
from functools import cached_property
import math
from typing import Final

from fdrl_ros.deployment.events import PrivacySpent
from fdrl_ros.deployment.plan import Plan
from fdrl_ros.errors import PrivacyError
from fdrl_ros.learner.forecast import RoundCosts
from fdrl_ros.learner.privacy_cost import RecordCounts

MOST_ROUNDS: Final = 1000
"""More than these are not counted."""

_SAME: Final = 1e-3  # relative difference of two epsilons of the same rounds


class Forecast:
    """
    What the rounds of a plan cost a hospital, as far as what it publishes tells.

    :param plan: of the federation.
    """

    def __init__(self, plan: Plan) -> None:
        self._plan = plan

    def pays_for(self, spent: PrivacySpent) -> int | None:
        """
        Return how many more rounds a hospital's budget pays for, with the home policy after them.

        :param spent: what its ledger says.
        :returns: at most :data:`MOST_ROUNDS`. None where that cannot be known from outside: there
            is no budget, other federations may charge it too, or what was spent is not that of
            whole rounds of the plan, as with records of its own, a round that was cut short, or a
            home policy that is made.
        """
        forecast, chosen = self._forecast, self._plan.privacy
        if forecast is None or (spent.budget, spent.delta) != (chosen.budget, chosen.delta):
            return None
        if not math.isfinite(spent.budget) or not math.isfinite(spent.epsilon):
            return None

        def cost(rounds: int) -> float:
            return forecast.epsilon(rounds, home=False)

        done = bisect_right(range(1, MOST_ROUNDS + 1), spent.epsilon * (1.0 + _SAME), key=cost)
        if abs(cost(done) - spent.epsilon) > _SAME * spent.epsilon:
            return None
        return max(0, self._paid - done)

    @cached_property
    def _forecast(self) -> RoundCosts | None:
        plan = self._plan
        if plan.privacy.account or 'transition' in (plan.privacy.unit, plan.privacy.clipped):
            return None  # what others charge, and how many transitions there are, is private
        patients = plan.collection.patients
        counts = RecordCounts(patients, patients, plan.privacy.most_transitions)
        try:
            return RoundCosts(plan.learner, plan.privacy, plan.home, counts)
        except PrivacyError:
            return None

    @cached_property
    def _paid(self) -> int:
        assert self._forecast is not None
        return self._forecast.rounds_paid(MOST_ROUNDS)
