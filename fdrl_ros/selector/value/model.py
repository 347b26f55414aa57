# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""
The estimate of E[J(pi_i) given s] that selection ranks policies by (FDRL Eq. 7), with uncertainty.

Linear in the features of one public basis, one estimate for each policy and procedure, in plain
numpy. It is never the policy's own Q: those are not comparable between policies.
"""

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from functools import lru_cache
import hashlib
import io
from typing import Self
import zipfile
import zlib

from fdrl_ros.errors import PolicyError
import numpy as np

REACH = 4.0
"""Scaled numbers of a state count as no larger than this."""

STEEPNESS = 0.5
"""Standard deviation of what each number of a state is multiplied with."""

SEED = 20251222
"""All models share one basis, so that a state is expanded once for all candidates."""


class Basis:
    """
    Random features of a fixed seed; it was fitted to nothing, so it tells of nobody.

    :param size: numbers in a state, S.
    :param count: random features, F.
    """

    def __init__(self, size: int, count: int) -> None:
        rng = np.random.default_rng([SEED, size, count])
        self.size, self.count = size, count
        self.width = 1 + size + count
        slopes = STEEPNESS * rng.standard_normal((size, count))
        offsets = rng.uniform(-1.5, 1.5, count)
        self.digest = hashlib.sha256(slopes.tobytes() + offsets.tobytes()).hexdigest()
        """Tells models of another basis apart, as another release of numpy might draw one."""
        self.projection = np.concatenate([offsets[None], slopes])
        """Offsets of the features, then what each number of a state adds, shape (1 + S, F)."""

    def __call__(self, states: np.ndarray) -> np.ndarray:
        """
        Expand states.

        :param states: scaled, shape (N, S).
        :returns: one, state, features: shape (N, 1 + S + F), float64.
        """
        inside = np.clip(np.asarray(states, np.float64), -REACH, REACH)
        hidden = np.tanh(inside @ self.projection[1:] + self.projection[0])
        return np.concatenate([np.ones((len(inside), 1)), inside, hidden], axis=1)


@lru_cache(maxsize=8)
def basis_of(size: int, count: int) -> Basis:
    """
    Return the basis of a size, made once.

    :param size: numbers in a state.
    :param count: random features.
    """
    return Basis(size, count)


FORMAT = 4

RETURN, RISK = 0, 1
"""The two things that are estimated: the return J, and D_t summed up with the same discount."""


@dataclass(frozen=True, eq=False)
class StateValue:
    """
    What follows from a state under one policy in one procedure: return J and risk to go.

    :param weights: of return and risk on the features of the basis, shape (2, P).
    :param deviations: of the same when one group of cases after the other is left out, scaled so
        that their squares add up to the variance of the estimate (jackknife), shape (2, K, P).
        Member k left out the same cases in every policy's estimate.
    :param low: least scaled state met in fitting, shape (S,).
    :param high: greatest, shape (S,).
    :param spread: of the states met, above 0, shape (S,).
    :param conformal_error: standard deviation of what the features cannot express, measured on
        other patients, in returns.
    :param noise: standard deviation of one return around its expectation.
    :param caution: standard deviation added for each spread that a state lies outside low..high.
    """

    weights: np.ndarray
    deviations: np.ndarray
    low: np.ndarray
    high: np.ndarray
    spread: np.ndarray
    conformal_error: float
    noise: float
    caution: float

    def __post_init__(self) -> None:
        """
        Fix types and check that the parts fit each other.

        :raises PolicyError: on parts of other shapes, or a number that is not finite.
        """
        for each in fields(self):
            value = getattr(self, each.name)
            if each.type is np.ndarray:
                array = np.array(value, dtype=np.float64, order='C')
                array.flags.writeable = False
                object.__setattr__(self, each.name, array)
            else:
                object.__setattr__(self, each.name, float(value))
        size = len(self.low) if self.low.ndim == 1 else 0
        width = self.weights.shape[1] if self.weights.ndim == 2 else 0
        shapes_fit = (
            width > size > 0
            and self.weights.shape == (2, width)
            and self.deviations.ndim == 3
            and self.deviations.shape[0] == 2
            and self.deviations.shape[1] >= 2
            and self.deviations.shape[2] == width
            and self.high.shape == self.spread.shape == (size,)
        )
        if not shapes_fit:
            raise PolicyError('value model: its parts do not fit each other')
        numbers = [getattr(self, each.name) for each in fields(self)]
        if not all(np.all(np.isfinite(x)) for x in numbers) or np.any(self.spread <= 0):
            raise PolicyError('value model: expected finite numbers and spreads above 0')
        if min(self.conformal_error, self.noise, self.caution) < 0:
            raise PolicyError('value model: expected standard deviations of at least 0')

    def with_conformal_error(self, conformal_error: float) -> Self:
        """
        Return the same estimate with another conformal error.

        The sum of both variances, error and noise, stays, unless the error alone exceeds it.

        :param conformal_error: standard deviation, as it was measured, in returns.
        :raises PolicyError: if it is no finite number of at least 0.
        """
        total = self.noise**2 + self.conformal_error**2
        noise = max(total - conformal_error**2, 0.0) ** 0.5
        return replace(self, conformal_error=conformal_error, noise=noise)

    @property
    def state_size(self) -> int:
        """Numbers in a state."""
        return len(self.low)

    @property
    def basis(self) -> Basis:
        """The features that it weighs."""
        return basis_of(self.state_size, self.weights.shape[1] - 1 - self.state_size)

    def outside(self, states: np.ndarray) -> np.ndarray:
        """
        Tell how far states lie outside what was met.

        :param states: scaled, shape (..., S).
        :returns: spreads, shape (...).
        """
        inside = np.minimum(np.maximum(states, self.low), self.high)
        distance: np.ndarray = np.sqrt(np.square((states - inside) / self.spread).sum(axis=-1))
        return distance

    def mean_and_std(self, states: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """
        Estimate the expected return and the standard deviation of that estimate.

        The deviation is of the expectation, not of a single return.

        :param states: scaled, shape (..., S).
        :returns: two arrays of shape (...).
        """
        states = np.asarray(states, dtype=np.float64)
        flat = states.reshape(-1, self.state_size)
        features = self.basis(flat)
        sampling = np.square(features @ self.deviations[RETURN].T).sum(axis=1)
        variance = sampling + self.conformal_error**2 + (self.caution * self.outside(flat)) ** 2
        shape = states.shape[:-1]
        mean = features @ self.weights[RETURN]
        return mean.reshape(shape), np.sqrt(variance).reshape(shape)


@dataclass(frozen=True, eq=False)
class ValueModel:
    """
    What one policy is worth, by procedure; a procedure that is missing is not its business.

    :param policy: digest of the policy that it values, hexadecimal.
    :param estimates: by name of the procedure; all of one basis, with as many members.
    """

    policy: str
    estimates: Mapping[str, StateValue]

    def __post_init__(self) -> None:
        """
        Check that the estimates go together.

        :raises PolicyError: if there is none, or they differ in basis or members.
        """
        object.__setattr__(self, 'estimates', dict(self.estimates))
        if len({each.deviations.shape for each in self.estimates.values()}) != 1:
            raise PolicyError('value model: expected estimates of one basis and as many members')

    @property
    def form(self) -> tuple[int, int, int]:
        """Numbers in a state, features and members: what two models must share."""
        first = next(iter(self.estimates.values()))
        return first.state_size, first.weights.shape[1], first.deviations.shape[1]

    def to_bytes(self) -> bytes:
        """Write the model as npz, without pickled objects."""
        buffer = io.BytesIO()
        parts = {
            key: np.stack([getattr(one, name) for one in self.estimates.values()])
            for name, key in _KEYS.items()
        }
        basis = next(iter(self.estimates.values())).basis.digest
        np.savez(
            buffer,
            allow_pickle=False,
            format=np.array(FORMAT),
            policy=np.array(self.policy),
            procedures=np.array(list(self.estimates)),
            basis=np.array(basis),
            **parts,
        )
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
                parts = {name: file[key] for name, key in _KEYS.items()}
                names, basis = [str(each) for each in file['procedures']], str(file['basis'])
                found = {
                    name: StateValue(**{field: part[row] for field, part in parts.items()})
                    for row, name in enumerate(names)
                }
                model = cls(str(file['policy']), found)
        except (OSError, KeyError, ValueError, TypeError, IndexError, EOFError, *_DAMAGE) as error:
            raise PolicyError(f'not a value model: {error}') from error
        if any(each.basis.digest != basis for each in found.values()):
            raise PolicyError('value model of another basis: fit it anew')
        if policy is not None and model.policy != policy:
            raise PolicyError(f'value model of policy {model.policy}: expected {policy}')
        return model


_KEYS = {each.name: each.name for each in fields(StateValue)} | {'conformal_error': 'misfit'}
"""Field of StateValue to its key in the file."""

_DAMAGE = (zipfile.BadZipFile, zlib.error)
