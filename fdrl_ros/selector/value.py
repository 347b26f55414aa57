# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""
The estimate of E[J(pi_i) given s] that selection ranks policies by (FDRL Eq. 7), with uncertainty.

An ensemble of ridge regressions on random features, one model for each policy, in plain numpy.
It is never the policy's own Q: those are not comparable between policies.
"""

from dataclasses import dataclass, fields
import io
from typing import Any
import zipfile
import zlib

from fdrl_ros.errors import PolicyError
import numpy as np

FORMAT = 1


@dataclass(frozen=True)
class ValueModel:
    """
    Expected return of one policy as a function of the state.

    :param policy: digest of the policy that it values.
    :param center: subtracted from a state, shape (S,).
    :param spread: divides it then, shape (S,), above 0.
    :param low: smallest normalised state met in fitting, shape (S,).
    :param high: largest, shape (S,).
    :param projection: of the random features, shape (S, F).
    :param offset: of the random features, shape (F,).
    :param weights: of each member on 1, state and features, shape (K, 1 + S + F).
    :param misfit: standard deviation of what no member can express, in the unit of the return.
    :param noise: standard deviation of one return around its expectation.
    :param caution: standard deviation added for each spread that a state lies outside low..high.
    :param quantiles: of |return - mean| in standard deviations, shape (99,), for 1 to 99 %.
    """

    policy: str
    center: np.ndarray
    spread: np.ndarray
    low: np.ndarray
    high: np.ndarray
    projection: np.ndarray
    offset: np.ndarray
    weights: np.ndarray
    misfit: float
    noise: float
    caution: float
    quantiles: np.ndarray

    def __post_init__(self) -> None:
        """
        Fix types and check that the parts fit each other.

        :raises PolicyError: on parts of other shapes, or a number that is not finite.
        """
        for each in fields(self):
            if each.type is np.ndarray:
                array = np.ascontiguousarray(getattr(self, each.name), dtype=np.float64)
                if array is getattr(self, each.name):
                    array = array.copy()
                array.flags.writeable = False
                object.__setattr__(self, each.name, array)
        size, count = self.projection.shape if self.projection.ndim == 2 else (0, 0)
        shapes_fit = (
            size > 0
            and self.weights.ndim == 2
            and self.weights.shape[0] >= 2
            and self.weights.shape[1] == 1 + size + count
            and self.offset.shape == (count,)
            and self.quantiles.shape == (99,)
            and all(x.shape == (size,) for x in (self.center, self.spread, self.low, self.high))
        )
        if not shapes_fit:
            raise PolicyError('value model: its parts do not fit each other')
        numbers = [getattr(self, each.name) for each in fields(self) if each.name != 'policy']
        if not all(np.all(np.isfinite(x)) for x in numbers) or np.any(self.spread <= 0):
            raise PolicyError('value model: expected finite numbers and spreads above 0')
        if min(self.misfit, self.noise, self.caution) < 0:
            raise PolicyError('value model: expected standard deviations of at least 0')

    @property
    def state_size(self) -> int:
        """Numbers in a state."""
        return len(self.center)

    def features(self, states: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """
        Expand states into what the members weigh.

        :param states: scaled, shape (N, S).
        :returns: shape (N, 1 + S + F), and how far each state lies outside, in spreads, (N,).
        """
        return expand(
            states, self.center, self.spread, self.low, self.high, self.projection, self.offset
        )

    def mean_and_std(self, states: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """
        Estimate the expected return and the standard deviation of that estimate.

        The deviation is of the expectation, not of a single return.

        :param states: scaled, shape (..., S).
        :returns: two arrays of shape (...).
        """
        states = np.asarray(states, dtype=np.float64)
        features, outside = self.features(states.reshape(-1, self.state_size))
        members = features @ self.weights.T
        variance = members.var(axis=1, ddof=1) + self.misfit**2 + (self.caution * outside) ** 2
        shape = states.shape[:-1]
        return members.mean(axis=1).reshape(shape), np.sqrt(variance).reshape(shape)

    def interval(self, states: np.ndarray, confidence: float) -> tuple[np.ndarray, np.ndarray]:
        """
        Bound a single return, with the coverage that held-out cases had in fitting.

        :param confidence: 0.01 to 0.99.
        :returns: lower and upper bounds, of the shape of :meth:`mean_and_std`.
        """
        mean, std = self.mean_and_std(states)
        factor = float(np.interp(confidence, np.arange(1, 100) / 100, self.quantiles))
        half = factor * np.sqrt(std**2 + self.noise**2)
        return mean - half, mean + half

    def to_bytes(self) -> bytes:
        """Write the model as npz, without pickled objects."""
        buffer = io.BytesIO()
        parts: dict[str, Any] = {
            each.name: np.asarray(getattr(self, each.name)) for each in fields(self)
        }
        np.savez(buffer, allow_pickle=False, format=np.array(FORMAT), **parts)
        return buffer.getvalue()

    @classmethod
    def from_bytes(cls, data: bytes, policy: str | None = None) -> 'ValueModel':
        """
        Read a model back.

        :param policy: digest of the policy that it must belong to, if given.
        :raises PolicyError: if the bytes are no such model, or it values another policy.
        """
        try:
            with np.load(io.BytesIO(data), allow_pickle=False) as file:
                if int(file['format']) != FORMAT:
                    raise PolicyError(f'value model of format {file["format"]}: expected {FORMAT}')
                parts = {
                    each.name: file[each.name] if each.type is np.ndarray else file[each.name][()]
                    for each in fields(cls)
                }
                model = cls(
                    **{
                        **parts,
                        'policy': str(parts['policy']),
                        **{name: float(parts[name]) for name in ('misfit', 'noise', 'caution')},
                    }
                )
        except (OSError, KeyError, ValueError, TypeError, EOFError, *_DAMAGE) as error:
            raise PolicyError(f'not a value model: {error}') from error
        if policy is not None and model.policy != policy:
            raise PolicyError(f'value model of policy {model.policy}: expected {policy}')
        return model


_DAMAGE = (zipfile.BadZipFile, zlib.error)


def expand(
    states: np.ndarray,
    center: np.ndarray,
    spread: np.ndarray,
    low: np.ndarray,
    high: np.ndarray,
    projection: np.ndarray,
    offset: np.ndarray,
) -> tuple[np.ndarray, np.ndarray]:
    """
    Normalise states, keep them inside what was met, and append tanh features.

    :returns: features (N, 1 + S + F), and how far each state lies outside, (N,).
    """
    normal = (states - center) / spread
    inside = np.minimum(np.maximum(normal, low), high)
    outside = np.sqrt(np.square(normal - inside).sum(axis=1))
    ones = np.ones((len(inside), 1))
    return np.concatenate([ones, inside, np.tanh(inside @ projection + offset)], axis=1), outside
