# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""
How much records help: exact A_task and return over records of a hospital, private and not.

Every record joins a step with chance 1 / 4, however many there are, so steps and epsilon stay the
same and the noise on the mean gradient falls as 1 / n. This shows where federation begins to pay.

Beside what is learned stands planning from counts (:mod:`fdrl_ros.worlds.paper.planning`), which
knows the structure of the world and the rewards. Its private form adds Gaussian noise for the same
epsilon to each hospital's counts, once.
"""

from dataclasses import asdict
from pathlib import Path

from fdrl_ros.experiments.json_file import Json
from fdrl_ros.experiments.studies.fdrl_paper.policies import (
    actions_of,
    Appraisal,
    Learners,
    public_start,
)
from fdrl_ros.experiments.studies.fdrl_paper.settings import BUDGET, FdrlSettings
from fdrl_ros.experiments.studies.leakage.settings import DELTA
from fdrl_ros.experiments.studies.leakage.simulation import Simulation
from fdrl_ros.experiments.study import Part, Study, Work
from fdrl_ros.privacy.accountant.calibration import noise_multiplier_for
from fdrl_ros.runtime.progress import Caller, NOBODY
from fdrl_ros.worlds.paper.env import PaperHospital
from fdrl_ros.worlds.paper.law import LEVELS, SIZE
from fdrl_ros.worlds.paper.planning import count_moves, plan, SENSITIVITY
import numpy as np
from numpy.typing import NDArray

WAYS = {'plain': False, 'private': True}
"""Whether noise for epsilon 8 is added; gradients are clipped either way."""

_RELEVANT = ('hospitals', 'heterogeneity', 'patients')


def run_curves(
    directory: Path, settings: FdrlSettings, caller: Caller = NOBODY
) -> dict[str, list[Json]]:
    """
    Measure every number of records with every seed.

    :returns: by records, what :func:`measure_records` returns of each seed.
    :raises TrainingStopped: as soon as the caller says so; call it again to go on.
    :raises StoreError: if a part is damaged, or of other settings.
    """
    sizes = settings.all_records
    parts = [
        Part(
            f'records{size}_seed{seed}',
            {
                **settings.relevant(_RELEVANT),
                'records': size,
                'seed': seed,
                'regime': asdict(settings.of_records(size, private=True)),
            },
            (settings, size, seed),
            f'{size} records, seed {seed}',
            effort=1000 + size,
        )
        for size in sizes
        for seed in settings.every_seed
    ]
    study = Study('records', directory, measure_records, _check, settings.workers)
    found = iter(study.run(parts, caller))
    return {str(size): [next(found) for _ in settings.every_seed] for size in sizes}


def measure_records(settings: FdrlSettings, records: int, seed: int, work: Work) -> Json:
    """Return what policies are worth that learned from so many records of each hospital."""
    start = public_start(seed)
    found: Json = {}
    for place, (way, private) in enumerate(WAYS.items()):
        work.check()
        work.tell(place, len(WAYS), 'trains')
        regime = settings.of_records(records, private=private)
        world = Simulation(regime, seed, settings.hospitals, settings.heterogeneity, 1)
        learners = Learners(world)
        policies = {'federated': learners.federated()[0]}
        work.check()
        policies['federated_from_start'] = learners.federated(start)[0]
        work.check()
        policies['central'] = learners.central(regime)
        work.check()
        own = learners.alone()
        if not place:
            appraisal = Appraisal(world.homes, settings.patients, seed)
        row = {name: appraisal.worth(actions_of(each)) for name, each in policies.items()}
        row['alone'] = appraisal.worth(list(map(actions_of, own)))
        work.check()
        together, apart = _planned(world, learners, private)
        row['planned'] = appraisal.worth(together)
        row['planned_alone'] = appraisal.worth(apart)
        found[way] = row
    same = {**appraisal.yardsticks(), 'public_start': appraisal.worth(actions_of(start))}
    return {'worth': found, 'any_size': same}


def _planned(
    world: Simulation, learners: Learners, private: bool
) -> tuple[NDArray[np.int64], list[NDArray[np.int64]]]:
    """Return what is planned from the sum of all counts for mean rewards, and from own counts."""
    sigma = 0.0
    if private:
        sigma = SENSITIVITY * noise_multiplier_for(epsilon=BUDGET, delta=DELTA, phases=[(1.0, 1)])
    rng, counts = learners.rng(3 + world.hospitals), []
    for own in world.own(learners.members):
        lines = world.table[own]
        levels, after = (
            np.rint(each * (LEVELS - 1)).astype(np.int64)
            for each in (lines[:, :SIZE], lines[:, SIZE : 2 * SIZE])
        )
        told = count_moves(levels, lines[:, -1].astype(np.int64), after)
        counts.append(told + sigma * rng.normal(size=told.shape))
    apart = [plan(each, home) for each, home in zip(counts, world.homes, strict=True)]
    return plan(np.sum(counts, axis=0), PaperHospital()), apart


def _check(part: Json) -> None:
    """
    Refuse a part in which a number that is told is missing.

    :raises KeyError: if so.
    """
    for way in WAYS:
        part['worth'][way]['planned_alone']['a_task']
    part['any_size']['majority']['a_task']
