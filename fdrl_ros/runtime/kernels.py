# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""
Compiled arithmetic, where it was built (native/build.py).

Here are the calls for the private learner (DP-DQN Alg. 1), which learns in no other arithmetic: a
product in NumPy may round a row otherwise when the number of rows changes, and one patient would
change what others contribute. The shield of one robot and the value models have their calls in
:mod:`fdrl_ros.selector`, and NumPy in place of them where nothing was built.
"""

from collections.abc import Sequence
import functools
import math
from pathlib import Path
from typing import Any, NamedTuple

from fdrl_ros.errors import PrivacyError, SettingError
from fdrl_ros.runtime.kernel_sources import sources_digest
import numpy as np
from numpy.typing import NDArray

__all__ = ['ffi', 'lib']  # for modules with calls of their own

_FORM = 6
_NATIVE = Path(__file__).resolve().parents[2] / 'native'

try:
    from fdrl_ros._kernels import ffi, lib

    if getattr(lib, 'FDRL_FORM', 0) != _FORM:
        raise ImportError('is of another version')
    # In a checkout, or linked to one, the sources are there to compare with. An installed package
    # has none: its module was built together with this file.
    if (_NATIVE / 'kernels.h').exists():
        if ffi.string(lib.FDRL_SOURCES).decode() != sources_digest(_NATIVE):
            raise ImportError(f'was built from other sources than {_NATIVE}')
    _of, _fault = ffi.from_buffer, ''
except ImportError as error:
    ffi = lib = _of = None
    _fault = 'is not built' if isinstance(error, ModuleNotFoundError) else str(error)


def built() -> bool:
    """Tell whether the compiled arithmetic is there, and was built from the sources beside it."""
    return lib is not None


def missing() -> str:
    """Tell why the compiled arithmetic cannot be used, and what builds it, in one line."""
    fault = _fault or 'is not built'
    how = '`make`, `colcon build` or `python native/build.py`'
    return f'the compiled arithmetic {fault} ({how} builds it)'


def check_built() -> None:
    """
    Refuse to go on without the compiled arithmetic.

    :raises PrivacyError: if it is not built, or from other sources.
    """
    if not built():
        raise PrivacyError(f'private training is refused: {missing()}')


def most_layers() -> int:
    """Return how many shared layers the compiled arithmetic can take."""
    return int(lib.FDRL_MOST_LAYERS) - 1


def gaussian(words: NDArray[np.uint64]) -> NDArray[np.float64]:
    """
    Turn pairs of uniform words into N(0, 1) draws (Box & Muller 1958).

    :param words: those of the radii, then those of the angles, shape (2 * pairs,).
    :returns: shape (2 * pairs,): radius times cosine of each pair, then times sine.
    :raises PrivacyError: if nothing is built.
    """
    check_built()
    pairs = len(words) // 2
    draws = np.empty(2 * pairs)
    lib.fdrl_gaussian(_of('uint64_t[]', words), pairs, _of('double[]', draws))
    return draws


def noisy_mean(
    clipped_sum: NDArray[np.floating],
    noise: NDArray[np.floating],
    grid: float,
    steps: float,
    share: float,
) -> NDArray[np.float64]:
    """
    Round sum and noise to a grid, add them, and scale.

    :param grid: step of the grid, a power of two.
    :param steps: of the grid in one unit of noise.
    :param share: what the number of steps is multiplied by.
    :raises PrivacyError: if a number is not finite, or nothing is built.
    """
    check_built()
    mean = np.empty(clipped_sum.shape)
    done = lib.fdrl_noisy_mean(
        mean.size,
        _of('double[]', np.ascontiguousarray(clipped_sum, np.float64)),
        _of('double[]', np.ascontiguousarray(noise, np.float64)),
        grid,
        steps,
        share,
        _of('double[]', mean),
    )
    if done != lib.FDRL_DONE:
        raise PrivacyError('the sum or the noise is not finite')
    return mean


def joined(
    words: NDArray[np.uint64], log_stay: float, n_units: int, last: int
) -> tuple[NDArray[np.int64], int]:
    """
    Go on from a unit by geometric distances, one a word.

    :param log_stay: log(1 - q).
    :param last: unit that joined last, -1 for none.
    :returns: units below `n_units` that join, rising, and the last one reached.
    """
    found = np.empty(len(words), np.int64)
    reached = ffi.new('int64_t *', last)
    count = lib.fdrl_joined(
        _of('uint64_t[]', words), len(words), log_stay, n_units, reached, _of('int64_t[]', found)
    )
    return found[:count], reached[0]


class Rows(NamedTuple):
    """Transitions: states of shape (..., numbers in a state), the other fields of shape (...)."""

    states: NDArray[np.float32]
    actions: NDArray[np.int64]
    rewards: NDArray[np.float32]
    next_states: NDArray[np.float32]
    discounts: NDArray[np.float32]
    weights: NDArray[np.float32] | None


class NetworkKernel:
    """Slopes of a dueling network, and the clipped sum of what they make."""

    def __init__(
        self,
        sizes: Sequence[int],
        actions: int,
        *,
        frozen: int = 0,
        loss: str = 'huber',
        conservative: float = 0.0,
    ) -> None:
        """
        Choose network and loss.

        :param sizes: numbers in a state, then units of each shared layer.
        :raises SettingError: if there are more layers than are compiled for.
        """
        if len(sizes) > lib.FDRL_MOST_LAYERS:
            raise SettingError('hidden', len(sizes) - 1, f'below {lib.FDRL_MOST_LAYERS} layers')
        shared = len(sizes) - 1
        self.sizes, self.actions, self.frozen = tuple(sizes), actions, frozen
        self.outputs = (*self.sizes[1:], 1 + actions)
        """Outputs of each dense layer, the head (value, then advantages) last."""
        self._network = ffi.new('fdrl_network *', [shared, frozen, actions, list(sizes)])
        self._loss = ffi.new('fdrl_loss *', [loss == 'huber', conservative])
        counts = [
            (before + 1) * after for before, after in zip(self.sizes, self.sizes[1:], strict=False)
        ]
        head = (self.sizes[-1] + 1) * (1 + actions)
        self._parameters = sum(counts) + head
        self._trained = sum(counts[frozen:]) + head

    def trace(
        self,
        weights: NDArray[np.float32],
        target: NDArray[np.float32],
        batch: Rows,
        scale: float,
    ) -> 'Trace':
        """
        Run states through the network and slopes of the loss back.

        :param weights: flat, shape (n_parameters,); `target` as well.
        :param scale: of every row's loss, on top of its own weight.
        :raises SettingError: if arrays differ in length, or an action is not one of the network's.
        """
        self._check_weights(weights, target)
        rows, scales = batch.actions.size, batch.weights
        for name in ('states', 'next_states', 'rewards', 'discounts', 'weights'):
            wanted = rows * self.sizes[0] if name.endswith('states') else rows
            column = getattr(batch, name)
            if column is not None and column.size != wanted:
                raise SettingError(name, column.shape, f'{wanted} numbers')
        numbers = np.empty(lib.fdrl_trace_size(self._network, rows), np.float32)
        done = lib.fdrl_slopes(
            self._network,
            self._loss,
            _floats(weights),
            _floats(target),
            rows,
            _floats(batch.states),
            _whole(batch.actions),
            _floats(batch.rewards),
            _floats(batch.next_states),
            _floats(batch.discounts),
            _floats(scales),
            scale,
            _of('float[]', numbers),
        )
        self._check(done)
        return Trace(self, numbers, rows)

    def clipped_sum(
        self, trace: 'Trace', units: int, transitions: int, limit: float
    ) -> NDArray[np.float64]:
        """
        Clip the gradient of each unit to a norm, and sum.

        :param trace: of units * transitions rows, those of a unit in one run.
        :param limit: most norm; infinity clips nothing.
        :returns: shape (trained weights,); a unit whose gradient is not finite is left out.
        :raises SettingError: if the trace is of other rows.
        """
        if units * transitions != trace.rows:
            raise SettingError('units', units, f'{trace.rows} rows in all')
        total = np.empty(self._trained)
        self._check(
            lib.fdrl_clipped_sum(
                self._network,
                _of('float[]', trace.numbers),
                units,
                transitions,
                limit if math.isfinite(limit) else 1e300,
                _of('double[]', total),
            )
        )
        return total

    def drawn(
        self,
        weights: NDArray[np.float32],
        target: NDArray[np.float32],
        table: NDArray[np.float32],
        index: NDArray[np.int64],
        scales: NDArray[np.float32] | None,
        limit: float,
    ) -> NDArray[np.float64]:
        """
        Clip and sum the mean gradients of units whose transitions are rows of a table.

        :param table: a line a transition: state, next state, reward, discount, action.
        :param index: shape (units, transitions), at least one of each.
        :param scales: of each row's loss, or None; same shape.
        :raises SettingError: if an action is not one of the network's, or a row not there.
        """
        self._check_weights(weights, target)
        if table.ndim != 2 or table.shape[1] != 2 * self.sizes[0] + 3:
            raise SettingError('table', table.shape, f'lines of {2 * self.sizes[0] + 3} numbers')
        units, transitions = index.shape
        if not index.size or (scales is not None and scales.size != index.size):
            raise SettingError('index', index.shape, 'as many rows as scales, and at least one')
        total = np.empty(self._trained)
        done = lib.fdrl_drawn(
            self._network,
            self._loss,
            _floats(weights),
            _floats(target),
            _floats(table),
            len(table),
            _whole(index),
            units,
            transitions,
            _floats(scales),
            limit,
            _of('double[]', total),
        )
        self._check(done, len(table))
        return total

    def _check_weights(self, *weights: NDArray[np.float32]) -> None:
        if any(one.size != self._parameters for one in weights):
            raise SettingError('weights', weights[0].size, f'{self._parameters} numbers')

    def _check(self, done: int, rows: int = 0) -> None:
        if done == lib.FDRL_NO_ACTION:
            raise SettingError('actions', 'a recorded action', f'below {self.actions}')
        if done == lib.FDRL_NO_ROW:
            raise SettingError('index', 'a row', f'below {rows}')
        if done == lib.FDRL_NO_MEMORY:
            raise MemoryError('no memory for a step of learning')

    def place(self, layer: int, rows: int) -> tuple[int, int]:
        """Return where a layer's inputs and slopes begin in a trace."""
        return (
            lib.fdrl_trace_inputs(self._network, rows, layer),
            lib.fdrl_trace_outputs(self._network, rows, layer),
        )


class Trace:
    """Inputs of each dense layer, slopes at its outputs and the error in value, of every row."""

    def __init__(self, kernel: NetworkKernel, numbers: NDArray[np.float32], rows: int) -> None:
        self.numbers = numbers
        self._kernel = kernel
        self.rows = rows

    @property
    def errors(self) -> NDArray[np.float32]:
        """View Q(s, a) minus its target of each row, (rows,)."""
        return self.numbers[len(self.numbers) - self.rows :]

    @functools.cached_property
    def layers(self) -> list[tuple[NDArray[np.float32], NDArray[np.float32]]]:
        """View inputs (rows, width) and slopes (rows, outputs) of each layer that is trained."""
        kernel = self._kernel
        places = [kernel.place(layer, self.rows) for layer in range(len(kernel.sizes))]
        views = [
            (self._view(inputs, width), self._view(outputs, count))
            for (inputs, outputs), width, count in zip(
                places, kernel.sizes, kernel.outputs, strict=True
            )
        ]
        return views[kernel.frozen :]

    def _view(self, start: int, width: int) -> NDArray[np.float32]:
        lanes = lib.FDRL_LANES
        stride = -(-width // lanes) * lanes
        lines = self.numbers[start : start + self.rows * stride]
        return lines.reshape(self.rows, stride)[:, :width]


def _floats(array: NDArray[np.floating] | None) -> Any:
    return ffi.NULL if array is None else _of('float[]', np.ascontiguousarray(array, np.float32))


def _whole(array: NDArray[np.int64]) -> Any:
    return _of('int64_t[]', np.ascontiguousarray(array, np.int64))
