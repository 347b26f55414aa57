# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""Every policy at every H and s (FDRL Fig. 4 to 7): exact A_task and return, R_mit and D_KL."""

from pathlib import Path

from fdrl_ros.experiments.json_file import Json
from fdrl_ros.experiments.studies.fdrl_paper.policies import (
    actions_of,
    Appraisal,
    Learners,
    public_start,
)
from fdrl_ros.experiments.studies.fdrl_paper.settings import FdrlSettings, PAPER_NOISE
from fdrl_ros.experiments.studies.leakage.simulation import Simulation, Weights
from fdrl_ros.experiments.studies.leakage.study import TEMPERATURES, values_in
from fdrl_ros.experiments.study import Part, Study, Work
from fdrl_ros.metrics.divergence import federated_divergence, policy_divergence
from fdrl_ros.runtime.progress import Caller, NOBODY

_RELEVANT = ('hospitals', 'noises', 'noise', 'patients')


def run_grid(
    directory: Path, settings: FdrlSettings, caller: Caller = NOBODY
) -> dict[str, list[Json]]:
    """
    Measure every H with every seed, at every s of the grid and that of the figures.

    :returns: by H, what :func:`measure_level` returns of each seed.
    :raises TrainingStopped: as soon as the caller says so; call it again to go on.
    :raises StoreError: if a part is damaged, or of other settings.
    """
    levels = levels_of(settings)
    parts = [
        Part(
            f'H{level:g}_seed{seed}',
            {**settings.relevant(_RELEVANT), 'heterogeneity': level, 'seed': seed},
            (settings, level, seed),
            f'policies at H = {level:g}, seed {seed}',
        )
        for level in levels
        for seed in settings.every_seed
    ]
    study = Study('policies', directory, measure_level, _check, settings.workers)
    found = iter(study.run(parts, caller))
    return {f'{level:g}': [next(found) for _ in settings.every_seed] for level in levels}


def levels_of(settings: FdrlSettings) -> list[float]:
    """Return every H that is measured."""
    return sorted({*settings.all_levels, settings.heterogeneity})


def noises_of(settings: FdrlSettings) -> list[float]:
    """Return every s that is measured."""
    return sorted({*settings.all_noises, settings.noise})


def measure_level(settings: FdrlSettings, level: float, seed: int, work: Work) -> Json:
    """Measure all policies of one H and one seed, at every s."""
    noises = noises_of(settings)
    start = public_start(seed)
    at: Json = {}
    for place, noise in enumerate(noises):
        work.check()
        work.tell(place, len(noises), 'trains')
        regime = settings.regime(noise)
        world = Simulation(regime, seed, settings.hospitals, level, 1)
        learners = Learners(world, world.members(0))
        released, trained = learners.federated()
        less = settings.regime(noise / settings.hospitals)
        central = {'central_steps': regime, 'central_epsilon': less}
        policies = {name: learners.central(each) for name, each in central.items()}
        policies['federated'] = released
        policies['federated_from_start'] = learners.federated(start)[0]
        if not place:
            short = settings.regime(PAPER_NOISE, matched=False)
            paper = learners.central(short)
        if not place:
            appraisal = Appraisal(world.homes, settings.patients, seed)
        found = {name: appraisal.worth(actions_of(each)) for name, each in policies.items()}
        found['alone'] = appraisal.at_home(list(map(actions_of, learners.alone())))
        at[f'{noise:g}'] = {
            'worth': found,
            'divergence': _divergence(
                released,
                trained,
                {'central_paper': paper, 'central_steps': policies['central_steps']},
            ),
        }
    same = {
        **appraisal.yardsticks(),
        'central_paper': appraisal.worth(actions_of(paper)),
        'public_start': appraisal.worth(actions_of(start)),
    }
    return {'at': at, 'any_noise': same}


def _divergence(released: Weights, trained: list[Weights], central: dict[str, Weights]) -> Json:
    """Return D_KL by temperature: of hospitals (FDRL Eq. 19), and of each baseline (Eq. 20)."""
    own, other = [values_in(each) for each in trained], values_in(released)
    return {
        f'{tau:g}': {
            'federated': federated_divergence(own, other, tau),
            **{
                name: policy_divergence(other, values_in(each), tau)
                for name, each in central.items()
            },
        }
        for tau in TEMPERATURES
    }


def _check(part: Json) -> None:
    """
    Refuse a part in which a number that is told is missing.

    :raises KeyError: if so.
    """
    for each in part['at'].values():
        each['worth']['federated']['a_task']
        each['worth']['alone']['values']
        each['divergence']
    part['any_noise']['majority']['value']
