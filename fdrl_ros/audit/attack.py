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
from dataclasses import dataclass
import math

from fdrl_ros.audit.bound import epsilon_lower_bound
from fdrl_ros.audit.canary import Canaries
from fdrl_ros.errors import PrivacyError
from fdrl_ros.privacy.accountant.accountant import Charge
import numpy as np
from numpy.typing import NDArray

SHARES = (0.75, 0.25)
"""Of the chance of failure: for the planned number of guesses, and for guessing everyone."""

_PARTS = (0.5, 0.25, 0.12, 0.06, 0.03, 0.015, 0.0)
_REHEARSALS = 5


@dataclass(frozen=True)
class Guesses:
    """How many of the highest scores are guessed to be members, of the lowest not to be."""

    members: int
    others: int

    def correct(self, scores: NDArray[np.float64], members: NDArray[np.bool_]) -> int:
        """Return how many of these guesses are right."""
        ranked = members[np.argsort(scores, kind='stable')]
        above = ranked[len(ranked) - self.members :]
        return int(above.sum() + (~ranked[: self.others]).sum())

    def epsilon(self, correct: int, canaries: int, delta: float, failure: float) -> float:
        """Return the epsilon that so many right guesses prove."""
        return epsilon_lower_bound(
            canaries=canaries,
            guesses=self.members + self.others,
            correct=correct,
            delta=delta,
            failure=failure,
        )


@dataclass(frozen=True)
class Proof:
    """What some guesses prove: ``epsilon`` at confidence 1 - ``failure``."""

    guesses: Guesses
    correct: int
    failure: float
    epsilon: float


@dataclass(frozen=True, eq=False)
class Release:
    """
    One step, with what the world sees of it and what only a test sees.

    ``gradient``: the noised mean gradient, released, (trained weights,). ``clipped``: the sum
    before noise, and ``known``: the part of it that others than canaries added, same shape.
    ``units``: who joined, (joined,).
    """

    gradient: NDArray[np.float64]
    clipped: NDArray[np.float64]
    known: NDArray[np.float64]
    units: NDArray[np.int64]


class Adversary:
    """Sums the evidence of all releases for each canary."""

    def __init__(
        self, canaries: Canaries, charge: Charge, *, clip_norm: float, expected_batch: float
    ) -> None:
        """
        Learn what is public.

        :param charge: of which noise and sampling each step is.
        :raises PrivacyError: without noise nothing is claimed, so there is nothing to refute.
        """
        if charge.noise_multiplier <= 0.0:
            raise PrivacyError('a finite epsilon is not claimed: there is nothing to audit')
        self.scores = np.zeros(len(canaries))
        self.steps = 0
        self._canaries = canaries
        self._charge = charge
        self._clip_norm, self._expected_batch = clip_norm, expected_batch

    def __call__(self, release: Release) -> None:
        """See a step."""
        unknown = release.gradient * self._expected_batch - release.known
        along = self._canaries.along(unknown) / self._clip_norm
        self.scores += log_ratio(along, self._charge)
        self.steps += 1


def log_ratio(x: NDArray[np.float64], charge: Charge) -> NDArray[np.float64]:
    """Return how much likelier a member is at x, in nats; x in units of C."""
    sigma, q = charge.noise_multiplier, charge.sampling_probability
    joined = (x - 0.5) / sigma**2
    return joined if q == 1.0 else np.logaddexp(math.log1p(-q), math.log(q) + joined)


def prove(
    scores: NDArray[np.float64],
    members: NDArray[np.bool_],
    planned: Guesses,
    *,
    delta: float,
    failure: float,
) -> tuple[Proof, Proof]:
    """
    Bound epsilon by the planned guesses and by guessing every canary; the larger bound holds.

    Of everyone, those with a score above 0 are guessed to be members. Each may fail with its share
    of `failure`, so both hold at once with confidence 1 - failure.
    """
    above = int((scores > 0.0).sum())
    everyone = Guesses(above, len(scores) - above)
    found = []
    for guesses, share in zip((planned, everyone), SHARES, strict=True):
        correct = guesses.correct(scores, members)
        epsilon = guesses.epsilon(correct, len(scores), delta, share * failure)
        found.append(Proof(guesses, correct, share * failure, epsilon))
    return found[0], found[1]


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
    Choose the number of guesses from public settings, before any release is seen.

    :returns: the numbers, and the mean bound that they would give on a flawless mechanism.
    """
    drawn = [rehearse(history, canaries, rng) for _ in range(_REHEARSALS)]
    share = SHARES[0] * failure

    def expected(guesses: Guesses) -> tuple[float, int]:
        """Return the bound, and of those who promise none prefer the many."""
        correct = int(np.mean([guesses.correct(*each) for each in drawn]))
        count = guesses.members + guesses.others
        return guesses.epsilon(correct, canaries, delta, share), count

    counts = sorted({round(part * canaries) for part in _PARTS})
    pairs = [Guesses(above, below) for above in counts for below in counts if above + below]
    best = max(pairs, key=expected)
    # Others than those that chose, who flatter the choice.
    fresh = [rehearse(history, canaries, rng) for _ in range(_REHEARSALS)]
    bounds = [best.epsilon(best.correct(*each), canaries, delta, share) for each in fresh]
    return best, float(np.mean(bounds))
