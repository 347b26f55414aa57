# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""
What heterogeneity H does to hospitals, measured at several H over several seeds.

Two things: how far the hospitals' patients are apart
(:mod:`fdrl_ros.experiments.studies.distance`), and how much success a policy loses abroad
(:mod:`fdrl_ros.experiments.studies.cross_loss`). Finished parts are kept.
"""

from collections.abc import Sequence
from pathlib import Path

from fdrl_ros.deployment.plan import Plan
from fdrl_ros.experiments.json_file import Json
from fdrl_ros.experiments.studies.cross_loss import measure_loss
from fdrl_ros.experiments.studies.distance import (
    distances,
    pooled_spread,
    sample_of,
    total_variation,
    two_sample_tests,
)
from fdrl_ros.experiments.studies.heterogeneity_summary import curve_of, LEVELS, summarise
from fdrl_ros.experiments.study import Part, Study, Work
from fdrl_ros.runtime.progress import never, Report, silent, Stopped
from fdrl_ros.surgery.patient.patient import Patient

DRAWN = 400
"""Patients of each hospital that distances are measured on."""


def run_heterogeneity(
    directory: Path,
    plan: Plan,
    seeds: Sequence[int],
    *,
    report: Report = silent,
    stopped: Stopped = never,
) -> Json:
    """
    Measure every seed at every H, and sum up.

    :param directory: gets ``parts/``, one JSON file a seed and H, and is gone on from them.
    :param plan: hospitals, procedures, records, learner and world; its H and seed do not count.
    :returns: what :func:`fdrl_ros.experiments.studies.heterogeneity_summary.summarise` returns.
    :raises TrainingStopped: as soon as `stopped` says so; call it again to go on.
    :raises StoreError: if a part is damaged, or of other settings.
    """
    study = Study('heterogeneity', directory / 'parts', measure, curve_of, plan.evaluation.workers)
    parts = [_part(plan, seed, level) for seed in seeds for level in LEVELS]
    found = iter(study.run(parts, report=report, stopped=stopped))
    settings = _relevant_settings(plan)
    settings['federation'] = {
        name: settings['federation'][name] for name in ('hospitals', 'procedures')
    }
    rows = [[next(found) for _ in LEVELS] for _ in seeds]
    return {
        'seeds': list(seeds),
        'patients_drawn': DRAWN,
        'settings': settings,
        **summarise(rows),
    }


def _part(plan: Plan, seed: int, level: float) -> Part:
    own = plan.changed({'federation': {'seed': seed, 'heterogeneity': level}})
    name = f'seed_{seed}_h_{level:g}'
    return Part(name, {'plan': _relevant_settings(own)}, (own,), f'seed {seed}, H = {level:g}')


def measure(plan: Plan, work: Work) -> Json:
    """Measure one seed at one H."""
    distance = measure_distances(plan)
    found = measure_loss(plan, work)
    return {
        **distance,
        'success': found.success.tolist(),
        'failed_by_force': found.force.tolist(),
    }


def measure_distances(plan: Plan) -> Json:
    """
    Draw patients of every hospital and compare them.

    :returns: distance in each quantity, total variation of what is done (of the plan's procedures
        and of all), and the least corrected p of the tests that the hospitals are one.
    """
    level = plan.federation.heterogeneity
    every = plan.changed({'federation': {'procedures': 'all'}})
    spread = pooled_spread([sample_of(each) for each in draw(plan, 1.0)])
    samples = [sample_of(each) for each in draw(plan, level)]
    own, all_done = (
        [[patient.procedure.name for patient in each] for each in draw(one, level)]
        for one in (plan, every)
    )
    return {
        'quantities': distances(samples, spread),
        'mix_of_own_procedures': total_variation(own),
        'mix_of_all_procedures': total_variation(all_done),
        'least_p': min(two_sample_tests(samples, all_done).values()),
    }


def draw(plan: Plan, level: float) -> list[list[Patient]]:
    """Return unseen patients of each hospital at an H."""
    cohorts = plan.changed({'federation': {'heterogeneity': level}}).cohorts
    return [[each.patient(index, 'test') for index in range(DRAWN)] for each in cohorts]


def _relevant_settings(plan: Plan) -> Json:
    """Return the settings that numbers here depend on."""
    groups = ('federation', 'learner', 'collection', 'pretraining', 'world')
    every = plan.to_mapping()
    chosen: Json = {name: every[name] for name in groups}
    return {**chosen, 'evaluation': {'patients': plan.evaluation.patients}}
