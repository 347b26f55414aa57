# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""
Losses of the compiled learner, as slopes at the values of a dueling network.

A loss takes each row alone, and weights that were released: so clipping a unit's gradient bounds
its whole influence. The recorded actions are scored by a softmax of Q, which is one of the
advantages: the value adds the same to every action, and Q = V + A - mean(A) has the mean V.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import NamedTuple

from fdrl_ros.errors import SettingError
from fdrl_ros.learner.records.transitions import Batch
from fdrl_ros.learner.settings import LearnerSettings
from fdrl_ros.settings import named_among
import numpy as np
from numpy.typing import NDArray

Values = NDArray[np.floating]


class Valued(NamedTuple):
    """
    Q of rows, (rows, actions): of their states, and, computed when called, of others.

    ``after``: of the next states. ``target`` and ``target_after``: of states and next states, by
    the target network.
    """

    now: Values
    after: Callable[[], Values]
    target: Callable[[], Values]
    target_after: Callable[[], Values]


class Loss(ABC):
    """The loss of a transition."""

    def __init__(self, learner: LearnerSettings) -> None:
        """Take the settings of the learner."""
        self.learner = learner

    @abstractmethod
    def slopes(self, values: Valued, rows: Batch) -> tuple[Values, Values]:
        """
        Return the slopes of each row's loss at Q of its state, and what its priority comes from.

        :returns: (rows, actions) and (rows,).
        """

    def turned(self, errors: Values) -> Values:
        """Return the slopes of the loss of errors in value, same shape."""
        return np.clip(errors, -1.0, 1.0) if self.learner.loss == 'huber' else errors


class DoubleDqnLoss(Loss):
    """
    Double DQN (van Hasselt et al. 2016, Eq. 4): Q(s, a) towards r + gamma Q'(s', argmax Q(s', .)).

    With `conservative` it is conservative Q-learning (Kumar et al. 2020, Eq. 4).
    """

    def slopes(self, values: Valued, rows: Batch) -> tuple[Values, Values]:
        """Return slopes, and errors in value: Q(s, a) minus its target."""
        best = values.after().argmax(axis=1)
        following = at_actions(values.target_after(), best)
        errors = at_actions(values.now, rows.actions)
        errors = errors - (rows.rewards + rows.discounts * following)
        alpha = self.learner.conservative
        found = softmax(values.now, alpha)[0] if alpha else np.zeros_like(values.now)
        found[np.arange(len(errors)), rows.actions] += self.turned(errors) - alpha
        return found, errors


class BehaviourCloning(Loss):
    """Behaviour cloning (Pomerleau 1991): -log pi(a | s), pi the softmax of Q."""

    def slopes(self, values: Valued, rows: Batch) -> tuple[Values, Values]:
        """Return slopes, and the losses."""
        return cloned(values.now, rows.actions, np.ones_like(values.now[:, 0]))


class AdvantageWeighted(Loss):
    """
    Advantage-weighted cloning (MARWIL, Wang et al. 2018), of returns R to the end of the episode.

    min(exp((R - V'(s)) / temperature), most_weight) (-log pi(a | s)) + value_weight l(V(s) - R),
    with V' of the target network and l Huber's loss or half the square. Differences from the
    paper: temperature is a setting, not the running size of advantages, which would mix patients.
    """

    def slopes(self, values: Valued, rows: Batch) -> tuple[Values, Values]:
        """Return slopes, and the losses."""
        learner = self.learner
        with np.errstate(over='ignore'):
            lead = (rows.rewards - values.target().mean(axis=1)) / learner.temperature
            weights = np.minimum(np.exp(lead), learner.most_weight)
        found, losses = cloned(values.now, rows.actions, weights)
        errors = values.now.mean(axis=1) - rows.rewards
        slopes = self.turned(errors)
        found += (learner.value_weight / found.shape[1]) * slopes[:, None]
        return found, losses + learner.value_weight * slopes * (errors - 0.5 * slopes)


LOSSES: dict[str, type[Loss]] = {
    'double_dqn': DoubleDqnLoss,
    'behaviour_cloning': BehaviourCloning,
    'advantage_weighted': AdvantageWeighted,
}
"""In the order of their numbers in native/kernels.h."""


def check_algorithm(learner: LearnerSettings) -> str:
    """
    Return the name of the loss that settings ask the compiled learner for.

    :raises SettingError: if it has no such loss.
    """
    name = learner.algorithm or 'double_dqn'
    if name not in LOSSES:
        expected = f"{named_among(name, 'algorithms', LOSSES)}, or learner.kind 'torch'"
        raise SettingError('learner.algorithm', name, expected)
    return name


def cloned(values: Values, actions: NDArray[np.int64], weights: Values) -> tuple[Values, Values]:
    """
    Return slopes of weighted cross-entropies at Q, (rows, actions), and the losses, (rows,).

    :param values: Q, (rows, actions).
    :param weights: of each row's loss, (rows,).
    """
    found, total = softmax(values, weights[:, None])
    found[np.arange(len(actions)), actions] -= weights
    return found, weights * (total - at_actions(values, actions))


def softmax(values: Values, share: Values | float) -> tuple[Values, Values]:
    """Return `share` times the softmax of each row, (rows, actions), and log sum exp, (rows,)."""
    top = values.max(axis=1, keepdims=True)
    found = np.exp(values - top)
    total = found.sum(axis=1, keepdims=True)
    found *= share / total
    return found, (top + np.log(total))[:, 0]


def at_actions(values: Values, actions: NDArray[np.int64]) -> Values:
    """Select the value of an action in each row: (rows, actions) to (rows,)."""
    return values[np.arange(len(actions)), actions]
