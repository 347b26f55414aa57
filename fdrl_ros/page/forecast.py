# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""
How many more rounds a hospital's budget pays for, from the epsilon that it published and the plan.

Nothing is asked of a hospital: its published epsilon says how many rounds of the plan it has paid,
and the plan's accountant says what the next ones cost.
"""

from collections.abc import Sequence
from functools import cached_property, lru_cache
import math
from typing import Final, NamedTuple

from fdrl_ros.deployment.events import PrivacySpent
from fdrl_ros.deployment.plan import Plan
from fdrl_ros.errors import PrivacyError
from fdrl_ros.learner.forecast import planned_chain, RoundCosts
from fdrl_ros.learner.privacy_cost import RecordCounts
from fdrl_ros.privacy.ledger.chain import Chain

MOST_ROUNDS: Final = 1000
"""More than these are not counted."""

_SAME: Final = 1e-3  # relative difference of two epsilons of the same charges


class _Stage(NamedTuple):
    """What a hospital spent at a stage of the plan, and the further rounds that are paid."""

    epsilon: float
    paid: int


class Forecast:
    """
    What the rounds of a plan cost a hospital, as far as what it publishes tells.

    :param plan: of the federation.
    """

    def __init__(self, plan: Plan) -> None:
        self._plan = plan
        # Hospitals with as many patients pay the same for the same number of entries.
        self._stages = lru_cache(maxsize=16)(self._priced)

    def pays_for(self, spent: PrivacySpent) -> int | None:
        """
        Return how many more rounds a hospital's budget pays for, with the home policy after them.

        Where the plan makes home policies, one is priced as planned, also where one is made
        already: whoever goes on makes another after the new rounds.

        :param spent: what its ledger says.
        :returns: at most :data:`MOST_ROUNDS`. None where that cannot be known from outside: there
            is no budget, other federations may charge it too, or what was spent is not that of
            whole rounds of the plan and of its home policy, as with records of its own, or where a
            round or a home policy was cut short.
        """
        chosen = self._plan.privacy
        if self._counts is None or (spent.budget, spent.delta) != (chosen.budget, chosen.delta):
            return None
        if not math.isfinite(spent.budget) or not math.isfinite(spent.epsilon):
            return None
        for stage in self._stages(spent.entries):
            if math.isclose(stage.epsilon, spent.epsilon, rel_tol=_SAME):
                return stage.paid
        return None

    def _priced(self, entries: int) -> Sequence[_Stage]:
        """Return the stages of the plan at which a ledger has so many entries."""
        found = []
        for home in (False, True):
            rounds, begun = divmod(
                entries - self._entries_at_home * home, self._plan.learner.epochs
            )
            if begun or not home <= rounds <= MOST_ROUNDS or (home and not self._entries_at_home):
                continue
            chain, plan = self._chain(rounds, home), self._plan
            assert self._counts is not None
            costs = RoundCosts(plan.learner, plan.privacy, plan.home, self._counts, chain=chain)
            found.append(_Stage(costs.epsilon(0, home=False), costs.rounds_paid(MOST_ROUNDS)))
        return found

    def _chain(self, rounds: int, home: bool) -> Chain:
        plan, counts = self._plan, self._counts
        assert counts is not None
        return planned_chain(plan.learner, plan.privacy, plan.home, counts, rounds, home_made=home)

    @cached_property
    def _entries_at_home(self) -> int:
        return self._chain(0, True).head.entries

    @cached_property
    def _counts(self) -> RecordCounts | None:
        plan = self._plan
        if plan.privacy.account or 'transition' in (plan.privacy.unit, plan.privacy.clipped):
            return None  # what others charge, and how many transitions there are, is private
        patients = plan.collection.patients
        counts = RecordCounts(patients, patients, plan.privacy.most_transitions)
        try:
            RoundCosts(plan.learner, plan.privacy, plan.home, counts)
        except PrivacyError:
            return None
        return counts
