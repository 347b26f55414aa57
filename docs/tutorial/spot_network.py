# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""A network of your own: two convolutions and a dense layer, with groups in place of batches."""

import math

import torch
from torch import nn


class SpotNet(nn.Module):
    """Score the actions for an image; 2,181 weights for one of 24 x 24 pixels."""

    def __init__(self, shape, outputs):
        """:param shape: of an image, channels first."""
        super().__init__()
        channels, height, width = shape
        self.coarse = nn.Conv2d(channels, 8, 4, stride=4)
        self.norm = nn.GroupNorm(2, 8)
        self.fine = nn.Conv2d(8, 8, 3, padding=1)
        self.scores = nn.Linear(8 * math.prod((height // 4, width // 4)), outputs)

    def forward(self, images):
        """Score the actions: (images, channels, height, width) to (images, outputs)."""
        hidden = torch.relu(self.norm(self.coarse(images)))
        hidden = torch.relu(self.fine(hidden))
        return self.scores(hidden.flatten(1))
