# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""
What privacy of each video costs: Dice of every site against epsilon, tuned on its own clips.

All sites begin with one segmenter that learned from synthetic clips alone, which costs nothing. A
site then trains head and queries of the encoder by the private learner of plans (DP-SGD), with a
ledger, each clip as a privacy unit.
"""

from collections.abc import Sequence
from contextlib import closing
import math
from pathlib import Path

from fdrl_ros.deployment.plan import Plan
from fdrl_ros.deployment.prepare import learn_public_start
from fdrl_ros.experiments.intervals import interval_words, over_clips_and_seeds
from fdrl_ros.experiments.json_file import Json
from fdrl_ros.experiments.reports.text_table import make_table
from fdrl_ros.experiments.studies.fedst.settings import FEDERATED, FedstSettings
from fdrl_ros.experiments.studies.utility import learn_at, name_of, privacy_at
from fdrl_ros.experiments.study import chosen_settings, Part, Study, Work
from fdrl_ros.learner.records.collection import HospitalSimulator
from fdrl_ros.privacy.stated import stated
from fdrl_ros.runtime.progress import Caller, NOBODY
import numpy as np
from rich.table import Table

EPSILONS = (math.inf, 8.0, 2.0)
"""What is compared; infinity learns without clipping and noise."""

START = 'start'
"""Name of what all begin with."""

PLAN: dict[str, dict[str, object]] = {
    'federation': {'task': 'instruments', 'hospitals': len(FEDERATED)},
    'world': {'frames': 4, 'serq': False},
    'collection': {'patients': 120},
    'pretraining': {'patients': 100, 'steps': 1000},
    'learner': {'epochs': 20, 'transitions_per_patient': 1, 'learning_rate': 3e-4},
    'privacy': {'batch': 40, 'delta': 1e-3, 'clip_norm': 0.4},
    'rounds': {'rounds': 1},
    'evaluation': {'patients': 24},
}
"""Many short clips of 64 x 64 pixels: noise hides one clip the better, the more there are."""

QUICK: dict[str, dict[str, object]] = {
    'collection': {'patients': 20},
    'pretraining': {'patients': 10, 'steps': 40},
    'learner': {'epochs': 2},
    'privacy': {'batch': 10},
    'evaluation': {'patients': 3},
}
"""What differs in a look that claims nothing."""


def run_private(
    directory: Path, settings: FedstSettings, caller: Caller = NOBODY, *, quick: bool = False
) -> list[Json]:
    """
    Measure every seed.

    :param directory: gets ``private/``, one JSON file a seed, and is gone on from them.
    :param settings: of which seeds and workers count.
    :raises TrainingStopped: as soon as the caller says so; call it again to go on.
    :raises StoreError: if a part is damaged, or of other settings.
    """
    plan = Plan(PLAN).replaced(QUICK if quick else {}).checked()
    groups = ('world', 'collection', 'pretraining', 'learner')
    relevant = chosen_settings(plan, *groups, privacy=['batch', 'delta', 'clip_norm'])
    parts = []
    for seed in range(settings.seed, settings.seed + settings.seeds):
        own = {'seed': seed, 'settings': {**relevant, 'clips': plan.evaluation.patients}}
        given = (plan.changed({'federation': {'seed': seed}}),)
        parts.append(Part(f'private_{seed}', own, given, f'private tuning, seed {seed}'))
    return Study('fedst', directory / 'private', measure, workers=settings.workers).run(
        parts, caller
    )


def measure(plan: Plan, *, work: Work) -> Json:
    """
    Measure one seed.

    :returns: `dice`: of each site and level the mean Dice of each unseen clip; `epsilon` and
        `noise_multiplier` of each level; `videos` of a site, and `delta`.
    """
    levels = [START, *map(name_of, EPSILONS)]
    total, done = 1 + len(FEDERATED) * len(levels), 1
    start = learn_public_start(
        plan, lambda what, *_: work.tell(0, total, what), work.caller.stopped
    )
    found: Json = {
        'dice': {},
        'epsilon': {},
        'noise_multiplier': {},
        'videos': plan.collection.patients,
        'delta': plan.privacy.delta,
    }
    simulator = HospitalSimulator(plan.task, plan.world, plan.collection)
    for hospital, site in enumerate(FEDERATED):
        work.tell(done, total, site)
        population = plan.population(hospital)
        records = simulator.collect(population, stopped=work.caller.stopped)
        scores = found['dice'][site] = {START: dice_of(start, plan, hospital, work)}
        for epsilon in EPSILONS:
            name, privacy = name_of(epsilon), privacy_at(plan, epsilon, records.n_patients)
            weights, spent = learn_at(records, start, plan, privacy, work, f'{site}_{name}')
            scores[name] = dice_of(weights, plan, hospital, work)
            found['epsilon'][name] = spent
            found['noise_multiplier'][name] = privacy.noise_multiplier
            done += 1
            work.tell(done, total, f'{site}, epsilon {name}')
        done += 1
    return found


def dice_of(weights: np.ndarray, plan: Plan, hospital: int, work: Work) -> list[float]:
    """Return the mean Dice of each unseen clip of a hospital, NaN where no part is in it."""
    task, policy, patients = plan.task, plan.network.policy(weights), plan.population(hospital)
    found = []
    with closing(task.make_env(plan.world)) as env:
        for index in range(plan.evaluation.patients):
            work.check()
            patient = patients.patient(index, 'test')
            episode = task.operate(env, policy, patient, np.random.default_rng(0))
            found.append(float(task.measure(episode, plan.world)['dice']))
    return found


def private_table(parts: Sequence[Json]) -> Table:
    """Return Dice by site and epsilon, with intervals over clips and seeds."""
    rows = []
    first = parts[0]
    for level in [START, *map(name_of, EPSILONS)]:
        spent = first['epsilon'].get(level)
        words = 'none' if level == START else 'infinite' if spent is None else stated(spent)
        noise = first['noise_multiplier'].get(level)
        cells = []
        for site in FEDERATED:
            seeds = [part['dice'][site][level] for part in parts]
            clips = [[np.nan if each is None else each for each in seed] for seed in seeds]
            found = over_clips_and_seeds(clips, np.random.default_rng(0))
            cells.append(interval_words(found, factor=100.0))
        rows.append((words, f'{noise:.2f}' if noise else '', *cells))
    caption = (
        f'Head and encoder queries, tuned by DP-SGD on {first["videos"]} clips of a site; privacy '
        f'unit: a clip; delta {first["delta"]:g}. The start learned from synthetic clips alone. '
        '[95 % intervals] over clips and seeds.'
    )
    headings = ('epsilon', 'noise multiplier', *FEDERATED)
    return make_table('Dice, %, unseen clips, against epsilon', headings, rows, caption=caption)
