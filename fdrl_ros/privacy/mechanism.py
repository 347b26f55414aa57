# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""
The sampled Gaussian mechanism: clip, sum, add noise, divide (DP-DQN Alg. 1; FDRL Eq. 5, 12, 21).

A unit (a patient, or a transition) joins a step by its own coin of probability q; the gradients of
those who joined are clipped to C and summed; the noised sum is divided by the expected number L.
"""

import math

from fdrl_ros.errors import PrivacyError
from fdrl_ros.privacy.noise import NoiseSource
import numpy as np
from numpy.typing import NDArray

_ROUNDING = 1.0 - 2.0**-40  # keeps a clipped norm at or below C in spite of float64 rounding


def clip_factors(norms: NDArray[np.floating], clip_norm: float) -> NDArray[np.float64]:
    """
    Return what each unit's gradient is multiplied by: 1 / max(1, norm / C).

    For those who know the norms without holding the gradients (ghost clipping).

    :param norms: L2 norm of each unit's gradient, shape (units,).
    :param clip_norm: C, > 0.
    :returns: factors in (0, 1], shape (units,), float64.
    :raises PrivacyError: if a norm is not finite, or C is not a positive number.
    """
    _check_positive('clip_norm', clip_norm)
    norms = np.asarray(norms, dtype=np.float64)
    if not np.isfinite(norms).all():
        # How many, and of how many, is computed from private records: logs must not tell.
        raise PrivacyError('a gradient is not finite: it has no norm')
    clipped = norms > clip_norm * _ROUNDING
    return np.where(clipped, clip_norm * _ROUNDING / np.where(clipped, norms, 1.0), 1.0)


def clip_per_unit(gradients: NDArray[np.floating], clip_norm: float) -> NDArray[np.float64]:
    """
    Clip each privacy unit's gradient to L2 norm C and sum (DP-DQN Alg. 1).

    Sensitivity of the result is C for add-or-remove of one unit. No units give zeros.

    :param gradients: one gradient a unit, shape (units, parameters); units may be 0.
    :param clip_norm: C, > 0.
    :returns: sum of the clipped gradients, shape (parameters,), float64.
    :raises PrivacyError: if a gradient is not finite, or C is not a positive number.
    """
    gradients = np.asarray(gradients)
    if gradients.ndim != 2:
        raise PrivacyError(f'gradients of {gradients.ndim} axes: expected (units, parameters)')
    with np.errstate(over='ignore', invalid='ignore'):
        squares = np.einsum('up,up->u', gradients, gradients, dtype=np.float64)
    return clip_factors(np.sqrt(squares), clip_norm) @ gradients.astype(np.float64, copy=False)


def poisson_inclusion(
    n_units: int, q: float, source: NoiseSource, round: int, step: int
) -> NDArray[np.bool_]:
    """
    Decide for each unit, by its own coin, whether it joins this step.

    The accountant's amplification by sampling holds for independent inclusion only. A coin
    compares a 64-bit word with q, rounded down, so that no unit joins with more than q. Nobody may
    join: such a step still adds noise and is charged.

    :param n_units: number of privacy units.
    :param q: inclusion probability, in (0, 1].
    :param source: keyed noise.
    :returns: mask, shape (n_units,).
    :raises PrivacyError: if q is not a probability above 0.
    """
    if not 0.0 < q <= 1.0:
        raise PrivacyError(f'sampling probability {q!r}: expected in (0, 1]')
    threshold = int(q * 2.0**64)
    words = source.words('inclusion', round, step, n_units)
    if threshold >= 2**64:
        return np.ones(n_units, dtype=np.bool_)
    return words < np.uint64(threshold)


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

    :param clipped_sum: sum of the clipped gradients, shape (parameters,).
    :param noise_multiplier: sigma_m, >= 0; 0 gives no privacy.
    :param clip_norm: C, > 0.
    :param expected_batch: L, > 0, units.
    :param noise: N(0, 1) draws, shape (parameters,).
    :returns: noised mean gradient, shape (parameters,), float64.
    :raises PrivacyError: if a shape or number does not fit; one draw for all would not hide any.
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
    if not (np.isfinite(clipped_sum).all() and np.isfinite(noise).all()):
        raise PrivacyError('the sum or the noise is not finite')
    return (clipped_sum + (noise_multiplier * clip_norm) * noise) / expected_batch


def mean_noise_std(*, noise_multiplier: float, clip_norm: float, expected_batch: float) -> float:
    """Return the papers' noise level s = sigma_m C / L, the std on the averaged gradient."""
    return noise_multiplier * clip_norm / expected_batch


def _check_positive(name: str, value: float) -> None:
    if not (math.isfinite(value) and value > 0.0):
        raise PrivacyError(f'{name} = {value!r}: expected a positive number')
