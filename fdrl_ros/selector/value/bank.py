# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""The value models of all candidates side by side, for the hot path (FDRL Eq. 7)."""

from collections.abc import Sequence
from functools import partial
from typing import Any, NamedTuple

from fdrl_ros.errors import PolicyError, StateError
from fdrl_ros.runtime import kernels
from fdrl_ros.selector.value.model import basis_of, REACH, RETURN, RISK, StateValue, ValueModel
import numpy as np

_dots: Any = getattr(np, 'vecdot', partial(np.einsum, 'ck,ck->c'))
"""Products of rows with rows; numpy 1.26 has no `vecdot`, which is quicker."""

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

        What both leave out alike falls out: the bound is of the difference, not the difference
        of bounds.

        :param than: number of the candidate that the others are compared with.
        :param factor: standard deviations below the mean.
        :returns: shape (C,); 0 for the candidate itself.
        """
        if kernels.built():
            return self._advantages(than, factor)
        apart = self.deviations - self.deviations[than]
        spread: np.ndarray = _dots(apart, apart)
        spread += self.strangeness
        spread += self.strangeness[than]
        np.sqrt(spread, out=spread)
        spread *= -factor
        spread += self.means
        spread -= self.means[than]
        spread[than] = 0.0
        return spread

    def _advantages(self, than: int, factor: float) -> np.ndarray:
        """Do the same in compiled arithmetic."""
        count, members = self.deviations.shape
        if not 0 <= than < count or not self.means.shape == self.strangeness.shape == (count,):
            raise IndexError(f'candidate {than} of {count}: {self.means.shape} means')
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
        self._nothing = _nothing(len(models))

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
        full = -(-width // _LANES) * _LANES
        self._empty = np.zeros(full)
        self._empty[0] = 1.0
        weights = np.full((2 + members, count, width), np.nan)
        # The last row cuts the state to what the basis takes.
        self._low = np.full((count + 1, size), -REACH)
        self._high = np.full((count + 1, size), REACH)
        self._rate = np.zeros((count, size))
        self._squared_errors = np.full(count, np.nan)
        for row, each in enumerate(values):
            if each is None:
                continue
            weights[0, row] = each.weights[RETURN] - risk_weight * each.weights[RISK]
            weights[1, row] = each.weights[RISK]
            weights[2:, row] = each.deviations[RETURN] - risk_weight * each.deviations[RISK]
            self._low[row], self._high[row] = each.low, each.high
            self._rate[row] = each.caution / each.spread
            self._squared_errors[row] = each.conformal_error**2
        ordered = [weights[0], weights[1], weights[2:].swapaxes(0, 1).reshape(-1, width)]
        self._matrix = np.zeros((count * (2 + members), full))
        self._matrix[:, :width] = np.concatenate(ordered)
        self._bank = self._compiled() if kernels.built() else None

    def estimate(self, state: np.ndarray) -> Estimates:
        count = self._shape[0]
        if self._bank is not None:
            return self._estimate(state)
        inside = np.maximum(state, self._low)
        np.minimum(inside, self._high, out=inside)
        features = self._empty.copy()
        features[1 : 1 + len(state)] = inside[count]
        self._basis.complete(features)
        values = np.dot(self._matrix, features)
        means, deviations = values[:count], values[2 * count :].reshape(self._shape)
        beyond = inside[:count]
        beyond -= state
        beyond *= self._rate
        strangeness: np.ndarray = _dots(beyond, beyond)
        stds: np.ndarray = _dots(deviations, deviations)
        stds += strangeness
        stds += self._squared_errors
        np.sqrt(stds, out=stds)
        return Estimates(means, stds, values[count : 2 * count], deviations, strangeness)

    def _estimate(self, state: np.ndarray) -> Estimates:
        """Do the same in compiled arithmetic."""
        given = np.ascontiguousarray(state, np.float64)
        if given.shape != (self._basis.size,):
            raise StateError(f'state of shape {given.shape}: expected ({self._basis.size},)')
        count, members = self._shape
        end = count * (4 + members)
        found = np.empty(end + len(self._empty))
        kernels.lib.fdrl_values(self._bank, _of('double[]', given), _of('double[]', found))
        return Estimates(
            found[:count],
            found[2 * count : 3 * count],
            found[count : 2 * count],
            found[4 * count : end].reshape(self._shape),
            found[3 * count : 4 * count],
        )

    def _compiled(self) -> Any:
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


def _nothing(count: int) -> Estimates:
    nothing = np.full(count, np.nan)
    return Estimates(nothing, nothing, nothing, np.full((count, 2), np.nan), nothing)
