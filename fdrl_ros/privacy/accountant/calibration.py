# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""Find the least noise multiplier that keeps a target epsilon."""

from collections.abc import Callable, Iterable
import math

from fdrl_ros.errors import PrivacyError
from fdrl_ros.privacy.accountant.accountant import Account, Charge, epsilon_pld

_SPARE = 1e-3  # share of epsilon that may remain unused
_LARGEST = 1e6
_FEW = 4  # phases that represent many during the first search


def noise_multiplier_for(
    *, epsilon: float, delta: float, phases: Iterable[tuple[float, int]], group: int = 1
) -> float:
    """
    Return a noise multiplier whose epsilon is at most the given one and at least 99.9 % of it.

    The search uses :func:`epsilon_pld` and ends on the safe side. Where epsilon jumps over the
    target (tiny noise gets no amplification), the result lies behind the jump.

    :param epsilon: target, > 0; infinity gives 0.
    :param phases: pairs of sampling probability, in (0, 1], and number of steps: one, or several
        for growing data.
    :param group: the most records that one privacy unit owns, see :class:`Charge`.
    :raises PrivacyError: if no noise multiplier up to 1e6 reaches the target, or on parameters
        that are not valid.
    """
    if not (isinstance(epsilon, int | float) and epsilon > 0.0):
        raise PrivacyError(f'epsilon = {epsilon!r}: expected above 0')
    plan = list(phases)
    if not plan:
        raise PrivacyError('no phases: expected pairs of sampling probability and steps')

    def excess(log_sigma: float, of: list[tuple[float, int]] = plan) -> float:
        """Return the logarithm of spent epsilon over the target."""
        history = [Charge(math.exp(log_sigma), rate, count, group) for rate, count in of]
        return math.log(max(epsilon_pld(history, delta), 1e-12) / epsilon)

    # Checks the plan.
    Account(delta, (Charge(1.0, rate, count, group) for rate, count in plan))
    if math.isinf(epsilon) or not any(count for _, count in plan):
        return 0.0
    few = _few(plan)
    found = _root(lambda log_sigma: excess(log_sigma, few), 0.0)
    if len(few) < len(plan):
        found = _root(excess, found)
    return math.exp(found)


def _few(plan: list[tuple[float, int]]) -> list[tuple[float, int]]:
    """Return a few phases of about the same cost, for the first search only."""
    if len(plan) <= _FEW:
        return plan
    plan = sorted(plan)
    size = -(-len(plan) // _FEW)
    joined = []
    for start in range(0, len(plan), size):
        part = plan[start : start + size]
        total = sum(count for _, count in part)
        if total:
            mean_square = sum(count * rate**2 for rate, count in part) / total
            joined.append((math.sqrt(mean_square), total))
    return joined


def _root(excess: Callable[[float], float], start: float) -> float:
    """
    Return where a falling function is between -_SPARE and 0, or just behind a jump below.

    :raises PrivacyError: if no noise multiplier up to the largest reaches it.
    """
    low, high = -math.inf, math.inf
    at, last, slope = start, (math.nan, math.nan), -1.2
    for _ in range(200):
        if at > math.log(_LARGEST):
            raise PrivacyError(f'no noise multiplier up to {_LARGEST:g} reaches that epsilon')
        value = excess(at)
        if -_SPARE <= value <= 0.0:
            return at
        low, high = (at, high) if value > 0.0 else (low, at)
        if high - low < 1e-9:
            return high
        if at != last[0] and (value - last[1]) / (at - last[0]) < -0.1:
            slope = (value - last[1]) / (at - last[0])
        last = at, value
        at += max(-2.0, min(2.0, -(value + 0.5 * _SPARE) / slope))
        if not low < at < high:
            at = 0.5 * (low + high)
    raise PrivacyError('the noise multiplier for that epsilon was not found')
