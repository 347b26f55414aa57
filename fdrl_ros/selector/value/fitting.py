# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""
Fit the value of a policy to operations on public patients (FDRL Eq. 1 and 7).

Fitted evaluation with eligibility traces: least-squares temporal differences, LSTD(lambda) (Boyan
2002). At lambda = 1 it is the regression on Monte-Carlo returns, at 0 the fixed point of fitted Q
evaluation along the policy; between them it has less noise than the one and less bias than the
other.
"""

from dataclasses import dataclass
import math
from statistics import NormalDist

from fdrl_ros.errors import RecordsError
from fdrl_ros.selector.value.model import Basis, basis_of, StateValue
from fdrl_ros.settings import setting, Settings
import numpy as np

PENALTIES = (1e-5, 1e-4, 1e-3, 1e-2)
"""Ridge penalties tried, as a fraction of the mean squared feature."""

LEAST_SPREAD = 0.25
"""A number that hardly varies is not blown up to unit variance, in its scale."""

FEWEST_CASES = 4

CONFIDENCE = 0.9
"""Two-sided, of the intervals that the conformal error is measured for."""


@dataclass(frozen=True)
class ValueSettings(Settings):
    """What a value model estimates, from how much, and how large it is."""

    discount: float = setting(0.97, 'gamma of the return J (FDRL Eq. 1)', limits=(0.0, 1.0))
    trace: float = setting(
        0.9,
        'lambda: 1 fits Monte-Carlo returns, 0 the fixed point of fitted evaluation',
        limits=(0.0, 1.0),
    )
    patients: int = setting(
        2000, 'public patients of each procedure that a policy is valued on', minimum=4
    )
    features: int = setting(256, 'random tanh features', limits=(0, 4096))
    stride: int = setting(
        3,
        'ticks from one state of an operation that is fitted to the next',
        limits=(1, 100),
        unit='ticks',
    )
    groups: int = setting(
        10, 'groups of cases, each left out once: members of the ensemble', limits=(4, 256)
    )
    checked: int = setting(
        16,
        'further public patients of each procedure that the error of the estimate is measured on',
        limits=(2, 1000),
        unit='patients',
    )
    redraws: int = setting(
        120,
        'public patients with the same first state, over whom E[J given s] is averaged there',
        limits=(16, 1000),
        unit='patients',
    )


@dataclass(frozen=True, eq=False)
class Experience:
    """
    What followed from the states that a policy met.

    :param states: scaled, shape (N, S).
    :param rewards: of the tick that follows, shape (N,).
    :param risks: D_t of that tick, shape (N,).
    :param cases: whole numbers, shape (N,); the states of a case stand together in order of time,
        and nothing follows after the last.
    """

    states: np.ndarray
    rewards: np.ndarray
    risks: np.ndarray
    cases: np.ndarray


def returns_to_go(rewards: np.ndarray, discount: float) -> np.ndarray:
    """
    Compute the return from each step to the end of its episode (FDRL Eq. 1).

    :param rewards: of one episode, shape (T,).
    :param discount: gamma, in [0, 1].
    :returns: shape (T,).
    """
    returns = np.zeros(len(rewards))
    following = 0.0
    for step in range(len(rewards) - 1, -1, -1):
        following = float(rewards[step]) + discount * following
        returns[step] = following
    return returns


def thinned(experience: Experience, stride: int, discount: float) -> Experience:
    """
    Keep every so many states of a case, from its first one, with all that followed from each.

    Neighbours in time tell nearly the same. Returns stay what they were, with the discount to the
    power of the stride.

    :param stride: ticks from one state to the next.
    :param discount: gamma of one tick.
    """
    cases = experience.cases
    begins = np.flatnonzero(np.r_[True, cases[1:] != cases[:-1]])
    tick = np.arange(len(cases)) - np.repeat(begins, np.diff(np.r_[begins, len(cases)]))
    kept = np.flatnonzero(tick % stride == 0)
    factors = discount ** (tick % stride)
    return Experience(
        experience.states[kept],
        np.add.reduceat(experience.rewards * factors, kept),
        np.add.reduceat(experience.risks * factors, kept),
        cases[kept],
    )


def fit_value(experience: Experience, settings: ValueSettings | None = None) -> StateValue:
    """
    Fit what one policy is worth in one procedure, and how far to trust it.

    A case is in the group of its number modulo the groups, so that models of the same patients
    leave out the same ones: their difference is surer than each (paired jackknife). What a member
    left out chooses the penalty and measures the noise. What the features cannot express counts
    as noise until :meth:`StateValue.with_conformal_error` tells them apart.

    :raises RecordsError: on other shapes, numbers that are not finite, or too few cases.
    """
    settings = settings or ValueSettings()
    checked = _validated(experience, settings.groups)
    known = thinned(checked, settings.stride, settings.discount)
    group = known.cases % settings.groups
    there = np.unique(group)  # with few cases some groups are empty: nothing is left out there
    basis = basis_of(known.states.shape[1], settings.features)
    parts = [
        _Group.from_rows(known, np.flatnonzero(group == each), basis, settings) for each in there
    ]
    weights, members = _solve(parts)
    deviations = np.zeros((settings.groups, *weights.shape))
    deviations[there] = members - members.mean(axis=0)
    deviations *= math.sqrt((len(there) - 1) / len(there))

    errors, variances = [], []
    for part, member in zip(parts, members, strict=True):
        strayed = part.features @ deviations[there, 0].T
        errors.append(part.returns - part.features @ member[0])
        variances.append(np.square(strayed).sum(axis=1))
    residual, variance = np.concatenate(errors), np.concatenate(variances)
    noise = math.sqrt(max(float(np.mean(residual**2) - variance.mean()), 0.0))
    return StateValue(
        weights=weights,
        deviations=np.moveaxis(deviations, 1, 0),
        low=checked.states.min(axis=0),
        high=checked.states.max(axis=0),
        spread=np.maximum(checked.states.std(axis=0), LEAST_SPREAD),
        conformal_error=0.0,
        noise=noise,
        caution=float(np.concatenate([part.returns for part in parts]).std()),
    )


@dataclass(frozen=True, eq=False)
class _Group:
    """One group of cases: its features and returns, and its share of the normal equations."""

    features: np.ndarray
    returns: np.ndarray
    matrix: np.ndarray
    target: np.ndarray
    square: float

    @classmethod
    def from_rows(
        cls, known: Experience, rows: np.ndarray, basis: Basis, settings: ValueSettings
    ) -> '_Group':
        cases = known.cases[rows]
        earned = np.stack([known.rewards[rows], known.risks[rows]], axis=1)
        features = basis(known.states[rows])
        begins = np.flatnonzero(np.r_[True, cases[1:] != cases[:-1]])
        lengths = np.diff(np.r_[begins, len(cases)])
        traces, returns = features.copy(), earned[:, 0].copy()
        discount = settings.discount**settings.stride
        decay = discount * settings.trace**settings.stride
        for tick in range(1, int(lengths.max())):
            here = begins[lengths > tick] + tick
            traces[here] += decay * traces[here - 1]
            there = begins[lengths > tick] + lengths[lengths > tick] - tick
            returns[there - 1] += discount * returns[there]
        change = features.copy()
        followed = np.flatnonzero(np.r_[cases[1:] == cases[:-1], False])
        change[followed] -= discount * features[followed + 1]
        return cls(
            features,
            returns,
            traces.T @ change,
            traces.T @ earned,
            float(np.square(features[:, 1:]).sum()),
        )


def _solve(parts: list[_Group]) -> tuple[np.ndarray, np.ndarray]:
    """
    Solve for all cases and without each group, with the penalty that predicts those best.

    :returns: weights (2, P), and of the members (K, 2, P).
    """
    matrix = np.sum([each.matrix for each in parts], axis=0)
    target = np.sum([each.target for each in parts], axis=0)
    square = sum(each.square for each in parts) / max(len(matrix) - 1, 1)
    free = np.ones(len(matrix))
    free[0] = 0.0  # of the constant nothing is taken
    best: tuple[float, np.ndarray, np.ndarray] | None = None
    for penalty in PENALTIES:
        ridge = np.diag(penalty * square * free)
        members = np.stack(
            [
                np.linalg.solve(matrix - each.matrix + ridge, target - each.target).T
                for each in parts
            ]
        )
        error = sum(
            float(np.square(each.returns - each.features @ member[0]).sum())
            for each, member in zip(parts, members, strict=True)
        )
        if best is None or error < best[0]:
            best = error, np.linalg.solve(matrix + ridge, target).T, members
    assert best is not None
    return best[1], best[2]


def _validated(given: Experience, groups: int) -> Experience:
    """Check the arrays, and that cases stand together."""
    states, rewards, risks = (
        np.asarray(x, dtype=np.float64) for x in (given.states, given.rewards, given.risks)
    )
    cases = np.asarray(given.cases)
    shape = (len(states),)
    if states.ndim != 2 or not rewards.shape == risks.shape == cases.shape == shape:
        raise RecordsError(
            f'expected a state, a reward, a risk and a case for each step: {states.shape}, '
            f'{rewards.shape}, {risks.shape}, {cases.shape}'
        )
    if cases.dtype.kind not in 'iu':
        raise RecordsError(f'cases of type {cases.dtype}: expected whole numbers')
    if not all(np.all(np.isfinite(x)) for x in (states, rewards, risks)):
        raise RecordsError('expected finite states, rewards and risks')
    begun = 1 + int(np.count_nonzero(cases[1:] != cases[:-1])) if len(cases) else 0
    different = len(np.unique(cases))
    if different < FEWEST_CASES:
        raise RecordsError(f'{different} cases: expected at least {FEWEST_CASES}')
    if len(np.unique(cases % groups)) < 2:
        raise RecordsError('all cases are in one group: none is left when that is left out')
    if begun != different:
        raise RecordsError('the steps of a case do not stand together')
    return Experience(states, rewards, risks, cases)


def measured_conformal_error(
    errors: np.ndarray, reference_errors: np.ndarray, stds: np.ndarray
) -> float:
    """
    Return the least conformal error with which intervals hold E[J given s] as often as they say.

    Of N states that the model has not seen, (N + 1) times CONFIDENCE must lie inside: so many
    does split conformal prediction ask for, that a further one lies inside as often.

    :param errors: estimate less Monte-Carlo expectation, shape (N,), at least one.
    :param reference_errors: standard errors of those expectations, shape (N,).
    :param stds: what the model says of its error so far, without conformal error, shape (N,).
    :returns: standard deviation, in returns, at least 0.
    """
    factor = NormalDist().inv_cdf(0.5 + CONFIDENCE / 2)
    wanted = np.square(errors) / factor**2 - np.square(reference_errors) - np.square(stds)
    place = min(math.ceil((len(wanted) + 1) * CONFIDENCE), len(wanted)) - 1
    return math.sqrt(max(float(np.sort(wanted)[place]), 0.0))
