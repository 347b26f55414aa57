# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""
Networks as ONNX graphs without weights, and their policies, which run where PyTorch is not.

A graph is a model whose weights lie outside of it: each tensor of the layout is an initializer of
that name, and the place of its values is their place in the flat weight vector. So the bytes of
:func:`fdrl_ros.policy.policy.encode_weights` beside a graph, in a file `weights`, are the whole
model by ONNX' own rules. It requires `pip install "fdrl_ros[onnx]"`.
"""

from collections.abc import Iterator, Sequence
from functools import cached_property
import hashlib
import math
from typing import TYPE_CHECKING

from fdrl_ros.errors import PolicyError
from fdrl_ros.policy.layout import Tensor, TensorLayout
from fdrl_ros.policy.onnx_model import ACTION, libraries, loaded, make_session, Q_VALUES, STATE
from fdrl_ros.policy.policy import Action, check_weights, digest_of
import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from onnx import ModelProto, ValueInfoProto
    from onnxruntime import InferenceSession

LAYOUT = 'layout'
"""Property of a graph that holds the text of its layout."""

WEIGHTS = 'weights'
"""File that ONNX itself would read the weights from."""

_LARGEST_GRAPH = 10_000_000
"""Bytes of a graph that is accepted: it holds constants, no weights."""


def without_weights(model: bytes, layout: TensorLayout) -> bytes:
    """
    Return the graph of a model: the tensors of the layout lose their values, and keep their names.

    A tensor that the model does not need may be missing in it.

    :param model: from `state` (n, states) to `q_values` (n, actions), or to a continuous `action`
        (n, actions).
    :raises PolicyError: if the model does not fit the layout, or onnx is not installed.
    """
    found = loaded(model)
    tensors = {each.name: each for each in found.graph.initializer}
    for tensor, first, last in layout.places():
        given = tensors.get(tensor.name)
        if given is None:
            continue
        _check_tensor(tensor, given.data_type, tuple(given.dims))
        given.ClearField('raw_data')
        given.ClearField('float_data')
        given.data_location = libraries()[0].TensorProto.EXTERNAL
        places = {'location': WEIGHTS, 'offset': 4 * first, 'length': 4 * (last - first)}
        for key, value in places.items():
            given.external_data.add(key=key, value=str(value))
    found.metadata_props.add(key=LAYOUT, value=layout.to_json())
    graph: bytes = found.SerializeToString()
    OnnxNetwork(graph)
    return graph


class OnnxNetwork:
    """The network of a graph: makes a policy of any weights that fit its layout."""

    def __init__(self, graph: bytes) -> None:
        """
        Read and check a graph.

        :param graph: of :func:`without_weights`.
        :raises PolicyError: if it is damaged or another kind of model, or its libraries are not
            installed.
        """
        if len(graph) > _LARGEST_GRAPH:
            raise PolicyError(f'ONNX graph of {len(graph)} bytes: expected one without weights')
        self.graph = graph
        model = loaded(graph)
        texts = [each.value for each in model.metadata_props if each.key == LAYOUT]
        if len(texts) != 1:
            raise PolicyError('ONNX model without the layout of its weights')
        self.layout = TensorLayout.from_json(texts[0])
        self._outside = dict(_outside(model, self.layout))
        _, self.dtype, (self.states, *more) = _end(model.graph.input, STATE)
        self.output, kind, (self.actions, *_) = _end(model.graph.output, Q_VALUES, ACTION)
        if self.dtype not in (np.float32, np.uint8) or kind != np.float32 or more:
            raise PolicyError(f'ONNX graph from {self.dtype} to {kind}: expected float32')
        trial = OnnxPolicy(np.zeros(self.n_parameters, dtype=np.float32), self)
        values = trial.q_values(np.zeros((2, self.states), dtype=self.dtype))
        if values.shape[:2] != (2, self.actions):
            raise PolicyError(f'ONNX graph: values {values.shape}: expected {(2, self.actions)}')
        self.places = math.prod(values.shape[2:])

    @property
    def continuous(self) -> bool:
        """Whether it gives an action itself, in place of a value of each."""
        return self.output == ACTION

    def __reduce__(self) -> tuple[type['OnnxNetwork'], tuple[bytes]]:
        """Pickle the graph alone."""
        return OnnxNetwork, (self.graph,)

    @property
    def name(self) -> str:
        """Name that no other graph has."""
        return f'onnx {hashlib.sha256(self.graph).hexdigest()[:16]}'

    @property
    def n_parameters(self) -> int:
        """Length of the flat weight vector."""
        return self.layout.n_parameters

    def draw(self, rng: np.random.Generator) -> NDArray[np.float32]:
        """
        Refuse to draw starting weights, which a graph does not say.

        :raises PolicyError: always.
        """
        raise PolicyError(
            'an ONNX graph draws no starting weights: prepare the federation where the learner '
            'is, with pip install "fdrl_ros[torch]"'
        )

    def policy(self, weights: NDArray[np.float32]) -> 'OnnxPolicy':
        """
        Return the policy of some weights.

        :param weights: flat, shape (n_parameters,), finite.
        :raises PolicyError: on another length or a value that is not finite.
        """
        return OnnxPolicy(weights, self)

    def tensors(self, weights: NDArray[np.float32]) -> dict[str, NDArray[np.float32]]:
        """View the tensors that the graph needs in flat weights, by name."""
        split = self.layout.split(weights)
        return {name: split[name] for name in self._outside}

    def model(self, weights: NDArray[np.float32]) -> bytes:
        """
        Return the whole model, with these weights in it.

        :raises PolicyError: if the weights do not fit.
        """
        check_weights(weights, self.n_parameters)
        made, values = loaded(self.graph), self.tensors(weights)
        for each in made.graph.initializer:
            if each.name in values:
                each.ClearField('external_data')
                each.ClearField('data_location')
                each.raw_data = values[each.name].astype('<f4').tobytes()
        model: bytes = made.SerializeToString()
        return model


class OnnxPolicy:
    """
    Greedy policy of an ONNX graph; it is a :class:`fdrl_ros.policy.policy.Policy`.

    The runtime loads the model when it is first asked, once; it takes milliseconds then.
    """

    def __init__(self, weights: NDArray[np.float32], network: OnnxNetwork) -> None:
        """
        Keep weights and network.

        :param weights: flat, shape (n_parameters,), finite.
        :raises PolicyError: on another length or a value that is not finite.
        """
        check_weights(weights, network.n_parameters)
        self.network = network
        self.weights = np.array(weights, dtype=np.float32)
        self.weights.flags.writeable = False
        self.digest = digest_of(self.weights)

    def __reduce__(
        self,
    ) -> tuple[type['OnnxPolicy'], tuple[NDArray[np.float32], OnnxNetwork]]:
        """Pickle weights and network; what the runtime made of them stays here."""
        return OnnxPolicy, (self.weights, self.network)

    @property
    def n_parameters(self) -> int:
        """Number of weights."""
        return len(self.weights)

    def onnx(self) -> bytes:
        """Return the whole model, with its weights."""
        return self.network.model(self.weights)

    def q_values(self, states: np.ndarray) -> NDArray[np.float32]:
        """
        Value every action.

        :param states: scaled, shape (..., states).
        :returns: shape (..., actions), float32; of a continuous policy the action itself.
        :raises PolicyError: if the model cannot take them.
        """
        network = self.network
        if np.shape(states)[-1:] != (network.states,):
            raise PolicyError(f'states {np.shape(states)}: expected {network.states} numbers each')
        given = np.ascontiguousarray(states, dtype=network.dtype).reshape(-1, network.states)
        values = self._run(given)
        return values.reshape(*np.shape(states)[:-1], *values.shape[1:])

    def __call__(self, state: np.ndarray) -> Action:
        """
        Choose an action; of those of the highest value the one of the lowest number.

        :param state: scaled, shape (states,).
        :returns: its number; of a continuous policy numbers within the task's limits, which the
            graph keeps; where the network values classes at several places, the class at each.
        :raises PolicyError: if the model cannot take it, or a value is not finite.
        """
        given = np.ascontiguousarray(state, dtype=self.network.dtype)
        values = self._run(given[None])[0]
        if values.ndim == 1 and not self.network.continuous:
            best = int(values.argmax())
            if not math.isfinite(values[best]):  # argmax takes a NaN for the highest
                raise PolicyError(f'value {values[best]} of action {best}: expected a finite one')
            return best
        if not np.isfinite(values).all():
            raise PolicyError(f'{self.network.output} {values}: expected finite numbers')
        return values if self.network.continuous else values.argmax(axis=0)

    def _run(self, states: np.ndarray) -> NDArray[np.float32]:
        try:
            (found,) = self._session.run([self.network.output], {STATE: states})
        except PolicyError:
            raise
        except Exception as error:  # the library has no class of errors of its own
            raise PolicyError(f'the ONNX model fails at {states.shape}: {error}') from error
        values: NDArray[np.float32] = found
        return values

    @cached_property
    def _session(self) -> 'InferenceSession':
        return make_session(self.network.graph, self.network.tensors(self.weights))


def _outside(model: 'ModelProto', layout: TensorLayout) -> Iterator[tuple[str, Tensor]]:
    """
    Yield the tensors of a layout that a graph takes from outside.

    :raises PolicyError: if another one is outside, or one of them inside, or of another shape.
    """
    onnx, _ = libraries()
    places = {tensor.name: (tensor, first) for tensor, first, _ in layout.places()}
    for each in model.graph.initializer:
        outside = each.data_location == onnx.TensorProto.EXTERNAL
        if outside != (each.name in places):
            raise PolicyError(
                f'ONNX tensor {each.name!r}: expected those of the layout outside of the graph, '
                'and no other'
            )
        if not outside:
            continue
        tensor, first = places[each.name]
        _check_tensor(tensor, each.data_type, tuple(each.dims))
        where = {pair.key: pair.value for pair in each.external_data}
        if where.get('offset') != str(4 * first) or where.get('location') != WEIGHTS:
            raise PolicyError(f'ONNX tensor {each.name!r} lies at {where}: expected {4 * first}')
        yield tensor.name, tensor


def _check_tensor(tensor: Tensor, data_type: int, shape: tuple[int, ...]) -> None:
    onnx, _ = libraries()
    if data_type != onnx.TensorProto.FLOAT or shape != tensor.shape:
        kind = onnx.TensorProto.DataType.Name(data_type)
        raise PolicyError(
            f'ONNX tensor {tensor.name!r} is {kind} {shape}: expected FLOAT {tensor.shape}'
        )


def _end(ends: 'Sequence[ValueInfoProto]', *names: str) -> tuple[str, np.dtype, list[int]]:
    """
    Return the name, the type and the width of the input or output of a graph, and further axes.

    :raises PolicyError: unless it is the only one, of one of these names and of shape (n, width).
    """
    onnx, _ = libraries()
    given = [each.name for each in ends]
    if len(given) != 1 or given[0] not in names:
        raise PolicyError(f'ONNX graph with {given}: expected {" or ".join(names)} alone')
    kind = ends[0].type.tensor_type
    sizes = [each.dim_value for each in kind.shape.dim]
    if len(sizes) < 2 or sizes[0] != 0 or sizes[1] < 1:
        raise PolicyError(f'ONNX graph: {given[0]} has shape {sizes}: expected (n, width)')
    return given[0], onnx.helper.tensor_dtype_to_np_dtype(kind.elem_type), sizes[1:]
