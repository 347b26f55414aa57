# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""The value models of all candidates side by side, for the hot path (FDRL Eq. 7)."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

from fdrl_ros.errors import PolicyError
from fdrl_ros.selector.basis import basis_of
from fdrl_ros.selector.value import RETURN, RISK, StateValue, ValueModel
import numpy as np


@dataclass(frozen=True, eq=False)
class Estimates:
    """
    What C candidates are worth in one state; NaN where there is no estimate.

    :param means: expected return less the weight of risk times risk to go, shape (C,).
    :param risks: risk to go, shape (C,).
    :param deviations: of the means over the members, shape (C, K); the squares of a row add up to
        the variance, and those of the difference of two rows to the variance of the difference.
    :param strangeness: variance for being outside what was met, shape (C,).
    :param misfits: variance of what the features cannot express, shape (C,).
    """

    means: np.ndarray
    risks: np.ndarray
    deviations: np.ndarray
    strangeness: np.ndarray
    misfits: np.ndarray

    @cached_property
    def stds(self) -> np.ndarray:
        """The standard deviation of each mean, shape (C,)."""
        own = np.einsum('ck,ck->c', self.deviations, self.deviations)
        std: np.ndarray = np.sqrt(own + self.strangeness + self.misfits)
        return std

    def advantages(self, than: int, factor: float) -> np.ndarray:
        """
        Return the lower confidence bound of each candidate's advantage over one of them.

        What both leave out alike falls out: the bound is of the difference, not the difference
        of bounds.

        :param than: number of the candidate that the others are compared with.
        :param factor: standard deviations below the mean.
        :returns: shape (C,); 0 for the candidate itself.
        """
        apart = self.deviations - self.deviations[than]
        variance = np.einsum('ck,ck->c', apart, apart) + self.strangeness
        variance += self.strangeness[than]
        bounds: np.ndarray = self.means - self.means[than] - factor * np.sqrt(variance)
        bounds[than] = 0.0
        return bounds


class ValueBank:
    """The value models of all candidates, evaluated together in some microseconds."""

    def __init__(self, models: Sequence[ValueModel | None], risk_weight: float = 0.0) -> None:
        """
        Stack the models.

        :param models: one for each candidate; None where there is no estimate.
        :param risk_weight: returns that one unit of risk to go counts as much as.
        :raises PolicyError: if their forms differ: states, features or members.
        """
        forms = {each.form for each in models if each is not None}
        if len(forms) > 1:
            raise PolicyError(f'value models of different forms: {sorted(forms)}')
        names = {name for each in models if each is not None for name in each.estimates}
        self._stacks = {
            name: _Stack(
                [None if each is None else each.estimates.get(name) for each in models],
                risk_weight,
            )
            for name in names
        }
        self._nothing = _nothing(len(models))

    def estimate(self, procedure: str, state: np.ndarray) -> Estimates:
        """
        Estimate what every candidate is worth in one state.

        :param state: scaled, shape (S,).
        """
        stack = self._stacks.get(procedure)
        return self._nothing if stack is None else stack.estimate(state)


class _Stack:
    """The estimates of one procedure side by side: C candidates, K members, P features."""

    def __init__(self, values: Sequence[StateValue | None], risk_weight: float) -> None:
        first = next(each for each in values if each is not None)
        count, (_, members, width) = len(values), first.deviations.shape
        size = first.state_size
        self._basis = basis_of(size, width - 1 - size)
        self._shape = count, members
        weights = np.full((2, count, width), np.nan)
        deviations = np.full((count, members, width), np.nan)
        self._low, self._high = np.zeros((2, count, size))
        self._rate = np.zeros((count, size))
        self._misfits = np.full(count, np.nan)
        for row, each in enumerate(values):
            if each is None:
                continue
            weights[0, row] = each.weights[RETURN] - risk_weight * each.weights[RISK]
            weights[1, row] = each.weights[RISK]
            deviations[row] = each.deviations[RETURN] - risk_weight * each.deviations[RISK]
            self._low[row], self._high[row] = each.low, each.high
            self._rate[row] = each.caution / each.spread
            self._misfits[row] = each.misfit**2
        self._weights = weights.reshape(-1, width)
        self._deviations = deviations.reshape(-1, width)

    def estimate(self, state: np.ndarray) -> Estimates:
        count, _ = self._shape
        features = self._basis.one(state)
        values = np.dot(self._weights, features)
        beyond = np.minimum(np.maximum(state, self._low), self._high)
        beyond -= state
        beyond *= self._rate
        return Estimates(
            values[:count],
            values[count:],
            np.dot(self._deviations, features).reshape(self._shape),
            np.einsum('cs,cs->c', beyond, beyond),
            self._misfits,
        )


def _nothing(count: int) -> Estimates:
    nothing = np.full(count, np.nan)
    return Estimates(nothing, nothing, np.full((count, 2), np.nan), nothing, nothing)
