# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""
The paper's policy divergence D_KL (FDRL Eq. 18 to 20) and OPE (Eq. 24).

A policy is softmax(Q(s, .) / temperature); the paper names no temperature, so whoever tells a
divergence tells it too. D_KL guarantees nothing about privacy, whatever its size.
"""

from collections.abc import Sequence
import math

from fdrl_ros.errors import SettingError
import numpy as np
from numpy.typing import NDArray

WEIGHTS = (0.3, 0.4, 0.3)
"""Lambda of Eq. 24: of 1 - PLR, of D_KL, and of exp(-epsilon)."""

_AS_ONE = 1e-9  # what the weights may differ from 1 by


def log_policy(values: NDArray[np.floating], temperature: float) -> NDArray[np.float64]:
    """
    Return log softmax(Q / temperature).

    :param values: Q, shape (states, actions).
    :param temperature: tau, > 0, in units of Q.
    :raises SettingError: if a value is not finite, or tau is no positive number.
    """
    if not (math.isfinite(temperature) and temperature > 0.0):
        raise SettingError('temperature', temperature, 'a number above 0')
    scaled = np.asarray(values, np.float64) / temperature
    if scaled.ndim != 2 or not np.isfinite(scaled).all():
        raise SettingError('values', scaled.shape, 'finite numbers, shape (states, actions)')
    scaled = scaled - scaled.max(axis=1, keepdims=True)
    logs: NDArray[np.float64] = scaled - np.log(np.exp(scaled).sum(axis=1, keepdims=True))
    return logs


def policy_divergence(
    one: NDArray[np.floating], other: NDArray[np.floating], temperature: float
) -> float:
    """
    Return KL(one || other) in nats, the mean over states (FDRL Eq. 18).

    :param one: Q values in a fixed set of states, shape (states, actions); `other` as well.
    :param temperature: tau of both policies.
    :raises SettingError: if shapes differ or a number is out of range.
    """
    if np.shape(one) != np.shape(other):
        raise SettingError('values', np.shape(other), f'shape {np.shape(one)}')
    first, second = log_policy(one, temperature), log_policy(other, temperature)
    return float(max(0.0, np.mean(np.sum(np.exp(first) * (first - second), axis=1))))


def federated_divergence(
    hospitals: Sequence[NDArray[np.floating]], federated: NDArray[np.floating], temperature: float
) -> float:
    """
    Return the mean over hospitals of KL(pi_i || pi_FL) (FDRL Eq. 19).

    :param hospitals: Q values of each hospital's own policy, shape (states, actions) each.
    :raises SettingError: if there is none.
    """
    if not hospitals:
        raise SettingError('hospitals', 0, 'at least one')
    return math.fsum(policy_divergence(each, federated, temperature) for each in hospitals) / len(
        hospitals
    )


def overall_effectiveness(
    leakage_rate: float,
    divergence: float,
    epsilon: float,
    weights: tuple[float, float, float] = WEIGHTS,
) -> float:
    """
    Return OPE = w1 (1 - PLR) + w2 D_KL + w3 exp(-epsilon) (FDRL Eq. 24).

    D_KL has no upper bound, so neither has OPE.

    :param epsilon: at least 0; infinity adds nothing.
    :raises SettingError: if a number is out of range, or the weights do not sum to 1.
    """
    if not 0.0 <= leakage_rate <= 1.0:
        raise SettingError('leakage_rate', leakage_rate, 'a number from 0 to 1')
    if not divergence >= 0.0:
        raise SettingError('divergence', divergence, 'at least 0')
    if not epsilon >= 0.0:
        raise SettingError('epsilon', epsilon, 'at least 0')
    if min(weights) < 0.0 or abs(sum(weights) - 1.0) > _AS_ONE:
        raise SettingError('weights', weights, 'at least 0, and 1 together')
    return (
        weights[0] * (1.0 - leakage_rate)
        + weights[1] * divergence
        + weights[2] * math.exp(-epsilon)
    )
