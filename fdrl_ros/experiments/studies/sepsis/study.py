# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""
The DP-DQN paper's results on ICU-Sepsis, repeated with several seeds (DP-DQN section 5).

Every run of every arm is a part, kept in a file of its own; finished parts are read, an
interrupted run goes on from its checkpoint.
"""

from dataclasses import asdict
import math
from pathlib import Path
import time

from fdrl_ros.experiments.json_file import Json
from fdrl_ros.experiments.studies.sepsis.learning import (
    clinicians_visits,
    learn,
    Learned,
    planned,
    survival_of,
)
from fdrl_ros.experiments.studies.sepsis.settings import (
    Arm,
    EPSILONS,
    LARGEST,
    MINIBATCH,
    moderate_arms,
    NETWORKS,
    paper_arms,
    SepsisSettings,
    Start,
)
from fdrl_ros.experiments.study import Part, Study, Work
from fdrl_ros.runtime.progress import Caller, NOBODY
from fdrl_ros.worlds.icu_sepsis.assets import icu_sepsis
from fdrl_ros.worlds.icu_sepsis.episodes import clinician_records
from fdrl_ros.worlds.icu_sepsis.model import StatePolicy
from fdrl_ros.worlds.icu_sepsis.values import band_of, BANDS, survival, survival_by_band, visits
import numpy as np

_PATIENTS = 7000.0
"""Patients whose treatment takes as long as beginning and judging a run, about."""
_STEPS = 200.0
"""Steps of Adam that do."""

_STEPS_OF_NETWORK = 40.0
"""Minibatch steps of the network with hidden layers that do."""

_WITHOUT_EFFECT = ('runs', 'seeds', 'seed', 'workers', 'phi')
"""Settings that change no part."""

_OWN_SETTINGS = ('plain', 'offline', 'minibatch', 'network')
"""What the names of settings begin with that concern a kind of learning, or a network, alone."""


def target_arms(settings: SepsisSettings) -> list[Arm]:
    """Return the arms of the targets that are not among the paper's."""
    own = Start(settings.concentration, settings.blend)
    blurred, good, nothing = Start(30.0, 0.5), Start(30.0), Start()
    epsilons, many, few = (1.0, 8.0, math.inf), settings.patients, settings.clinician_patients
    arms = [
        Arm('plain', nothing),
        *(Arm('online', start, e) for start in (own, good, blurred) for e in epsilons),
        *(Arm('online', nothing, e) for e in (8.0, math.inf)),
        *(Arm('online', own, e, patients=3 * many) for e in (1.0, 8.0)),
        Arm('online', own, 8.0, patients=LARGEST * many),
        *(Arm('offline', start, e) for start in (own, good, blurred, nothing) for e in epsilons),
        *(
            Arm('plan', start, patients=count)
            for start in (nothing, own, good, blurred)
            for count in (few // 10, few, 4 * few, 20 * few)
        ),
        Arm('plain', nothing, network='features'),
        *(Arm('online', own, e, network='features') for e in EPSILONS),
        *(Arm('online', nothing, e, network='features') for e in (8.0, math.inf)),
        *(Arm('minibatch', start, e) for start in (nothing, own) for e in EPSILONS),
        *(
            Arm('minibatch', start, e, network='features')
            for start in (nothing, own)
            for e in (8.0, math.inf)
        ),
        *(
            Arm('conservative', nothing, e, network=network)
            for network in NETWORKS
            for e in (8.0, math.inf)
        ),
    ]
    paper = {each.name for each in paper_arms(settings)}
    return [each for each in dict.fromkeys(arms) if each.name not in paper]


def all_runs(settings: SepsisSettings) -> list[tuple[Arm, int]]:
    """Return every run: arm and seed; all arms of a seed before the next seed."""
    paper, targets = paper_arms(settings) + moderate_arms(settings), target_arms(settings)
    return [
        (arm, settings.seed + number)
        for number in range(max(settings.runs, settings.seeds))
        for arms, count in ((paper, settings.runs), (targets, settings.seeds))
        if number < count
        for arm in arms
    ]


def run_sepsis(directory: Path, settings: SepsisSettings, caller: Caller = NOBODY) -> list[Json]:
    """
    Run what is missing.

    :param directory: gets ``parts/``, one JSON file a run, and is gone on from them.
    :returns: every part.
    :raises SettingError: if settings contradict each other; nothing has begun then.
    :raises TrainingStopped: as soon as the caller says so; call it again to go on.
    :raises StoreError: if a part is damaged, or of other settings.
    """
    settings.check()
    study = Study('sepsis', directory / 'parts', measure, _check, settings.workers)
    parts = [part_of(settings, arm, seed) for arm, seed in all_runs(settings)]
    return study.run(parts, caller)


def part_of(settings: SepsisSettings, arm: Arm, seed: int) -> Part:
    """Return the part that a run of an arm is."""
    return Part(
        f'{arm.name}_seed{seed}',
        {'settings': relevant_settings(settings, arm), 'arm': arm_mapping(arm), 'seed': seed},
        (settings, arm, seed),
        f'{arm.name}, seed {seed}',
        effort_of(settings, arm),
    )


def effort_of(settings: SepsisSettings, arm: Arm) -> float:
    """Return how long a run of an arm takes; beginning and judging it takes 1."""
    if arm.kind == 'plain':
        treated = settings.plain_rounds * settings.plain_patients
        return 1.0 + treated / _PATIENTS + settings.plain_rounds * settings.plain_steps / _STEPS
    if arm.kind == 'online':
        return 1.0 + (arm.patients or settings.patients) / _PATIENTS
    if arm.kind in MINIBATCH:
        steps = _STEPS if arm.network == 'table' else _STEPS_OF_NETWORK
        return 1.0 + settings.minibatch_steps / steps
    return 1.0


def measure(settings: SepsisSettings, arm: Arm, seed: int, work: Work) -> Json:
    """Run an arm once."""
    began = time.perf_counter()
    learned = _plan(arm, seed) if arm.kind == 'plan' else learn(settings, arm, seed, work)
    final = exact_values(learned.actions)
    same = np.array_equal(learned.actions, learned.averaged)
    return {
        'epsilon': finite(learned.epsilon),
        'noise_multiplier': learned.noise_multiplier,
        'patients': learned.patients,
        'survival': learned.survival,
        'moderate': learned.moderate,
        'final': final,
        'averaged': final if same else exact_values(learned.averaged),
        'seconds': time.perf_counter() - began,
    }


def exact_values(policy: StatePolicy) -> Json:
    """
    Value a policy exactly, in all and by band of severity.

    Bands weigh states as they are met under the clinicians, so that all policies are judged on the
    same patients; the paper, too, groups by the score at the current step. Shares of actions are
    those of the policy's own patients.
    """
    model = icu_sepsis()
    own, band = visits(model, policy), band_of(model.sofa)
    taken = {name: own[band == number].sum(axis=0) for number, name in enumerate(BANDS)}
    return {
        'survival': survival(model, policy),
        'by_band': survival_by_band(model, policy, clinicians_visits()),
        'actions': {
            'all': (own.sum(axis=0) / own.sum()).tolist(),
            **{name: (each / each.sum()).tolist() for name, each in taken.items()},
        },
    }


def _plan(arm: Arm, seed: int) -> Learned:
    stays = clinician_records(arm.patients, seed)
    before, after = planned(None, arm.start, seed), planned(stays, arm.start, seed)
    everyone, moderate = zip(*(survival_of(each) for each in (before, after)), strict=True)
    counts = [0, arm.patients]
    return Learned(counts, [*everyone], [*moderate], after, after, math.inf, 0.0)


def _check(part: Json) -> None:
    float(part['final']['survival']), float(part['averaged']['survival'])
    float(part['moderate'][-1])


def relevant_settings(settings: SepsisSettings, arm: Arm) -> Json:
    """Return the settings that a part depends on."""
    kind = 'minibatch' if arm.kind in MINIBATCH else arm.kind
    own = (kind, 'network' if arm.network != 'table' else '')
    others = tuple(f'{each}_' for each in _OWN_SETTINGS if each not in own)
    return {
        name: value
        for name, value in asdict(settings).items()
        if name not in _WITHOUT_EFFECT and not name.startswith(others)
    }


def arm_mapping(arm: Arm) -> Json:
    """Return an arm as JSON holds it: infinity is null."""
    found = {**asdict(arm), 'epsilon': finite(arm.epsilon), 'name': arm.name}
    found['public'] = found.pop('start')
    return found


def finite(value: float) -> float | None:
    """Return a number, or None for infinity, which JSON cannot hold."""
    return float(value) if np.isfinite(value) else None
