# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""The segmenter of FedST: frames and a site's text in, the instrument's parts out."""

from fdrl_ros.errors import RecordsError
from fdrl_ros.segmentation.network.channels import ChannelSelection
from fdrl_ros.segmentation.network.pvt import as_map, as_tokens, PyramidVisionTransformer
from fdrl_ros.segmentation.network.sizes import SegmenterSettings, Size, SIZES
from fdrl_ros.segmentation.network.temporal import TemporalAttention
from fdrl_ros.surgery.render.parts import PARTS
import numpy as np
import torch
from torch import nn
from torch.nn import functional

MULTIPLE = 32
"""Sides of a frame are multiples of this, the stride of the last stage."""

MEAN = 0.485, 0.456, 0.406
DEVIATION = 0.229, 0.224, 0.225
"""Of red, green and blue in the pictures that the public weights come from."""

FINE = 4
"""The head gives so many logits on each side of an element of the map: it works at stride 2."""


class Fusion(nn.Module):
    """
    One map at stride 8 out of the four stages, much as the all-MLP decoder of SegFormer makes it.

    Each stage has a linear layer, and their sum is what one linear layer makes of all of them
    side by side. Coarse stages are enlarged bilinearly; of the finest, four neighbours go into
    one element together.
    """

    def __init__(self, size: Size) -> None:
        super().__init__()
        widths, hidden = size.encoder.widths, size.hidden
        self.stage1 = nn.Conv2d(widths[0], hidden, 2, 2)
        self.stage2 = nn.Linear(widths[1], hidden)
        self.stage3 = nn.Linear(widths[2], hidden)
        self.stage4 = nn.Linear(widths[3], hidden)
        self.fuse = nn.Linear(hidden, size.width)

    def forward(self, stages: list[torch.Tensor]) -> torch.Tensor:
        """Return F, (N, h, w, C), for the tokens of four stages."""
        first, second, third, fourth = stages
        coarse = self.stage3(third) + _doubled(self.stage4(fourth))
        fine = self.stage2(second) + as_tokens(self.stage1(as_map(first)))
        return functional.relu(self.fuse(functional.relu(fine + _doubled(coarse))))


def _doubled(tokens: torch.Tensor) -> torch.Tensor:
    """Enlarge a map bilinearly to twice its sides."""
    return as_tokens(functional.interpolate(as_map(tokens), scale_factor=2, mode='bilinear'))


class Head(nn.Module):
    """One linear layer from an element of the map to logits of its 4 x 4 parts."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.fc = nn.Linear(width, len(PARTS) * FINE * FINE)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        """Return logits (N, 4, height, width) of whole frames for a map (N, h, w, C)."""
        fine = functional.pixel_shuffle(as_map(self.fc(tokens)).contiguous(), FINE)
        return functional.interpolate(fine, scale_factor=2, mode='bilinear')


class Segmenter(nn.Module):
    """
    Label each pixel of the newest frame of a clip as background, shaft, wrist or jaw.

    :param rng: draws the weights; PyTorch's own generator stays as it is. Without it they are
        those of seed 0.
    """

    scale: torch.Tensor
    shift: torch.Tensor

    def __init__(
        self, settings: SegmenterSettings, rng: np.random.Generator | None = None
    ) -> None:
        super().__init__()
        self.settings = settings
        size = SIZES[settings.size]
        self.frames = size.windows.maps
        draws = torch.Generator()
        draws.manual_seed(int((rng or np.random.default_rng(0)).integers(2**63)))
        with torch.random.fork_rng(devices=[]):
            torch.set_rng_state(draws.get_state())
            self.encoder = PyramidVisionTransformer(size.encoder)
            self.fusion = Fusion(size)
            self.temporal: TemporalAttention | None = None
            if settings.temporal:
                self.temporal = TemporalAttention(size.width, size.heads, size.windows)
            self.channels: ChannelSelection | None = None
            if settings.channels:
                self.channels = ChannelSelection(size.width, settings.text)
            self.head = Head(size.width)
        self.to(memory_format=torch.channels_last)  # or each convolution would copy its weights
        mean, deviation = torch.tensor((MEAN, DEVIATION)).view(2, 3, 1, 1)
        self.register_buffer('scale', 1.0 / deviation, persistent=False)
        self.register_buffer('shift', -mean / deviation, persistent=False)

    def forward(self, clips: torch.Tensor, text: torch.Tensor) -> torch.Tensor:
        """
        Return logits of the newest frames, (B, 4, H, W).

        :param clips: (B, T, 3, H, W), float32 in [0, 1], the oldest frame first; T is 4, or 1
            where there is no history.
        :param text: the site's vector for each clip, (B, text).
        :raises RecordsError: if frames or text are of another form.
        """
        if clips.ndim != 5:
            raise RecordsError(f'clips {tuple(clips.shape)}: expected (B, T, 3, H, W)')
        if self.temporal is None:
            clips = clips[:, -1:]
        features = self.features(clips.flatten(0, 1))
        return self.segment(features.unflatten(0, clips.shape[:2]), text)

    def features(self, frames: torch.Tensor) -> torch.Tensor:
        """
        Return the map F of single frames, (N, C, H / 8, W / 8).

        :param frames: (N, 3, H, W), float32 in [0, 1].
        :raises RecordsError: if they are of another form.
        """
        check_frames(frames)
        normal = torch.addcmul(self.shift, frames, self.scale)
        normal = normal.contiguous(memory_format=torch.channels_last)
        tokens: torch.Tensor = self.fusion(self.encoder(normal))
        return as_map(tokens)

    def segment(self, features: torch.Tensor, text: torch.Tensor) -> torch.Tensor:
        """
        Return logits of the newest frames, (B, 4, H, W), for the maps of all frames of a clip.

        :param features: (B, T, C, H / 8, W / 8), the oldest first; T is 4, or 1.
        :param text: (B, text).
        :raises RecordsError: if maps or text are of another form.
        """
        if features.ndim != 5 or features.shape[1] not in (1, self.frames):
            expected = f'(B, {self.frames} or 1, C, h, w)'
            raise RecordsError(f'features {tuple(features.shape)}: expected {expected}')
        return self.segment_maps(list(features.unbind(1)), text)

    def segment_maps(self, maps: list[torch.Tensor], text: torch.Tensor) -> torch.Tensor:
        """
        Return what :meth:`segment` does, for maps that do not lie side by side.

        :param maps: (B, C, H / 8, W / 8) each, the oldest first; 4, or 1.
        :param text: (B, text).
        :raises RecordsError: if the text is of another form.
        """
        tokens = as_tokens(maps[-1])
        if self.temporal is not None:
            every = [as_tokens(each) for each in maps]
            tokens = self.temporal(every if len(every) > 1 else every * self.frames)
        if self.channels is not None:
            expected = len(tokens), self.settings.text
            if text.shape != expected:
                raise RecordsError(f'text {tuple(text.shape)}: expected {expected}')
            tokens = self.channels(tokens, text)
        logits: torch.Tensor = self.head(tokens)
        return logits

    def plain(self, features: torch.Tensor) -> torch.Tensor:
        """
        Return logits (N, 4, H, W) by the head alone, without earlier frames and text.

        :param features: (N, C, H / 8, W / 8).
        """
        logits: torch.Tensor = self.head(as_tokens(features))
        return logits


def check_frames(frames: torch.Tensor) -> None:
    """
    Refuse frames that a segmenter cannot take.

    :raises RecordsError: unless they are (N, 3, H, W), H and W multiples of 32 above 0.
    """
    shape = tuple(frames.shape)
    if len(shape) != 4 or shape[1] != 3:
        raise RecordsError(f'frames {shape}: expected (N, 3, height, width)')
    if min(shape[2:]) < MULTIPLE or shape[2] % MULTIPLE or shape[3] % MULTIPLE:
        raise RecordsError(
            f'frames of {shape[2]} x {shape[3]} pixels: expected sides that are multiples of '
            f'{MULTIPLE}'
        )
