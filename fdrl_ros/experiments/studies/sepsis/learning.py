# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""
Runs of DP-DQN on ICU-Sepsis, online or offline, each with a ledger of its own (DP-DQN Alg. 1).

Each begins with what is publicly known before the first private patient, as weights of a network
(DP-DQN Eq. 8). A planner that knows more than any learner here shows how much a data set can tell.
"""

from dataclasses import dataclass, replace
import functools
from itertools import pairwise
import math

from fdrl_ros.experiments.studies.sepsis.fitting import fitted
from fdrl_ros.experiments.studies.sepsis.settings import (
    Arm,
    MINIBATCH,
    MINIBATCH_ROUNDS,
    SepsisSettings,
    Start,
)
from fdrl_ros.experiments.study import Work
from fdrl_ros.learner.learner import TrainingProgress
from fdrl_ros.learner.online import OnlineSettings, OnlineTrainer
from fdrl_ros.learner.records.records import Records
from fdrl_ros.learner.settings import LearnerSettings, PrivacySettings
from fdrl_ros.learner.trainer import Trainer, TrainingSetup
from fdrl_ros.policy import NetworkShape, Policy
from fdrl_ros.privacy.accountant.calibration import noise_multiplier_for
from fdrl_ros.privacy.ledger.chain import Owner
from fdrl_ros.privacy.ledger.ledger import Ledger
from fdrl_ros.privacy.noise import NoiseSource
from fdrl_ros.worlds.icu_sepsis.assets import icu_sepsis
from fdrl_ros.worlds.icu_sepsis.episodes import clinician_records, sample_stays, SepsisStays
from fdrl_ros.worlds.icu_sepsis.model import (
    ACTION_COUNT,
    DEATH,
    FEATURE_COUNT,
    Floats,
    IcuSepsis,
    PATIENT_STATES,
    REWARD,
    STATE_COUNT,
    SURVIVAL,
)
from fdrl_ros.worlds.icu_sepsis.perturbed import perturbed
from fdrl_ros.worlds.icu_sepsis.records import features_of, sepsis_records
from fdrl_ros.worlds.icu_sepsis.values import in_band, optimum, survival_by_state, visits
import numpy as np
from numpy.typing import NDArray

SHAPE = NetworkShape(STATE_COUNT, ACTION_COUNT, ())
"""A dueling network without hidden layers on one-hot states: V and A are tables."""

MOST_SURVIVE = 0.6
"""Value of a usual treatment where nothing is known: four of five survive, from -1 to 1."""

UNUSUAL = 0.5
"""How much less than the least usual one an unusual treatment is valued at first."""


def inputs_of(scale: float) -> NDArray[np.float32]:
    """Return what the network takes for the number of each state, (716, 716)."""
    return np.diag(np.full(STATE_COUNT, scale, np.float32))


def public_values(start: Start, seed: int) -> NDArray[np.float64]:
    """
    Return what is publicly believed of each state and action, (713, 25), from -1 to 1.

    Unusual treatments get less than all usual ones: nobody tries what hardly anyone ever gave.

    :param seed: of the guess at the dynamics.
    """
    model = icu_sepsis()
    if start.concentration is None:
        values = np.full((PATIENT_STATES, ACTION_COUNT), MOST_SURVIVE)
    else:
        guess = perturbed(model, start.concentration, seed, start.blend)
        values = optimum(guess).action_values / REWARD
    least = np.where(model.admissible, values, np.inf).min(axis=1, keepdims=True)
    return np.where(model.admissible, values, least - UNUSUAL)


def public_weights(values: NDArray[np.float64], scale: float) -> NDArray[np.float32]:
    """
    Return the weights whose Q values are the given ones: V the mean, A what is above it.

    :param values: shape (713, 25); elsewhere Q is 0.
    :param scale: the one in a one-hot state.
    """
    table = np.zeros((STATE_COUNT, ACTION_COUNT))
    table[:PATIENT_STATES] = values / scale
    mean = table.mean(axis=1)
    parts = (mean, np.zeros(1), (table - mean[:, None]).T.reshape(-1), np.zeros(ACTION_COUNT))
    return np.concatenate(parts).astype(np.float32)


def actions_of(
    weights: NDArray[np.floating], inputs: NDArray[np.float32], shape: NetworkShape = SHAPE
) -> NDArray[np.int64]:
    """Return the greedy action of each state of a patient, (713,)."""
    values = shape.policy(np.asarray(weights, np.float32)).q_values(inputs[:PATIENT_STATES])
    return values.argmax(axis=-1)


def network_of(settings: SepsisSettings, network: str) -> tuple[NetworkShape, NDArray[np.float32]]:
    """
    Return a network, and its input for each state number, (716, inputs).

    :param network: one of :data:`fdrl_ros.experiments.studies.sepsis.settings.NETWORKS`.
    """
    if network == 'table':
        return SHAPE, inputs_of(settings.scale)
    hidden = settings.network_hidden
    return NetworkShape(FEATURE_COUNT, ACTION_COUNT, (hidden, hidden)), features_of(icu_sepsis())


@functools.lru_cache(maxsize=8)
def start_weights(
    settings: SepsisSettings, start: Start, network: str, seed: int
) -> NDArray[np.float32]:
    """
    Return the public weights that learning begins with.

    A table holds the public values as they are; a network with hidden layers is fitted to them.

    :param network: one of :data:`fdrl_ros.experiments.studies.sepsis.settings.NETWORKS`.
    :param seed: of the guess at the dynamics, and of the network before it is fitted.
    """
    values = public_values(start, seed)
    if network == 'table':
        return public_weights(values, settings.scale)
    shape, inputs = network_of(settings, network)
    steps, usual = settings.network_fit_steps, icu_sepsis().admissible
    return fitted(shape, inputs[:PATIENT_STATES], values, usual, steps, seed)


POOLED = 20.0
"""Transitions that the mean over a state's treatments counts for, where nothing is known."""
_FLOOR = 1e-3


def planned(stays: SepsisStays | None, start: Start, seed: int) -> NDArray[np.int64]:
    """
    Return the optimal actions on the posterior mean of the dynamics, (713,).

    A planner that knows more than any learner here: which treatments of a state are alike, the
    number of the state, and exact dynamic programming. With a public guess the prior is
    Dirichlet(c (1 - b) p'), else each treatment is shrunk to the mean of its state.

    :param stays: what was recorded; None for the guess alone.
    :param seed: of the public guess.
    """
    model = icu_sepsis()
    counts = np.zeros_like(model.rows)
    if stays is not None:
        taken = model.row_of[stays.states, stays.actions]
        np.add.at(counts, (taken, stays.next_states), 1.0)
    if start.concentration is None:
        prior = POOLED * _by_state(model, counts)
    else:
        guess = perturbed(model, start.concentration, seed, start.blend)
        prior = max(1.0, start.concentration * (1.0 - start.blend)) * guess.rows
    rows = counts + prior
    rows /= rows.sum(axis=1, keepdims=True)
    # What a state's unusual treatments lead to was seen too seldom to be preferred.
    found = optimum(replace(model, rows=_pessimistic(model, rows)))
    return found.actions


def _by_state(model: IcuSepsis, counts: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the mean over all that was done in a state, for each row; never quite without end."""
    state_of = np.zeros(len(counts), np.int64)
    state_of[model.row_of] = np.arange(len(model.row_of))[:, None]
    pooled = np.zeros((len(model.row_of), counts.shape[1]))
    np.add.at(pooled, state_of, counts)
    pooled[:, DEATH] += 0.2 * _FLOOR
    pooled[:, SURVIVAL] += 0.8 * _FLOOR
    return (pooled / pooled.sum(axis=1, keepdims=True))[state_of]


def _pessimistic(model: IcuSepsis, rows: NDArray[np.float64]) -> NDArray[np.float64]:
    """Let unusual treatments lead to death: the plan avoids them."""
    changed = rows.copy()
    for state in np.flatnonzero(model.admissible.sum(axis=1) < ACTION_COUNT):
        row = model.row_of[state, ~model.admissible[state]][0]
        changed[row] = 0.0
        changed[row, DEATH] = 1.0
    return changed


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

    ``patients``: treated until each round, 0 first. ``survival``: exact, of the policy after it;
    ``moderate``: that of patients of moderate SOFA alone, see :func:`survival_of`. ``actions``: of
    the policy in the end, (713,). ``averaged``: of the mean of the last weights.
    """

    patients: list[int]
    survival: list[float]
    moderate: list[float]
    actions: NDArray[np.int64]
    averaged: NDArray[np.int64]
    epsilon: float
    noise_multiplier: float


@functools.cache
def clinicians_visits() -> Floats:
    """Return how often the clinicians meet each state, (713,)."""
    model = icu_sepsis()
    met: Floats = visits(model, model.clinicians).sum(axis=1)
    return met


def survival_of(actions: NDArray[np.int64]) -> tuple[float, float]:
    """
    Return the exact chance to survive of everyone, and of patients of moderate SOFA.

    The paper screens patients of moderate SOFA for FAE (DP-DQN section 5.2) and groups by the
    score at the current step: states of SOFA 5 to 15 count as the clinicians meet them.

    :param actions: of each state, (713,).
    """
    model = icu_sepsis()
    by_state = survival_by_state(model, actions)
    moderate = in_band(model, 'medium', clinicians_visits())
    return float(model.start @ by_state), float(moderate @ by_state)


def admitted_by(arm: Arm) -> Floats | None:
    """Return who is admitted in an arm, a chance for each state, (713,); None for everyone."""
    return None if arm.admitted == 'all' else in_band(icu_sepsis(), arm.admitted)


class SepsisCollector:
    """Treats patients of ICU-Sepsis by a released policy; states are kept by their number."""

    def __init__(
        self, inputs: NDArray[np.float32], seed: int, admitted: Floats | None = None
    ) -> None:
        """
        Choose the patients.

        :param inputs: of the network in each state, (716, inputs).
        :param seed: of the patients and of exploration.
        :param admitted: chance of each state on admission, (713,); None for everyone.
        """
        self._inputs = inputs
        self._seed = seed
        self._admitted = admitted

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
        stays = sample_stays(model, chances, count, draw, start=self._admitted)
        return scaled_records(stays, f'round_{first}')


def scaled_records(stays: SepsisStays, prefix: str) -> Records:
    """Return stays as records of numbered states, with rewards of 1 and -1 in place of 15."""
    records = sepsis_records(stays, icu_sepsis(), 'state', prefix)
    return replace(records, rewards=(records.rewards / REWARD).astype(np.float32))


def learner_settings(settings: SepsisSettings, arm: Arm) -> LearnerSettings:
    """Return how an arm learns: few large steps with noise, many small ones without."""
    careful = settings.low_rate if arm.epsilon < 2.0 else 1.0
    rate = _descent_rate(settings, arm)
    private = LearnerSettings(
        discount=1.0,
        loss='squared',
        proximal=0.0,
        epochs=1,
        expected_transitions=TYPICAL_STAY,
        replay=arm.replay,
        optimizer='sgd',
        learning_rate=careful * rate,
        transitions_per_patient=settings.transitions_per_patient,
        target_period=1,
    )
    if arm.kind == 'offline':
        return replace(private, conservative=settings.conservative)
    if arm.kind == 'online':
        return private
    if arm.kind in MINIBATCH:
        alpha = settings.minibatch_conservative if arm.kind == 'conservative' else 0.0
        period = settings.minibatch_target_period
        minibatch = replace(private, target_period=period, conservative=alpha)
        if noise_multiplier(settings, arm):
            return minibatch
        rate = settings.minibatch_adam_rate
        return replace(minibatch, optimizer='adam', learning_rate=rate)
    return replace(
        private,
        optimizer='adam',
        learning_rate=settings.plain_rate,
        transitions_per_patient=10,
        target_period=50,
    )


def _descent_rate(settings: SepsisSettings, arm: Arm) -> float:
    """Return the step size of DP-SGD."""
    table, features = {
        'online': (settings.learning_rate, settings.network_rate),
        **dict.fromkeys(MINIBATCH, (settings.minibatch_rate, settings.network_minibatch_rate)),
    }.get(arm.kind, (settings.offline_rate, settings.offline_rate))
    return table if arm.network == 'table' else features


def phases_of(settings: SepsisSettings, network: str = 'table') -> list[tuple[float, int]]:
    """Return sampling probability and steps of each round of an online run that learns."""
    counts = (number * settings.new_patients for number in range(1, settings.rounds + 1))
    batch, steps = settings.stepping(network)
    return [(batch / count, steps) for count in counts if count >= settings.batch]


@functools.lru_cache(maxsize=64)
def noise_multiplier(settings: SepsisSettings, arm: Arm) -> float:
    """
    Return sigma_m of an arm: its epsilon at the end, whatever it is called before.

    The paper's PER has the noise of the arm without PER, and no epsilon.
    """
    if math.isinf(arm.epsilon):
        return 0.0
    if arm.kind == 'online':
        phases = phases_of(settings, arm.network)
    elif arm.kind in MINIBATCH:
        patients = arm.patients or settings.clinician_patients
        phases = [(settings.minibatch_batch / patients, settings.minibatch_steps)]
    else:
        phases = [(1.0, settings.offline_steps)]
    if arm.replay == 'prioritised_poisson':
        phases = [(1.0, sum(steps for _, steps in phases))]
    return noise_multiplier_for(epsilon=arm.epsilon, delta=settings.delta, phases=phases)


def privacy_settings(settings: SepsisSettings, arm: Arm) -> PrivacySettings:
    """Return what an arm promises its patients."""
    noise = noise_multiplier(settings, arm)
    batches = {
        'plain': settings.plain_batch,
        'online': settings.stepping(arm.network)[0],
        **dict.fromkeys(MINIBATCH, settings.minibatch_batch),
    }
    return PrivacySettings(
        unit=UNIT,
        budget=arm.epsilon if arm.private else math.inf,
        delta=settings.delta,
        clip_norm=settings.clip_norm if noise else UNCLIPPED,
        noise_multiplier=noise,
        batch=batches.get(arm.kind, arm.patients or settings.clinician_patients),
    )


def learn(settings: SepsisSettings, arm: Arm, seed: int, work: Work) -> Learned:
    """
    Let a hospital learn: from patients whom its own policy treats, or from its clinicians'.

    :param work: its directory keeps what was collected, checkpoint and ledger for a restart.
    """
    offline = arm.kind in ('offline', *MINIBATCH)
    shape, inputs = network_of(settings, arm.network)
    start = start_weights(settings, arm.start, arm.network, seed)
    settings = settings if offline else settings.online(arm.patients)
    privacy = privacy_settings(settings, arm)
    with Ledger(
        work.directory / 'ledger.sqlite',
        Owner(
            hospital='hospital_1', unit=privacy.unit, delta=privacy.delta, budget=privacy.budget
        ),
    ) as ledger:
        setup = TrainingSetup(
            shape,
            learner_settings(settings, arm),
            privacy,
            ledger,
            NoiseSource.seeded(seed),
            inputs,
        )
        train = _train_offline if offline else _train_online
        patients, released = train(settings, arm, seed, work, start, setup)
        epsilon = ledger.epsilon() if arm.private else math.inf
    released = [start.astype(np.float64), *released]
    shown = [released[0], released[-1]] if arm.kind == 'offline' else released
    actions = [actions_of(weights, inputs, shape) for weights in shown]
    values = [survival_of(actions[0])]
    for before, after in pairwise(actions):
        # Before learning begins the policy stays what it was.
        values.append(values[-1] if np.array_equal(before, after) else survival_of(after))
    last = math.ceil(AVERAGED * (len(released) - 1))
    averaged = actions_of(np.mean(released[-last:], axis=0), inputs, shape)
    everyone, moderate = (list(each) for each in zip(*values, strict=True))
    noise = privacy.noise_multiplier
    return Learned(patients, everyone, moderate, actions[-1], averaged, epsilon, noise)


def _train_online(
    settings: SepsisSettings,
    arm: Arm,
    seed: int,
    work: Work,
    start: NDArray[np.float32],
    setup: TrainingSetup,
) -> tuple[list[int], list[NDArray[np.float64]]]:
    """Treat patients by the private policy; return how many until each round, and its weights."""
    if arm.kind == 'plain':
        online = OnlineSettings(
            rounds=settings.plain_rounds,
            patients=settings.plain_patients,
            updates=(settings.plain_steps - 0.5) / settings.plain_patients,
            warm_up=1,
            exploration=settings.plain_exploration,
            final_exploration=0.05,
            exploration_rounds=max(1, int(0.7 * settings.plain_rounds)),
        )
    else:
        online = OnlineSettings(
            rounds=settings.rounds,
            patients=settings.new_patients,
            updates=(settings.stepping(arm.network)[1] - 0.5) / settings.new_patients,
            warm_up=settings.batch,
            exploration=settings.exploration,
            final_exploration=settings.exploration,
        )
    released: list[NDArray[np.float64]] = []

    def report(progress: TrainingProgress, weights: NDArray[np.float32]) -> None:
        released.append(weights.astype(np.float64))
        work.tell(progress.round, online.rounds)

    collector = SepsisCollector(network_of(settings, arm.network)[1], seed, admitted_by(arm))
    trainer = OnlineTrainer(setup, collector, online, work.directory)
    trainer.train(start, report=report, stopped=work.caller.stopped, anew=True)
    return [online.patients * number for number in range(online.rounds + 1)], released


def _train_offline(
    settings: SepsisSettings,
    arm: Arm,
    seed: int,
    work: Work,
    start: NDArray[np.float32],
    setup: TrainingSetup,
) -> tuple[list[int], list[NDArray[np.float64]]]:
    """Learn from what clinicians did; return how many patients, and the weights of each round."""
    patients = arm.patients or settings.clinician_patients
    rounds, steps = settings.offline_steps, 1
    if arm.kind in MINIBATCH:
        rounds, steps = MINIBATCH_ROUNDS, settings.minibatch_steps // MINIBATCH_ROUNDS
    records = scaled_records(clinician_records(patients, seed), 'stay')
    trainer = Trainer(setup, records, work.directory / 'checkpoint', steps=steps)
    state, released = None, []
    for round in range(1, rounds + 1):
        state = trainer.train_on(state, start, round, stopped=work.caller.stopped)
        released.append(state.weights.copy())
        work.tell(round, rounds)
    return [0, *[patients] * (rounds if arm.kind in MINIBATCH else 1)], released
