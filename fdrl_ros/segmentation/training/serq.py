# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""
SERQ: the key authority trains the global model on synthetic frames after each sum (FedST III-C).

The paper writes the features of synthetic frames as F = D + I, a domain and an instrument part.
Each round does three things:

1. Each synthetic frame's features by the global model enter a moving average (Eq. 10).
2. The pre-trained model and the domain descriptor D learn, so that its features without D come
   near that average (Eq. 11). The global model is fixed.
3. The global model learns, so that its features come near those of the pre-trained model without
   D (Eq. 12). The pre-trained model is fixed.

The paper leaves open over what it averages in Eq. 10, and of what shape D is. Here the average is
of each of a fixed set of synthetic frames, which are not augmented, and D is one feature map for
all of them. Both optimisers begin anew in each round, so the step is a function of the sum and of
the state, and a restart repeats it.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
import io
from typing import Self
import zipfile

from fdrl_ros.errors import StoreError
from fdrl_ros.federation.key_authority.server_step import fed_avg, RoundSum, Stepped
from fdrl_ros.learner.torch.flat_weights import device_of, flat, layout_of, load
from fdrl_ros.segmentation.clip import Clip
from fdrl_ros.segmentation.network.losses import segmentation_loss
from fdrl_ros.segmentation.network.segmenter import Segmenter
from fdrl_ros.segmentation.training.batches import as_input
from fdrl_ros.segmentation.training.settings import ServerSettings
import numpy as np
from numpy.typing import NDArray
import torch

_AT_ONCE = 16  # frames whose features are computed together
_DESCRIPTOR_SPREAD = 0.02  # standard deviation of D at first


@dataclass(frozen=True, eq=False)
class SerqState:
    """
    What SERQ keeps from round to round.

    :param weights: of the pre-trained model, shape (n_parameters,), float32.
    :param descriptor: D, shape (channels, rows, columns), float32.
    :param average: moving average of the global model's features of each synthetic frame, shape
        (frames, channels, rows, columns), float32.
    """

    weights: NDArray[np.float32]
    descriptor: NDArray[np.float32]
    average: NDArray[np.float32]

    def to_bytes(self) -> bytes:
        """Return the state as the key authority keeps it."""
        out = io.BytesIO()
        np.savez(out, weights=self.weights, descriptor=self.descriptor, average=self.average)
        return out.getvalue()

    @classmethod
    def from_bytes(cls, data: bytes) -> Self:
        """
        Read what :meth:`to_bytes` wrote.

        :raises StoreError: if it is damaged.
        """
        try:
            with np.load(io.BytesIO(data), allow_pickle=False) as found:
                return cls(found['weights'], found['descriptor'], found['average'])
        except (OSError, ValueError, KeyError, EOFError, zipfile.BadZipFile) as error:
            raise StoreError(f'the state of SERQ is damaged: {error}') from error


class Serq:
    """
    The server's step: FedAvg, then training on synthetic frames.

    :param segmenters: two modules of the federation's architecture, which are trained in place, on
        the device where they are.
    :param start: weights of the pre-trained model at first, shape (n_parameters,).
    :param clips: synthetic ones; `settings.frames` of their frames are used.
    :param seed: of the frames, of D at first, and of the order in each round.
    """

    def __init__(
        self,
        segmenters: tuple[Segmenter, Segmenter],
        start: NDArray[np.float32],
        clips: Sequence[Clip],
        settings: ServerSettings,
        seed: int,
    ) -> None:
        self._model, self._pretrained = segmenters
        self._layout, self._settings = layout_of(self._model), settings
        self._start, self._seed = np.array(start, np.float32), seed
        every = [
            (number, at) for number, clip in enumerate(clips) for at in range(len(clip.frames))
        ]
        rng = np.random.default_rng([seed, 0])
        count = min(settings.frames, len(every))
        chosen = [every[each] for each in sorted(rng.choice(len(every), count, replace=False))]
        self._device = device_of(self._model)
        frames = np.stack([clips[number].frames[at] for number, at in chosen])
        labels = np.stack([clips[number].labels[at] for number, at in chosen])
        self._frames = as_input(frames).to(self._device)
        self._labels = torch.from_numpy(labels.astype(np.int64)).to(self._device)
        self.losses: tuple[float, float] = (float('nan'), float('nan'))
        """Mean of Eq. 11 and of Eq. 12 in the newest round."""

    def __call__(self, given: RoundSum) -> Stepped:
        """
        Take the step of a round.

        :raises StoreError: if the state is damaged or of another architecture.
        """
        averaged = fed_avg(given).weights
        load(self._model, self._layout, averaged)
        features = self._features(self._model)
        before = self._averaged(given.state, features)
        average = torch.tensor(before.average, device=self._device)
        rng = np.random.default_rng([self._seed, 1, given.round])
        load(self._pretrained, self._layout, before.weights)
        descriptor = torch.tensor(before.descriptor, device=self._device)
        first = self._describe(descriptor, average, rng)
        second = self._align(descriptor, rng)
        self.losses = first, second
        after = SerqState(
            flat(self._pretrained, self._layout), descriptor.numpy(force=True), before.average
        )
        return Stepped(flat(self._model, self._layout), after.to_bytes())

    def _averaged(self, data: bytes, features: torch.Tensor) -> SerqState:
        """Return the state before this round, with the global model's features in it (Eq. 10)."""
        if not data:
            rng = np.random.default_rng([self._seed, 2])
            drawn = rng.normal(0.0, _DESCRIPTOR_SPREAD, features.shape[1:])
            return SerqState(self._start, drawn.astype(np.float32), features.numpy(force=True))
        before = SerqState.from_bytes(data)
        shapes = before.weights.shape, before.descriptor.shape, before.average.shape
        if shapes != (self._start.shape, features.shape[1:], features.shape):
            raise StoreError(f'the state of SERQ is of another model or other frames: {shapes}')
        mu = self._settings.average
        average = (1.0 - mu) * torch.tensor(before.average) + mu * features.cpu()
        return replace(before, average=average.numpy())

    def _describe(
        self, descriptor: torch.Tensor, average: torch.Tensor, rng: np.random.Generator
    ) -> float:
        """Train the pre-trained model and D (Eq. 11)."""
        descriptor.requires_grad_()
        model, weight = self._pretrained, self._settings.describe_weight
        trained = [*model.parameters(), descriptor]

        def distance(chosen: torch.Tensor, features: torch.Tensor) -> torch.Tensor:
            return (features - descriptor - average[chosen]).square().mean()

        return self._train(model, trained, weight, distance, rng)

    def _align(self, descriptor: torch.Tensor, rng: np.random.Generator) -> float:
        """Train the global model (Eq. 12)."""
        descriptor.requires_grad_(False)
        target = self._features(self._pretrained) - descriptor
        weight = self._settings.align_weight

        def distance(chosen: torch.Tensor, features: torch.Tensor) -> torch.Tensor:
            return (features - target[chosen]).square().mean()

        return self._train(self._model, list(self._model.parameters()), weight, distance, rng)

    def _train(
        self,
        model: Segmenter,
        trained: list[torch.Tensor],
        weight: float,
        distance: Callable[[torch.Tensor, torch.Tensor], torch.Tensor],
        rng: np.random.Generator,
    ) -> float:
        """Take the steps of one model on single frames, without the temporal part and prompts."""
        settings = self._settings
        optimiser = torch.optim.Adam(trained, lr=settings.rate)
        model.train()
        losses = []
        for _ in range(settings.steps):
            drawn = rng.integers(len(self._frames), size=settings.batch)
            chosen = torch.from_numpy(drawn).to(self._device)
            features = model.features(self._frames[chosen])
            segmented = segmentation_loss(model.plain(features), self._labels[chosen])
            loss = segmented + weight * distance(chosen, features)
            optimiser.zero_grad()
            loss.backward()
            optimiser.step()
            losses.append(loss.item())
        return float(np.mean(losses))

    def _features(self, model: Segmenter) -> torch.Tensor:
        """Return a model's features of all synthetic frames."""
        model.eval()
        with torch.no_grad():
            return torch.cat([model.features(each) for each in self._frames.split(_AT_ONCE)])
