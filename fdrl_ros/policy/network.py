# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""What the stack asks of a network: its tensors, its first weights, and the policy of weights."""

from typing import Protocol, runtime_checkable

from fdrl_ros.policy.layout import TensorLayout
from fdrl_ros.policy.policy import Policy
import numpy as np
from numpy.typing import NDArray


class Network(Protocol):
    """A network without weights. Two with equal :attr:`name` and layout compute the same."""

    @property
    def name(self) -> str:
        """What it is, with its sizes: the ledger of a hospital counts for one network."""
        ...

    @property
    def states(self) -> int:
        """Numbers of an observation."""
        ...

    @property
    def actions(self) -> int:
        """Number of discrete actions, or numbers of a continuous one."""
        ...

    @property
    def continuous(self) -> bool:
        """Whether an action is a vector of numbers."""
        ...

    @property
    def places(self) -> int:
        """Places of an observation that have a discrete action each; 1 where it has one."""
        ...

    @property
    def layout(self) -> TensorLayout:
        """Names and shapes of the weights, in their order."""
        ...

    def draw(self, rng: np.random.Generator) -> NDArray[np.float32]:
        """Draw first weights, shape (n_parameters,)."""
        ...

    def policy(self, weights: NDArray[np.float32]) -> Policy:
        """
        Return the policy of some weights.

        :param weights: shape (n_parameters,), finite.
        :raises PolicyError: if they do not fit.
        """
        ...


@runtime_checkable
class TracedNetwork(Protocol):
    """A network that has a form for robots without its learner's library."""

    def onnx_graph(self) -> bytes:
        """
        Return its graph, as :class:`fdrl_ros.policy.onnx_network.OnnxNetwork` takes it.

        :raises PolicyError: if it has none, or onnx is not installed.
        """
        ...
