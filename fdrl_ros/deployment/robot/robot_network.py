# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""The network that a robot runs: an ONNX graph in the federation's directory, or the learner's."""

import logging

from fdrl_ros.deployment.layout import Layout
from fdrl_ros.deployment.plan import Plan
from fdrl_ros.deployment.policy_file import load_policy
from fdrl_ros.errors import errors_named, FdrlError, os_errors_as, PolicyError, TaskError
from fdrl_ros.policy import Policy
from fdrl_ros.policy.network import Network, TracedNetwork
from fdrl_ros.policy.onnx_model import libraries
from fdrl_ros.policy.onnx_network import OnnxNetwork
from fdrl_ros.runtime.durable import write_whole
from fdrl_ros.surgery.gym.actions import ACTION_COUNT
from fdrl_ros.surgery.gym.state import STATE_SIZE

logger = logging.getLogger(__name__)

_ARM = (STATE_SIZE, 'float32', ACTION_COUNT, False)
"""Numbers of a state and their type, number of actions, and whether these are continuous."""


def save_graph(layout: Layout, plan: Plan) -> None:
    """
    Write the graph of a plan's network once, so that robots run without PyTorch.

    There is none where the network has none, or robots do not take policies of the task.

    :raises StoreError: if it cannot be written.
    """
    network = plan.network
    if layout.graph.exists() or not isinstance(network, TracedNetwork) or _form(plan) != _ARM:
        return
    try:
        graph = network.onnx_graph()
    except PolicyError as error:
        logger.warning('robots will need what learner %s needs: %s', plan.learner.kind, error)
        return
    write_whole(layout.graph, graph)


def robot_network(layout: Layout, plan: Plan) -> Network:
    """
    Return the network that a robot runs.

    :raises TaskError: if a policy of the task cannot move the arm.
    :raises PolicyError: if the graph is damaged or does not fit the task, or neither onnxruntime
        nor the learner's library is installed.
    :raises FdrlError: if there is no graph and the learner cannot be loaded.
    """
    wanted = _form(plan)
    if wanted != _ARM:
        raise TaskError(
            f'a policy of task {plan.identity.name} maps {_in_words(*wanted)}: robots take '
            f'{_in_words(*_ARM)}'
        )
    if not layout.graph.exists():
        return plan.network
    try:
        libraries()
    except PolicyError as missing:
        try:
            return plan.network
        except FdrlError as error:
            raise PolicyError(f'{missing}; nor does the learner run here: {error}') from error
    with os_errors_as(PolicyError, f'cannot read {layout.graph}'):
        graph = layout.graph.read_bytes()
    with errors_named(PolicyError, str(layout.graph)):
        network = OnnxNetwork(graph)
        found = (network.states, str(network.dtype), network.actions, network.continuous)
        if found != wanted:
            raise PolicyError(f'{_in_words(*found)}: expected {_in_words(*wanted)}')
    return network


def _form(plan: Plan) -> tuple[int, str, int, bool]:
    """Return of a plan's task what `_ARM` says of the arm's."""
    spec = plan.spec
    return spec.size, spec.dtype, spec.n_actions, spec.continuous


def _in_words(states: int, dtype: str, actions: int, continuous: bool) -> str:
    kind = 'continuous' if continuous else 'discrete'
    return f'{states} numbers ({dtype}) to {actions} {kind} actions'


def public_start(layout: Layout, plan: Plan, network: Network) -> Policy:
    """
    Return the public starting policy.

    :param network: that runs it, of :func:`robot_network`.
    :raises TaskError: if it is of another task than the plan.
    :raises PolicyError: if it cannot be read, or its tensors are not those of the network.
    """
    saved = load_policy(layout.pretrained)
    plan.identity.check(saved.task, saved.path)
    if saved.layout != network.layout:
        raise PolicyError(f'{saved.path} has other tensors than the {network.name} network')
    return network.policy(saved.weights)
