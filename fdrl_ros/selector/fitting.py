# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""Fit a value model to Monte-Carlo returns of public simulated patients (FDRL Eq. 1 and 7)."""

from dataclasses import dataclass
import math

from fdrl_ros.errors import RecordsError
from fdrl_ros.selector.value import expand, ValueModel
from fdrl_ros.settings import setting, Settings
import numpy as np

PENALTIES = (1e-6, 1e-5, 1e-4, 1e-3, 1e-2, 1e-1)
"""Ridge penalties tried, as a fraction of the mean feature variance."""

NEIGHBOURS = 800
"""States among which each member seeks neighbours for the misfit."""

LEAST_SPREAD = 0.5
"""
A component that varies by less than this, in its scale, is not blown up to unit variance.

Vital signs that differ a little between cases would else serve to learn cases by heart.
"""

FEWEST_CASES = 8


@dataclass(frozen=True)
class ValueSettings(Settings):
    """What a value model estimates, and how large it is."""

    discount: float = setting(0.97, 'gamma of the return J (FDRL Eq. 1)', minimum=0.0, maximum=1.0)

    features: int = setting(128, 'random tanh features', minimum=0, maximum=4096)
    members: int = setting(24, 'bootstrapped regressions', minimum=4, maximum=256)


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


def fit_value(
    states: np.ndarray,
    returns: np.ndarray,
    cases: np.ndarray,
    rng: np.random.Generator,
    *,
    policy: str = '',
    settings: ValueSettings | None = None,
) -> ValueModel:
    """
    Fit the expected return of one policy, and how far to trust it.

    Members see bootstrap samples of *cases*: the steps of one case are not independent. What a
    member has not seen (out of bag) chooses the ridge penalty and measures misfit and noise.

    :param states: scaled, shape (N, S).
    :param returns: discounted return from each state to the end of its case, shape (N,).
    :param cases: which case each state is of, shape (N,).
    :param policy: digest of the policy that produced the returns.
    :raises RecordsError: on other shapes, numbers that are not finite, or too few cases.
    """
    settings = settings or ValueSettings()
    states, returns, case = _checked(states, returns, cases)
    count, size = states.shape
    center = states.mean(axis=0)
    spread = np.maximum(states.std(axis=0), LEAST_SPREAD)
    normal = (states - center) / spread
    low, high = normal.min(axis=0), normal.max(axis=0)
    projection = rng.normal(size=(size, settings.features)) / np.sqrt(size)
    offset = rng.uniform(-1.0, 1.0, size=settings.features)
    features, _ = expand(states, center, spread, low, high, projection, offset)

    draws = _bootstrap(case, settings.members, rng)
    weights, unseen = _regressions(features, returns, draws[:, case])
    predictions = features @ weights.T
    unseen_count = unseen.sum(axis=0)
    held_out = unseen_count > 0
    guess = (predictions * unseen.T).sum(axis=1)[held_out] / unseen_count[held_out]
    residual = returns[held_out] - guess
    variance = predictions.var(axis=1, ddof=1)[held_out]

    misfit = _misfit(normal, returns, case, predictions, unseen, rng)
    noise = math.sqrt(max(float(np.mean(residual**2) - variance.mean()) - misfit**2, 0.0))
    deviation = np.sqrt(variance + misfit**2 + noise**2)
    scores = np.abs(residual) / np.maximum(deviation, 1e-12)
    return ValueModel(
        policy=policy,
        center=center,
        spread=spread,
        low=low,
        high=high,
        projection=projection,
        offset=offset,
        weights=weights,
        misfit=misfit,
        noise=noise,
        caution=float(returns.std()),
        quantiles=_quantiles(scores, case[held_out]),
    )


def _quantiles(scores: np.ndarray, case: np.ndarray) -> np.ndarray:
    """Return the 1 to 99 % quantiles of scores where every case weighs the same, shape (99,)."""
    order = np.argsort(scores)
    weights = 1.0 / np.bincount(case)[case[order]]
    reached = np.cumsum(weights) / weights.sum()
    places = np.searchsorted(reached, np.arange(1, 100) / 100)
    quantiles: np.ndarray = scores[order][np.minimum(places, len(scores) - 1)]
    return quantiles


def _checked(
    states: np.ndarray, returns: np.ndarray, cases: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Check the arrays and number the cases from 0."""
    states = np.asarray(states, dtype=np.float64)
    returns = np.asarray(returns, dtype=np.float64)
    count = len(states)
    if states.ndim != 2 or returns.shape != (count,) or np.shape(cases) != (count,):
        raise RecordsError(
            f'expected a state, a return and a case for each step: {states.shape}, '
            f'{returns.shape}, {np.shape(cases)}'
        )
    if not np.all(np.isfinite(states)) or not np.all(np.isfinite(returns)):
        raise RecordsError('expected finite states and returns')
    names, case = np.unique(cases, return_inverse=True)
    if len(names) < FEWEST_CASES:
        raise RecordsError(f'{len(names)} cases: expected at least {FEWEST_CASES}')
    return states, returns, case


def _bootstrap(case: np.ndarray, members: int, rng: np.random.Generator) -> np.ndarray:
    """Draw cases with replacement for each member: how often each, shape (members, cases)."""
    n_cases = int(case.max()) + 1
    return rng.multinomial(n_cases, np.full(n_cases, 1.0 / n_cases), size=members)


def _regressions(
    features: np.ndarray, returns: np.ndarray, counts: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """
    Solve each member's ridge regression with the penalty that predicts unseen cases best.

    :param counts: how often each step is in each member's sample, shape (K, N).
    :returns: weights (K, P), and which steps each member has not seen (K, N).
    """
    unseen = counts == 0
    candidates = np.zeros((len(PENALTIES), len(counts), features.shape[1]))
    for member, count in enumerate(counts):
        share = count / count.sum()
        # The intercept is not penalised: centre, solve, put it back.
        means = share @ features[:, 1:]
        target = float(share @ returns)
        centred = features[:, 1:] - means
        gram = centred.T @ (centred * share[:, None])
        moments = centred.T @ (share * (returns - target))
        values, vectors = np.linalg.eigh(gram)
        values = np.maximum(values, 0.0)
        rotated = vectors.T @ moments
        for index, penalty in enumerate(PENALTIES):
            slopes = vectors @ (rotated / (values + penalty * max(values.mean(), 1e-12)))
            candidates[index, member, 1:] = slopes
            candidates[index, member, 0] = target - means @ slopes
    seen_by_none = unseen.sum(axis=0)
    usable = seen_by_none > 0
    errors = []
    for weights in candidates:
        guess = ((features @ weights.T) * unseen.T).sum(axis=1)[usable] / seen_by_none[usable]
        errors.append(float(np.mean((returns[usable] - guess) ** 2)))
    return candidates[int(np.argmin(errors))], unseen


def _misfit(
    normal: np.ndarray,
    returns: np.ndarray,
    case: np.ndarray,
    predictions: np.ndarray,
    unseen: np.ndarray,
    rng: np.random.Generator,
) -> float:
    """
    Measure what the regressions cannot express, from neighbours of different cases.

    Two cases that pass through nearly the same state share the error of the estimate but not the
    noise of their returns: the mean product of the residuals of a member that has seen neither
    is its squared error. Neighbours are not twins, so the product is divided by how much the
    members' deviations agree between them. A member errs by the misfit, by the sample, and by
    its bootstrap of the sample; the members' variance stands for each of the last two.

    :param predictions: of each member, shape (N, K).
    :param unseen: shape (K, N).
    :returns: root of the mean squared misfit, at least 0.
    """
    freedom = predictions.shape[1] - 1
    deviations = predictions - predictions.mean(axis=1, keepdims=True)
    product = variance = shared = 0.0
    for member, mask in enumerate(unseen):
        chosen = rng.permutation(np.flatnonzero(mask))[:NEIGHBOURS]
        if len(np.unique(case[chosen])) < 2:
            continue
        nearest = _neighbours(normal[chosen], case[chosen])
        errors = returns[chosen] - predictions[chosen, member]
        own = deviations[chosen]
        product += float(np.mean(errors * errors[nearest]))
        variance += float(np.mean(np.square(own).sum(axis=1))) / freedom
        shared += float(np.mean((own * own[nearest]).sum(axis=1))) / freedom
    agreement = min(max(shared / variance, 0.2), 1.0) if variance > 0 else 1.0
    return math.sqrt(max(product / agreement - 2.0 * variance, 0.0) / len(unseen))


def _neighbours(points: np.ndarray, names: np.ndarray) -> np.ndarray:
    """Find for each point the nearest one of another case, shape (M,)."""
    squares = np.square(points).sum(axis=1)
    distances = squares[:, None] + squares[None, :] - 2.0 * (points @ points.T)
    distances[names[:, None] == names[None, :]] = np.inf
    nearest: np.ndarray = distances.argmin(axis=1)
    return nearest
