# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""
Surgical risk D_t and the risk mitigation score R_mit (FDRL Eq. 9 and 10), batch and online.

The paper's scale measures a force by the limit and damage by a clinical figure. Beside it stands a
scale of each procedure's own, :func:`procedure_scale`, and the risk of a whole case, which doing
nothing cannot lower, :func:`case_risk`.
"""

import math
from typing import NamedTuple, TypeVar

from fdrl_ros.errors import StateError
from fdrl_ros.metrics.means import CaseMeans, whole, WINDOW
import numpy as np

FULL_DAMAGE = 300.0
"""
Impulse above the warning force at which tissue counts as fully damaged, newton second: the
force-time product of a colon's grasp, 10.1007/s00464-018-6172-6.
"""

Term = TypeVar('Term', float, np.ndarray)


FORCE_WEIGHT, DAMAGE_WEIGHT, CRITICAL_WEIGHT = 0.4, 0.4, 0.2
"""Weights w1, w2, w3 of the terms of D_t (FDRL Eq. 10); they sum to 1, so D_t stays in [0, 1]."""


def total_risk(force: Term, damage: Term, critical: Term) -> Term:
    """Return D_t of its terms, numbers or arrays."""
    return FORCE_WEIGHT * force + DAMAGE_WEIGHT * damage + CRITICAL_WEIGHT * critical


class RiskScale(NamedTuple):
    """
    What F_t and Td_t are measured by; the default is the paper's.

    :param free_force: force up to which F_t is 0, N; F_t is 1 at the limit.
    :param full_damage: at which Td_t is 1, N s.
    """

    free_force: float = 0.0
    full_damage: float = FULL_DAMAGE


PAPER_SCALE = RiskScale()


def procedure_scale(warn_force: float, force_limit: float, time: float) -> RiskScale:
    """
    Return the scale of a procedure.

    A force that the procedure asks for is no risk: F_t counts from the warning force on. Full
    damage is the most that a force within the limit can do, (limit - warning force) * time.

    :param warn_force: above which tissue is harmed, N.
    :param force_limit: N, above it.
    :param time: allowed for the operation, s, above 0.
    :raises StateError: if there is nothing between both forces, or no time.
    """
    scale = RiskScale(warn_force, (force_limit - warn_force) * time)
    if not (0.0 <= warn_force < force_limit < math.inf and 0.0 < time < math.inf):
        raise StateError(
            f'forces of {warn_force} and {force_limit} N, {time} s: expected 0 <= warning force < '
            'limit, and a time above 0'
        )
    return scale


class RiskTerms(NamedTuple):
    """F_t, Td_t, C_t and the D_t that they make, each in [0, 1] and of the shape of the forces."""

    force: np.ndarray
    damage: np.ndarray
    critical: np.ndarray
    total: np.ndarray


def risk_terms(
    force: np.ndarray,
    damage: np.ndarray,
    critical: np.ndarray,
    force_limit: np.ndarray | float,
    scale: RiskScale = PAPER_SCALE,
) -> RiskTerms:
    """
    Compute the risk of each step and its three terms (FDRL Eq. 10).

    F_t = (force - free force) / (limit - free force) and Td_t = damage / full damage, both cut to
    [0, 1]; C_t is 1 while a critical error stands.

    :param force: force on the tissue, newton, any shape, at least 0.
    :param damage: impulse above the warning force since the case began, newton second, same shape.
    :param critical: whether a critical error stands, same shape.
    :param force_limit: the procedure's limit, newton, above the scale's free force.
    :raises StateError: if a number is not finite, negative, or the limit is not above the free
        force.
    """
    forces, damages, limits = (
        np.asarray(x, dtype=np.float64) for x in (force, damage, force_limit)
    )
    for name, values in (('force', forces), ('damage', damages), ('force limit', limits)):
        if not np.all(np.isfinite(values)) or np.any(values < 0):
            raise StateError(f'{name}: expected finite numbers of at least 0')
    free = scale.free_force
    if np.any(limits <= free):
        raise StateError(f'force limit: expected newtons above {free}')
    force_term = np.clip((forces - free) / (limits - free), 0.0, 1.0)
    damage_term = np.minimum(damages / scale.full_damage, 1.0)
    critical_term = np.asarray(critical).astype(bool).astype(np.float64)
    total = total_risk(force_term, damage_term, critical_term)
    return RiskTerms(force_term, damage_term, critical_term, total)


def case_risk(total: np.ndarray, success: bool) -> float:
    """
    Return the risk of a whole case, in [0, 1]: the mean of D_t if it succeeded, else 1.

    What failed or was left undone must be done again, so the patient bears the whole risk; neither
    waiting nor an early end lowers it.

    :param total: D_t, shape (steps,).
    """
    return float(np.mean(total)) if success else 1.0


class Mitigation(NamedTuple):
    """R_mit over some steps (NaN without one), and how many cases and steps it averages."""

    value: float
    cases: int
    steps: int


class Risk(NamedTuple):
    """
    Risk up to and with the present step.

    :param force: F_t, with the damage Td_t and the critical error C_t the terms of D_t.
    :param total: D_t.
    :param mitigation: R_mit over all cases so far.
    :param cases: cases that had a step, the present one included, over which it averages.
    :param steps: of all of them.
    :param case: R_mit of the present case.
    :param window: R_mit over the newest steps, whichever case they are of.
    """

    force: float
    damage: float
    critical: float
    total: float
    mitigation: float
    cases: int
    steps: int
    case: Mitigation
    window: Mitigation


class RiskMeter:
    """R_mit online (FDRL Eq. 9): 1 minus the mean over cases of the mean of D_t."""

    def __init__(self, window: int = WINDOW) -> None:
        """
        Begin.

        :param window: newest steps that :attr:`Risk.window` averages.
        """
        self._all = CaseMeans()
        self._window = CaseMeans(window)

    def add(self, force: float, damage: float, critical: bool, force_limit: float) -> Risk:
        """
        Add a step of the present case.

        Parameters and refusals are those of :func:`risk_terms`, for one step.
        """
        if not (0.0 <= force < math.inf and 0.0 <= damage < math.inf):
            raise StateError(f'expected finite force and damage of at least 0: {force}, {damage}')
        if not 0.0 < force_limit < math.inf:
            raise StateError(f'force limit: expected newtons above 0, got {force_limit}')
        force_term = min(force / force_limit, 1.0)
        damage_term = min(damage / FULL_DAMAGE, 1.0)
        critical_term = 1.0 if critical else 0.0
        total = total_risk(force_term, damage_term, critical_term)
        parts, every, window = whole(total), self._all, self._window
        every.add(parts)
        window.add(parts)
        mean, _, steps = every.present
        return Risk(
            force_term,
            damage_term,
            critical_term,
            total,
            1.0 - every.value,
            every.cases,
            every.denominator,
            Mitigation(1.0 - mean, 1, steps),
            Mitigation(1.0 - window.value, window.cases, window.denominator),
        )

    def end_case(self) -> None:
        """Close the present case, if it had a step."""
        self._all.end_case()
        self._window.end_case()
