# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""
The sampled Gaussian mechanism: clip, sum, add noise, divide (DP-DQN Alg. 1; FDRL Eq. 5, 12, 21).

A unit (a patient, or a transition) joins a step by its own coin of probability q; the gradients of
those who joined are clipped to C and summed; the noised sum is divided by the expected number L.


Which ways of sampling a batch may claim what: amplification, a finite epsilon, or nothing.

Amplification by sampling holds where each record joins by its own coin, of a probability that
depends on nobody. Where it depends on the record's own priority alone, others still cannot tell
from a batch who is missing, but the priority tells of the record: no amplification, q = 1.
"""

from enum import StrEnum
import functools
import math

from fdrl_ros.errors import PrivacyError
from fdrl_ros.privacy.accountant.accountant import Charge
from fdrl_ros.privacy.noise import NoiseSource, to_unit
from fdrl_ros.runtime import kernels
import numpy as np
from numpy.typing import NDArray

_MARGIN = 2.0**-10
"""
Part of C that clipping leaves for what arithmetic may add to a unit's influence: float32 in
gradients and their norms, and half of it for the grid of :func:`noisy_mean`.
"""
_WITHIN = 1.0 - _MARGIN


def clip_factors(norms: NDArray[np.floating], clip_norm: float) -> NDArray[np.float64]:
    """
    Return what each unit's gradient is multiplied by: 1 / max(1, norm / C).

    For those who know the norms without holding the gradients (ghost clipping). A unit whose norm
    is not finite adds nothing: to stop because of it would tell of it.

    :param norms: L2 norm of each unit's gradient, shape (units,).
    :param clip_norm: C, > 0.
    :returns: factors in [0, 1], shape (units,), float64; 0 for those whose gradient must not be
        multiplied, but left out.
    :raises PrivacyError: if C is not a positive number.
    """
    limit = clip_limit(clip_norm)
    norms = np.asarray(norms, dtype=np.float64)
    with np.errstate(invalid='ignore'):
        factors = np.minimum(1.0, limit / np.maximum(norms, limit / 2.0))
    return np.where(np.isfinite(norms), factors, 0.0)


def clip_limit(clip_norm: float) -> float:
    """
    Return the norm that is clipped to: C less what arithmetic may add to a unit's influence.

    :raises PrivacyError: if C is not a positive number.
    """
    _check_positive('clip_norm', clip_norm)
    return clip_norm * _WITHIN


def poisson_sample(
    n_units: int, q: float, source: NoiseSource, round: int, step: int
) -> NDArray[np.int64]:
    """
    Let each unit join this step by its own coin of probability q, and return who joins.

    The accountant's amplification by sampling holds for independent inclusion only. The distance
    from one who joins to the next is geometric, so only those who join cost a draw. q is lowered
    by 2^-30 of itself, more than rounding of the logarithms can add, so that no unit joins with
    more than q. Nobody may join: such a step still adds noise and is charged.

    :param n_units: number of privacy units.
    :param q: inclusion probability, in (0, 1].
    :param source: keyed noise.
    :returns: numbers of the units that join, rising, shape (joined,).
    :raises PrivacyError: if q is not a probability above 0.
    """
    if not 0.0 < q <= 1.0:
        raise PrivacyError(f'sampling probability {q!r}: expected in (0, 1]')
    if q == 1.0:
        return np.arange(n_units)
    log_stay = math.log1p(-q * (1.0 - 2.0**-30))
    count = math.ceil(n_units * q + 6.0 * math.sqrt(n_units * q)) + 8
    joined: list[NDArray[np.int64]] = []
    last, turn = -1, 0
    while last < n_units:
        words = source.uniform_words(f'inclusion {turn}', round, step, count)
        go_on = kernels.joined if kernels.built() else _joined
        found, last = go_on(words, log_stay, n_units, last)
        joined.append(found)
        turn += 1
    return joined[0] if turn == 1 else np.concatenate(joined)


def _joined(
    words: NDArray[np.uint64], log_stay: float, n_units: int, last: int
) -> tuple[NDArray[np.int64], int]:
    """Do what :func:`fdrl_ros.runtime.kernels.joined` does."""
    gaps = np.log(to_unit(words))
    gaps /= log_stay
    # Beyond the last unit all gaps are alike; capped, none is too large for an integer.
    np.minimum(gaps, float(n_units), out=gaps)
    found = last + np.cumsum(gaps.astype(np.int64) + 1)
    return found[: np.searchsorted(found, n_units)], int(found[-1])


def independent_sample(
    probabilities: NDArray[np.float64], source: NoiseSource, round: int, step: int
) -> NDArray[np.int64]:
    """
    Let each unit join this step by a coin of its own probability, and return who joins.

    For private prioritised replay; no amplification is claimed for it (charged at q = 1).

    :param probabilities: in [0, 1], shape (units,).
    :returns: numbers of the units that join, rising, shape (joined,).
    """
    coins = source.uniform('coins', round, step, len(probabilities))
    return np.flatnonzero(coins < probabilities)


def noisy_mean(
    clipped_sum: NDArray[np.floating],
    *,
    noise_multiplier: float,
    clip_norm: float,
    expected_batch: float,
    noise: NDArray[np.float64],
) -> NDArray[np.float64]:
    """
    Add N(0, (sigma_m C)^2 I) and divide by the expected batch size L (FDRL Eq. 5).

    Dividing by the number who joined would release that number; L = q n is public.

    Sum and noise are each rounded to one public grid (:func:`grid_of`), so that what is released
    is a rounded Gaussian release: its low bits, which tell floating-point noise from real noise
    (Mironov 2012; Jin et al. 2022), are gone. Rounding the sum moves a unit's influence by at most
    sqrt(parameters) steps of the grid, which clipping left room for.

    :param clipped_sum: sum of the clipped gradients, shape (..., parameters).
    :param noise_multiplier: sigma_m, >= 0; 0 gives no privacy.
    :param clip_norm: C, > 0.
    :param expected_batch: L, > 0, units.
    :param noise: N(0, 1) draws, shape (..., parameters).
    :returns: noised mean gradient, shape (..., parameters), float64.
    :raises PrivacyError: if a shape or number does not fit (one draw for all would not hide any),
        or there is noise and the compiled arithmetic is not built.
    """
    _check_positive('clip_norm', clip_norm)
    _check_positive('expected_batch', expected_batch)
    if not (math.isfinite(noise_multiplier) and noise_multiplier >= 0.0):
        raise PrivacyError(f'noise_multiplier = {noise_multiplier!r}: expected 0 or above')
    if np.shape(noise) != np.shape(clipped_sum):
        raise PrivacyError(
            f'noise has shape {np.shape(noise)} and the sum {np.shape(clipped_sum)}: '
            'expected one draw for each parameter'
        )
    if noise_multiplier > 0.0:
        grid = grid_of(noise_multiplier, clip_norm, np.shape(clipped_sum)[-1])
        per_noise, share = noise_multiplier * clip_norm / grid, grid / expected_batch
        return kernels.noisy_mean(clipped_sum, noise, grid, per_noise, share)
    total: NDArray[np.float64] = np.asarray(clipped_sum, np.float64) / expected_batch
    # A value that is not finite makes the square not finite, without a pass of its own.
    if not math.isfinite(np.vdot(total, total)):
        raise PrivacyError('the sum or the noise is not finite')
    return total


@functools.lru_cache(maxsize=64)
def grid_of(noise_multiplier: float, clip_norm: float, n_parameters: int) -> float:
    """
    Return the step of the grid that sums and noise are rounded to: a power of two.

    At most 2^-24 of the noise's standard deviation, and so fine that rounding moves a sum of
    `n_parameters` numbers by less than half of what clipping leaves for it.
    """
    finest = noise_multiplier * clip_norm * 2.0**-24
    room = 0.5 * _MARGIN * clip_norm / math.sqrt(n_parameters)
    return 2.0 ** math.floor(math.log2(min(finest, room)))


def mean_noise_std(*, noise_multiplier: float, clip_norm: float, expected_batch: float) -> float:
    """Return the papers' noise level s = sigma_m C / L, the std on the averaged gradient."""
    return noise_multiplier * clip_norm / expected_batch


def _check_positive(name: str, value: float) -> None:
    if not (math.isfinite(value) and value > 0.0):
        raise PrivacyError(f'{name} = {value!r}: expected a positive number')


class Sampling(StrEnum):
    """How the records of a batch are chosen."""

    POISSON = 'poisson'
    """Each record by its own coin, all of the same probability q."""
    PRIORITISED_POISSON = 'prioritised_poisson'
    """
    Each record j by its own coin, of q_j = min(1, c p_j): p_j computed from record j and released
    weights alone, c public.
    """
    UNIFORM = 'uniform'
    """A batch of a fixed size."""
    PRIORITISED = 'prioritised'
    """Drawn in proportion to priorities, as from a sum tree (the DP-DQN paper's replay)."""


_UNBOUNDED = {
    Sampling.UNIFORM: 'a batch of a fixed size is not drawn by independent coins: who joins '
    'depends on who else is there',
    Sampling.PRIORITISED: 'in prioritised replay one record moves the probability of all others '
    'through the sum of priorities, and the batch may differ everywhere',
}


def charged_probability(sampling: str, q: float) -> float:
    """
    Return the sampling probability that a step is charged at.

    :param sampling: one of :class:`Sampling`.
    :param q: probability of each record to join, in (0, 1]; of the prioritised ones the mean.
    :returns: q for 'poisson', 1 for 'prioritised_poisson'.
    :raises PrivacyError: telling why, for the ways that have no finite epsilon or are not known.
    """
    chosen = _known(sampling)
    if chosen in _UNBOUNDED:
        raise PrivacyError(
            f'{chosen} sampling has no finite epsilon: {_UNBOUNDED[chosen]}; use '
            f"'{Sampling.POISSON}', or '{Sampling.PRIORITISED_POISSON}' charged without "
            'amplification; only a budget of inf, NOT PRIVATE, allows it'
        )
    if not 0.0 < q <= 1.0:
        raise PrivacyError(f'sampling probability {q!r}: expected in (0, 1]')
    return q if chosen is Sampling.POISSON else 1.0


def charge_for(
    sampling: str,
    *,
    noise_multiplier: float,
    sampling_probability: float,
    steps: int,
    group: int = 1,
) -> Charge:
    """
    Return what some steps are charged as; without a finite epsilon, as steps without noise.

    So a history with such steps has epsilon infinity, whatever else is in it.

    :raises PrivacyError: if the way of sampling is not known.
    """
    if _known(sampling) in _UNBOUNDED:
        return Charge(0.0, 1.0, steps, group)
    charged = charged_probability(sampling, sampling_probability)
    return Charge(noise_multiplier, charged, steps, group)


def _known(sampling: str) -> Sampling:
    try:
        return Sampling(sampling)
    except ValueError as error:
        known = ', '.join(f"'{each}'" for each in Sampling)
        raise PrivacyError(
            f'sampling {sampling!r} claims no privacy that is known: expected one of {known}'
        ) from error
