# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""
Export a policy as an ONNX model, optionally in 8-bit integers, and compare the two.

Robots of this package run policies in NumPy and do not need it. It requires
`pip install "fdrl_ros[onnx]"`.
"""

from collections.abc import Mapping
from dataclasses import dataclass
import math
from pathlib import Path
import tempfile
from typing import Any, Protocol, runtime_checkable, TYPE_CHECKING

from fdrl_ros.errors import PolicyError
from fdrl_ros.policy.dueling import DuelingPolicy
from fdrl_ros.policy.policy import Action, Policy
import numpy as np

if TYPE_CHECKING:
    from onnx import GraphProto, ModelProto
    from onnxruntime import InferenceSession

OPSET, IR_VERSION = 17, 9
"""Versions of ONNX 1.14, which all recent runtimes read."""

STATE, VALUES, Q_VALUES, ACTION = 'state', 'values', 'q_values', 'action'
"""Inputs, of which a model has one, and outputs; the first dimension is the number of states."""

_BATCH = 64

_TYPES = {'tensor(float)': np.float32, 'tensor(double)': np.float64, 'tensor(uint8)': np.uint8}


@runtime_checkable
class OnnxSource(Protocol):
    """A policy that has a form as an ONNX model."""

    def onnx(self) -> bytes:
        """Return a model from `state` to `q_values` or, of a continuous policy, `action`."""
        ...


def export(
    policy: Policy, *, scales: np.ndarray | None = None, bound: float | None = None
) -> bytes:
    """
    Write a policy as an ONNX model in 32-bit floating point.

    :param scales: if given, the input is `values` in units, float64, divided by these scales,
        shape (states,), above 0; otherwise it is the scaled `state`.
    :param bound: limit of scaled values.
    :raises PolicyError: if the scales do not fit, the policy has no such form, or onnx is not
        installed.
    """
    onnx, _ = libraries()
    helper, kinds = onnx.helper, onnx.TensorProto
    if isinstance(policy, DuelingPolicy):
        model = _dueling_model(policy)
    elif isinstance(policy, OnnxSource):
        model = loaded(policy.onnx())
    else:
        raise PolicyError(f'a {type(policy).__name__} has no form as an ONNX model')
    graph = model.graph
    if scales is not None:
        _put_scales(graph, np.asarray(scales, dtype=np.float64), bound)
    if graph.output[0].name == Q_VALUES:
        graph.node.append(helper.make_node('ArgMax', [Q_VALUES], [ACTION], axis=1, keepdims=0))
        axes = graph.output[0].type.tensor_type.shape.dim
        chosen = ['n', *(each.dim_value for each in axes[2:])]
        graph.output.append(helper.make_tensor_value_info(ACTION, kinds.INT64, chosen))
    helper.set_model_props(model, {'policy': policy.digest.hex()})
    onnx.checker.check_model(model, full_check=True)
    made: bytes = model.SerializeToString()
    return made


def _dueling_model(policy: DuelingPolicy) -> 'ModelProto':
    """Write a model of a dueling policy, whose value and advantage are one matrix."""
    onnx, _ = libraries()
    helper, kinds = onnx.helper, onnx.TensorProto
    nodes, constants = [], []

    def node(kind: str, inputs: list[str], output: str) -> str:
        nodes.append(helper.make_node(kind, inputs, [output]))
        return output

    last, (*shared, head) = STATE, policy.layers()
    for number, (matrix, bias) in enumerate((*shared, head)):
        name, final = f'layer_{number}', number == len(shared)
        for part, values in (('weight', matrix), ('bias', bias)):
            constants.append(onnx.numpy_helper.from_array(values, f'{name}.{part}'))
        last = node('MatMul', [last, f'{name}.weight'], f'{name}.product')
        added = Q_VALUES if final else f'{name}.sum'
        last = node('Add', [last, f'{name}.bias'], added)
        last = last if final else node('Tanh', [last], name)
    describe = helper.make_tensor_value_info
    inputs = [describe(STATE, kinds.FLOAT, ['n', policy.shape.states])]
    outputs = [describe(Q_VALUES, kinds.FLOAT, ['n', policy.shape.actions])]
    return helper.make_model(
        helper.make_graph(nodes, 'policy', inputs, outputs, constants),
        opset_imports=[helper.make_opsetid('', OPSET)],
        ir_version=IR_VERSION,
        producer_name='fdrl_ros',
    )


def _put_scales(graph: 'GraphProto', scales: np.ndarray, bound: float | None) -> None:
    """
    Have a graph take values in units.

    :raises PolicyError: if the scales do not fit its states, or these are pixels.
    """
    onnx, _ = libraries()
    helper, kinds = onnx.helper, onnx.TensorProto
    kind = graph.input[0].type.tensor_type
    states = kind.shape.dim[1].dim_value
    if kind.elem_type != kinds.FLOAT:
        raise PolicyError('scales: the states of this policy are pixels')
    if scales.shape != (states,) or not np.all(np.isfinite(scales) & (scales > 0)):
        raise PolicyError(f'scales: expected {states} finite numbers above 0')
    constants = {'factors': 1.0 / scales}
    nodes, last = [helper.make_node('Mul', [VALUES, 'factors'], ['scaled'])], 'scaled'
    if bound is not None:
        constants |= {'lowest': np.array(-bound), 'highest': np.array(bound)}
        nodes.append(helper.make_node('Clip', [last, 'lowest', 'highest'], ['cut']))
        last = 'cut'
    nodes.append(helper.make_node('Cast', [last], [STATE], to=kinds.FLOAT))
    for place, each in enumerate(nodes):
        graph.node.insert(place, each)
    graph.initializer.extend(
        onnx.numpy_helper.from_array(each, name) for name, each in constants.items()
    )
    taken = helper.make_tensor_value_info(VALUES, kinds.DOUBLE, ['n', states])
    graph.input[0].CopyFrom(taken)


def quantise(model: bytes, states: np.ndarray) -> bytes:
    """
    Quantise matrix products and convolutions of a model to 8-bit integers.

    Ranges come from states that the policy visits (static quantisation, one scale for each column
    of a matrix); biases, tanh and the scaling of a state stay in floating point.

    :param model: of :func:`export`.
    :param states: calibration states in the form of the model's input, shape (N, states).
    :raises PolicyError: if there are no states, or onnxruntime is not installed.
    """
    onnx, _ = libraries()
    if np.ndim(states) != 2 or not len(states) or not np.all(np.isfinite(states)):
        raise PolicyError('expected finite states to calibrate by')
    from onnxruntime import quantization

    session = OnnxModel(model)

    with tempfile.TemporaryDirectory() as folder:
        target = Path(folder) / 'quantised.onnx'
        inferred = onnx.shape_inference.infer_shapes(onnx.load_from_string(model))
        # Marks that shapes are inferred; the quantiser warns at every call otherwise.
        inferred.metadata_props.add(key='onnx.quant.pre_process', value='onnxruntime.quant')
        quantization.quantize_static(
            inferred,
            str(target),
            _Batches(session.entry, session.as_input(states)),
            quant_format=quantization.QuantFormat.QDQ,
            op_types_to_quantize=['Conv', 'Gemm', 'MatMul'],
            per_channel=True,
            activation_type=quantization.QuantType.QUInt8,
            weight_type=quantization.QuantType.QInt8,
        )
        return target.read_bytes()


class OnnxModel:
    """Runs a model of :func:`export` or :func:`quantise` on one core."""

    def __init__(self, model: bytes) -> None:
        """
        Load a model.

        :raises PolicyError: if it is not such a model, or onnxruntime is not installed.
        """
        self._session = make_session(model)
        outputs = [each.name for each in self._session.get_outputs()]
        inputs = [each.name for each in self._session.get_inputs()]
        if outputs not in ([Q_VALUES, ACTION], [ACTION]) or inputs not in ([STATE], [VALUES]):
            raise PolicyError(f'ONNX model from {inputs} to {outputs}: expected one of a policy')
        self.entry = inputs[0]
        self.digest = bytes.fromhex(
            self._session.get_modelmeta().custom_metadata_map.get('policy', '')
        )
        self._scores = outputs[0]
        self._type = _TYPES[self._session.get_inputs()[0].type]

    def as_input(self, states: np.ndarray) -> np.ndarray:
        """Convert states to the type of the model's input."""
        return np.ascontiguousarray(states, dtype=self._type)

    def q_values(self, states: np.ndarray) -> np.ndarray:
        """
        Value every action; a continuous policy gives its action instead.

        :param states: scaled, or in units if the model scales them, shape (N, states).
        :returns: shape (N, actions), float32.
        """
        (found,) = self._session.run([self._scores], {self.entry: self.as_input(states)})
        values: np.ndarray = found
        return values

    def __call__(self, state: np.ndarray) -> Action:
        """
        Choose the action of highest value; ties go to the lowest number.

        :param state: scaled, or in units if the model scales it, shape (states,).
        """
        found = self._session.run([ACTION], {self.entry: self.as_input(state)[None]})[0][0]
        return int(found) if np.ndim(found) == 0 else found


def libraries() -> tuple[Any, Any]:
    """
    Import onnx and onnxruntime, which are optional.

    :raises PolicyError: if one is not installed.
    """
    try:
        import onnx
        import onnxruntime
    except ImportError as error:
        raise PolicyError(
            f'ONNX models need two libraries ({error}): pip install "fdrl_ros[onnx]"'
        ) from error
    return onnx, onnxruntime


def loaded(model: bytes) -> 'ModelProto':
    """
    Parse a model.

    :raises PolicyError: if it is damaged or none, or onnx is not installed.
    """
    onnx, _ = libraries()
    try:
        found: ModelProto = onnx.load_from_string(model)
    except Exception as error:  # of protobuf, or of the library
        raise PolicyError(f'no ONNX model: {error}') from error
    return found


def make_session(
    model: bytes, tensors: Mapping[str, np.ndarray] | None = None
) -> 'InferenceSession':
    """
    Load a model into the runtime: one thread, and no memory kept between two runs.

    :param tensors: values of the initializers that lie outside of the model, by name.
    :raises PolicyError: if it cannot be loaded, or onnxruntime is not installed.
    """
    _, runtime = libraries()
    options = runtime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    options.enable_cpu_mem_arena = options.enable_mem_pattern = False
    options.log_severity_level = 3
    try:
        if tensors:
            values = [runtime.OrtValue.ortvalue_from_numpy(each) for each in tensors.values()]
            options.add_external_initializers(list(tensors), values)
        return runtime.InferenceSession(model, options, providers=['CPUExecutionProvider'])
    except Exception as error:  # the library has no class of errors of its own
        raise PolicyError(f'no ONNX model: {error}') from error


class _Batches:
    """Feeds states to the quantiser in batches."""

    def __init__(self, name: str, states: np.ndarray) -> None:
        self._batches = (
            {name: states[start : start + _BATCH]} for start in range(0, len(states), _BATCH)
        )

    def get_next(self) -> dict[str, np.ndarray] | None:
        """Return the next states, None after the last ones."""
        return next(self._batches, None)


EDGES = (0.0, 0.001, 0.01, 0.03, 0.1, 0.3, math.inf)
"""Bounds of the margins of a histogram, in spreads of Q over the actions."""


@dataclass(frozen=True)
class Agreement:
    """
    Result of comparing two forms of a policy state by state.

    The margin of a state is the lead of the best action over the next, in standard deviations of Q
    over the actions, by the first form.

    :param states: how many were compared.
    :param same: fraction of them in which both take the same action.
    :param loss: mean loss of Q by the second form's action, in the unit of the return.
    :param largest_error: largest difference between two values of Q.
    :param margins: how many states have a margin between two :data:`EDGES`.
    :param differing: how many of those have different actions.
    """

    states: int
    same: float
    loss: float
    largest_error: float
    margins: tuple[int, ...]
    differing: tuple[int, ...]


def agreement(first: np.ndarray, second: np.ndarray) -> Agreement:
    """
    Compare two forms of a policy.

    :param first: Q of the reference form, shape (N, actions), of at least two actions.
    :param second: Q of the other in the same states, same shape.
    :raises PolicyError: if the shapes differ, or there is no state.
    """
    if first.shape != second.shape or first.ndim != 2 or not len(first) or first.shape[1] < 2:
        raise PolicyError(f'values of shapes {first.shape} and {second.shape}: expected as many')
    rows = np.arange(len(first))
    chosen, other = first.argmax(axis=1), second.argmax(axis=1)
    ranked = np.sort(first.astype(np.float64), axis=1)
    spread = np.maximum(ranked.std(axis=1), np.finfo(np.float32).tiny)
    margins = (ranked[:, -1] - ranked[:, -2]) / spread
    differs = chosen != other
    return Agreement(
        states=len(first),
        same=float(1.0 - differs.mean()),
        loss=float(np.mean(ranked[:, -1] - first[rows, other])),
        largest_error=float(np.abs(first - second).max()),
        margins=tuple(np.histogram(margins, EDGES)[0].tolist()),
        differing=tuple(np.histogram(margins[differs], EDGES)[0].tolist()),
    )
