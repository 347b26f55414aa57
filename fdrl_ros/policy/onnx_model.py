# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""
Export a policy as an ONNX model for other runtimes, optionally in 8-bit integers.

Robots of this package run policies in NumPy and do not need it. It requires
`pip install "fdrl_ros[onnx]"`.
"""

from pathlib import Path
import tempfile
from typing import Any

from fdrl_ros.errors import PolicyError
from fdrl_ros.policy.policy import Policy
import numpy as np

OPSET, IR_VERSION = 17, 9
"""Versions of ONNX 1.14, which all recent runtimes read."""

STATE, VALUES, Q_VALUES, ACTION = 'state', 'values', 'q_values', 'action'
"""Inputs, of which a model has one, and outputs; the first dimension is the number of states."""

_BATCH = 64


def export(
    policy: Policy, *, scales: np.ndarray | None = None, bound: float | None = None
) -> bytes:
    """
    Write a policy as an ONNX model in 32-bit floating point.

    :param scales: if given, the input is `values` in units, float64, divided by these scales,
        shape (states,), above 0; otherwise it is the scaled `state`, float32.
    :param bound: limit of scaled values.
    :raises PolicyError: if the scales do not fit, or onnx is not installed.
    """
    onnx, _ = libraries()
    helper, kinds, tensor = onnx.helper, onnx.TensorProto, onnx.numpy_helper.from_array
    states = policy.shape.states
    nodes, constants = [], []
    entry, kind, last = STATE, kinds.FLOAT, STATE
    if scales is not None:
        divisors = np.asarray(scales, dtype=np.float64)
        if divisors.shape != (states,) or not np.all(np.isfinite(divisors) & (divisors > 0)):
            raise PolicyError(f'scales: expected {states} finite numbers above 0')
        entry, kind, last = VALUES, kinds.DOUBLE, 'scaled'
        nodes.append(helper.make_node('Mul', [VALUES, 'factors'], ['scaled']))
        constants.append(tensor(1.0 / divisors, 'factors'))
        if bound is not None:
            constants += [tensor(np.array(end), f'{end:g}') for end in (-bound, bound)]
            nodes.append(helper.make_node('Clip', [last, f'{-bound:g}', f'{bound:g}'], ['cut']))
            last = 'cut'
        nodes.append(helper.make_node('Cast', [last], [STATE], to=kinds.FLOAT))
        last = STATE
    layers = policy.layers()
    for number, (matrix, bias) in enumerate(layers):
        name, final = f'layer_{number}', number == len(layers) - 1
        constants += [tensor(matrix, f'{name}.weight'), tensor(bias, f'{name}.bias')]
        nodes.append(helper.make_node('MatMul', [last, f'{name}.weight'], [f'{name}.product']))
        added, last = (Q_VALUES, Q_VALUES) if final else (f'{name}.sum', name)
        nodes.append(helper.make_node('Add', [f'{name}.product', f'{name}.bias'], [added]))
        if not final:
            nodes.append(helper.make_node('Tanh', [added], [last]))
    nodes.append(helper.make_node('ArgMax', [Q_VALUES], [ACTION], axis=1, keepdims=0))
    describe = helper.make_tensor_value_info
    graph = helper.make_graph(
        nodes,
        'policy',
        [describe(entry, kind, ['n', states])],
        [
            describe(Q_VALUES, kinds.FLOAT, ['n', policy.shape.actions]),
            describe(ACTION, kinds.INT64, ['n']),
        ],
        constants,
    )
    model = helper.make_model(
        graph,
        opset_imports=[helper.make_opsetid('', OPSET)],
        ir_version=IR_VERSION,
        producer_name='fdrl_ros',
    )
    helper.set_model_props(model, {'policy': policy.digest.hex()})
    onnx.checker.check_model(model, full_check=True)
    made: bytes = model.SerializeToString()
    return made


def quantise(model: bytes, states: np.ndarray) -> bytes:
    """
    Quantise the matrix products of a model to 8-bit integers.

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

    session = OnnxPolicy(model)

    with tempfile.TemporaryDirectory() as folder:
        target = Path(folder) / 'quantised.onnx'
        inferred = onnx.shape_inference.infer_shapes(onnx.load_from_string(model))
        # Marks that shapes are inferred; the quantiser warns at every call otherwise.
        inferred.metadata_props.add(key='onnx.quant.pre_process', value='onnxruntime.quant')
        quantization.quantize_static(
            inferred,
            str(target),
            _Batches({session.entry: session.as_input(states)}),
            quant_format=quantization.QuantFormat.QDQ,
            op_types_to_quantize=['MatMul'],
            per_channel=True,
            activation_type=quantization.QuantType.QUInt8,
            weight_type=quantization.QuantType.QInt8,
        )
        return target.read_bytes()


class OnnxPolicy:
    """A policy that runs a model of :func:`export` or :func:`quantise` on one core."""

    def __init__(self, model: bytes) -> None:
        """
        Load a model.

        :raises PolicyError: if it is not such a model, or onnxruntime is not installed.
        """
        _, runtime = libraries()
        options = runtime.SessionOptions()
        options.intra_op_num_threads = options.inter_op_num_threads = 1
        options.log_severity_level = 3
        try:
            self._session = runtime.InferenceSession(
                model, options, providers=['CPUExecutionProvider']
            )
        except Exception as error:  # the library has no class of errors of its own
            raise PolicyError(f'no ONNX model: {error}') from error
        outputs = [each.name for each in self._session.get_outputs()]
        inputs = [each.name for each in self._session.get_inputs()]
        if outputs != [Q_VALUES, ACTION] or inputs not in ([STATE], [VALUES]):
            raise PolicyError(f'ONNX model from {inputs} to {outputs}: expected one of a policy')
        self.entry = inputs[0]
        self.digest = bytes.fromhex(
            self._session.get_modelmeta().custom_metadata_map.get('policy', '')
        )
        self._type = np.float32 if self.entry == STATE else np.float64

    def as_input(self, states: np.ndarray) -> np.ndarray:
        """Convert states to the type of the model's input."""
        return np.ascontiguousarray(states, dtype=self._type)

    def q_values(self, states: np.ndarray) -> np.ndarray:
        """
        Value every action.

        :param states: scaled, or in units if the model scales them, shape (N, states).
        :returns: shape (N, actions), float32.
        """
        found: np.ndarray = self._session.run([Q_VALUES], {self.entry: self.as_input(states)})[0]
        return found

    def __call__(self, state: np.ndarray) -> int:
        """
        Choose the action of highest value; ties go to the lowest number.

        :param state: scaled, or in units if the model scales it, shape (states,).
        """
        return int(self._session.run([ACTION], {self.entry: self.as_input(state)[None]})[0][0])


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


class _Batches:
    """Feeds states to the quantiser in batches."""

    def __init__(self, given: dict[str, np.ndarray]) -> None:
        self._given, self._next = given, 0

    def get_next(self) -> dict[str, np.ndarray] | None:
        """Return the next states, None after the last ones."""
        start, self._next = self._next, self._next + _BATCH
        part = {name: each[start : self._next] for name, each in self._given.items()}
        return part if all(map(len, part.values())) else None
