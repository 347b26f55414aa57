# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""The value models of all candidates side by side, for the hot path (FDRL Eq. 7)."""

from collections.abc import Sequence
from typing import Any, NamedTuple

from fdrl_ros.errors import PolicyError, StateError
from fdrl_ros.runtime import kernels
from fdrl_ros.selector.value.model import basis_of, REACH, RETURN, RISK, StateValue, ValueModel
import numpy as np

_of: Any = None if kernels.ffi is None else kernels.ffi.from_buffer

_LANES = 8
"""Rows of a matrix are filled up with zeros to a multiple of this, as native/values.c has it."""


class Estimates(NamedTuple):
    """
    What C candidates are worth in one state; NaN where there is no estimate.

    :param means: expected return less the weight of risk times risk to go, shape (C,).
    :param stds: the standard deviation of each mean, shape (C,).
    :param risks: risk to go, shape (C,).
    :param deviations: of the means over the members, shape (C, K); the squares of a row add up to
        the variance, and those of the difference of two rows to the variance of the difference.
    :param strangeness: variance for being outside what was met, shape (C,).
    """

    means: np.ndarray
    stds: np.ndarray
    risks: np.ndarray
    deviations: np.ndarray
    strangeness: np.ndarray

    def advantages(self, than: int, factor: float) -> np.ndarray:
        """
        Return the lower confidence bound of each candidate's advantage over one of them.

        Errors that both share cancel: the bound is of the difference, not the difference
        of bounds.

        :param than: number of the candidate that the others are compared with.
        :param factor: standard deviations below the mean.
        :returns: shape (C,); 0 for the candidate itself.
        """
        count, members = self.deviations.shape
        if not 0 <= than < count or not self.means.shape == self.strangeness.shape == (count,):
            raise IndexError(f'candidate {than} of {count}: {self.means.shape} means')
        if not kernels.built():
            spread = np.square(self.deviations - self.deviations[than]).sum(axis=1)
            spread += self.strangeness + self.strangeness[than]
            found: np.ndarray = self.means - self.means[than] - factor * np.sqrt(spread)
            found[than] = 0.0
            return found
        found = np.empty(count)
        arrays = (self.means, self.deviations, self.strangeness)
        numbers = [_of('double[]', np.ascontiguousarray(each, np.float64)) for each in arrays]
        into = _of('double[]', found)
        kernels.lib.fdrl_advantages(count, members, than, factor, *numbers, into)
        return found


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
        nothing = np.full(len(models), np.nan)
        no_deviations = np.full((len(models), 2), np.nan)
        self._nothing = Estimates(nothing, nothing, nothing, no_deviations, nothing)

    def estimate(self, procedure: str, state: np.ndarray) -> Estimates:
        """
        Estimate what every candidate is worth in one state.

        :param state: scaled, shape (S,); fastest in float64.
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
        weights = np.full((2 + members, count, width), np.nan)
        self._low, self._high = np.full((count, size), -REACH), np.full((count, size), REACH)
        self._rate = np.zeros((count, size))
        self._squared_errors = np.full(count, np.nan)
        for row, value in enumerate(values):
            if value is None:
                continue
            weights[0, row] = value.weights[RETURN] - risk_weight * value.weights[RISK]
            weights[1, row] = value.weights[RISK]
            weights[2:, row] = value.deviations[RETURN] - risk_weight * value.deviations[RISK]
            self._low[row], self._high[row] = value.low, value.high
            self._rate[row] = value.caution / value.spread
            self._squared_errors[row] = value.conformal_error**2
        ordered = [weights[0], weights[1], weights[2:].swapaxes(0, 1).reshape(-1, width)]
        self._matrix = np.zeros((count * (2 + members), -(-width // _LANES) * _LANES))
        self._matrix[:, :width] = np.concatenate(ordered)
        self._bank = self._compiled() if kernels.built() else None

    def estimate(self, state: np.ndarray) -> Estimates:
        given = np.ascontiguousarray(state, np.float64)
        if given.shape != (self._basis.size,):
            raise StateError(f'state of shape {given.shape}: expected ({self._basis.size},)')
        count, members = self._shape
        if self._bank is None:
            values = self._matrix[:, : self._basis.width] @ self._basis(given[None])[0]
            deviations = values[2 * count :].reshape(self._shape)
            beyond = (np.clip(given, self._low, self._high) - given) * self._rate
            strangeness = np.square(beyond).sum(axis=1)
            variances = np.square(deviations).sum(axis=1) + strangeness + self._squared_errors
            means, risks = values[:count], values[count : 2 * count]
            return Estimates(means, np.sqrt(variances), risks, deviations, strangeness)
        end = count * (4 + members)
        found = np.empty(end + self._matrix.shape[1])
        kernels.lib.fdrl_values(self._bank, _of('double[]', given), _of('double[]', found))
        return Estimates(
            found[:count],
            found[2 * count : 3 * count],
            found[count : 2 * count],
            found[4 * count : end].reshape(self._shape),
            found[3 * count : 4 * count],
        )

    def _compiled(self) -> object:
        """Return what the compiled arithmetic needs to know."""
        arrays = {
            'projection': self._basis.projection,
            'matrix': self._matrix,
            'low': self._low,
            'high': self._high,
            'rate': self._rate,
            'misfits': self._squared_errors,
        }
        # An array must live as long as what points to it: `self` keeps both.
        self._arrays = {name: _of('double[]', each) for name, each in arrays.items()}
        count, members = self._shape
        numbers = {'candidates': count, 'members': members, 'reach': REACH}
        numbers |= {'size': self._basis.size, 'features': self._basis.count}
        stride = self._matrix.shape[1]
        return kernels.ffi.new('fdrl_bank *', {**numbers, **self._arrays, 'stride': stride})
