# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""Policy divergence D_KL over probe states (FDRL Eq. 18-20), in nats."""

from collections.abc import Sequence

from fdrl_ros.errors import PolicyError
import numpy as np


def log_softmax(q_values: np.ndarray, temperature: float) -> np.ndarray:
    """
    Turn action values into the log-probabilities of softmax(Q / tau).

    :param q_values: shape (..., actions).
    :param temperature: tau, in the unit of the return, above 0.
    :raises PolicyError: if a value is not finite or the temperature is not above 0.
    """
    if not temperature > 0:
        raise PolicyError(f'temperature {temperature}: expected above 0')
    logits = np.asarray(q_values, dtype=np.float64) / temperature
    if not np.all(np.isfinite(logits)):
        raise PolicyError('action values: expected finite numbers')
    logits = logits - logits.max(axis=-1, keepdims=True)
    log_probabilities: np.ndarray = logits - np.log(np.exp(logits).sum(axis=-1, keepdims=True))
    return log_probabilities


def kl_divergence(q_values: np.ndarray, q_reference: np.ndarray, temperature: float) -> float:
    """
    Compute D_KL(pi || pi_reference), the mean over probe states (FDRL Eq. 18).

    Eq. 18 sums over states; the mean does not grow with the size of the probe set.

    :param q_values: values by the first policy, shape (states, actions).
    :param q_reference: values by the reference policy in the same states, same shape.
    :param temperature: tau of both softmax policies.
    :returns: nats, at least 0.
    :raises PolicyError: on other shapes, no state, or what :func:`log_softmax` refuses.
    """
    shape, reference_shape = np.shape(q_values), np.shape(q_reference)
    if shape != reference_shape or len(shape) != 2 or not shape[0]:
        raise PolicyError(f'expected two tables (states, actions): {shape} and {reference_shape}')
    log_p = log_softmax(q_values, temperature)
    log_q = log_softmax(q_reference, temperature)
    per_state = (np.exp(log_p) * (log_p - log_q)).sum(axis=1)
    # Rounding can leave -1e-17 where the policies agree.
    return max(0.0, float(per_state.mean()))


def federated_divergence(
    q_hospitals: Sequence[np.ndarray], q_federated: np.ndarray, temperature: float
) -> float:
    """
    Compute D_FL = mean over hospitals of D_KL(pi_i || pi_FL) (FDRL Eq. 19).

    :param q_hospitals: one table (states, actions) for each hospital.
    """
    if not q_hospitals:
        raise PolicyError('expected the values of at least one hospital')
    return float(np.mean([kl_divergence(q, q_federated, temperature) for q in q_hospitals]))


def central_divergence(
    q_federated: np.ndarray, q_central: np.ndarray, temperature: float
) -> float:
    """Compute D_Central = D_KL(pi_FL || pi_central) (FDRL Eq. 20)."""
    return kl_divergence(q_federated, q_central, temperature)
