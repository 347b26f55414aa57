# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""
Decisions among 8 policies of 100,000 weights each, run by onnxruntime, as selector.py times them.

A decision is: both halves of a state in; action, risk and the arm's set-point out. All 8 are
valued in each state; the one that is chosen gives its action. The peer is a network of that size
in NumPy. `onnx_action_us` is the chosen policy's part alone.
"""

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial

from benchmarking import has, Measurement, Row, Skipped, Timed, Work
from fdrl_ros.policy import NetworkShape
from fdrl_ros.policy.layout import Tensor, TensorLayout
from fdrl_ros.policy.network import Network
from fdrl_ros.selector import Candidate
from fdrl_ros.surgery.gym.actions import ACTION_COUNT
from fdrl_ros.surgery.gym.episode import Episode
from fdrl_ros.surgery.gym.state import STATE_SIZE
import numpy as np
from selector_work import candidates, Decisions, episodes, network_times, SEED

POLICIES = 8
HIDDEN = 293
"""Units of each of two hidden layers: about 100,000 weights."""

BATCH = 1000
"""Decisions of each percentile."""

ROWS = (
    Row('onnx_decision_p99_us', 'onnx_decision', 'numpy_decision', 'in numpy', 1000.0, False),
    Row('onnx_action_us', 'onnx_action', 'numpy_action', 'in numpy', None),
)


def traced() -> Network:
    """
    Return a network of PyTorch as a robot runs it.

    :raises Skipped: if a library is missing.
    """
    if not (has('torch') and has('onnx') and has('onnxruntime')):
        raise Skipped('the extras fdrl_ros[torch] and fdrl_ros[onnx] are not installed')
    from fdrl_ros.learner.torch.onnx_graph import onnx_graph
    from fdrl_ros.policy.onnx_network import OnnxNetwork
    from torch import nn

    module = nn.Sequential(
        nn.Linear(STATE_SIZE, HIDDEN),
        nn.Tanh(),
        nn.Linear(HIDDEN, HIDDEN),
        nn.Tanh(),
        nn.Linear(HIDDEN, ACTION_COUNT),
    )
    tensors = [Tensor(name, tuple(each.shape)) for name, each in module.named_parameters()]
    return OnnxNetwork(onnx_graph(module, TensorLayout.of(tensors), STATE_SIZE))


def compiled() -> Network:
    """Return a network that runs in NumPy."""
    return NetworkShape(STATE_SIZE, ACTION_COUNT, (HIDDEN, HIDDEN))


def large_candidates(played: list[Episode], network: Network, count: int) -> Iterator[Candidate]:
    """Make up candidates with other weights each."""
    rng = np.random.default_rng(SEED)
    for each in candidates(played, count):
        weights = rng.normal(scale=0.05, size=network.layout.n_parameters)
        policy = network.policy(weights.astype(np.float32))
        value = each.value and replace(each.value, policy=policy.digest.hex())
        yield replace(each, policy=policy, value=value, digest=policy.digest)


def decisions(make: Callable[[], Network]) -> Work:
    """Return work that makes a batch of decisions and returns the 99th percentile, s."""
    played = episodes()
    made = Decisions(played, list(large_candidates(played, make(), POLICIES)))
    return lambda: float(np.percentile(made.take(BATCH), 99))


def actions(make: Callable[[], Network]) -> Work:
    """Return work that asks one policy for actions and returns the median, s."""
    played = episodes()
    (candidate,) = large_candidates(played, make(), 1)
    return lambda: float(np.median(network_times(played, candidate.policy, BATCH)))


def measurements() -> dict[str, Measurement]:
    """Return what the rows need."""
    found: dict[str, Measurement] = {}
    for name, make in (('onnx', traced), ('numpy', compiled)):
        found[f'{name}_decision'] = Timed(partial(decisions, make), 'us')
        found[f'{name}_action'] = Timed(partial(actions, make), 'us')
    return found
