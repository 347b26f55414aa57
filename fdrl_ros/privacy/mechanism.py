# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""
The sampled Gaussian mechanism: clip, sum, add noise, divide (DP-DQN Alg. 1; FDRL Eq. 5, 12, 21).

A unit (a patient, or a transition) joins a step by its own coin of probability q. The gradients of
those who joined are clipped to C and summed; the noised sum is divided by the expected number L.

Privacy amplification by sampling holds where each record joins by its own coin, of a probability
that depends on nobody. If the probability depends on the record's own priority, a batch still does
not reveal that another record is missing, but the priority reveals the record: such a step is
charged without amplification, q = 1. Other sampling has no finite epsilon.
"""

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
Part of C reserved for the arithmetic's contribution to a unit's influence: float32 in gradients
and their norms, and half of it for the grid of :func:`noisy_mean`.
"""
_WITHIN = 1.0 - _MARGIN


def clip_factors(norms: NDArray[np.floating], clip_norm: float) -> NDArray[np.float64]:
    """
    Return the factor of each unit's gradient: 1 / max(1, norm / C).

    Serves ghost clipping, where norms are known and gradients are not formed. A unit whose norm is
    not finite adds nothing, since stopping would reveal it.

    :param norms: L2 norm of each unit's gradient, shape (units,).
    :param clip_norm: C, > 0.
    :returns: factors in [0, 1], shape (units,), float64; a gradient with factor 0 must be left
        out, not multiplied.
    :raises PrivacyError: if C is not a positive number.
    """
    limit = clip_limit(clip_norm)
    norms = np.asarray(norms, dtype=np.float64)
    with np.errstate(invalid='ignore'):
        factors = np.minimum(1.0, limit / np.maximum(norms, limit / 2.0))
    return np.where(np.isfinite(norms), factors, 0.0)


def clip_limit(clip_norm: float) -> float:
    """
    Return the norm to clip to: C less the part reserved for arithmetic.

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
    between joining units is geometric, so only joining units cost a draw. q is lowered by 2^-30 of
    itself, more than the rounding of the logarithms, so that no unit joins with more than q. If no
    unit joins, the step still adds noise and is charged.

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
    """Compute :func:`fdrl_ros.runtime.kernels.joined` in NumPy."""
    gaps = np.log(to_unit(words))
    gaps /= log_stay
    # Gaps beyond the last unit are equivalent; capped, none overflows an integer.
    np.minimum(gaps, float(n_units), out=gaps)
    found = last + np.cumsum(gaps.astype(np.int64) + 1)
    return found[: np.searchsorted(found, n_units)], int(found[-1])


def independent_sample(
    probabilities: NDArray[np.float64], source: NoiseSource, round: int, step: int
) -> NDArray[np.int64]:
    """
    Let each unit join this step by a coin of its own probability, and return who joins.

    Serves private prioritised replay, which claims no amplification (charged at q = 1).

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

    Sum and noise are both rounded to one public grid (:func:`grid_of`), so that a rounded Gaussian
    is released: the low bits, which distinguish floating-point noise from real noise (Mironov
    2012; Jin et al. 2022), are removed. Rounding the sum moves a unit's influence by at most
    sqrt(parameters) steps of the grid, for which clipping reserves room.

    :param clipped_sum: sum of the clipped gradients, shape (..., parameters).
    :param noise_multiplier: sigma_m, >= 0; 0 gives no privacy.
    :param clip_norm: C, > 0.
    :param expected_batch: L, > 0, units.
    :param noise: N(0, 1) draws, shape (..., parameters).
    :returns: noised mean gradient, shape (..., parameters), float64.
    :raises PrivacyError: if a shape or number does not fit (one shared draw would hide nothing),
        or there is noise and the compiled arithmetic is not built.
    """
    _check_positive('clip_norm', clip_norm)
    _check_positive('expected_batch', expected_batch)
    if not (math.isfinite(noise_multiplier) and noise_multiplier >= 0.0):
        raise PrivacyError(f'noise_multiplier = {noise_multiplier!r}: expected 0 or above')
    if np.shape(noise) != np.shape(clipped_sum):
        raise PrivacyError(f'noise of shape {np.shape(noise)} for {np.shape(clipped_sum)}')
    if noise_multiplier > 0.0:
        grid = grid_of(noise_multiplier, clip_norm, np.shape(clipped_sum)[-1])
        per_noise, share = noise_multiplier * clip_norm / grid, grid / expected_batch
        return kernels.noisy_mean(clipped_sum, noise, grid, per_noise, share)
    total: NDArray[np.float64] = np.asarray(clipped_sum, np.float64) / expected_batch
    # A value that is not finite makes the square not finite, without a separate pass.
    if not math.isfinite(np.vdot(total, total)):
        raise PrivacyError('the sum or the noise is not finite')
    return total


@functools.lru_cache(maxsize=64)
def grid_of(noise_multiplier: float, clip_norm: float, n_parameters: int) -> float:
    """
    Return the step of the grid for sums and noise: a power of two.

    It is at most 2^-24 of the noise's standard deviation, and so fine that rounding moves a sum of
    `n_parameters` numbers by less than half of the part of C reserved for arithmetic.
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


SAMPLING = ('poisson', 'prioritised_poisson', 'uniform', 'prioritised')
"""
How the records of a batch are chosen.

poisson: each by its own coin of one probability q. prioritised_poisson: each record j by its own
coin of q_j = min(1, c p_j), with p_j computed from record j and released weights alone and c
public. uniform: a batch of a fixed size. prioritised: in proportion to priorities, as from a sum
tree (the replay of the DP-DQN paper).
"""

_UNBOUNDED = {
    'uniform': 'a batch of a fixed size is not drawn by independent coins: who joins depends on '
    'who else is there',
    'prioritised': 'in prioritised replay one record moves the probability of all others through '
    'the sum of priorities, and the batch may differ everywhere',
}


def refuse_unbounded(sampling: str) -> None:
    """
    Refuse a sampling that has no finite epsilon.

    :raises PrivacyError: with the reason.
    """
    if sampling in _UNBOUNDED:
        raise PrivacyError(
            f'{sampling} sampling has no finite epsilon: {_UNBOUNDED[sampling]}; use '
            "'poisson', or 'prioritised_poisson' charged without "
            'amplification; only a budget of inf, NOT PRIVATE, allows it'
        )


def charge_for(sampling: str, charge: Charge) -> Charge:
    """
    Return the charge of steps under a way of sampling.

    Without a finite epsilon, steps are charged as steps without noise, so that any history with
    them has epsilon infinity. Only 'poisson' is charged with amplification.

    :param sampling: one of :data:`SAMPLING`.
    :param charge: the steps as if each record joined by its own coin.
    :raises PrivacyError: if the sampling is unknown.
    """
    if sampling not in SAMPLING:
        raise PrivacyError(f'sampling {sampling!r}: expected one of {", ".join(SAMPLING)}')
    if sampling in _UNBOUNDED:
        return charge._replace(noise_multiplier=0.0, sampling_probability=1.0)
    return charge if sampling == 'poisson' else charge._replace(sampling_probability=1.0)
