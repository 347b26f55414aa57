# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""Weights of a module as the flat vector that travels, and back."""

from collections.abc import Collection

from fdrl_ros.policy.layout import Tensor, TensorLayout
import numpy as np
from numpy.typing import NDArray
import torch
from torch import nn


def layout_of(module: nn.Module, frozen: Collection[str] = ()) -> TensorLayout:
    """
    Return names and shapes of a module's parameters, in their order, frozen ones first.

    :param frozen: names of tensors or of the modules that hold them.
    """
    tensors = [Tensor(name, tuple(each.shape)) for name, each in module.named_parameters()]
    return TensorLayout.of(tensors, frozen)


def flat(module: nn.Module, layout: TensorLayout) -> NDArray[np.float32]:
    """Return the weights of a module, shape (n_parameters,), float32."""
    own = dict(module.named_parameters())
    parts = [own[each.name].detach().cpu().reshape(-1) for each in layout.tensors]
    weights: NDArray[np.float32] = torch.cat(parts).numpy()
    return weights


def load(module: nn.Module, layout: TensorLayout, weights: NDArray[np.float32]) -> None:
    """Copy flat weights into a module."""
    own = dict(module.named_parameters())
    with torch.no_grad():
        for name, values in layout.split(weights).items():
            own[name].copy_(torch.from_numpy(np.array(values, np.float32)))


def device_of(module: nn.Module) -> torch.device:
    """Return the device where a module's parameters are."""
    return next(module.parameters()).device
