# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""Settings of FedST's training; where a default is not the paper's, its description says so."""

from dataclasses import dataclass, field

from fdrl_ros.settings import setting, Settings


@dataclass(frozen=True)
class SiteSettings(Settings):
    """How a hospital trains in a round."""

    steps: int = setting(100, 'training steps of a round', limits=(1, 100_000))
    batch: int = setting(2, 'clips in a step', limits=(1, 1000))
    rate: float = setting(1e-3, 'learning rate of AdamW (paper: 6e-5)', limits=(1e-7, 1.0))
    rotation: float = setting(
        15.0, 'largest rotation of an augmented clip', limits=(0.0, 180.0), unit='deg'
    )
    scale: float = setting(0.2, 'largest change of its size, a share', limits=(0.0, 0.9))


@dataclass(frozen=True)
class ServerSettings(Settings):
    """How the key authority trains in a round (SERQ)."""

    steps: int = setting(100, 'steps of each of the two models', limits=(1, 100_000))
    batch: int = setting(2, 'synthetic frames in a step', limits=(1, 1000))
    rate: float = setting(1e-4, 'learning rate of Adam', limits=(1e-7, 1.0))
    frames: int = setting(100, 'synthetic frames, drawn once', limits=(1, 100_000))
    average: float = setting(0.5, 'mu of Eq. 10', limits=(0.0, 1.0))
    describe_weight: float = setting(0.3, 'lambda_2 of Eq. 11', limits=(0.0, 100.0))
    align_weight: float = setting(0.3, 'lambda_3 of Eq. 12', limits=(0.0, 100.0))


@dataclass(frozen=True)
class Schedule:
    """
    How long is trained.

    :param rounds: of the federation, each of `site.steps` steps in each site.
    :param pretraining: steps on synthetic frames before, by everybody.
    """

    rounds: int
    pretraining: int
    site: SiteSettings = field(default_factory=SiteSettings)
    server: ServerSettings = field(default_factory=ServerSettings)
