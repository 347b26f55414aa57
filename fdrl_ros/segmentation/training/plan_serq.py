# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""SERQ as the server step of a plan of the task `instruments`."""

from dataclasses import replace

from fdrl_ros.errors import PolicyError
from fdrl_ros.federation.key_authority.server_step import RoundSum, Stepped
from fdrl_ros.learner.torch.flat_weights import layout_of
from fdrl_ros.learner.torch.network import TorchNetwork
from fdrl_ros.policy.network import Network
from fdrl_ros.segmentation.network.segmenter import Segmenter
from fdrl_ros.segmentation.task import clip_of, InstrumentsTask, VideoSettings
from fdrl_ros.segmentation.training.serq import Serq
from fdrl_ros.tasks import Hospitals
import numpy as np
from numpy.typing import NDArray
import torch


class PlanSerq:
    """
    SERQ on the public patients, for a network whose frozen tensors come first and do not move.

    :param chosen: whose seed draws frames and order.
    :param start: weights of the public start, the pre-trained model at first.
    :raises PolicyError: if the network is no segmenter.
    """

    def __init__(
        self,
        chosen: Hospitals,
        world: VideoSettings,
        network: Network,
        start: NDArray[np.float32],
    ) -> None:
        torch.set_num_threads(1)  # so the bits do not depend on the number of processors
        if not isinstance(network, TorchNetwork):
            raise PolicyError(f'{network.name}: SERQ trains a segmenter of the learner torch')
        first, second = (network.build(np.random.default_rng(0)) for _ in range(2))
        if not (isinstance(first, Segmenter) and isinstance(second, Segmenter)):
            expected = 'a segmenter, or world.serq false'
            raise PolicyError(f'module {network.module}: SERQ trains {expected}')
        self._layout, self._own = network.layout, layout_of(first)
        places = self._own.reordered(np.arange(len(start)), self._layout)
        self._place = np.argsort(places)
        patients, count = InstrumentsTask().population(chosen, None), world.serq_frames
        clips = [clip_of(patients.patient(n), world) for n in range(-(-count // world.frames))]
        own = self._own.reordered(start, self._layout)
        self._serq = Serq((first, second), own, clips, world.server, chosen.seed)

    def __call__(self, given: RoundSum) -> Stepped:
        """
        Take the step of a round.

        :raises StoreError: if the state is damaged or of another architecture.
        """
        weights = self._own.reordered(given.weights, self._layout)
        stepped = self._serq(replace(given, weights=weights, shared=self._place[given.shared]))
        made = self._layout.reordered(stepped.weights, self._own)
        made[: self._layout.start] = given.weights[: self._layout.start]
        return Stepped(made, stepped.state)
