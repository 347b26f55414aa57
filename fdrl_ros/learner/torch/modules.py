# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""
The modules that ship with the learner `torch`, and low-rank adapters for any module.

Each is made from the shape of an observation and the number of its outputs, as a module of a
user is. Those of dense layers take any number of leading axes: (..., *shape) to (..., outputs).
"""

from collections.abc import Callable, Sequence
import math

from fdrl_ros.errors import PolicyError
import torch
from torch import nn

Make = Callable[[tuple[int, ...], int], nn.Module]
"""From the shape of an observation and a number of outputs to a module."""

CHANNELS = (1, 3, 4)
"""Sizes of an image's last axis by which it is one of colours."""


class DuelingMlp(nn.Module):
    """The dueling network of the compiled learner (Wang et al. 2016): Q = V + A - mean(A)."""

    def __init__(
        self, shape: Sequence[int], outputs: int, hidden: Sequence[int] = (64, 64)
    ) -> None:
        """:param hidden: units of each shared layer."""
        super().__init__()
        self._axes = len(shape)
        sizes = (math.prod(shape), *hidden)
        self.shared = nn.ModuleList(
            nn.Linear(one, two) for one, two in zip(sizes[:-1], sizes[1:], strict=True)
        )
        self.value = nn.Linear(sizes[-1], 1)
        self.advantage = nn.Linear(sizes[-1], outputs)
        for layer in (*self.shared, self.value, self.advantage):
            nn.init.xavier_uniform_(layer.weight)
            nn.init.zeros_(layer.bias)

    def forward(self, observations: torch.Tensor) -> torch.Tensor:
        """Value every output."""
        hidden = observations.flatten(-self._axes)
        for layer in self.shared:
            hidden = torch.tanh(layer(hidden))
        advantages = self.advantage(hidden)
        return self.value(hidden) + advantages - advantages.mean(dim=-1, keepdim=True)


class Mlp(nn.Module):
    """Dense layers with tanh between them."""

    def __init__(
        self, shape: Sequence[int], outputs: int, hidden: Sequence[int] = (64, 64)
    ) -> None:
        """:param hidden: units of each hidden layer."""
        super().__init__()
        self._axes = len(shape)
        sizes = (math.prod(shape), *hidden, outputs)
        self.layers = nn.ModuleList(
            nn.Linear(one, two) for one, two in zip(sizes[:-1], sizes[1:], strict=True)
        )

    def forward(self, observations: torch.Tensor) -> torch.Tensor:
        """Give every output."""
        hidden = observations.flatten(-self._axes)
        for layer in self.layers[:-1]:
            hidden = torch.tanh(layer(hidden))
        return self.layers[-1](hidden)


class Cnn(nn.Module):
    """
    Three strided convolutions with group normalisation (Wu & He 2018), then two dense layers.

    Group normalisation sees one image at a time, as batch normalisation does not.
    """

    def __init__(self, shape: Sequence[int], outputs: int, hidden: int = 64) -> None:
        """
        Choose the sizes.

        :param shape: (height, width), (channels, height, width) or (height, width, channels).
        :param hidden: units of the dense layer before the last.
        :raises PolicyError: if it is not the shape of an image.
        """
        super().__init__()
        if len(shape) not in (2, 3):
            raise PolicyError(f'observations of shape {tuple(shape)}: the CNN takes an image')
        self._shape = tuple(shape)
        self._last = len(shape) == 3 and shape[-1] in CHANNELS and shape[0] not in CHANNELS
        sizes = (1, *shape) if len(shape) == 2 else tuple(shape)
        channels, height, width = (sizes[2], sizes[0], sizes[1]) if self._last else sizes
        layers: list[nn.Module] = []
        for out in (16, 32, 32):
            layers += [nn.Conv2d(channels, out, 3, 2, 1), nn.GroupNorm(4, out), nn.ReLU()]
            channels, height, width = out, (height + 1) // 2, (width + 1) // 2
        self.convolutions = nn.Sequential(*layers)
        self.dense = nn.Linear(channels * height * width, hidden)
        self.head = nn.Linear(hidden, outputs)

    def forward(self, observations: torch.Tensor) -> torch.Tensor:
        """Give every output: (n, *shape) to (n, outputs)."""
        images = observations.unsqueeze(1) if len(self._shape) == 2 else observations
        if self._last:
            images = images.permute(0, 3, 1, 2)
        hidden = self.convolutions(images).flatten(1)
        return self.head(torch.relu(self.dense(hidden)))


class Gru(nn.Module):
    """
    A gated recurrent unit (Cho et al. 2014) over a burst of observations, read at its last.

    The burst begins without memory, so its first observations warm up the state (R2D2's burn-in,
    Kapturowski et al. 2019); one that stacks observations in a state needs no memory to act.
    """

    def __init__(self, shape: Sequence[int], outputs: int, hidden: int = 64) -> None:
        """
        Choose the sizes.

        :param shape: (steps of a burst, numbers of an observation).
        :param hidden: units of the memory.
        :raises PolicyError: if it is not the shape of a burst.
        """
        super().__init__()
        if len(shape) != 2:
            raise PolicyError(
                f'observations of shape {tuple(shape)}: the GRU takes bursts, (steps, numbers); '
                'set frame_stack'
            )
        self._hidden = hidden
        self.reset = nn.Linear(shape[1] + hidden, hidden)
        self.update = nn.Linear(shape[1] + hidden, hidden)
        self.candidate = nn.Linear(shape[1] + hidden, hidden)
        self.head = nn.Linear(hidden, outputs)

    def forward(self, observations: torch.Tensor) -> torch.Tensor:
        """Give every output after the burst."""
        hidden = observations.new_zeros((*observations.shape[:-2], self._hidden))
        for seen in observations.unbind(-2):
            both = torch.cat((seen, hidden), dim=-1)
            gate = torch.sigmoid(self.update(both))
            kept = torch.sigmoid(self.reset(both)) * hidden
            new = torch.tanh(self.candidate(torch.cat((seen, kept), dim=-1)))
            hidden = gate * hidden + (1.0 - gate) * new
        return self.head(hidden)


BUILT_IN: dict[str, Callable[..., nn.Module]] = {
    'mlp': DuelingMlp,
    'plain_mlp': Mlp,
    'cnn': Cnn,
    'gru': Gru,
}
"""What a plan names without a reference."""


class Adapted(nn.Module):
    """
    A dense layer with a low-rank update: W x + b + B A x (Hu et al. 2022, LoRA).

    B begins at 0, so the layer begins as it was.
    """

    def __init__(self, base: nn.Linear, rank: int) -> None:
        """:param rank: rows of A and columns of B."""
        super().__init__()
        self.base = base
        self.down = nn.Linear(base.in_features, rank, bias=False)
        self.up = nn.Linear(rank, base.out_features, bias=False)
        nn.init.zeros_(self.up.weight)

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        """Give the outputs of the layer with its update."""
        return self.base(inputs) + self.up(self.down(inputs))


def adapted(module: nn.Module, rank: int) -> tuple[nn.Module, list[str]]:
    """
    Put adapters on all dense layers of a module.

    :param rank: of each update, at least 1.
    :returns: the module, changed in place, and the names of all tensors but the adapters'.
    :raises PolicyError: if it has no dense layer.
    """
    if type(module) is nn.Linear:
        module = nn.Sequential(module)
    dense = [name for name, each in module.named_modules() if type(each) is nn.Linear]
    if not dense:
        raise PolicyError('adapters are for dense layers (nn.Linear), and the module has none')
    for name in dense:
        place, _, last = name.rpartition('.')
        parent = module.get_submodule(place)
        setattr(parent, last, Adapted(getattr(parent, last), rank))
    own = {f'{name}.{part}.weight' for name in dense for part in ('down', 'up')}
    return module, [name for name, _ in module.named_parameters() if name not in own]
