# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""
Compiled slopes of a dueling network and the clipped sums of its gradients (native/network.c).

Private training (DP-DQN Alg. 1) runs in no other arithmetic: a product in NumPy may round a row
differently when the number of rows changes, and one patient would change what others contribute.
"""

from functools import cached_property

from fdrl_ros.errors import SettingError
from fdrl_ros.learner.losses import check_algorithm, LOSSES
from fdrl_ros.learner.network import Slopes, TrainedWeights
from fdrl_ros.learner.records.transitions import Batch
from fdrl_ros.learner.settings import LearnerSettings
from fdrl_ros.policy import NetworkShape
from fdrl_ros.privacy.mechanism import clip_limit
from fdrl_ros.runtime.kernels import ffi, lib
import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float32]

_LOSS = ('conservative', 'temperature', 'most_weight', 'value_weight')
"""Settings of losses, by the names that native/kernels.h has for them."""


def most_layers() -> int:
    """Return how many shared layers the compiled arithmetic can take."""
    return int(lib.FDRL_MOST_LAYERS) - 1


class NetworkKernel:
    """The compiled gradients of a network and a loss."""

    def __init__(
        self, shape: NetworkShape, learner: LearnerSettings, trained: TrainedWeights
    ) -> None:
        """Choose network and loss; there may be at most :func:`most_layers` hidden layers."""
        self.shape, self.trained = shape, trained
        self.sizes = (shape.states, *shape.hidden)
        self.network = ffi.new(
            'fdrl_network *',
            {
                'shared': len(shape.hidden),
                'frozen': trained.first,
                'trained': _parts(trained),
                'actions': shape.actions,
                'sizes': list(self.sizes),
            },
        )
        self.loss = ffi.new(
            'fdrl_loss *',
            {
                'kind': list(LOSSES).index(check_algorithm(learner)),
                'huber': learner.loss == 'huber',
                **{name: getattr(learner, name) for name in _LOSS},
            },
        )
        self._parameters = shape.n_parameters
        self._from_first = self._parameters - list(shape.layers())[trained.first].start

    def trace(self, weights: Array, target: Array, batch: Batch, scale: float) -> 'Trace':
        """
        Run states through the network and slopes of the loss back.

        :param weights: flat, shape (n_parameters,); `target` as well.
        :param scale: of every row's loss, on top of the batch's own weights.
        :raises SettingError: if an array has another length, or an action is not one of the
            network's.
        """
        rows = batch.actions.size
        for name, size in (
            ('states', rows * self.shape.states),
            ('next_states', rows * self.shape.states),
            ('rewards', rows),
            ('discounts', rows),
            ('weights', rows),
        ):
            array = getattr(batch, name)
            if array is not None and array.size != size:
                raise SettingError(name, array.size, f'{size} numbers')
        numbers = np.empty(lib.fdrl_trace_size(self.network, rows), np.float32)
        done = lib.fdrl_slopes(
            *self._networks(weights, target),
            rows,
            _floats(batch.states),
            _integers(batch.actions),
            _floats(batch.rewards),
            _floats(batch.next_states),
            _floats(batch.discounts),
            _floats(batch.weights),
            scale,
            ffi.from_buffer('float[]', numbers),
        )
        self.check(done)
        return Trace(self, numbers, rows)

    def drawn_sum(
        self,
        weights: Array,
        target: Array,
        table: Array,
        index: NDArray[np.int64],
        scales: Array | None,
        clip_norm: float,
    ) -> NDArray[np.float64]:
        """
        Clip and sum the mean gradients of units whose transitions are rows of a table.

        :param table: a line a transition: state, next state, reward, discount, action.
        :param index: shape (units, transitions), at least one of each.
        :param scales: of each row's loss, or None; same shape.
        :raises SettingError: if an action is not one of the network's, or a row not there.
        """
        width = 2 * self.shape.states + 3
        if table.ndim != 2 or table.shape[1] != width:
            raise SettingError('table', table.shape, f'lines of {width} numbers')
        if not index.size or (scales is not None and scales.size != index.size):
            raise SettingError('index', index.shape, 'as many rows as scales, and at least one')
        total = self.room()
        done = lib.fdrl_drawn(
            *self._networks(weights, target),
            _floats(table),
            len(table),
            _integers(index),
            *index.shape,
            _floats(scales),
            clip_limit(clip_norm),
            ffi.from_buffer('double[]', total),
        )
        self.check(done, len(table))
        return total[self.trained.picked]

    def room(self) -> NDArray[np.float64]:
        """Return room for the sum of gradients from the first trained layer on."""
        return np.empty(self._from_first)

    def _networks(self, weights: Array, target: Array) -> tuple[object, ...]:
        """Return the first arguments of the calls: network, loss and both weights."""
        if weights.size != self._parameters or target.size != self._parameters:
            raise SettingError('weights', weights.size, f'{self._parameters} numbers')
        return self.network, self.loss, _floats(weights), _floats(target)

    def check(self, done: int, lines: int = 0) -> None:
        """
        Refuse the result of a call that failed.

        :param lines: of the table that rows were drawn from.
        """
        if done == lib.FDRL_NO_ACTION:
            raise SettingError('actions', 'a recorded action', f'below {self.shape.actions}')
        if done == lib.FDRL_NO_ROW:
            raise SettingError('index', 'a row', f'below {lines}')
        if done == lib.FDRL_NO_MEMORY:
            raise MemoryError('no memory for a step of learning')


class Trace:
    """Inputs of each dense layer, slopes at its outputs and the error, of every row."""

    def __init__(self, kernel: NetworkKernel, numbers: Array, rows: int) -> None:
        self._kernel, self._numbers, self._rows = kernel, numbers, rows

    @property
    def errors(self) -> Array:
        """View what the priority of each row comes from, (rows,)."""
        return self._numbers[len(self._numbers) - self._rows :]

    @cached_property
    def layers(self) -> list[Slopes]:
        """View inputs and slopes of each trained layer, the head last; changes count."""
        kernel, rows = self._kernel, self._rows
        sizes = (*kernel.sizes, 1 + kernel.shape.actions)
        return [
            Slopes(
                self._view(lib.fdrl_trace_inputs(kernel.network, rows, layer), sizes[layer]),
                self._view(lib.fdrl_trace_outputs(kernel.network, rows, layer), sizes[layer + 1]),
            )
            for layer in range(kernel.trained.first, len(kernel.sizes))
        ]

    def clipped_sum(
        self, units: int, transitions: int, clip_norm: float | None
    ) -> NDArray[np.float64]:
        """
        Clip the gradient of each unit to a norm, and sum.

        :param units: each has `transitions` rows in one run.
        :param clip_norm: C; None clips nothing.
        :returns: shape (trained weights,); a unit whose gradient is not finite is left out.
        :raises SettingError: if there are not so many rows.
        """
        if units * transitions != self._rows:
            raise SettingError('units', units, f'{self._rows} rows in all')
        total = self._kernel.room()
        done = lib.fdrl_clipped_sum(
            self._kernel.network,
            ffi.from_buffer('float[]', self._numbers),
            units,
            transitions,
            1e300 if clip_norm is None else clip_limit(clip_norm),
            ffi.from_buffer('double[]', total),
        )
        self._kernel.check(done)
        return total[self._kernel.trained.picked]

    def summed(self) -> NDArray[np.float64]:
        """Return the sum of all rows' gradients, unclipped."""
        return self.clipped_sum(self._rows, 1, None)

    def _view(self, start: int, width: int) -> Array:
        stride = -(-width // lib.FDRL_LANES) * lib.FDRL_LANES
        lines = self._numbers[start : start + self._rows * stride]
        return lines.reshape(self._rows, stride)[:, :width]


def _parts(trained: TrainedWeights) -> list[int]:
    """Return what of each dense layer is trained, in the bits of native/kernels.h."""
    found = []
    for each in zip(trained.matrices, trained.biases, strict=True):
        matrix, bias = ((rows[0], rows[-1]) for rows in each)
        bits = (matrix[0], bias[0], matrix[1], bias[1])
        found.append(sum(int(bit) << place for place, bit in enumerate(bits)))
    return found


def _floats(array: NDArray | None) -> object:
    if array is None:
        return ffi.NULL
    return ffi.from_buffer('float[]', np.ascontiguousarray(array, np.float32))


def _integers(array: NDArray) -> object:
    return ffi.from_buffer('int64_t[]', np.ascontiguousarray(array, np.int64))
