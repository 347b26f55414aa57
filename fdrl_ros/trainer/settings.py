# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""Settings of the private learner."""

from dataclasses import dataclass

from fdrl_ros.settings import setting, Settings


@dataclass(frozen=True)
class LearnerSettings(Settings):
    """How a hospital learns."""

    hidden: int = setting(64, 'units of each of the two shared layers', minimum=1, maximum=4096)
    discount: float = setting(
        0.4,
        'gamma of the learner; short, as the reward is a difference of potentials',
        minimum=0.0,
        maximum=1.0,
    )
    learning_rate: float = setting(0.004, 'step size of Adam', minimum=1e-8, maximum=1.0)
    epochs: int = setting(12, 'local epochs E of a round', minimum=1, maximum=1000)
    transitions_per_patient: int = setting(
        60, 'transitions drawn of each included patient in a step', minimum=1, maximum=10000
    )
    target_period: int = setting(
        12, 'steps between two copies into the target network', minimum=1, maximum=100000
    )
    proximal: float = setting(
        0.01, 'lambda of the FedProx term, FDRL Eq. 3', minimum=0.0, maximum=100.0
    )


@dataclass(frozen=True)
class PrivacySettings(Settings):
    """What a hospital promises its patients."""

    unit: str = setting('patient', 'privacy unit', choices=('patient', 'transition'))
    budget: float = setting(8.0, 'epsilon at which training stops', minimum=1e-3, maximum=1e6)
    delta: float = setting(1e-4, 'delta; below 1 / n_i', minimum=1e-12, maximum=0.5)
    clip_norm: float = setting(0.4, 'C of DP-DQN Alg. 1', minimum=1e-6, maximum=1e6)
    noise_multiplier: float = setting(2.6, 'sigma_m = s L / C', minimum=0.1, maximum=1000.0)
    batch: int = setting(128, 'expected batch size L', unit='units', minimum=1, maximum=1000000)
