# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""Double DQN loss on a dueling network, and its gradient for each privacy unit (DP-DQN Alg. 1)."""

from fdrl_ros.policy.network import DuelingNetwork
from fdrl_ros.trainer.records import Batch
import numpy as np
import torch
from torch.func import functional_call, grad, vmap
from torch.nn.functional import smooth_l1_loss


@torch.no_grad()
def double_dqn_targets(
    network: DuelingNetwork, target: DuelingNetwork, batch: Batch, discount: float
) -> torch.Tensor:
    """
    Value what followed: r + gamma Q_target(s', argmax_a Q(s', a)) (van Hasselt et al. 2016).

    A unit's targets depend on its own transitions and on released weights alone, so that
    clipping its gradient bounds all of its influence.

    :returns: shape (units, transitions).
    """
    next_states = torch.from_numpy(batch.next_states)
    best = network(next_states).argmax(dim=-1, keepdim=True)
    following = target(next_states).gather(-1, best)[..., 0]
    rewards, terminals = torch.from_numpy(batch.rewards), torch.from_numpy(batch.terminals)
    return rewards + discount * (1.0 - terminals) * following


def per_unit_gradients(
    network: DuelingNetwork, target: DuelingNetwork, batch: Batch, discount: float
) -> np.ndarray:
    """
    Differentiate each unit's mean Huber loss.

    :returns: shape (units, n_parameters), float32, parameters in module order.
    """
    targets = double_dqn_targets(network, target, batch, discount)
    parameters = {name: each.detach() for name, each in network.named_parameters()}

    def loss(
        weights: dict[str, torch.Tensor],
        states: torch.Tensor,
        actions: torch.Tensor,
        expected: torch.Tensor,
    ) -> torch.Tensor:
        values = functional_call(network, weights, (states,))
        return smooth_l1_loss(values.gather(-1, actions[:, None])[:, 0], expected)

    gradients = vmap(grad(loss), in_dims=(None, 0, 0, 0))(
        parameters, torch.from_numpy(batch.states), torch.from_numpy(batch.actions), targets
    )
    units = len(batch.states)
    return torch.cat([each.reshape(units, -1) for each in gradients.values()], dim=1).numpy()
