# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""
Canaries where Q is a table: a difference of two states' lines at one output.

A row adds to its state's line and to the bias. Half the rows of a canary add to one state's line
what the other half takes from another's, so that nothing is left at the bias, which all share; no
state is in two pairs. So canaries are orthogonal.
"""

from dataclasses import dataclass

from fdrl_ros.errors import SettingError
from fdrl_ros.policy import NetworkShape
import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True, eq=False)
class TableCanaries:
    """
    Some pairs of states with an output each, and a fair coin; see :class:`Canaries`.

    ``first``, ``second``: states, and ``output``: 0 for the value, then the advantages, each
    (canaries,), int64. ``lengths``: of the rows' gradients along both, (canaries, 2). ``members``:
    (canaries,), bool. ``norm``: of a canary's gradient.
    """

    shape: NetworkShape
    first: NDArray[np.int64]
    second: NDArray[np.int64]
    output: NDArray[np.int64]
    lengths: NDArray[np.float64]
    members: NDArray[np.bool_]
    norm: float

    @classmethod
    def draw(
        cls,
        shape: NetworkShape,
        scales: NDArray[np.floating],
        count: int,
        norm: float,
        rng: np.random.Generator,
    ) -> 'TableCanaries':
        """
        Draw different directions, and which canaries are members.

        :param scales: what stands where the one of a one-hot state would, shape (states,).
        :param count: number of canaries.
        :param norm: of their gradients before clipping; above C, so that clipping is tried.
        :raises SettingError: if there are not so many directions.
        """
        states = rng.permutation(np.flatnonzero(scales))
        pairs, outputs = len(states) // 2, shape.actions + 1
        if not 1 <= count <= pairs * outputs:
            raise SettingError(
                'canaries', count, f'1 to {pairs * outputs}, pairs of states times outputs'
            )
        chosen = np.sort(rng.permutation(pairs * outputs)[:count])
        first, second = states[2 * (chosen // outputs)], states[2 * (chosen // outputs) + 1]
        return cls(
            shape,
            first,
            second,
            chosen % outputs,
            np.column_stack((scales[first], scales[second])).astype(np.float64),
            rng.integers(2, size=count).astype(np.bool_),
            norm,
        )

    def __len__(self) -> int:
        """Return m."""
        return len(self.members)

    def along(self, gradient: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return inner products; see :class:`Canaries`."""
        states = self.shape.states
        lines = np.vstack(
            (
                gradient[None, :states],
                gradient[states + 1 : -self.shape.actions].reshape(-1, states),
            )
        )
        both = np.column_stack((lines[self.output, self.first], -lines[self.output, self.second]))
        size = np.sqrt((self.lengths**2).sum(axis=1))
        product: NDArray[np.float64] = (both * self.lengths).sum(axis=1) / size
        return product

    def plant(
        self,
        states: NDArray[np.int64],
        heads: NDArray[np.float64],
        which: NDArray[np.int64],
        rows: NDArray[np.int64],
    ) -> None:
        """
        Replace the gradients of some rows by those of canaries that are members, or by nothing.

        :param states: of all rows, (rows,), and
        :param heads: their slopes, (rows, outputs); both changed in place.
        :param which: canary of each unit of rows, shape (units,).
        :param rows: their rows in the batch, shape (units, rows).
        :raises SettingError: if a unit has one row only.
        """
        half = rows.shape[1] // 2
        if half == 0:
            raise SettingError('transitions_per_patient', 1, 'two for canaries in a table')
        heads[rows] = 0.0
        here = self.members[which]
        canary, mine = which[here], rows[here]
        size = self.norm / half / np.sqrt((self.lengths[canary] ** 2).sum(axis=1))
        for part, line, sign in (
            (mine[:, :half], self.first, 1.0),
            (mine[:, half : 2 * half], self.second, -1.0),
        ):
            states[part] = line[canary, None]
            heads[part, self.output[canary, None]] = sign * size[:, None]
