# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""
What further rounds of a plan cost a hospital, the home policy after them included.

Whoever tells or checks how many rounds a budget pays for asks here.
"""

from bisect import bisect_right
from collections.abc import Sequence
import math

from fdrl_ros.errors import PrivacyError
from fdrl_ros.learner.home import ALONE, home_charges, PERSONAL
from fdrl_ros.learner.privacy_cost import ChargedMechanism, Sized
from fdrl_ros.learner.settings import HomeSettings, LearnerSettings, PrivacySettings
from fdrl_ros.privacy.accountant.accountant import Charge, epsilon_pld, epsilon_rdp
from fdrl_ros.privacy.ledger.chain import Chain, Owner
from fdrl_ros.privacy.noise_key import HOME_ROUNDS
from fdrl_ros.privacy.stated import stated

_ROUNDING = 1e-5
"""Relative difference of two ways of adding up the same charges."""


def planned_chain(
    learner: LearnerSettings,
    privacy: PrivacySettings,
    home: HomeSettings,
    size: Sized,
    rounds: int,
    *,
    home_made: bool = False,
) -> Chain:
    """
    Return the ledger that a hospital has after so many whole rounds of a plan.

    :param home_made: whether it has made the home policy too, if the plan makes one.
    :raises PrivacyError: if the settings give no guarantee for the size.
    """
    mechanism = ChargedMechanism.from_settings(size, learner, privacy)
    block = mechanism.charge(mechanism.steps_of_epoch)
    chain = Chain(Owner('', privacy.unit, privacy.delta, privacy.budget))
    trained = [(1 + round, learner.epochs) for round in range(rounds)]
    if home_made and home.epochs:
        at_home = {PERSONAL: (HOME_ROUNDS + rounds, home.epochs)}
        at_home[ALONE] = 3 * HOME_ROUNDS, home.alone_epochs
        trained += [each for name, each in at_home.items() if name in home.names]
    for number, blocks in trained:
        for each in range(blocks):
            chain.add(chain.next(number, each, block, b''))
    if home_made:
        for choice in home_charges(learner, privacy, home, size, chain, rounds):
            chain.add(chain.next(2 * HOME_ROUNDS + rounds, 0, choice, b''))
    return chain


class RoundCosts:
    """
    What comes after the charges of one hospital.

    A round that was charged in part counts as a further one, which costs its missing blocks.
    """

    def __init__(
        self,
        learner: LearnerSettings,
        privacy: PrivacySettings,
        home: HomeSettings,
        size: Sized,
        *,
        chain: Chain | None = None,
        elsewhere: Sequence[Charge] = (),
    ) -> None:
        """
        Price the rounds of a plan.

        :param chain: of the hospital's ledger; None if nothing was charged yet.
        :param elsewhere: charges of other federations to the same budget.
        :raises PrivacyError: if the settings give no guarantee for the size.
        """
        self._learner, self._privacy, self._home, self._size = learner, privacy, home, size
        self._mechanism = ChargedMechanism.from_settings(size, learner, privacy)
        self._chain, self._elsewhere = chain, tuple(elsewhere)
        history = () if chain is None else chain.history()
        self._history = (*self._elsewhere, *history)
        rounds = [] if chain is None else [each.round for each in chain.entries]
        newest = max((each for each in rounds if each < HOME_ROUNDS), default=0)
        blocks = 0 if chain is None else chain.blocks(newest)
        begun = 0 < blocks < learner.epochs
        self.done = newest - begun
        """Rounds of the plan that are charged as a whole."""
        self._begun = blocks if begun else 0

    def epsilon(self, more: int, *, home: bool = True) -> float:
        """
        Return what is spent after further rounds, by the tight accountant, rounded up a little.

        :param more: how many further rounds.
        :param home: whether the home policy after them counts, if the plan makes one.
        """
        return self._priced(self._charges(more, home))

    def rounds_paid(self, most: int) -> int:
        """
        Return how many further rounds the budget pays for, with the home policy after them.

        :param most: number up to which it is looked for.
        """
        if math.isinf(self._privacy.budget):
            return most
        return bisect_right(range(1, most + 1), self._privacy.budget, key=self._quick)

    def check(self, rounds: int) -> None:
        """
        Check that the budget pays for all rounds of a plan, and for the home policy after them.

        :param rounds: of the whole plan; those that are done already cost nothing more.
        :raises PrivacyError: if not; the message says how many rounds it pays for.
        """
        budget, more = self._privacy.budget, max(0, rounds - self.done)
        if math.isinf(budget) or self._quick(more) <= budget:
            return
        cost, others = self.epsilon(more, home=False), ''
        if self._elsewhere:
            spent = epsilon_pld(self._elsewhere, self._privacy.delta)
            others = f', with the {stated(spent, 4)} of other federations,'
        if cost <= budget:
            raise PrivacyError(
                f'{rounds} rounds cost{others} epsilon {stated(cost, 4)}, with the home policy '
                f'{stated(self.epsilon(more), 4)}, and the budget is {budget:g}: take fewer '
                'rounds.rounds or home.epochs, or a greater privacy.noise_multiplier'
            )
        paid = self.done + self.rounds_paid(max(more - 1, 0))
        fewer = f'set rounds.rounds to at most {paid}, or ' if paid else ''
        home = ' with the home policy after them' if paid and self.epsilon(more) > cost else ''
        raise PrivacyError(
            f'{rounds} rounds of {self._learner.epochs} local epochs cost{others} epsilon '
            f'{stated(cost, 4)}, and the budget of {budget:g} pays for {paid}{home}: {fewer}take '
            'a greater privacy.noise_multiplier, fewer learner.epochs or a smaller privacy.batch; '
            '`fdrl privacy calibrate` finds the noise'
        )

    def _charges(self, more: int, home: bool = True) -> tuple[Charge, ...]:
        blocks = max(0, more * self._learner.epochs - self._begun)
        steps = blocks * self._mechanism.steps_of_epoch
        rounds = (self._mechanism.charge(steps),) if steps else ()
        last = self.done + more
        after: tuple[Charge, ...] = ()
        if home and last:
            after = home_charges(
                self._learner, self._privacy, self._home, self._size, self._chain, last
            )
        return (*self._history, *rounds, *after)

    def _priced(self, charges: Sequence[Charge]) -> float:
        # The ledger adds rounds one by one, with other rounding errors.
        return epsilon_pld(charges, self._privacy.delta) * (1.0 + _ROUNDING) if charges else 0.0

    def _quick(self, more: int) -> float:
        """Return an upper bound that is the tight figure wherever it is above the budget."""
        charges = self._charges(more)
        quick = epsilon_rdp(charges, self._privacy.delta) if charges else 0.0
        # This bound grows too, so that a search among both finds the last that is paid.
        return quick if quick <= self._privacy.budget else self._priced(charges)
