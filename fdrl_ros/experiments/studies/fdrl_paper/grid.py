# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""Every policy at every H and s (FDRL Fig. 4 to 7): exact A_task and return, R_mit and D_KL."""

from dataclasses import asdict
from pathlib import Path

from fdrl_ros.experiments.json_file import Json
from fdrl_ros.experiments.studies.fdrl_paper.policies import (
    actions_of,
    Appraisal,
    Learners,
    mean_of,
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
            {
                **settings.relevant(_RELEVANT),
                'heterogeneity': level,
                'seed': seed,
                'draws': [draws_at(settings, level, each) for each in noises_of(settings)],
                'regime': asdict(settings.regime(0.0)),
            },
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


def draws_at(settings: FdrlSettings, level: float, noise: float) -> int:
    """Return how many policies of each kind a seed trains at one H and s."""
    shown = level == settings.heterogeneity and noise in (0.0, settings.noise)
    return settings.draws if shown else 1


def measure_level(settings: FdrlSettings, level: float, seed: int, work: Work) -> Json:
    """Measure all policies of one H and one seed, at every s; the means over draws."""
    noises = noises_of(settings)
    start = public_start(seed)
    homes = Simulation(settings.regime(0.0), seed, settings.hospitals, level, 1).homes
    appraisal = Appraisal(homes, settings.patients, seed)
    at: Json = {}
    for place, noise in enumerate(noises):
        work.tell(place, len(noises), 'trains')
        world = Simulation(settings.regime(noise), seed, settings.hospitals, level, 1)
        rows = []
        for draw in range(draws_at(settings, level, noise)):
            work.check()
            rows.append(_measure(settings, Learners(world, draw), appraisal, start))
        at[f'{noise:g}'] = mean_of(rows)
    same = {**appraisal.yardsticks(), 'public_start': appraisal.worth(actions_of(start))}
    return {'at': at, 'any_noise': same}


def _measure(
    settings: FdrlSettings, learners: Learners, appraisal: Appraisal, start: Weights
) -> Json:
    """Train each policy once; return what it is worth, and D_KL."""
    regime = learners.world.regime
    released, trained = learners.federated()
    central = {
        'central_paper': learners.central(settings.regime(PAPER_NOISE, matched=False)),
        'central_steps': learners.central(regime),
        'central_epsilon': learners.central(settings.regime(regime.noise / settings.hospitals)),
    }
    policies = {
        **central,
        'federated': released,
        'federated_from_start': learners.federated(start)[0],
    }
    worth = {name: appraisal.worth(actions_of(each)) for name, each in policies.items()}
    worth['alone'] = appraisal.worth(list(map(actions_of, learners.alone())))
    others = {name: central[name] for name in ('central_paper', 'central_steps')}
    return {'worth': worth, 'divergence': _divergence(released, trained, others)}


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
