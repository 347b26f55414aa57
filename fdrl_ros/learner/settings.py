# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""Settings of the private learner."""

from dataclasses import dataclass
import math

from fdrl_ros.settings import setting, Settings, within


@dataclass(frozen=True)
class LearnerSettings(Settings):
    """How a hospital learns."""

    hidden: int = within(64, 1, 4096, 'units of each of the two shared layers')
    discount: float = within(
        0.4, 0.0, 1.0, 'gamma of the learner; short, as the reward is a difference of potentials'
    )
    learning_rate: float = within(0.004, 1e-8, 1000.0, 'step size of the optimizer')
    epochs: int = within(12, 1, 1000, 'local epochs E of a round')
    transitions_per_patient: int = within(
        60, 1, 10000, 'transitions drawn of each included patient in a step'
    )
    expected_transitions: float = within(
        0.0,
        0.0,
        1e6,
        'public guess of the transitions of a patient: each patient weighs as many as it has over '
        'this, so that every transition weighs the same; 0: every patient weighs the same',
        unit='transitions',
    )
    target_period: int = within(12, 1, 100000, 'steps between two copies into the target network')
    proximal: float = within(0.01, 0.0, 100.0, 'lambda of the FedProx term, FDRL Eq. 3')
    n_step: int = within(1, 1, 1000, 'steps whose rewards a return sums before it bootstraps')
    frame_stack: int = within(
        1,
        1,
        1000,
        'observations of successive steps that one recorded state holds; with unit transition '
        'each step is charged as so many more',
    )
    loss: str = setting(
        'huber', 'loss of the error in value (Huber turns at 1)', choices=('huber', 'squared')
    )
    conservative: float = within(
        0.0,
        0.0,
        1000.0,
        'alpha of conservative Q-learning (Kumar et al. 2020), for records of other policies',
    )
    optimizer: str = setting(
        'adam', 'what turns noised gradients into steps', choices=('adam', 'sgd')
    )
    frozen_layers: int = within(
        0, 0, 2, 'shared layers, from the first, that stay as the public start has them'
    )
    replay: str = setting(
        'poisson',
        "who joins a step; uniform and prioritised (the paper's PER) have no finite epsilon, "
        'prioritised_poisson is charged without amplification',
        choices=('poisson', 'prioritised_poisson', 'uniform', 'prioritised'),
    )
    priority_exponent: float = within(0.6, 0.0, 1.0, 'alpha of prioritised replay')
    importance_exponent: float = within(0.4, 0.0, 1.0, 'beta of prioritised replay')
    expected_priority: float = within(
        0.3, 1e-3, 1.0, 'public guess of the mean priority, for prioritised_poisson'
    )


@dataclass(frozen=True)
class PrivacySettings(Settings):
    """What a hospital promises its patients."""

    unit: str = setting(
        'patient', 'privacy unit: whom epsilon protects', choices=('patient', 'transition')
    )
    clipped: str = setting(
        'unit',
        'what is sampled and clipped; transitions of a patient are charged as a group',
        choices=('unit', 'transition'),
    )
    most_transitions: int = within(
        0,
        0,
        1000000,
        'public limit of the transitions of a patient, where those are clipped; 0: none',
    )
    budget: float = within(8.0, 1e-3, math.inf, 'epsilon at which training stops; inf: never')
    delta: float = within(1e-4, 1e-10, 0.5, 'delta; below 1 / n_i')
    clip_norm: float = within(0.4, 1e-6, 1e6, 'C of DP-DQN Alg. 1')
    noise_multiplier: float = within(2.6, 0.0, 1000.0, 'sigma_m = s L / C; 0: NOT PRIVATE')
    batch: int = within(128, 1, 1000000, 'expected batch size L', unit='units')
