# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""
Training in a hospital (RSC): some steps of AdamW on its own clips, from the global weights.

Which tensors stay at home is no matter of this step: the protocol puts the personal ones into the
weights that it is given, and takes only the shared ones out of what it returns (FedST Eq. 5-6).
"""

from collections.abc import Sequence

from fdrl_ros.learner.optimizer import BETAS
from fdrl_ros.learner.torch.flat_weights import device_of, flat, layout_of, load
from fdrl_ros.learner.update_bound import adam_steps
from fdrl_ros.segmentation.clip import Clip, HISTORY
from fdrl_ros.segmentation.network.losses import segmentation_loss
from fdrl_ros.segmentation.network.segmenter import Segmenter
from fdrl_ros.segmentation.training.batches import Sampler
from fdrl_ros.segmentation.training.settings import SiteSettings
import numpy as np
from numpy.typing import NDArray
import torch

DECAY = 0.01
"""Weight decay of AdamW: a step takes this share of the learning rate off each weight."""

LARGEST_WEIGHT = 10.0
"""Assumed bound on the size of a weight; in :func:`update_limit` the decay alone needs it."""


def update_limit(settings: SiteSettings) -> float:
    """
    Return how far a weight moves in a round at most, whatever the clips are.

    It is the bound of :mod:`fdrl_ros.learner.update_bound` for Adam, plus the decay of weights up
    to LARGEST_WEIGHT.
    """
    decay = DECAY * settings.steps * LARGEST_WEIGHT
    return settings.rate * (float(adam_steps(settings.steps).sum()) + decay)


class SiteTraining:
    """
    The step of a hospital in each round: a function of weights and round.

    :param clips: of this hospital.
    :param segmenter: a module of the federation's architecture, which is trained in place, on the
        device where it is.
    :param text: vector of the hospital's prompt, shape (text,).
    :param seed: of the order of the clips and of their augmentation.
    """

    def __init__(
        self,
        clips: Sequence[Clip],
        segmenter: Segmenter,
        text: NDArray[np.float32],
        settings: SiteSettings,
        seed: Sequence[int],
    ) -> None:
        self._settings, self._seed = settings, tuple(seed)
        self._segmenter, self._layout = segmenter, layout_of(segmenter)
        frames = HISTORY if segmenter.settings.temporal else 1
        self._sampler = Sampler(clips, settings, frames)
        self._device = device_of(segmenter)
        self._text = torch.from_numpy(np.array(text, np.float32))[None].to(self._device)
        self.loss = float('nan')
        """Mean loss of the newest round."""

    def __call__(self, weights: NDArray[np.float32], round: int) -> NDArray[np.float32]:
        """
        Train for a round.

        :param weights: to begin with, shape (n_parameters,), float32.
        :returns: the trained ones, same shape; the same ones for the same arguments.
        """
        segmenter, settings = self._segmenter, self._settings
        load(segmenter, self._layout, weights)
        segmenter.train()
        rng = np.random.default_rng([*self._seed, round])
        optimiser = torch.optim.AdamW(
            segmenter.parameters(), lr=settings.rate, betas=BETAS, weight_decay=DECAY
        )
        losses = []
        for _ in range(settings.steps):
            batch = self._sampler.draw(rng).to(self._device)
            logits = segmenter(batch.frames, self._text.expand(len(batch.frames), -1))
            loss = segmentation_loss(logits, batch.labels)
            optimiser.zero_grad()
            loss.backward()
            optimiser.step()
            losses.append(loss.item())
        self.loss = float(np.mean(losses))
        return flat(segmenter, self._layout)
