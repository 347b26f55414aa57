# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""Task accuracy A_task against the expert (FDRL Eq. 8), on a frozen and hashed set of states."""

from dataclasses import dataclass
import hashlib
from pathlib import Path
import zipfile
import zlib

from fdrl_ros.errors import RecordsError, StateError
import numpy as np

FINE_STEP = 0.5e-3
"""Length of a fine action, metre."""

TOLERANCE = 0.25 * FINE_STEP
"""An action counts as the expert's when it costs at most this much more, metre."""


@dataclass(frozen=True)
class StateSet:
    """
    States with the expert's cost of every action, on which A_task is measured.

    :param states: scaled, shape (M, S), float32.
    :param costs: the expert's cost of each action, metre, shape (M, A), float64.
    :param expert: the expert's action, shape (M,), int64.
    :param cases: which case each state is of, shape (M,), int64.
    :raises StateError: if shapes disagree, a number is not finite, or the expert's action is not
        among its own best.
    """

    states: np.ndarray
    costs: np.ndarray
    expert: np.ndarray
    cases: np.ndarray

    def __post_init__(self) -> None:
        """Fix the types, freeze the arrays, check them."""
        for name, dtype in _FORM.items():
            array = np.array(getattr(self, name), dtype=dtype, order='C')
            array.flags.writeable = False
            object.__setattr__(self, name, array)
        count, tables = len(self.states), self.states.ndim == self.costs.ndim == 2
        same = len(self.costs) == count and self.expert.shape == self.cases.shape == (count,)
        if not (tables and same and self.costs.size):
            raise StateError(f'expected costs, an expert action and a case for {count} states')
        if not np.all(np.isfinite(self.states)) or not np.all(np.isfinite(self.costs)):
            raise StateError('expected finite states and costs')
        if self.expert.min() < 0 or self.expert.max() >= self.costs.shape[1]:
            raise StateError(f'expected expert actions below {self.costs.shape[1]}')
        if not np.all(_near_best(self.costs)[np.arange(count), self.expert]):
            raise StateError('expected the expert to choose an action of least cost')

    @property
    def digest(self) -> str:
        """SHA-256 over the form and the numbers, little-endian, hexadecimal."""
        sha = hashlib.sha256(b'fdrl_ros state set 1')
        for name, dtype in _FORM.items():
            array = getattr(self, name)
            sha.update(f'{name} {dtype} {array.shape}'.encode())
            sha.update(array.tobytes())
        return sha.hexdigest()

    def save(self, path: Path) -> None:
        """Write the set and its digest as npz."""
        arrays = {name: getattr(self, name) for name in _FORM}
        with path.open('wb') as file:
            np.savez_compressed(file, digest=np.array(self.digest), **arrays)

    @classmethod
    def load(cls, path: Path, digest: str | None = None) -> 'StateSet':
        """
        Read a set and check its digest.

        :param digest: the digest that the set must have, if any.
        :raises RecordsError: if the file is not a set, is damaged, or has another digest.
        """
        try:
            with np.load(path, allow_pickle=False) as file:
                saved = str(file['digest'])
                loaded = cls(**{name: file[name] for name in _FORM})
        except (OSError, KeyError, ValueError, EOFError, StateError, *_DAMAGE) as error:
            raise RecordsError(f'{path} is not a set of states: {error}') from error
        for wanted in (saved, digest or saved):
            if loaded.digest != wanted:
                raise RecordsError(
                    f'{path}: expected states of digest {wanted}, came {loaded.digest}; '
                    'numbers measured on different sets cannot be compared'
                )
        return loaded


_DAMAGE = (zipfile.BadZipFile, zlib.error)
_FORM = {'states': '<f4', 'costs': '<f8', 'expert': '<i8', 'cases': '<i8'}


@dataclass(frozen=True)
class TaskAccuracy:
    """
    A_task by two measures of agreement, each with its bounds.

    `tolerant` takes any action within a quarter of the fine step of the expert's best, `exact`
    only the expert's own. `chance` is the expectation of uniformly random actions; `ceiling` the
    best that any function of the state can reach here: below 1 only where the same state is in
    the set with different experts' actions.
    """

    tolerant: float
    exact: float
    chance_tolerant: float
    chance_exact: float
    ceiling_tolerant: float
    ceiling_exact: float


def task_accuracy(state_set: StateSet, actions: np.ndarray) -> TaskAccuracy:
    """
    Compute A_task: the mean over cases of the fraction of the expert's actions (FDRL Eq. 8).

    The same function serves the frozen set and, with the visited states, on-policy values.

    :param actions: the policy's action in each state of the set, shape (M,), integers.
    :raises StateError: on another shape or invalid actions.
    """
    chosen = np.asarray(actions)
    count, n_actions = state_set.costs.shape
    if chosen.shape != (count,) or chosen.dtype.kind not in 'iu':
        raise StateError(f'expected {count} action numbers, got {chosen.dtype} {chosen.shape}')
    if chosen.min() < 0 or chosen.max() >= n_actions:
        raise StateError(f'expected actions from 0 to {n_actions - 1}')
    tolerant = _near_best(state_set.costs).astype(np.float64)
    exact = np.zeros_like(tolerant)
    rows = np.arange(count)
    exact[rows, state_set.expert] = 1.0
    # Eq. 8 averages cases, not steps: a state weighs 1 / (cases * states of its case).
    _, case, sizes = np.unique(state_set.cases, return_inverse=True, return_counts=True)
    weights = 1.0 / (len(sizes) * sizes[case])
    _, group = np.unique(state_set.states, axis=0, return_inverse=True)
    return TaskAccuracy(
        tolerant=float(weights @ tolerant[rows, chosen]),
        exact=float(weights @ exact[rows, chosen]),
        chance_tolerant=float(weights @ tolerant.mean(axis=1)),
        chance_exact=float(weights @ exact.mean(axis=1)),
        ceiling_tolerant=_ceiling(weights[:, None] * tolerant, group.reshape(-1)),
        ceiling_exact=_ceiling(weights[:, None] * exact, group.reshape(-1)),
    )


def _near_best(costs: np.ndarray) -> np.ndarray:
    """Mark the actions whose cost is within the tolerance of the least, shape (M, A)."""
    # A picometre of slack admits a cost that equals the bound except for rounding.
    near: np.ndarray = costs <= costs.min(axis=1, keepdims=True) + TOLERANCE + 1e-12
    return near


def _ceiling(gains: np.ndarray, group: np.ndarray) -> float:
    """Sum the gain of the best single action in each group of equal states."""
    totals = np.zeros((group.max() + 1, gains.shape[1]))
    np.add.at(totals, group, gains)
    return min(1.0, float(totals.max(axis=1).sum()))
