# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""
The adversary: guesses canaries from every release, given all patients and their coins.

In a step, the release along a canary's direction, less what patients added, is N(j C, (sigma C)^2)
with j whether the canary joined. So log(1 - q + q exp((2 x - 1) / (2 sigma^2))), x in units of C,
is how much likelier it is for a member, and the sum over steps is the best score there is
(Neyman and Pearson 1933), also where steps differ in sigma or q.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
import math
from typing import NamedTuple, Self

from fdrl_ros.audit.bound import epsilon_lower_bound, error_lower_bound
from fdrl_ros.privacy.accountant.accountant import Charge
import numpy as np
from numpy.typing import NDArray

PARTS = (0.5, 0.25, 0.12, 0.06, 0.03, 0.02, 0.01, 0.005, 0.0)
"""Of all canaries: how many of the highest scores, and of the lowest, may be guessed."""

SHARES = (0.75, 0.25)
"""Of the chance of failure: for the planned guesses, and for guessing everyone."""

_REHEARSED = 20000  # canaries, in as many rehearsals as that takes


class Guesses(NamedTuple):
    """Which places of :data:`PARTS` are guessed to be members, and which not to be."""

    members: int
    others: int


@dataclass(frozen=True)
class Hits:
    """
    What guesses of canaries would be right, of one run or of several.

    Runs of separate noise are one mechanism, and each canary is of one run: so the same theorems
    hold for all canaries together. ``members`` and ``others``: number of them. ``top``: members
    among the highest scores, and ``bottom``: others among the lowest, for each of :data:`PARTS`.
    ``sizes``: how many scores each of these parts has. ``missed``: members with a score of 0 or
    below. ``alarms``: others above 0.
    """

    members: int
    others: int
    top: tuple[int, ...]
    bottom: tuple[int, ...]
    sizes: tuple[int, ...]
    missed: int
    alarms: int

    @classmethod
    def of(cls, scores: NDArray[np.float64], members: NDArray[np.bool_]) -> Self:
        """Count, given who is a member: shapes (canaries,)."""
        count = len(scores)
        ranked = members[np.argsort(scores, kind='stable')]
        sizes = tuple(round(part * count) for part in PARTS)
        return cls(
            int(members.sum()),
            int((~members).sum()),
            tuple(int(ranked[count - size :].sum()) for size in sizes),
            tuple(int((~ranked[:size]).sum()) for size in sizes),
            sizes,
            int((members & (scores <= 0.0)).sum()),
            int((~members & (scores > 0.0)).sum()),
        )

    def __add__(self, other: 'Hits') -> 'Hits':
        """Put two runs together."""

        def both(mine: Sequence[int], theirs: Sequence[int]) -> tuple[int, ...]:
            return tuple(x + y for x, y in zip(mine, theirs, strict=True))

        return Hits(
            self.members + other.members,
            self.others + other.others,
            both(self.top, other.top),
            both(self.bottom, other.bottom),
            both(self.sizes, other.sizes),
            self.missed + other.missed,
            self.alarms + other.alarms,
        )

    def proven(self, planned: Guesses, *, delta: float, failure: float) -> float:
        """
        Bound epsilon by the planned guesses and by guessing every canary; the larger bound holds.

        Of everyone, those with a score above 0 are guessed to be members. Each may fail with its
        share of `failure`, so both hold at once with confidence 1 - failure.
        """
        first = self.bound(planned, delta=delta, failure=SHARES[0] * failure)
        count = self.members + self.others
        second = epsilon_lower_bound(
            canaries=count,
            guesses=count,
            correct=count - self.missed - self.alarms,
            delta=delta,
            failure=SHARES[1] * failure,
        )
        return max(first, second)

    def bound(self, guesses: Guesses, *, delta: float, failure: float) -> float:
        """Return the epsilon that some guesses prove, whatever the mechanism is."""
        return epsilon_lower_bound(
            canaries=self.members + self.others,
            guesses=self.sizes[guesses.members] + self.sizes[guesses.others],
            correct=self.top[guesses.members] + self.bottom[guesses.others],
            delta=delta,
            failure=failure,
        )

    def by_errors(self, claimed: Charge, *, delta: float, failure: float) -> float:
        """Return :func:`fdrl_ros.audit.bound.error_lower_bound` of guessing everyone."""
        errors, guessed = (self.missed, self.alarms), (self.members, self.others)
        return error_lower_bound(claimed, errors, guessed, delta=delta, failure=failure)


def log_ratio(x: NDArray[np.float64], charge: Charge) -> NDArray[np.float64]:
    """Return how much likelier a member is at x, in nats; x in units of C."""
    sigma, q = charge.noise_multiplier, charge.sampling_probability
    joined = (x - 0.5) / sigma**2
    return joined if q == 1.0 else np.logaddexp(math.log1p(-q), math.log(q) + joined)


def rehearse(
    history: Sequence[Charge], canaries: int, rng: np.random.Generator
) -> tuple[NDArray[np.float64], NDArray[np.bool_]]:
    """
    Draw the scores that a flawless mechanism of this history would leave, and the coins.

    :returns: shapes (canaries,).
    """
    members = rng.integers(2, size=canaries).astype(np.bool_)
    scores = np.zeros(canaries)
    for charge in history:
        for _ in range(charge.steps):
            joined = members & (rng.random(canaries) < charge.sampling_probability)
            x = joined + charge.noise_multiplier * rng.standard_normal(canaries)
            scores += log_ratio(x, charge)
    return scores, members


def plan_guesses(
    history: Sequence[Charge],
    canaries: int,
    rng: np.random.Generator,
    *,
    delta: float,
    failure: float,
) -> tuple[Guesses, float]:
    """
    Choose the guesses from public settings, before any release is seen.

    :returns: the guesses, and the mean bound that they would give on a flawless mechanism.
    """
    turns = range(max(1, _REHEARSED // canaries))
    drawn = [Hits.of(*rehearse(history, canaries, rng)) for _ in turns]
    top, bottom = (
        tuple(int(each) for each in np.mean([getattr(hits, name) for hits in drawn], axis=0))
        for name in ('top', 'bottom')
    )
    usual = replace(drawn[0], top=top, bottom=bottom)

    def expected(guesses: Guesses) -> tuple[float, int]:
        """Return the bound, and of those who promise none prefer the many."""
        found = usual.bound(guesses, delta=delta, failure=SHARES[0] * failure)
        return found, -guesses.members - guesses.others

    places = range(len(PARTS))
    pairs = [Guesses(*each) for each in np.ndindex(len(places), len(places))]
    best = max((each for each in pairs if PARTS[each.members] + PARTS[each.others]), key=expected)
    # Others than those that chose, who flatter the choice.
    fresh = [Hits.of(*rehearse(history, canaries, rng)) for _ in turns]
    return best, float(
        np.mean([each.proven(best, delta=delta, failure=failure) for each in fresh])
    )
