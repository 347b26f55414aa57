# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""The temporal module: windows of the current map attend to pooled earlier maps (Eq. 3 and 4)."""

from functools import cache

from fdrl_ros.segmentation.network.sizes import Windows
import torch
from torch import nn
from torch.nn import functional


@cache
@torch.inference_mode(False)  # tensors that are kept must serve training too
def context_places(
    windows: Windows, height: int, width: int, device: torch.device
) -> tuple[torch.Tensor, torch.Tensor]:
    """
    Return where the context tokens of each window lie among all pooled tokens of all maps.

    A field is centred on its window, up to the rounding to whole tokens.

    :returns: indices (windows, context), int64, in row order; and what is added to the attention
        to each, same shape: 0, or minus infinity outside of the map.
    """
    found, inside, start = [], [], 0
    for pool, field, side in zip(windows.pooling, windows.fields, windows.tokens, strict=True):
        rows, columns = (
            _along(windows.size, pool, field, side, length) for length in (height, width)
        )
        high, wide = -(-height // pool), -(-width // pool)
        place = rows[:, None, :, None].clamp(0, high - 1) * wide
        place = place + columns[None, :, None, :].clamp(0, wide - 1)
        fits = ((rows >= 0) & (rows < high))[:, None, :, None]
        fits = fits & ((columns >= 0) & (columns < wide))[None, :, None, :]
        found.append((start + place).flatten(2).flatten(0, 1))
        inside.append(fits.flatten(2).flatten(0, 1))
        start += high * wide
    outside = torch.zeros(len(found[0]), windows.context)
    outside = outside.masked_fill(~torch.cat(inside, 1), -torch.inf)
    return torch.cat(found, 1).to(device), outside.to(device)


TOGETHER = 2**18
"""Numbers that are gathered at a time, about: more would not stay in the processor's cache."""


def _along(size: int, pool: int, field: int, side: int, length: int) -> torch.Tensor:
    """Return the numbers of the pooled tokens on one axis, (windows, tokens of a field)."""
    corners = size * torch.arange(-(-length // size))
    first = torch.div(2 * corners + size - field + pool, 2 * pool, rounding_mode='floor')
    return first[:, None] + torch.arange(side)


class HeadLinear(nn.Module):
    """A linear layer for each head, from its own channels to its own channels."""

    def __init__(self, heads: int, width: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(heads, width, width))
        self.bias = nn.Parameter(torch.zeros(heads, 1, width))
        nn.init.uniform_(self.weight, -(width**-0.5), width**-0.5)


def by_head(tokens: torch.Tensor, *layers: HeadLinear) -> torch.Tensor:
    """
    Return what some layers give, side by side, (heads, tokens, layers * channels of a head).

    :param tokens: (tokens, C).
    """
    weight = torch.cat([layer.weight for layer in layers], 2)
    bias = torch.cat([layer.bias for layer in layers], 2)
    return torch.baddbmm(bias, tokens.unflatten(1, (len(weight), -1)).transpose(0, 1), weight)


class Pooling(nn.Module):
    """A linear layer from the elements of a square to one context token (Eq. 3)."""

    def __init__(self, side: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.full((side, side), side**-2.0))
        self.bias = nn.Parameter(torch.zeros(()))

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        """
        Return (N, pooled tokens, C) for (N, h, w, C), in row order.

        A map that is no multiple of the square is filled up with zeros at its end.
        """
        side = self.weight.shape[0]
        if side == 1:
            return (tokens * self.weight + self.bias).flatten(1, 2)
        height, width = tokens.shape[1:3]
        tokens = functional.pad(tokens, (0, 0, 0, -width % side, 0, -height % side))
        squares = tokens.unflatten(2, (-1, side)).unflatten(1, (-1, side))
        pooled = torch.einsum('nipjqc,pq->nijc', squares, self.weight) + self.bias
        return pooled.flatten(1, 2)


class TemporalAttention(nn.Module):
    """
    Cross-attention of the current map to the pooled current and earlier maps.

    :param width: channels C of a map.
    :param heads: of the attention; each maps its own channels alone.
    """

    def __init__(self, width: int, heads: int, windows: Windows) -> None:
        super().__init__()
        self.windows = windows
        self.pool = nn.ModuleList(Pooling(side) for side in windows.pooling)
        self.q = HeadLinear(heads, width // heads)
        self.k = HeadLinear(heads, width // heads)
        self.v = HeadLinear(heads, width // heads)
        self.bias = nn.Parameter(torch.zeros(heads, windows.size**2, windows.context))

    def forward(self, maps: list[torch.Tensor]) -> torch.Tensor:
        """
        Return the current map with what its windows gathered added to it (Eq. 4).

        :param maps: tokens (N, h, w, C) of each frame, the oldest first, the current one last.
        :returns: (N, h, w, C).
        """
        current, size = maps[-1], self.windows.size
        count, height, width, _ = current.shape
        places, outside = context_places(self.windows, height, width, current.device)
        context = torch.cat([pool(each) for pool, each in zip(self.pool, maps, strict=True)], 1)
        offered = by_head(context.flatten(0, 1), self.k, self.v).transpose(0, 1).flatten(1)
        down, right = -height % size, -width % size
        padded = functional.pad(current, (0, 0, 0, right, 0, down)) if down or right else current
        high, wide = (height + down) // size, (width + right) // size
        q = by_head(padded.flatten(0, 2), self.q).unflatten(1, (count, high, size, wide, size))
        q = q.permute(1, 2, 4, 0, 3, 5, 6).flatten(4, 5).flatten(1, 2)
        part = max(1, TOGETHER // (count * places.shape[1] * offered.shape[1]))
        clips = torch.arange(count, device=current.device)[:, None, None] * context.shape[1]
        found = [
            self._attended(queries, offered.index_select(0, (clips + rows).flatten()), mask)
            for queries, rows, mask in zip(
                q.split(part, 1),
                places.split(part),
                outside.split(part),
                strict=True,
            )
        ]
        gathered = torch.cat(found, 1).unflatten(3, (size, size)).unflatten(1, (high, wide))
        gathered = gathered.permute(0, 1, 4, 2, 5, 3, 6).reshape(padded.shape)
        return current + gathered[:, :height, :width]

    def _attended(
        self, queries: torch.Tensor, offered: torch.Tensor, outside: torch.Tensor
    ) -> torch.Tensor:
        """
        Return what some windows gather, the shape of their queries.

        :param queries: (N, windows, heads, elements of a window, channels of a head).
        :param offered: keys and values of all context tokens of all windows, one row each.
        :param outside: added to the attention, (windows, context).
        """
        count, windows, heads = queries.shape[:3]
        k, v = (
            offered.view(count * windows, -1, heads, 2 * queries.shape[4])
            .transpose(1, 2)
            .chunk(2, 3)
        )
        bias = self.bias + outside[:, None, None, :]
        if count > 1:
            bias = bias.repeat(count, 1, 1, 1)
        found = functional.scaled_dot_product_attention(queries.flatten(0, 1), k, v, bias)
        return found.unflatten(0, (count, windows))
