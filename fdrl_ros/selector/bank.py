# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""The value models of all candidates side by side, for the hot path (FDRL Eq. 7)."""

from collections.abc import Sequence
import math

from fdrl_ros.errors import PolicyError
from fdrl_ros.selector.value import ValueModel
import numpy as np


class ValueBank:
    """The value models of all candidates, evaluated together in a few microseconds."""

    def __init__(self, models: Sequence[ValueModel | None]) -> None:
        """
        Stack the models.

        :param models: one for each candidate; None where there is no estimate.
        :raises PolicyError: if they take states of different sizes.
        """
        self._count = len(models)
        present = [(place, model) for place, model in enumerate(models) if model is not None]
        sizes = {model.state_size for _, model in present}
        if len(sizes) > 1:
            raise PolicyError(f'value models for states of different sizes: {sorted(sizes)}')
        self._places = np.array([place for place, _ in present], dtype=np.intp)
        stacks: dict[tuple[int, ...], list[int]] = {}
        for index, (_, model) in enumerate(present):
            stacks.setdefault(model.weights.shape, []).append(index)
        self._stacks = [
            _Stack([present[i][1] for i in group], self._places[group])
            for group in stacks.values()
        ]

    def mean_and_std(self, state: np.ndarray) -> tuple[list[float], list[float]]:
        """
        Estimate every candidate's expected return in one state.

        :param state: scaled, shape (S,).
        :returns: means and standard deviations, NaN where there is no estimate.
        """
        means = [math.nan] * self._count
        stds = [math.nan] * self._count
        for stack in self._stacks:
            values, deviations = stack.mean_and_std(state)
            for place, value, deviation in zip(stack.places, values, deviations, strict=True):
                means[place] = value
                stds[place] = deviation
        return means, stds


class _Stack:
    """Models of one shape side by side: C models, K members, P features."""

    def __init__(self, models: Sequence[ValueModel], places: np.ndarray) -> None:
        self.places: list[int] = places.tolist()
        self._center = np.stack([m.center for m in models])
        self._rate = 1.0 / np.stack([m.spread for m in models])
        self._low = np.stack([m.low for m in models])
        self._high = np.stack([m.high for m in models])
        self._projection = np.stack([m.projection.T for m in models])
        self._offset = np.stack([m.offset for m in models])
        weights = np.stack([m.weights for m in models])
        self._mean = weights.mean(axis=1)
        deviations = (weights - self._mean[:, None, :]) / math.sqrt(weights.shape[1] - 1)
        self._deviations = deviations
        self._floor = np.array([m.misfit**2 for m in models])
        self._caution = np.array([m.caution**2 for m in models])
        count, size = self._center.shape
        self._features = np.ones((count, self._mean.shape[1]))
        self._size = size

    def mean_and_std(self, state: np.ndarray) -> tuple[list[float], list[float]]:
        normal = (state - self._center) * self._rate
        inside = np.minimum(np.maximum(normal, self._low), self._high)
        excess = normal - inside
        features = self._features.copy()
        features[:, 1 : self._size + 1] = inside
        hidden = np.matmul(self._projection, inside[:, :, None])[:, :, 0]
        hidden += self._offset
        np.tanh(hidden, out=features[:, self._size + 1 :])
        means = (self._mean * features).sum(axis=1)
        spread = np.matmul(self._deviations, features[:, :, None])[:, :, 0]
        variances = np.square(spread).sum(axis=1) + self._floor
        variances += self._caution * np.square(excess).sum(axis=1)
        return means.tolist(), np.sqrt(variances).tolist()
