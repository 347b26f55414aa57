# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""One run of DP-DQN on ICU-Sepsis, online or offline, with a ledger of its own (DP-DQN Alg. 1)."""

from dataclasses import dataclass, replace
import functools
import math
from pathlib import Path

from fdrl_ros.experiments.study import Work
from fdrl_ros.learner.learner import TrainingProgress
from fdrl_ros.learner.online import OnlineSettings, OnlineTrainer
from fdrl_ros.learner.records.records import Records
from fdrl_ros.learner.settings import LearnerSettings, PrivacySettings
from fdrl_ros.learner.trainer import Trainer
from fdrl_ros.policy import Policy
from fdrl_ros.privacy.accountant.calibration import noise_multiplier_for
from fdrl_ros.privacy.ledger.ledger import Ledger
from fdrl_ros.privacy.noise import NoiseSource
from fdrl_ros.worlds.icu_sepsis.assets import icu_sepsis
from fdrl_ros.worlds.icu_sepsis.episodes import clinician_records, sample_stays, SepsisStays
from fdrl_ros.worlds.icu_sepsis.model import PATIENT_STATES, REWARD
from fdrl_ros.worlds.icu_sepsis.records import sepsis_records
from fdrl_ros.worlds.icu_sepsis.study.public_start import (
    actions_of,
    inputs_of,
    public_values,
    public_weights,
    SHAPE,
)
from fdrl_ros.worlds.icu_sepsis.study.settings import Arm, SepsisSettings
from fdrl_ros.worlds.icu_sepsis.values import survival
import numpy as np
from numpy.typing import NDArray

UNIT = 'patient'
TYPICAL_STAY = 10.0
"""Transitions that a patient is publicly expected to have."""
UNCLIPPED = 1e6
AVERAGED = 0.3
"""Share of rounds, the last ones, whose released weights are averaged in the end: free."""


@dataclass(frozen=True)
class Learned:
    """
    Result of one run.

    ``patients``: treated until each round, 0 first. ``survival``: exact, of the policy after it.
    ``actions``: of the policy in the end, (713,). ``averaged``: of the mean of the last weights.
    """

    patients: list[int]
    survival: list[float]
    actions: NDArray[np.int64]
    averaged: NDArray[np.int64]
    epsilon: float
    noise_multiplier: float


class SepsisCollector:
    """Treats patients of ICU-Sepsis by a released policy; states are kept by their number."""

    def __init__(self, inputs: NDArray[np.float32], seed: int) -> None:
        """:param seed: of the patients and of exploration."""
        self._inputs = inputs
        self._seed = seed

    def collect(self, policy: Policy, exploration: float, first: int, count: int) -> Records:
        """
        Treat new patients; see :class:`fdrl_ros.learner.online.Collector`.

        What is tried at random is what is usual in the state.
        """
        model = icu_sepsis()
        usual = model.admissible / model.admissible.sum(axis=1, keepdims=True)
        chances = exploration * usual
        best = policy.q_values(self._inputs[:PATIENT_STATES]).argmax(axis=-1)
        chances[np.arange(PATIENT_STATES), best] += 1.0 - exploration
        draw = int(np.random.SeedSequence([self._seed, first]).generate_state(1)[0])
        return scaled_records(sample_stays(model, chances, count, draw), f'round_{first}')


def scaled_records(stays: SepsisStays, prefix: str) -> Records:
    """Return stays as records of numbered states, with rewards of 1 and -1 in place of 15."""
    records = sepsis_records(stays, icu_sepsis(), 'state', prefix)
    return replace(records, rewards=(records.rewards / REWARD).astype(np.float32))


def learner_settings(settings: SepsisSettings, arm: Arm) -> LearnerSettings:
    """Return how an arm learns: few large steps with noise, many small ones without."""
    common = LearnerSettings(
        discount=1.0,
        loss='squared',
        proximal=0.0,
        epochs=1,
        expected_transitions=TYPICAL_STAY,
        replay=arm.replay,
    )
    careful = settings.low_rate if arm.epsilon < 2.0 else 1.0
    if arm.kind == 'online':
        return replace(
            common,
            optimizer='sgd',
            learning_rate=careful * settings.learning_rate,
            transitions_per_patient=settings.transitions_per_patient,
            target_period=1,
        )
    if arm.kind == 'plain':
        return replace(
            common,
            optimizer='adam',
            learning_rate=settings.plain_rate,
            transitions_per_patient=10,
            target_period=50,
        )
    return replace(
        common,
        optimizer='sgd',
        learning_rate=careful * settings.offline_rate,
        transitions_per_patient=settings.transitions_per_patient,
        target_period=1,
        conservative=settings.conservative,
    )


def phases_of(settings: SepsisSettings) -> list[tuple[float, int]]:
    """Return sampling probability and steps of each round of an online run that learns."""
    counts = range(
        settings.new_patients,
        settings.rounds * settings.new_patients + 1,
        settings.new_patients,
    )
    return [(settings.batch / each, 1) for each in counts if each >= settings.batch]


@functools.lru_cache(maxsize=64)
def noise_multiplier(settings: SepsisSettings, arm: Arm) -> float:
    """
    Return sigma_m of an arm: its epsilon at the end, whatever it is called before.

    The paper's PER has the noise of the arm without PER, and no epsilon.
    """
    if math.isinf(arm.epsilon):
        return 0.0
    phases = phases_of(settings) if arm.kind == 'online' else [(1.0, settings.offline_steps)]
    if arm.replay == 'prioritised_poisson':
        phases = [(1.0, sum(steps for _, steps in phases))]
    return noise_multiplier_for(epsilon=arm.epsilon, delta=settings.delta, phases=phases)


def privacy_settings(settings: SepsisSettings, arm: Arm, batch: int) -> PrivacySettings:
    """Return what an arm promises its patients."""
    noise = noise_multiplier(settings, arm)
    return PrivacySettings(
        unit=UNIT,
        budget=arm.epsilon if arm.private else math.inf,
        delta=settings.delta,
        clip_norm=settings.clip_norm if noise else UNCLIPPED,
        noise_multiplier=noise,
        batch=batch,
    )


def learn_online(settings: SepsisSettings, arm: Arm, seed: int, work: Work) -> Learned:
    """
    Let a hospital treat patients by its private policy and learn from all of them.

    :param work: its directory keeps what was collected, checkpoint and ledger for a restart.
    """
    settings = settings.online(arm.patients)
    inputs, model = inputs_of(settings.scale), icu_sepsis()
    fast = arm.kind == 'plain'
    online = OnlineSettings(
        rounds=settings.plain_rounds if fast else settings.rounds,
        patients=settings.plain_patients if fast else settings.new_patients,
        updates=(settings.plain_steps - 0.5) / settings.plain_patients
        if fast
        else 0.5 / settings.new_patients,
        warm_up=1 if fast else settings.batch,
        exploration=settings.plain_exploration if fast else settings.exploration,
        final_exploration=0.05 if fast else settings.exploration,
        exploration_rounds=max(1, int(0.7 * settings.plain_rounds)),
    )
    start = public_weights(public_values(arm.start, seed), settings.scale)
    privacy = privacy_settings(settings, arm, settings.plain_batch if fast else settings.batch)
    seen = [actions_of(start, inputs)]
    kept: list[NDArray[np.float64]] = [start.astype(np.float64)]
    values = [survival(model, seen[0])]

    def report(told: TrainingProgress, weights: NDArray[np.float32]) -> None:
        seen.append(actions_of(weights, inputs))
        kept.append(weights.astype(np.float64))
        # Before learning begins the policy stays what it was.
        same = np.array_equal(seen[-1], seen[-2])
        values.append(values[-1] if same else survival(model, seen[-1]))
        work.tell(told.round, online.rounds)

    with opened(work.directory, privacy) as ledger:
        OnlineTrainer(
            SepsisCollector(inputs, seed),
            SHAPE,
            online,
            learner_settings(settings, arm),
            privacy,
            ledger,
            NoiseSource.seeded(seed),
            work.directory,
            inputs,
        ).train(start, report=report, stopped=work.stopped, anew=True)
        epsilon = ledger.epsilon() if arm.private else math.inf
    last = math.ceil(AVERAGED * online.rounds)
    return Learned(
        [online.patients * each for each in range(online.rounds + 1)],
        values,
        seen[-1],
        actions_of(np.mean(kept[-last:], axis=0), inputs),
        epsilon,
        privacy.noise_multiplier,
    )


def learn_offline(settings: SepsisSettings, arm: Arm, seed: int, work: Work) -> Learned:
    """Let a hospital learn from what its clinicians did; see :func:`learn_online`."""
    inputs, model = inputs_of(settings.scale), icu_sepsis()
    patients = arm.patients or settings.clinician_patients
    records = scaled_records(clinician_records(patients, seed), 'stay')
    start = public_weights(public_values(arm.start, seed), settings.scale)
    privacy = privacy_settings(settings, arm, patients)
    rounds = settings.offline_steps
    kept = [start.astype(np.float64)]
    with opened(work.directory, privacy) as ledger:
        trainer = Trainer(
            records,
            SHAPE,
            learner_settings(settings, arm),
            privacy,
            ledger,
            NoiseSource.seeded(seed),
            work.directory / 'checkpoint',
            steps=1,
            inputs=inputs,
        )
        state = None
        for round in range(1, rounds + 1):
            state = trainer.train_on(state, start, round, stopped=work.stopped)
            kept.append(state.weights.copy())
            work.tell(round, rounds)
        epsilon = ledger.epsilon() if arm.private else math.inf
    last = math.ceil(AVERAGED * rounds)
    first, final = (actions_of(each, inputs) for each in (kept[0], kept[-1]))
    return Learned(
        [0, patients],
        [survival(model, first), survival(model, final)],
        final,
        actions_of(np.mean(kept[-last:], axis=0), inputs),
        epsilon,
        privacy.noise_multiplier,
    )


def opened(directory: Path, privacy: PrivacySettings) -> Ledger:
    """Open the ledger of a run, or begin it."""
    return Ledger.open(
        directory / 'ledger.sqlite',
        hospital='hospital_1',
        unit=privacy.unit,
        delta=privacy.delta,
        budget=privacy.budget,
    )
