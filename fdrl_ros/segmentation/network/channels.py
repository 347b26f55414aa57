# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""Text-guided channel selection: a site's text weighs the channels of its maps (Eq. 7 and 8)."""

import torch
from torch import nn


class ChannelSelection(nn.Module):
    """
    One linear layer from pooled channels and text to a weight for each channel.

    :param width: channels C of a map.
    :param text: length of a text vector.
    """

    def __init__(self, width: int, text: int) -> None:
        super().__init__()
        self.fc = nn.Linear(width + text, width)

    def forward(self, tokens: torch.Tensor, text: torch.Tensor) -> torch.Tensor:
        """
        Return the map with each channel multiplied by 1 to 2, same shape.

        :param tokens: F*, shape (N, h, w, C).
        :param text: the site's vector, shape (N, text).
        """
        pooled = tokens.mean((1, 2))
        weights = torch.sigmoid(self.fc(torch.cat([pooled, text], 1)))
        return tokens * (1.0 + weights[:, None, None, :])
