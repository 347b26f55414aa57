# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""
The encoder: Pyramid Vision Transformer v2 (Wang et al. 2022), with tensors named as in timm.

Tokens keep the shape (pictures, height, width, channels) throughout. A convolution takes them as
a picture whose channels lie innermost, so nothing is copied between the two forms.
"""

from fdrl_ros.segmentation.network.sizes import EncoderSize
import torch
from torch import nn
from torch.nn import functional

REDUCTIONS = 8, 4, 2, 1
"""Keys and values of a stage come from a map that is so many times smaller on each side."""


def as_map(tokens: torch.Tensor) -> torch.Tensor:
    """View tokens, (N, h, w, C), as the picture that a convolution takes, (N, C, h, w)."""
    return tokens.permute(0, 3, 1, 2)


def as_tokens(picture: torch.Tensor) -> torch.Tensor:
    """View a picture, (N, C, h, w), as tokens, (N, h, w, C)."""
    return picture.permute(0, 2, 3, 1)


class PatchEmbedding(nn.Module):
    """
    Cut a picture into overlapping patches, one token each.

    :param size: of a patch, pixels.
    :param stride: between two patches, pixels.
    """

    def __init__(self, inputs: int, outputs: int, size: int, stride: int) -> None:
        super().__init__()
        self.proj = nn.Conv2d(inputs, outputs, size, stride, size // 2)
        self.norm = nn.LayerNorm(outputs)

    def forward(self, picture: torch.Tensor) -> torch.Tensor:
        """Return tokens, (N, height / stride, width / stride, outputs)."""
        tokens: torch.Tensor = self.norm(as_tokens(self.proj(picture)))
        return tokens


class Attention(nn.Module):
    """
    Attention of every token to a smaller map of the same tokens.

    Keys and values have a layer each, where the published checkpoints have one of both, so that a
    hospital can keep either of them.
    """

    def __init__(self, width: int, heads: int, reduction: int) -> None:
        super().__init__()
        self.heads = heads
        self.q = nn.Linear(width, width)
        self.k = nn.Linear(width, width)
        self.v = nn.Linear(width, width)
        self.proj = nn.Linear(width, width)
        if reduction > 1:
            self.sr: nn.Module | None = nn.Conv2d(width, width, reduction, reduction)
            self.norm = nn.LayerNorm(width)
        else:
            self.sr = None

    def _by_head(self, tokens: torch.Tensor) -> torch.Tensor:
        """Return (N, heads, tokens, width / heads)."""
        count, high, wide, width = tokens.shape
        return tokens.view(count, high * wide, self.heads, width // self.heads).transpose(1, 2)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        """Return what each token gathered, same shape."""
        reduced = tokens
        if self.sr is not None:
            reduced = self.norm(as_tokens(self.sr(as_map(tokens))))
        q, k, v = (
            self._by_head(each) for each in (self.q(tokens), self.k(reduced), self.v(reduced))
        )
        found = functional.scaled_dot_product_attention(q, k, v)
        mixed: torch.Tensor = self.proj(found.transpose(1, 2).reshape(tokens.shape))
        return mixed


class FeedForward(nn.Module):
    """Two layers for each token, and between them a convolution of each channel by itself."""

    def __init__(self, width: int, hidden: int) -> None:
        super().__init__()
        self.fc1 = nn.Linear(width, hidden)
        self.dwconv = nn.Conv2d(hidden, hidden, 3, padding=1, groups=hidden)
        self.fc2 = nn.Linear(hidden, width)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        """Return the same shape."""
        hidden = as_tokens(self.dwconv(as_map(self.fc1(tokens))))
        mixed: torch.Tensor = self.fc2(functional.gelu(hidden))
        return mixed


class Block(nn.Module):
    """Attention, then the feed-forward layer, each added to what it was given."""

    def __init__(self, width: int, heads: int, expansion: int, reduction: int) -> None:
        super().__init__()
        self.norm1 = nn.LayerNorm(width, eps=1e-6)
        self.attn = Attention(width, heads, reduction)
        self.norm2 = nn.LayerNorm(width, eps=1e-6)
        self.mlp = FeedForward(width, expansion * width)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        """Return the same shape."""
        tokens = tokens + self.attn(self.norm1(tokens))
        return tokens + self.mlp(self.norm2(tokens))


class Stage(nn.Module):
    """Blocks at one stride; all but the first stage shrink the map of the one before."""

    def __init__(self, size: EncoderSize, number: int) -> None:
        super().__init__()
        width = size.widths[number]
        self.downsample: nn.Module | None = None
        if number:
            self.downsample = PatchEmbedding(size.widths[number - 1], width, 3, 2)
        self.blocks = nn.ModuleList(
            Block(width, size.heads[number], size.expansions[number], REDUCTIONS[number])
            for _ in range(size.depths[number])
        )
        self.norm = nn.LayerNorm(width, eps=1e-6)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        """Return the tokens of this stage, (N, h, w, width)."""
        if self.downsample is not None:
            tokens = self.downsample(as_map(tokens))
        for block in self.blocks:
            tokens = block(tokens)
        normed: torch.Tensor = self.norm(tokens)
        return normed


class PyramidVisionTransformer(nn.Module):
    """Four stages of tokens, from fine and plain to coarse and rich."""

    def __init__(self, size: EncoderSize) -> None:
        super().__init__()
        self.patch_embed = PatchEmbedding(3, size.widths[0], 7, 4)
        self.stages = nn.ModuleList(Stage(size, number) for number in range(4))
        self.apply(_draw)

    def forward(self, frames: torch.Tensor) -> list[torch.Tensor]:
        """
        Return the tokens of each stage, (N, height / stride, width / stride, channels).

        :param frames: (N, 3, height, width), normalised, sides multiples of 32.
        """
        tokens, found = self.patch_embed(frames), []
        for stage in self.stages:
            tokens = stage(tokens)
            found.append(tokens)
        return found


def _draw(module: nn.Module) -> None:
    """Draw a layer's weights as the paper on PVT v2 does."""
    if isinstance(module, nn.Linear):
        nn.init.trunc_normal_(module.weight, std=0.02)
        nn.init.zeros_(module.bias)
    elif isinstance(module, nn.Conv2d):
        outputs = module.weight[0, 0].numel() * module.out_channels // module.groups
        nn.init.normal_(module.weight, std=(2.0 / outputs) ** 0.5)
        if module.bias is not None:
            nn.init.zeros_(module.bias)
