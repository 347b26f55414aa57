# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""Settings and compared arms of the sepsis experiments (DP-DQN section 5)."""

from dataclasses import dataclass, replace
import math

from fdrl_ros.errors import SettingError
from fdrl_ros.settings import setting, Settings

LARGEST = 5
"""How many times as many patients as usual the largest online run of the targets has."""

MINIBATCH_ROUNDS = 20
"""Rounds of the longer offline learning; its policy is valued after each."""


@dataclass(frozen=True)
class SepsisSettings(Settings):
    """How DP-DQN learns on ICU-Sepsis, and how often that is repeated."""

    runs: int = setting(24, "runs of each arm of the paper's comparison", limits=(1, 1000))
    seeds: int = setting(10, 'runs of each arm of the targets', limits=(0, 1000))
    seed: int = setting(
        1, 'first seed, of the public guess, the patients and the noise', limits=(0, 10**6)
    )
    workers: int = setting(1, 'processes that work at once', limits=(1, 1024))
    phi: float = setting(0.835, 'survival that FAE waits for, DP-DQN Eq. 9', limits=(0.0, 1.0))
    delta: float = setting(1e-6, 'delta; below 1 / patients', limits=(1e-10, 0.1))
    patients: int = setting(20000, 'patients treated online, one episode each', limits=(10, 10**7))
    new_patients: int = setting(1000, 'new patients of a round', limits=(1, 10**6))
    batch: int = setting(
        8000, 'expected batch size L of DP-SGD', limits=(1, 10**6), unit='patients'
    )
    transitions_per_patient: int = setting(
        10, 'transitions drawn of each included patient in a step', limits=(1, 1000)
    )
    learning_rate: float = setting(1.0, 'step size of DP-SGD', limits=(1e-6, 1e4))
    low_rate: float = setting(
        0.3, 'times the step size where epsilon is below 2', limits=(1e-6, 1.0)
    )
    clip_norm: float = setting(0.6, 'C of DP-DQN Alg. 1', limits=(1e-6, 1e6))
    exploration: float = setting(
        0.1, 'share of actions drawn from the admissible ones', limits=(0.0, 1.0)
    )
    scale: float = setting(4.0, 'the one in a one-hot state', limits=(0.01, 100.0))
    concentration: float = setting(
        10.0, 'c of the public guess at the dynamics', limits=(1.0, 1e6)
    )
    blend: float = setting(0.0, 'b of the public guess', limits=(0.0, 1.0))
    clinician_patients: int = setting(
        5000, 'patients of the clinicians, for learning offline', limits=(10, 10**6)
    )

    offline_steps: int = setting(
        2, 'steps of DP-SGD on all patients of the clinicians', limits=(1, 10**6)
    )
    offline_rate: float = setting(1.0, 'its step size', limits=(1e-6, 1e4))
    conservative: float = setting(
        0.0, 'its alpha of conservative Q-learning', limits=(0.0, 1000.0)
    )
    plain_rounds: int = setting(
        50, 'rounds of the longer online learning without privacy', limits=(1, 10**6)
    )
    plain_patients: int = setting(2000, 'its new patients of a round', limits=(1, 10**6))
    plain_steps: int = setting(100, 'steps of Adam of a round', limits=(1, 10**6))
    plain_batch: int = setting(200, 'its expected batch size', limits=(1, 10**6), unit='patients')
    plain_rate: float = setting(0.0008, 'its step size', limits=(1e-8, 1.0))
    plain_exploration: float = setting(
        0.3, 'its exploration at first; it falls to 0.05', limits=(0.0, 1.0)
    )
    minibatch_steps: int = setting(
        2000, 'minibatch steps of the longer offline learning', limits=(MINIBATCH_ROUNDS, 10**6)
    )
    minibatch_batch: int = setting(
        128, 'its expected batch size', limits=(1, 10**6), unit='patients'
    )
    minibatch_rate: float = setting(0.03, 'its step size of DP-SGD', limits=(1e-8, 1e4))
    minibatch_adam_rate: float = setting(
        0.001, 'its step size of Adam, without privacy', limits=(1e-8, 1.0)
    )
    minibatch_conservative: float = setting(
        0.1, 'its alpha of conservative Q-learning, in the arms that have it', limits=(0.0, 1000.0)
    )
    minibatch_target_period: int = setting(
        100, 'its steps between two copies into the target network', limits=(1, 10**6)
    )
    network_hidden: int = setting(
        64, 'units of each of two hidden layers on the 47 features', limits=(1, 4096)
    )
    network_fit_steps: int = setting(
        3000, 'steps that fit this network to the public start', limits=(0, 10**6)
    )
    network_steps: int = setting(20, 'its steps of DP-SGD of a round online', limits=(1, 10**6))
    network_batch: int = setting(
        400, 'its expected batch size online', limits=(1, 10**6), unit='patients'
    )
    network_rate: float = setting(0.03, 'its step size of DP-SGD online', limits=(1e-8, 1e4))
    network_minibatch_rate: float = setting(
        0.01, 'its step size of DP-SGD on minibatches', limits=(1e-8, 1e4)
    )

    def stepping(self, network: str) -> tuple[int, int]:
        """Return expected batch size and steps of a round online, of one of NETWORKS."""
        return (self.batch, 1) if network == 'table' else (self.network_batch, self.network_steps)

    @property
    def rounds(self) -> int:
        """Return the rounds of an online run."""
        return max(1, self.patients // self.new_patients)

    def check(self) -> None:
        """
        Refuse what no run could learn from, or promise, before the first one begins.

        :raises SettingError: naming the flag and what it is to fit.
        """
        if self.patients < self.new_patients:
            expected = f'at least new_patients = {self.new_patients}, one round'
            raise SettingError('patients', self.patients, expected)
        if self.minibatch_steps % MINIBATCH_ROUNDS:
            expected = f'a multiple of {MINIBATCH_ROUNDS}, the rounds after which it is valued'
            raise SettingError('minibatch_steps', self.minibatch_steps, expected)
        treated = self.rounds * self.new_patients
        if self.batch > treated:
            expected = f'at most the {treated} patients of all rounds: before, nothing is learned'
            raise SettingError('batch', self.batch, expected)
        longer = self.plain_rounds * self.plain_patients
        most = treated
        if self.seeds:
            if self.plain_batch > longer:
                expected = f'at most the {longer} patients of all its rounds'
                raise SettingError('plain_batch', self.plain_batch, expected)
            most = max(LARGEST * treated, longer, self.clinician_patients)
            if self.network_batch > self.batch:
                expected = f'at most batch = {self.batch}, the patients when learning begins'
                raise SettingError('network_batch', self.network_batch, expected)
            if self.minibatch_batch > self.clinician_patients:
                expected = f'at most clinician_patients = {self.clinician_patients}'
                raise SettingError('minibatch_batch', self.minibatch_batch, expected)
        if self.delta * most >= 1.0:
            expected = f'below 1 / {most}, the patients of the largest run'
            raise SettingError('delta', self.delta, expected)

    def online(self, patients: int) -> 'SepsisSettings':
        """
        Return settings for so many patients online: as many rounds, transitions weigh as much.

        :param patients: 0 for as many as there are.
        """
        if not patients:
            return self
        return replace(
            self,
            patients=patients,
            new_patients=max(1, patients // self.rounds),
            batch=max(1, round(self.batch * patients / self.patients)),
            learning_rate=self.learning_rate * patients / self.patients,
        )

    def quick(self) -> 'SepsisSettings':
        """
        Return settings for a trial of a minute or two: few runs, few patients, no claim.

        As many rounds as usual, so that most runs get above a survival near their start.
        """
        return replace(
            self.online(6000),
            runs=3,
            seeds=1,
            phi=0.82,
            clinician_patients=500,
            plain_rounds=2,
            plain_patients=500,
            minibatch_steps=40,
            network_steps=2,
            network_fit_steps=200,
        )


EPSILONS = (2.0, 4.0, 8.0, 12.0, math.inf)
"""Those of the paper's Figures 5 and 7, and no privacy."""

REPLAYS = {
    'poisson': 'no PER',
    'prioritised_poisson': 'private PER',
    'prioritised': "the paper's PER",
}
"""Ways of sampling: DP-DQN without PER, PER by coins of one's own at q = 1, PER as published."""


@dataclass(frozen=True)
class Start:
    """
    What is publicly known before the first private patient.

    Always which treatments are usual in a state (ICU-Sepsis calls them admissible). With a
    concentration also a guess at the dynamics,
    :func:`fdrl_ros.worlds.icu_sepsis.perturbed.perturbed`.
    """

    concentration: float | None = None
    blend: float = 0.0

    @property
    def name(self) -> str:
        """Name it, such as 'c = 10, b = 0'."""
        if self.concentration is None:
            return 'scratch'
        return f'c = {self.concentration:g}, b = {self.blend:g}'


@dataclass(frozen=True)
class Arm:
    """
    One way to learn, repeated with several seeds.

    :param kind: 'online', 'plain' (online with Adam), 'offline' (a few steps on all patients of
        the clinicians), 'minibatch' (offline, many small steps), 'conservative' (the same with a
        conservative term) or 'plan'.
    :param epsilon: that noise is calibrated to.
    :param patients: how many, if not as many as the settings say.
    :param replay: one of REPLAYS.
    :param network: one of NETWORKS.
    :param admitted: 'all', or the SOFA band on admission of the patients that are learned from.
    """

    kind: str
    start: Start
    epsilon: float = math.inf
    replay: str = 'poisson'
    patients: int = 0
    network: str = 'table'
    admitted: str = 'all'

    @property
    def name(self) -> str:
        """Name it; a file name too."""
        start = self.start.name.replace(' ', '').replace('=', '').replace(',', '_')
        words = [f'{self.kind}_{start}_eps{self.epsilon:g}_{self.replay}']
        words += [str(self.patients)] if self.patients else []
        words += [self.network] if self.network != 'table' else []
        words += [self.admitted] if self.admitted != 'all' else []
        return '_'.join(words)

    @property
    def private(self) -> bool:
        """Return whether its epsilon is finite, whatever noise it adds."""
        return math.isfinite(self.epsilon) and self.replay != 'prioritised'


MINIBATCH = ('minibatch', 'conservative')
"""Kinds that learn offline by minibatches."""

NETWORKS = {'table': 'table', 'features': '47 features'}
"""
Networks: none hidden on the one-hot state, so that V and A are tables; or two hidden layers on the
47 features, the paper's state space.
"""


def paper_arms(settings: SepsisSettings) -> list[Arm]:
    """Return the arms of the paper's comparison: every epsilon with every replay."""
    start = Start(settings.concentration, settings.blend)
    return [Arm('online', start, epsilon, replay) for replay in REPLAYS for epsilon in EPSILONS]


def moderate_arms(settings: SepsisSettings) -> list[Arm]:
    """Return the same arms, which learn from patients admitted with moderate SOFA alone."""
    return [replace(arm, admitted='medium') for arm in paper_arms(settings)]
