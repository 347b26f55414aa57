# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""
What right guesses prove: a lower bound on epsilon from one training run.

Of m canaries each is a member by a fair coin of its own, and of r of them an adversary guesses
which. Two theorems limit how likely v right guesses are under (epsilon, delta)-DP, whatever the
adversary does and however canaries hang together: one of Steinke, Nasr and Jagielski (2023), one
of Mahloujifar, Melis and Chaudhuri (2025). Both are limits, so the smaller holds; the second is
far better once m delta is not tiny. Beside them is a bound from rates of errors, which takes the
kind of mechanism for granted.
"""

import math

from fdrl_ros.errors import SettingError
from fdrl_ros.privacy.accountant.accountant import Charge, epsilon_pld
import numpy as np
from scipy.stats import beta, binom

MOST = 64.0
"""Largest epsilon that is looked for: beyond it 1 in 10^28 guesses would be wrong."""
_NEAR = 1e-4  # of the search
_STEP = 1.25  # between two noise multipliers that are tried, until the limit is between them
_CLOSE = 1.01  # of the limit in the end
_LEAST_NOISE = 64.0  # times what is claimed: with that much, nothing is proven
_MOST_EPSILON = 4.0  # times what is claimed: more need not be proven


def epsilon_lower_bound(
    *, canaries: int, guesses: int, correct: int, delta: float, failure: float
) -> float:
    """
    Return the largest epsilon that the guesses refute; 0 if they refute none.

    What refutes an epsilon is so many right guesses or more, and who is (epsilon, delta)-DP is so
    with a larger epsilon too: the chance that the bound lies above the true epsilon is at most
    `failure`, over all epsilons together.

    :param canaries: m.
    :param guesses: r, fixed before anybody looked, at most m.
    :param correct: v.
    :param delta: in [0, 1).
    :param failure: one minus the confidence, in (0, 1).
    :raises SettingError: if a number cannot be.
    """
    if not 0 <= correct <= guesses <= canaries or canaries < 1:
        raise SettingError('correct', correct, f'0 to {guesses} guesses, to {canaries} canaries')
    if not 0.0 <= delta < 1.0:
        raise SettingError('delta', delta, '0 or above, below 1')
    if not 0.0 < failure < 1.0:
        raise SettingError('failure', failure, 'above 0, below 1')

    def refuted(epsilon: float) -> bool:
        game = (canaries, guesses, correct, epsilon, delta)
        return refuted_by_curve(*game, failure) or tail_probability(*game) <= failure

    if not refuted(0.0):
        return 0.0
    low, high = 0.0, 1.0
    while high < MOST and refuted(high):
        low, high = high, 2.0 * high
    while high - low > _NEAR:
        middle = 0.5 * (low + high)
        low, high = (middle, high) if refuted(middle) else (low, middle)
    return low


def tail_probability(
    canaries: int, guesses: int, correct: int, epsilon: float, delta: float
) -> float:
    """
    Limit the chance of at least so many right guesses (Steinke et al. 2023).

    With W binomial of r guesses, each right with probability e^epsilon / (1 + e^epsilon), it is
    P[W >= v] + 2 m delta max over i of P[v - i <= W < v] / i.
    """
    right = 1.0 / (1.0 + math.exp(-epsilon))
    tail = float(binom.sf(correct - 1, guesses, right))
    if delta == 0.0 or correct == 0:
        return min(tail, 1.0)
    below = np.cumsum(binom.pmf(np.arange(correct - 1, -1, -1), guesses, right))
    most = float(np.max(below / np.arange(1, correct + 1)))
    return min(1.0, tail + 2.0 * canaries * delta * most)


def refuted_by_curve(
    canaries: int, guesses: int, correct: int, epsilon: float, delta: float, failure: float
) -> bool:
    """
    Return whether so many right guesses are less likely than `failure` (Mahloujifar et al. 2025).

    Let p_j be the chance of j right guesses. Take a canary and its guess, given all other coins:
    "right, and j - 1 of the others right" and "wrong, and j - 1 of the others right" differ in the
    canary's coin alone. So their chances, x and y, obey g(x) <= y, where g inverts the largest
    chance under one coin, min(e^epsilon y + delta, 1 - e^-epsilon (1 - delta - y)), that a chance
    y under the other allows. g is convex, so this holds for averages over canaries, and for sums
    over j. With r_i the sum over j >= i of j p_j / m and h_i that of (r - j) p_j / m:
    h_i >= g(r_(i+1)). Begun with a tail of exactly `failure` at v, and with the least h at every i
    below, the chances of all j would sum to more than 1: then the tail is less likely.
    """
    grown = math.exp(epsilon)
    right, wrong = failure * correct / canaries, failure * (guesses - correct) / canaries
    for i in range(correct - 1, -1, -1):
        least = max(wrong, (right - delta) / grown, 1.0 - delta - grown * (1.0 - right))
        if least == wrong:
            break  # and so for all that follow
        right += i / (guesses - i) * (least - wrong)
        wrong = least
        if right + wrong > guesses / canaries:
            return True
    return right + wrong > guesses / canaries


def error_lower_bound(
    claimed: Charge,
    errors: tuple[int, int],
    guessed: tuple[int, int],
    *,
    delta: float,
    failure: float,
) -> float:
    """
    Return epsilon of the claimed mechanism with the most noise that errors do not refute.

    An adversary guesses each canary. The shares that are wrong limit the total variation distance
    of a canary's two worlds, and that of the accountant's dominating pair is at least as large. It
    takes for granted that canaries do not hang together, and that the mechanism is the claimed one
    but for its noise multiplier; what it releases need not be Gaussian.

    :param claimed: all steps.
    :param errors: wrong guesses among members, and among others.
    :param guessed: members, and others.
    :param failure: one minus the confidence.
    """
    distance = 1.0 - sum(
        _most(wrong, of, failure / 2.0) for wrong, of in zip(errors, guessed, strict=True)
    )
    if distance <= 0.0:
        return 0.0

    def epsilon(scale: float, at: float) -> float:
        sigma = scale * claimed.noise_multiplier
        return epsilon_pld([claimed._replace(noise_multiplier=sigma)], at)

    def refuted(scale: float) -> bool:
        return epsilon(scale, distance) <= 0.0

    high = 1.0
    while not refuted(high):
        high *= _STEP
        if high > _LEAST_NOISE:
            return 0.0
    enough = _MOST_EPSILON * epsilon(1.0, delta)
    low = high / _STEP
    while refuted(low):
        high, low = low, low / _STEP
        if epsilon(high, delta) > enough:
            return epsilon(high, delta)
    while high > low * _CLOSE:
        middle = (low * high) ** 0.5
        low, high = (low, middle) if refuted(middle) else (middle, high)
    return epsilon(high, delta)


def _most(count: int, of: int, failure: float) -> float:
    """Return the upper confidence limit of a probability (Clopper and Pearson 1934)."""
    return 1.0 if count == of else float(beta.ppf(1.0 - failure, count + 1, of - count))
