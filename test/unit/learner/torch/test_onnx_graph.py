# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""What a robot runs in ONNX gives the values of the module in PyTorch, or is refused."""

from fdrl_ros.errors import PolicyError
from fdrl_ros.learner.torch.onnx_graph import onnx_graph
from fdrl_ros.policy.layout import Tensor, TensorLayout
from fdrl_ros.policy.onnx_network import OnnxNetwork
import numpy as np
import pytest
import torch
from torch import nn

torch.set_num_threads(1)


class Dueling(nn.Module):
    """Q = V + A - mean(A)."""

    def __init__(self) -> None:
        super().__init__()
        self.shared = nn.ModuleList([nn.Linear(26, 64), nn.Linear(64, 64)])
        self.value, self.advantage = nn.Linear(64, 1), nn.Linear(64, 15)
        for layer in self.shared:
            nn.init.zeros_(layer.bias)  # two equal tensors

    def forward(self, states):
        """Value every action."""
        for layer in self.shared:
            states = torch.tanh(layer(states))
        advantage = self.advantage(states)
        return self.value(states) + advantage - advantage.mean(dim=-1, keepdim=True)


class Images(nn.Module):
    """Values of actions on an image of bytes."""

    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(1, 8, 3, stride=2, padding=1),
            nn.GroupNorm(2, 8),
            nn.ReLU(),
            nn.Conv2d(8, 8, 3, stride=2, padding=1),
            nn.ReLU(),
            nn.Flatten(),
            nn.Linear(8 * 36, 5),
        )

    def forward(self, states):
        """Value every action."""
        return self.body(states.reshape(-1, 1, 24, 24).float() / 255.0)


class Recurrent(nn.Module):
    """Values of actions at the end of a burst of 8 states."""

    def __init__(self) -> None:
        super().__init__()
        self.memory, self.head = nn.GRU(6, 16, batch_first=True), nn.Linear(16, 3)

    def forward(self, states):
        """Value every action."""
        return self.head(self.memory(states.reshape(-1, 8, 6))[0][:, -1])


class Actor(nn.Module):
    """A critic stands beside it, which acting does not need."""

    def __init__(self) -> None:
        super().__init__()
        self.critic, self.actor = nn.Linear(7, 1), nn.Linear(6, 4)

    def forward(self, states):
        """Score every action."""
        return self.actor(states)


class Places(nn.Module):
    """Classes at four places."""

    def __init__(self) -> None:
        super().__init__()
        self.head = nn.Linear(6, 12)

    def forward(self, states):
        """Score 3 classes at 4 places."""
        return self.head(states).reshape(-1, 3, 4)


class Branching(Actor):
    """What it computes depends on the values of the states."""

    def forward(self, states):
        """Score every action."""
        return self.actor(states) if states.sum() > 0 else -self.actor(states)


class Counting(Actor):
    """What it computes depends on the number of states."""

    def forward(self, states):
        """Score every action."""
        return self.actor(states) * len(states)


class Unknown(Actor):
    """No ONNX operator does what it does."""

    def forward(self, states):
        """Score every action."""
        return torch.special.airy_ai(self.actor(states))


def layout_of(module):
    return TensorLayout.of([Tensor(n, tuple(p.shape)) for n, p in module.named_parameters()])


@pytest.mark.parametrize(
    ('kind', 'states', 'dtype'),
    [(Dueling, 26, 'f4'), (Images, 576, 'u1'), (Recurrent, 48, 'f4'), (Actor, 6, 'f4')],
)
def test_values_on_the_robot_are_those_of_the_module(kind, states, dtype):
    module, rng = kind(), np.random.default_rng(3)
    before = [each.clone() for each in module.parameters()]
    layout = layout_of(module)
    network = OnnxNetwork(onnx_graph(module, layout, states, dtype))
    assert all(torch.equal(a, b) for a, b in zip(before, module.parameters(), strict=True))
    assert (network.layout, network.dtype, network.states) == (layout, np.dtype(dtype), states)
    weights = rng.normal(scale=0.3, size=layout.n_parameters).astype(np.float32)
    own = dict(module.named_parameters())
    with torch.no_grad():
        for name, values in layout.split(weights).items():
            own[name].copy_(torch.from_numpy(values))
        given = (100 * rng.random(size=(9, states))).astype(dtype)
        wanted = module(torch.from_numpy(given)).numpy()
    found = network.policy(weights).q_values(given)
    np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=1e-5 * abs(wanted).max())


def test_a_continuous_policy_gives_the_action_of_its_graph():
    module = Actor()
    graph = onnx_graph(module, layout_of(module), 6, continuous=True)
    weights = np.random.default_rng(1).normal(size=36).astype(np.float32)
    policy = OnnxNetwork(graph).policy(weights)
    states = np.random.default_rng(2).normal(size=(20, 6)).astype(np.float32)
    values = policy.q_values(states)
    np.testing.assert_allclose([policy(x) for x in states], values, atol=1e-6)
    assert policy.network.continuous
    with pytest.raises(PolicyError, match='finite'):
        policy(np.full(6, np.nan, np.float32))


def test_where_classes_are_scored_at_places_each_place_gets_its_own():
    module = Places()
    policy = OnnxNetwork(onnx_graph(module, layout_of(module), 6)).policy(
        np.random.default_rng(1).normal(size=84).astype(np.float32)
    )
    states = np.ones((2, 6), np.float32)
    assert policy.q_values(states).shape == (2, 3, 4)
    np.testing.assert_array_equal(policy(states[0]), policy.q_values(states)[0].argmax(axis=0))


@pytest.mark.parametrize(
    ('kind', 'words'),
    [(Branching, 'branches'), (Counting, 'branches'), (Unknown, 'has no ONNX graph')],
)
def test_a_module_that_a_graph_cannot_express_is_refused(kind, words):
    module = kind()
    with pytest.raises(PolicyError, match=words):
        onnx_graph(module, layout_of(module), 6)


def test_a_layout_of_another_module_is_refused():
    with pytest.raises(PolicyError, match=r'actor.weight.*the module has \(4, 6\)'):
        onnx_graph(Actor(), TensorLayout((Tensor('actor.weight', (4, 7)),)), 6)
