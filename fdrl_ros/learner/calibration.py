# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""Give epsilon, get the settings of a whole training that keeps it (spec section 5)."""

from bisect import bisect_right
from dataclasses import dataclass, replace
import math

from fdrl_ros.errors import PrivacyError
from fdrl_ros.learner.guarantee import Guarantee, Sized
from fdrl_ros.learner.settings import LearnerSettings, PrivacySettings
from fdrl_ros.privacy.accountant.accountant import epsilon_pld, epsilon_rdp
from fdrl_ros.privacy.accountant.calibration import noise_multiplier_for

_ROUNDING = 1e-5
"""How far two ways of adding up the same charges may be apart, relative."""


@dataclass(frozen=True)
class Size:
    """How much a hospital has; ``longest``: the most transitions that one patient has."""

    n_patients: int
    n_transitions: int
    longest: int = 1


def check_rounds(
    learner: LearnerSettings, privacy: PrivacySettings, size: Sized, rounds: int
) -> None:
    """
    Refuse a plan whose rounds a new budget does not pay for in full.

    :param rounds: of the whole plan.
    :raises PrivacyError: if the settings promise nothing, do not suit the size, or if all rounds
        cost more than the budget; the message tells how many it pays for.
    """
    guarantee = Guarantee.of(size, learner, privacy)
    if math.isinf(privacy.budget):
        return
    steps = learner.epochs * math.ceil(1.0 / guarantee.rate)

    def epsilon(rounds: int) -> float:
        charge = guarantee.charge(rounds * steps)
        quick = epsilon_rdp([charge], privacy.delta)
        cost = quick if quick <= privacy.budget else epsilon_pld([charge], privacy.delta)
        # The ledger adds rounds one by one, which rounds otherwise.
        return cost * (1.0 + _ROUNDING)

    cost = epsilon(rounds)
    if cost <= privacy.budget:
        return
    paid = bisect_right(range(1, rounds), privacy.budget, key=epsilon)
    fewer = f'set rounds to at most {paid}, or ' if paid else ''
    raise PrivacyError(
        f'{rounds} rounds of {learner.epochs} local epochs cost epsilon {cost:.6g}, and the '
        f'budget of {privacy.budget:g} pays for {paid}: {fewer}take more noise, fewer epochs or a '
        'smaller batch'
    )


@dataclass(frozen=True)
class Calibrated:
    """
    Settings that keep an epsilon, and what the accountant is told of them.

    ``rate``: sampling probability q. ``steps``: of all rounds. ``group``: records of one unit.
    """

    privacy: PrivacySettings
    rate: float
    steps: int
    group: int


def calibrated(
    learner: LearnerSettings,
    privacy: PrivacySettings,
    size: Size,
    *,
    epsilon: float,
    rounds: int,
) -> Calibrated:
    """
    Return the privacy settings whose noise makes all rounds cost an epsilon, and no more.

    :param privacy: unit, clipping, delta and batch count; noise and budget are replaced.
    :param epsilon: of all rounds together, > 0.
    :param rounds: how many rounds of :meth:`fdrl_ros.learner.trainer.Trainer.train`.
    :raises PrivacyError: if no noise keeps it, or the settings do not suit the size.
    """
    if rounds < 1:
        raise PrivacyError(f'{rounds} rounds: expected at least 1')
    trial = replace(privacy, noise_multiplier=1.0, budget=math.inf)
    guarantee = Guarantee.of(size, learner, trial)
    charge = guarantee.charge(1)
    if charge.noise_multiplier == 0.0:
        raise PrivacyError(f'{learner.replay} replay has no finite epsilon: no noise keeps one')
    steps = rounds * learner.epochs * math.ceil(1.0 / guarantee.rate)
    sigma = noise_multiplier_for(
        epsilon=epsilon,
        delta=privacy.delta,
        q=charge.sampling_probability,
        steps=steps,
        group=charge.group,
    )
    sigma /= charge.noise_multiplier  # what noise of 1 is charged as
    # What is printed and typed in again must not round down.
    sigma = math.ceil(1e4 * sigma) / 1e4
    kept = replace(privacy, noise_multiplier=sigma, budget=float(epsilon))
    return Calibrated(kept, charge.sampling_probability, steps, charge.group)
