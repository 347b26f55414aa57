# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""The dueling network as anybody would write it in torch: what our closed forms must equal."""

from fdrl_ros.policy import NetworkShape
import numpy as np
import torch
from torch import nn


class DuelingNetwork(nn.Module):
    """
    Shared tanh layers, then a value and an advantage head.

    Parameters in module order are the flat weights of :class:`NetworkShape`.
    """

    def __init__(self, shape: NetworkShape, generator: torch.Generator) -> None:
        """
        Draw the starting weights.

        :param shape: sizes of the network.
        :param generator: where the starting weights come from.
        """
        super().__init__()
        self.shape = shape
        sizes = (shape.states, *shape.hidden)
        self.shared = nn.ModuleList(
            nn.Linear(sizes[i], sizes[i + 1]) for i in range(len(shape.hidden))
        )
        self.value = nn.Linear(sizes[-1], 1)
        self.advantage = nn.Linear(sizes[-1], shape.actions)
        with torch.no_grad():
            for parameter in self.parameters():
                if parameter.dim() == 2:
                    bound = (6.0 / sum(parameter.shape)) ** 0.5
                    parameter.uniform_(-bound, bound, generator=generator)
                else:
                    parameter.zero_()

    def forward(self, states: torch.Tensor) -> torch.Tensor:
        """
        Value every action.

        :param states: shape (..., states), scaled.
        :returns: Q values, shape (..., actions).
        """
        hidden = states
        for layer in self.shared:
            hidden = torch.tanh(layer(hidden))
        advantage = self.advantage(hidden)
        return self.value(hidden) + advantage - advantage.mean(dim=-1, keepdim=True)

    def flat_weights(self) -> np.ndarray:
        """Return a copy of all weights, shape (n_parameters,), float32."""
        return (
            torch.cat([p.detach().reshape(-1) for p in self.parameters()])
            .to(torch.float32)
            .numpy()
        )

    def load_flat_weights(self, weights: np.ndarray) -> None:
        """
        Take over all weights.

        :param weights: shape (n_parameters,).
        """
        start = 0
        flat = torch.from_numpy(np.array(weights, dtype=np.float32))
        with torch.no_grad():
            for parameter in self.parameters():
                parameter.copy_(flat[start : start + parameter.numel()].view_as(parameter))
                start += parameter.numel()
