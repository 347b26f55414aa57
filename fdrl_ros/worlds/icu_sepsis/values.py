# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""Exact values of policies on ICU-Sepsis: linear solves instead of roll-outs (FDRL Eq. 1)."""

import contextlib
from dataclasses import dataclass

from fdrl_ros.errors import SettingError, StateError
from fdrl_ros.worlds.icu_sepsis.model import (
    checked_policy,
    checked_start,
    DEATH,
    Floats,
    IcuSepsis,
    PATIENT_STATES,
    REWARD,
    StatePolicy,
    SURVIVAL,
    uniform_policy,
)
import numpy as np
from numpy.typing import NDArray

BANDS = ('low', 'medium', 'high')
"""SOFA below 5, 5 to 15, above 15 (DP-DQN section 5.1, which leaves 5 and 15 open)."""
_GAIN = 1e-12


@dataclass(frozen=True, eq=False)
class Optimum:
    """
    What an all-knowing clinician does.

    ``actions``: (713,), int64. ``values``: expected discounted return of each state, (713,).
    ``action_values``: of each state and action, (713, 25).
    """

    actions: NDArray[np.int64]
    values: Floats
    action_values: Floats


def transitions(model: IcuSepsis, policy: StatePolicy) -> Floats:
    """
    Return the chance of each next state under a policy, (713, 715).

    :raises StateError: if the policy has no such shape.
    """
    chances = checked_policy(policy)
    weights = np.bincount(model.row_of.ravel(), chances.ravel(), len(model.rows))
    found = np.empty((PATIENT_STATES, SURVIVAL + 1))
    ends = [*model.first_row[1:].tolist(), len(model.rows)]
    for state, (first, end) in enumerate(zip(model.first_row.tolist(), ends, strict=True)):
        np.dot(weights[first:end], model.rows[first:end], out=found[state])
    return found


def survival_by_state(model: IcuSepsis, policy: StatePolicy) -> Floats:
    """Return the chance to survive from each state, (713,)."""
    chances = transitions(model, policy)
    return _solve(chances[:, :PATIENT_STATES], chances[:, SURVIVAL])


def survival(model: IcuSepsis, policy: StatePolicy, start: Floats | None = None) -> float:
    """
    Return the chance to survive.

    :param start: chance of each state on admission, (713,); that of ICU-Sepsis unless given.
    """
    return float(_start(model, start) @ survival_by_state(model, policy))


def returns_by_state(model: IcuSepsis, policy: StatePolicy, discount: float = 1.0) -> Floats:
    """
    Return J from each state, (713,): +15 for survival, -15 for death, discounted.

    :param discount: gamma in [0, 1], for each step of four hours.
    """
    chances = transitions(model, policy)
    gain = REWARD * (chances[:, SURVIVAL] - chances[:, DEATH])
    return _solve(_checked_discount(discount) * chances[:, :PATIENT_STATES], gain)


def expected_return(
    model: IcuSepsis, policy: StatePolicy, discount: float = 1.0, start: Floats | None = None
) -> float:
    """Return J (FDRL Eq. 1) from the start, as :func:`returns_by_state`."""
    return float(_start(model, start) @ returns_by_state(model, policy, discount))


def visits(model: IcuSepsis, policy: StatePolicy, start: Floats | None = None) -> Floats:
    """
    Return how often each action is taken in each state, (713, 25): an occupancy measure.

    Its sum is the expected number of steps of an episode.
    """
    chances = checked_policy(policy)
    back = transitions(model, chances)[:, :PATIENT_STATES].T
    return _solve(back, _start(model, start))[:, None] * chances


def action_values(model: IcuSepsis, policy: StatePolicy, discount: float = 1.0) -> Floats:
    """Return Q of each state and action, (713, 25): first the action, then the policy."""
    return _ahead(model, returns_by_state(model, policy, discount), discount)


def optimum(model: IcuSepsis, discount: float = 1.0) -> Optimum:
    """
    Find the best policy by policy iteration from the uniform one; exact when it stops.

    With discount 1 it is the one of highest chance to survive, 0.8751 on ICU-Sepsis.
    """
    states = np.arange(PATIENT_STATES)
    found = action_values(model, uniform_policy(), discount)
    actions = found.argmax(axis=1)
    while True:
        values = returns_by_state(model, actions, discount)
        found = _ahead(model, values, discount)
        best = found.argmax(axis=1)
        better = found[states, best] > found[states, actions] + _GAIN * REWARD
        if not better.any():
            return Optimum(actions, values, found)
        actions = np.where(better, best, actions)


def band_of(sofa: Floats) -> NDArray[np.int64]:
    """Return the number of the band of each SOFA score, same shape: 0 low, 1 medium, 2 high."""
    return (sofa >= 5.0).astype(np.int64) + (sofa > 15.0)


def in_band(model: IcuSepsis, band: str, weights: Floats | None = None) -> Floats:
    """
    Return the distribution over the states of one SOFA band, (713,).

    :param band: one of :data:`BANDS`.
    :param weights: how much each state counts, (713,): who is admitted, unless given; sums of
        :func:`visits` over actions make it who lies there now, as the paper has it.
    :raises SettingError: on another band, or if no weight is in it.
    """
    if band not in BANDS:
        raise SettingError('band', band, 'one of ' + ', '.join(BANDS))
    given = model.start if weights is None else np.asarray(weights, np.float64)
    kept = np.where(band_of(model.sofa) == BANDS.index(band), given, 0.0)
    if not kept.sum() > 0.0:
        raise SettingError('weights', kept.sum(), f'some weight on states of {band} SOFA')
    return kept / kept.sum()


def survival_by_band(
    model: IcuSepsis, policy: StatePolicy, weights: Floats | None = None
) -> dict[str, float]:
    """Return the chance to survive from the states of each SOFA band; see :func:`in_band`."""
    by_state = survival_by_state(model, policy)
    return {each: float(in_band(model, each, weights) @ by_state) for each in BANDS}


def _ahead(model: IcuSepsis, values: Floats, discount: float) -> Floats:
    """Return Q given the values of the next states, (713, 25)."""
    ends = np.concatenate((_checked_discount(discount) * values, (-REWARD, REWARD)))
    return (model.rows @ ends)[model.row_of]


def _solve(chances: Floats, gain: Floats) -> Floats:
    """Solve v = gain + chances v."""
    found = np.full(PATIENT_STATES, np.nan)
    with contextlib.suppress(np.linalg.LinAlgError):
        found[:] = np.linalg.solve(np.eye(PATIENT_STATES) - chances, gain)
    if not np.isfinite(found).all():
        raise StateError('under this policy some patients neither die nor survive, ever')
    return found


def _start(model: IcuSepsis, start: Floats | None) -> Floats:
    return model.start if start is None else checked_start(start)


def _checked_discount(discount: float) -> float:
    if not 0.0 <= discount <= 1.0:
        raise SettingError('discount', discount, 'a number from 0 to 1')
    return discount
