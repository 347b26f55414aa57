# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""
Gradients of many units from one backward pass, by Opacus' rules for each kind of layer.

A dense layer that sees one row of each unit has the outer product of slopes and inputs as its
gradient, which is clipped and summed without being formed (Goodfellow 2015; ghost clipping, Li et
al. 2022). All other gradients are formed, a row for each unit.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
import copy
from typing import NamedTuple, Protocol

from fdrl_ros.learner.torch.losses import Applied, Networks, Tensors
from fdrl_ros.policy.layout import TensorLayout
import numpy as np
from numpy.typing import NDArray
from opacus.grad_sample import GradSampleModule
from opacus.grad_sample.functorch import ft_compute_per_sample_gradient
import torch
from torch import nn
import torch.func

_COLUMNS = 2**13
"""
Numbers of each gradient that are squared or summed at a time: they stay in the processor's cache,
and the squares of so few lose nothing in float32 that clipping has not reserved room for.
"""


class Gradient(Protocol):
    """The gradients of one tensor of weights, one for each of some units."""

    def squares(self) -> torch.Tensor:
        """Return the squared L2 norm of each, (units,), float64."""
        ...

    def add_to(self, total: torch.Tensor, factors: torch.Tensor) -> None:
        """
        Add each times its factor.

        :param total: (n,), float64: what rounding this sum tells of who else was there is 2^-53
            of what is added.
        :param factors: (units,), float64.
        """
        ...

    def of(self, units: torch.Tensor | slice) -> 'Gradient':
        """Return those of some units."""
        ...

    def factors(self) -> tuple[torch.Tensor, ...]:
        """Return the tensors that determine them, units first."""
        ...

    def formed(self) -> torch.Tensor:
        """Return them as rows, (units, n)."""
        ...


class Rows(NamedTuple):
    """Gradients that are formed, (units, n)."""

    values: torch.Tensor

    def squares(self) -> torch.Tensor:
        """Return the squared L2 norm of each."""
        parts = [each.square().sum(dim=1).double() for each in self.values.split(_COLUMNS, dim=1)]
        return torch.stack(parts).sum(dim=0)

    def add_to(self, total: torch.Tensor, factors: torch.Tensor) -> None:
        """Add each times its factor."""
        places = total.split(_COLUMNS), self.values.split(_COLUMNS, dim=1)
        for place, columns in zip(*places, strict=True):
            place += factors @ columns.double()

    def of(self, units: torch.Tensor | slice) -> Gradient:
        """Return those of some units."""
        return Rows(self.values[units])

    def factors(self) -> tuple[torch.Tensor, ...]:
        """Return the rows."""
        return (self.values,)

    def formed(self) -> torch.Tensor:
        """Return the rows."""
        return self.values


class Outer(NamedTuple):
    """Outer products: slopes at a layer's outputs, (units, outputs), and inputs of it."""

    slopes: torch.Tensor
    inputs: torch.Tensor

    def squares(self) -> torch.Tensor:
        """Return the squared L2 norm of each."""
        first, second = (each.double().square().sum(dim=1) for each in self)
        return first * second

    def add_to(self, total: torch.Tensor, factors: torch.Tensor) -> None:
        """Add each times its factor."""
        wide = (self.slopes.double() * factors[:, None]).T @ self.inputs.double()
        total += wide.reshape(-1)

    def of(self, units: torch.Tensor | slice) -> Gradient:
        """Return those of some units."""
        return Outer(self.slopes[units], self.inputs[units])

    def factors(self) -> tuple[torch.Tensor, ...]:
        """Return slopes and inputs."""
        return tuple(self)

    def formed(self) -> torch.Tensor:
        """Return the products as rows."""
        return (self.slopes[:, :, None] * self.inputs[:, None, :]).flatten(1)


Gradients = Sequence[Gradient]
"""One for each trained tensor, in the order of the layout."""


class Held:
    """A module whose weights are one flat tensor, in the order of a layout."""

    def __init__(self, module: nn.Module, layout: TensorLayout, frozen: int | None = None) -> None:
        """:param frozen: how many of the first tensors have no gradients; None: all of them."""
        self.module = module
        own = dict(module.named_parameters())
        device = next(iter(own.values())).device
        self._flat = torch.zeros(layout.n_parameters, device=device)
        self._loaded: NDArray[np.float32] | None = None
        self.trained: list[torch.Tensor] = []
        """Weights with gradients, in the order of the layout."""
        for number, (tensor, first, last) in enumerate(layout.places()):
            weights = own[tensor.name]
            weights.data = self._flat[first:last].view(tensor.shape)
            weights.requires_grad_(frozen is not None and number >= frozen)
            if weights.requires_grad:
                self.trained.append(weights)

    def load(self, weights: NDArray[np.float32]) -> None:
        """Copy flat weights, which must not change afterwards."""
        if weights is not self._loaded:
            self._flat.copy_(torch.from_numpy(np.array(weights, np.float32)))
            self._loaded = weights


class Call(NamedTuple):
    """One use of a layer: its input and its output."""

    layer: nn.Module
    inputs: torch.Tensor
    outputs: torch.Tensor


class Watched:
    """
    A copy of a module that records the uses of its layers with trained weights.

    One backward pass then gives the slopes at every layer's outputs, and Opacus' rule for the
    layer, or `functorch` where it has none, the gradients of its weights for each unit.
    """

    def __init__(self, module: nn.Module, layout: TensorLayout, frozen: int) -> None:
        """:param frozen: how many of the first tensors have no gradients."""
        self.held = Held(copy.deepcopy(module).train(), layout, frozen)
        self._calls: list[Call] = []
        trained = {id(each) for each in self.held.trained}
        for layer in self.held.module.modules():
            if any(id(each) in trained for each in layer.parameters(recurse=False)):
                layer.register_forward_hook(self._watch)

    def _watch(self, layer: nn.Module, inputs: tuple[torch.Tensor, ...], outputs: object) -> None:
        if torch.is_grad_enabled():
            if len(inputs) != 1 or not isinstance(outputs, torch.Tensor):
                raise ValueError(f'{type(layer).__name__}: expected one input and one output')
            self._calls.append(Call(layer, inputs[0].detach(), outputs))

    def forget(self) -> None:
        """Begin a new pass."""
        self._calls.clear()

    def gradients(self, loss: torch.Tensor) -> Gradients:
        """
        Return the gradients of a loss by unit.

        :param loss: a sum over units, made since :meth:`forget`.
        """
        calls = self._calls
        slopes = torch.autograd.grad(loss, [call.outputs for call in calls], allow_unused=True)
        found: dict[int, Gradient] = {}
        for call, slope in zip(calls, slopes, strict=True):
            if slope is None:
                continue
            for name, gradient in _of_call(call, slope).items():
                before = found.get(name)
                if before is not None:
                    gradient = Rows(before.formed() + gradient.formed())
                found[name] = gradient
        units = len(calls[0].inputs)
        self._calls = []
        return [
            found.get(id(each)) or Rows(each.new_zeros((units, each.numel())))
            for each in self.held.trained
        ]


def _of_call(call: Call, slopes: torch.Tensor) -> Mapping[int, Gradient]:
    """Return the gradients of one use of a layer, by the identity of its weights."""
    layer, inputs, _ = call
    if type(layer) is nn.Linear and inputs.dim() == 2:
        found: dict[int, Gradient] = {}
        if layer.weight.requires_grad:
            found[id(layer.weight)] = Outer(slopes, inputs)
        if layer.bias is not None and layer.bias.requires_grad:
            found[id(layer.bias)] = Rows(slopes)
        return found
    rule = GradSampleModule.GRAD_SAMPLERS.get(type(layer), ft_compute_per_sample_gradient)
    made = rule(layer, [inputs], slopes)
    return {id(each): Rows(part.flatten(1)) for each, part in made.items()}


class Passes(ABC):
    """
    Gradients of many units, so many at a time.

    A pass has a fixed number of places; those without a unit hold zeros. The last pass has the
    fewest places that are enough.
    """

    def __init__(self, places: Sequence[int]) -> None:
        """:param places: numbers of places that a pass may have, falling."""
        self.places = places

    @abstractmethod
    def gradients(self, own: Tensors) -> Gradients:
        """Return the gradients of the units of one pass."""

    def __call__(self, batch: Tensors) -> Iterator[Gradients]:
        """Yield the mean gradients of some units after the other."""
        for first in range(0, len(batch.actions), self.places[0]):
            own = batch.of(slice(first, first + self.places[0]))
            joined = len(own.actions)
            places = min(each for each in self.places if each >= joined)
            own = Tensors(*(aligned(each, places) for each in own))
            made = self.gradients(own)
            yield made if joined == places else [each.of(slice(joined)) for each in made]


class Together(Passes):
    """Gradients from one backward pass; the module and its loss must treat units alike."""

    def __init__(
        self,
        watched: Watched,
        networks: Networks,
        loss: 'Loss',
        *,
        flat: bool,
        places: Sequence[int],
    ) -> None:
        """
        Put the watched module in the place of the trained one.

        :param loss: the weighted loss of each transition, (units, transitions).
        :param flat: whether the module takes one leading axis only.
        """
        super().__init__(places)
        self._watched, self._loss = watched, loss
        others = (Applied(each.module, flat) for each in (networks.still, networks.target))
        self._networks = Networks(Applied(watched.held.module, flat), *others)

    def gradients(self, own: Tensors) -> Gradients:
        """Return the gradients of the units of one pass."""
        self._watched.forget()
        losses = self._loss(self._networks, own)
        return self._watched.gradients(losses.mean(dim=1).sum())


class Mapped(Passes):
    """
    Gradients of each unit's own loss, by `torch.func.vmap`.

    The code of a loss and its modules is run for one unit, which has no other in sight: what it
    computes cannot depend on them, whatever the code is. PyTorch refuses what `vmap` cannot run:
    an `if` on values, random numbers, and changes of a buffer.
    """

    def __init__(self, held: Held, networks: Networks, loss: 'Loss', places: Sequence[int]):
        """:param loss: the weighted loss of each transition, (units, transitions)."""
        super().__init__(places)
        self._module = _LossOfUnit(held.module, networks, loss)
        names = {id(each): name for name, each in self._module.named_parameters()}
        self._weights = {names[id(each)]: each.detach() for each in held.trained}
        self._all = torch.func.vmap(
            torch.func.grad(self._loss_of), (None, *(0 for _ in Tensors._fields))
        )

    def _loss_of(self, weights: dict[str, torch.Tensor], *columns: torch.Tensor) -> torch.Tensor:
        own = Tensors(*(each[None] for each in columns))
        found: torch.Tensor = torch.func.functional_call(self._module, weights, (own,))
        return found

    def gradients(self, own: Tensors) -> Gradients:
        """Return the gradients of the units of one pass."""
        made = self._all(self._weights, *own)
        return [Rows(made[name].flatten(1)) for name in self._weights]


class _LossOfUnit(nn.Module):
    """The mean loss of one unit, as a module whose weights can be replaced."""

    def __init__(self, module: nn.Module, networks: Networks, loss: 'Loss') -> None:
        super().__init__()
        self.module = module
        self.__dict__['loss'] = lambda own: loss(networks, own).mean()

    def forward(self, own: Tensors) -> torch.Tensor:
        """Compute it."""
        found: torch.Tensor = self.__dict__['loss'](own)
        return found


def aligned(values: torch.Tensor, places: int | None = None) -> torch.Tensor:
    """
    Copy to where PyTorch aligns memory, filled up with zeros to a number of places.

    Kernels round differently where memory is aligned differently, as in a slice or in an array of
    NumPy: the place of a unit among the others would change its gradient, and which of two equal
    actions is best.
    """
    room = values.new_zeros((len(values) if places is None else places, *values.shape[1:]))
    room[: len(values)] = values
    return room


class Loss(Protocol):
    """The weighted loss of each transition, (units, transitions)."""

    def __call__(self, networks: Networks, batch: Tensors) -> torch.Tensor:
        """Compute it."""
        ...
