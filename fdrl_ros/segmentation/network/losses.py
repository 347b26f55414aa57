# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""The loss of a segmenter: cross entropy and Dice over labelled pixels (Eq. 9)."""

from typing import Final

from fdrl_ros.errors import PolicyError
from fdrl_ros.learner.torch.losses import Algorithm, Networks, Tensors
from fdrl_ros.surgery.render.parts import PARTS, UNLABELLED
import torch
from torch.nn import functional

DICE_WEIGHT: Final = 0.3
"""lambda_1 of the paper."""

SMOOTHING: Final = 1.0
"""Pixels added above and below in Dice: a part that neither side has costs nothing."""


def segmentation_loss(logits: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    """
    Return cross entropy + 0.3 Dice loss, a scalar.

    The Dice loss is the mean over shaft, wrist and jaw of 1 - Dice, each over all pixels of all
    pictures together. Pixels that are UNLABELLED count in neither; without any other, the loss
    is 0.

    :param logits: (N, 4, H, W).
    :param labels: (N, H, W), a number of PARTS or UNLABELLED, any integer type.
    """
    labels = labels.long()
    known = labels != UNLABELLED
    total = functional.cross_entropy(logits, labels, ignore_index=UNLABELLED, reduction='sum')
    entropy = total / known.sum().clamp(min=1)
    parts = range(1, len(PARTS))
    masks = torch.stack([labels == part for part in parts], 1).to(logits.dtype)
    chances = logits.softmax(1)[:, 1:] * known[:, None]
    both = (chances * masks).sum((0, 2, 3))
    each = chances.sum((0, 2, 3)) + masks.sum((0, 2, 3))
    dice = (2.0 * both + SMOOTHING) / (each + SMOOTHING)
    return entropy + DICE_WEIGHT * (1.0 - dice).mean()


class CrossEntropyAndDice(Algorithm):
    """:func:`segmentation_loss` of single pictures, as the loss of a plan's learner."""

    places = True

    def losses(self, networks: Networks, batch: Tensors) -> torch.Tensor:
        """
        Return the loss of each picture, (units, transitions).

        :raises PolicyError: if there are not as many labels as the module gives scores for.
        """
        scores = networks.trained(batch.observations).flatten(3).flatten(0, 1)
        labels = batch.actions.reshape(len(scores), -1)
        if labels.shape[1] != scores.shape[2]:
            raise PolicyError(
                f'labels of {labels.shape[1]} pixels: the module scores {scores.shape[2]}'
            )
        found = [
            segmentation_loss(one[None, :, None], other[None, None])
            for one, other in zip(scores, labels, strict=True)
        ]
        return torch.stack(found).reshape(batch.rewards.shape)
