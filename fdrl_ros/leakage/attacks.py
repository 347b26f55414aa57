# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""
Membership attacks and gradient inversion, as pure functions of what an attacker saw.

All membership scores are high for members. Arrays of observations have shape (models, records):
an attacker of one model uses the others as shadow models, so every model is attacked once and
every statistic leaves the attacked model out.
"""

import math

import numpy as np
from numpy.typing import NDArray

Scores = NDArray[np.float64]
Members = NDArray[np.bool_]


def loss_scores(errors: Scores, most: float = math.inf) -> Scores:
    """
    Return minus the loss of each record, the size of its temporal-difference error.

    Yeom et al. 2018: a model errs less on what it was trained on.

    :param most: errors beyond count as that, so that few huge ones do not move means.
    """
    return -np.minimum(np.abs(errors), most)


def log_errors(errors: Scores) -> Scores:
    """Return log(|error| + 0.01), which is about as spread for small errors as for large."""
    return np.log(np.abs(errors) + 0.01)


def calibrated(scores: Scores) -> Scores:
    """
    Return scores minus the mean of the other models' (Watson et al. 2022).

    It takes off how difficult a record is for everybody.

    :param scores: shape (models, records), at least 2 models.
    """
    models = len(scores)
    return (scores - scores.mean(axis=0)) * (models / (models - 1.0))


def likelihood_ratios(observed: Scores, members: Members, *, pooled: bool = False) -> Scores:
    """
    Return LiRA's log-likelihood ratios (Carlini et al. 2022, online), one Gaussian a side.

    For each record the other models that were trained on it give mean and variance of what is
    observed of a member, those that were not give the other's.

    :param observed: any number of each model and record, such as a log error.
    :param members: which records each model was trained on, same shape.
    :param pooled: whether all records share their variances, better with few shadow models.
    :returns: same shape; 0 where a side has fewer than 2 other models.
    """
    logs, known = [], np.ones(observed.shape, np.bool_)
    for side in (members, ~members):
        count = side.sum(axis=0) - side
        total = np.where(side, observed, 0.0)
        mean = (total.sum(axis=0) - total) / np.maximum(count, 1)
        # Squares around a common middle, so that nothing cancels.
        middle = total.sum(axis=0) / np.maximum(side.sum(axis=0), 1)
        square = np.where(side, np.square(observed - middle), 0.0)
        spread = (square.sum(axis=0) - square) - count * np.square(mean - middle)
        variance = spread / np.maximum(count - 1, 1)
        if pooled:
            variance = np.broadcast_to(variance.mean(axis=1, keepdims=True), observed.shape)
        variance = np.maximum(variance, _LEAST_VARIANCE)
        logs.append(-0.5 * (np.square(observed - mean) / variance + np.log(variance)))
        known &= count >= 2
    return np.where(known, logs[0] - logs[1], 0.0)


_LEAST_VARIANCE = 1e-12


def alignment(update: Scores, gradients: Scores) -> Scores:
    """
    Return the cosine of an update with each record's direction of descent.

    Who sees the start and the end of a step asks whether it went where this record pulls.

    :param update: end minus start, shape (parameters,).
    :param gradients: of each record's loss at the start, shape (records, parameters).
    :returns: shape (records,); 0 where a norm is 0.
    """
    norms = np.linalg.norm(gradients, axis=1) * np.linalg.norm(update)
    with np.errstate(divide='ignore', invalid='ignore'):
        found = -(gradients @ update) / norms
    return np.where(norms > 0.0, found, 0.0)


def ranked_candidates(updates: Scores, atoms: Scores, ridge: float = 1e-6) -> NDArray[np.int64]:
    """
    Rank candidates by how much of an update each makes: gradient inversion over a dictionary.

    A gradient step is a sum of the gradients of those who joined, each times an unknown error, so
    an update is fitted by least squares with a small ridge on all candidates at once.

    :param updates: end minus start, shape (updates, parameters).
    :param atoms: the gradient of each candidate's Q value, shape (candidates, parameters).
    :param ridge: share of the mean squared norm of atoms.
    :returns: numbers of candidates, the most likely first, shape (updates, candidates).
    """
    products = atoms @ atoms.T
    products[np.diag_indices_from(products)] += ridge * max(
        float(np.mean(np.diag(products))), 1e-300
    )
    weights = np.linalg.solve(products, atoms @ updates.T)
    strength = np.abs(weights.T) * np.linalg.norm(atoms, axis=1)
    return np.argsort(-strength, axis=1, kind='stable')


def recall(ranked: NDArray[np.int64], true: NDArray[np.int64]) -> float:
    """
    Return the share of the true candidates among as many as there are, named first.

    :param ranked: a row of :func:`ranked_candidates`.
    :param true: numbers of the candidates that made the update, none twice.
    """
    return float(np.isin(true, ranked[: len(true)]).mean())
