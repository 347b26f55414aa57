# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""
What heterogeneity H does to hospitals, measured at several H over several seeds.

Two things: how far the hospitals' patients are apart
(:mod:`fdrl_ros.experiments.studies.distance`), and how much success a policy loses in other
hospitals than the one that it was learned in: success at home minus success elsewhere, mean over
ordered pairs of hospitals. Policies are learned without privacy, so that only heterogeneity shows.

One seed is one unit: intervals are Student's, and those of rises are of paired differences.
Finished parts are kept.
"""

from collections.abc import Callable, Sequence
from contextlib import closing
import csv
from dataclasses import replace
import io
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

from fdrl_ros.deployment.plan import Plan
from fdrl_ros.experiments.intervals import interval, RATIO, SHARE, sign_of, UNBOUNDED
from fdrl_ros.experiments.json_file import Json
from fdrl_ros.experiments.studies.distance import (
    distances,
    LEANING,
    pooled_spread,
    sample_of,
    total_variation,
    two_sample_tests,
)
from fdrl_ros.experiments.study import chosen_settings, Part, Study, Work
from fdrl_ros.learner.pretraining import pretrain, Start
from fdrl_ros.learner.records.collection import HospitalSimulator
from fdrl_ros.policy import Policy
from fdrl_ros.runtime.progress import Caller, NOBODY, Stopped
from fdrl_ros.surgery.gym.episode import run_episode
from fdrl_ros.surgery.gym.surgery_env import SurgeryEnv
from fdrl_ros.surgery.patient.cohort import Cohort
from fdrl_ros.surgery.patient.patient import Patient
import numpy as np

LEVELS = (0.0, 0.25, 0.5, 0.75, 1.0)
"""The H that are compared."""

DRAWN = 400
"""Patients of each hospital that distances are measured on."""


class Curve(NamedTuple):
    """
    What has a curve over H.

    :param what: it is.
    :param bounds: what it can be at all; intervals are cut to it.
    :param heading: of its column, with the unit.
    :param factor: from numbers to that unit.
    """

    what: str
    bounds: tuple[float, float]
    heading: str
    factor: float = 100.0
    form: str = '.1f'


CURVES = {
    'distance': Curve(
        'mean Wasserstein-1 distance of what hospitals differ in, spreads at H = 1',
        RATIO,
        'distance, spreads',
        1.0,
        '.3f',
    ),
    'mix': Curve('total variation of what is done, of all procedures', SHARE, 'mix, %'),
    'loss': Curve('success at home minus success elsewhere', (-1.0, 1.0), 'loss, points'),
    'home': Curve('success at home', SHARE, 'home, %'),
    'elsewhere': Curve('success elsewhere', SHARE, 'elsewhere, %'),
}

SETTLING = 1.0 / 3.0
"""Least share of the steps of learning over which the step size falls to 0."""


def run_heterogeneity(
    directory: Path, plan: Plan, seeds: Sequence[int], caller: Caller = NOBODY
) -> Json:
    """
    Measure every seed at every H, and sum up.

    :param directory: gets ``parts/``, one JSON file a seed and H, and is gone on from them.
    :param plan: hospitals, procedures, records, learner and world; its H and seed do not count.
    :returns: settings, and what :func:`summarise` returns.
    :raises TrainingStopped: as soon as the caller says so; call it again to go on.
    :raises StoreError: if a part is damaged, or of other settings.
    """
    study = Study('heterogeneity', directory / 'parts', measure, curve_of, plan.evaluation.workers)
    parts = [_part(plan, seed, level) for seed in seeds for level in LEVELS]
    found = iter(study.run(parts, caller))
    rows = [[next(found) for _ in LEVELS] for _ in seeds]
    settings = _relevant_settings(plan)
    settings |= chosen_settings(plan, federation=('hospitals', 'procedures'))
    return {'seeds': list(seeds), 'patients_drawn': DRAWN, 'settings': settings, **summarise(rows)}


def _part(plan: Plan, seed: int, level: float) -> Part:
    own = plan.changed({'federation': {'seed': seed, 'heterogeneity': level}})
    name = f'seed_{seed}_h_{level:g}'
    return Part(name, {'plan': _relevant_settings(own)}, (own,), f'seed {seed}, H = {level:g}')


def _relevant_settings(plan: Plan) -> Json:
    """Return the settings that numbers here depend on."""
    groups = ('federation', 'learner', 'collection', 'pretraining', 'world')
    return chosen_settings(plan, *groups, evaluation=('patients',))


def measure(plan: Plan, work: Work) -> Json:
    """Measure one seed at one H."""
    return {**measure_distances(plan), **measure_loss(plan, work)}


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


def measure_loss(plan: Plan, work: Work) -> Json:
    """
    Let every hospital learn alone, and try each policy on each hospital's unseen patients.

    :returns: shares of operations, a row for each policy and a column for each hospital: those
        that succeeded, and those that failed by force.
    :raises TrainingStopped: as soon as the caller says so.
    """
    cohorts = plan.cohorts
    count = max(1, plan.evaluation.patients // plan.federation.hospitals)
    learning = plan.collection.patients + plan.pretraining.steps
    share = learning + len(cohorts) * count
    ends = np.zeros((len(cohorts), len(cohorts), count, 2))
    with closing(SurgeryEnv(settings=plan.world)) as env:
        for row, home in enumerate(cohorts):

            def tell(done: int, what: str, before: int = row * share) -> None:
                work.tell(before + done, len(cohorts) * share, what)

            policy = learn_alone(home, plan, tell, work.caller.stopped)
            for column, other in enumerate(cohorts):
                for index in range(count):
                    work.check()
                    episode = run_episode(env, policy, other.patient(index, 'test'))
                    ends[row, column, index] = episode.success, episode.failure == 'force'
                tell(learning + (column + 1) * count, f'{home.name} in {other.name}')
    success, force = np.moveaxis(ends.mean(axis=2), -1, 0)
    return {'success': success.tolist(), 'failed_by_force': force.tolist()}


def learn_alone(
    home: Cohort, plan: Plan, tell: Callable[[int, str], None], stopped: Stopped
) -> Policy:
    """Learn from one hospital's records alone, without privacy; the step size falls to 0."""
    settings = replace(plan.pretraining, settling=max(SETTLING, plan.pretraining.settling))
    records = HospitalSimulator(plan.task, plan.world, plan.collection).collect(
        home,
        progress=lambda done, _: tell(done, f'{home.name} collects'),
        stopped=stopped,
    )
    rng, before = np.random.default_rng(plan.federation.seed), len(records.patients)
    weights = pretrain(
        records,
        Start(plan.network.draw(rng), plan.network, plan.learner),
        settings,
        rng,
        progress=lambda step, _: tell(before + step, f'{home.name} learns'),
        stopped=stopped,
    )
    return plan.network.policy(weights)


def curve_of(part: Json) -> dict[str, float]:
    """Return the numbers of one seed at one H, named as CURVES."""
    success = np.array(part['success'], np.float64)
    home = float(np.diag(success).mean())
    elsewhere = float(success[~np.eye(len(success), dtype=bool)].mean())
    return {
        'distance': float(np.mean([part['quantities'][each] for each in LEANING])),
        'mix': float(part['mix_of_all_procedures']),
        'loss': home - elsewhere,
        'home': home,
        'elsewhere': elsewhere,
    }


def summarise(rows: Sequence[Sequence[Json]]) -> Json:
    """
    Sum up over seeds.

    :param rows: the part of each seed (first) at each H (second).
    """

    def over(table: Sequence[Sequence[Json]], name: str, bounds: tuple[float, float]) -> Json:
        return over_levels([[part[name] for part in row] for row in table], bounds)

    curves = [[curve_of(part) for part in row] for row in rows]
    quantities = [[part['quantities'] for part in row] for row in rows]
    return {
        'levels': list(LEVELS),
        'curves': {
            name: {'what': curve.what, **over(curves, name, curve.bounds)}
            for name, curve in CURVES.items()
        },
        'mix_of_own_procedures': over(rows, 'mix_of_own_procedures', SHARE),
        'quantities': {name: over(quantities, name, RATIO) for name in quantities[0][0]},
        'least_p': [[part['least_p'] for part in row] for row in rows],
        **{
            name: np.mean([[part[name] for part in row] for row in rows], 0).tolist()
            for name in ('success', 'failed_by_force')
        },
    }


def over_levels(table: Sequence[Sequence[float]], bounds: tuple[float, float] = UNBOUNDED) -> Json:
    """
    Return means and intervals at each H and of each rise from one H to the next.

    :param table: shape (seeds, levels).
    :param bounds: least and greatest value that there can be; intervals at an H are cut to it.
    """
    values = np.array(table, np.float64)
    rises = [interval(each.tolist()) for each in np.diff(values, axis=1).T]
    return {
        'at': [interval(each.tolist(), bounds) for each in values.T],
        'rises': rises,
        'means_rise': bool(np.all(np.diff(values.mean(axis=0)) > 0.0)),
        'every_rise_resolved': all(sign_of(each) > 0 for each in rises),
    }


def verdict(summary: Json, name: str) -> str:
    """Return in a sentence whether a curve grows with H, and where that is uncertain."""
    falls, unsure = [], []
    for (low, high), rise in zip(
        pairwise(summary['levels']), summary['curves'][name]['rises'], strict=True
    ):
        if rise['mean'] <= 0.0:
            falls.append(f'{low:g} to {high:g}')
        elif sign_of(rise) <= 0:
            unsure.append(f'{low:g} to {high:g}')
    words = 'does not grow from H = ' + ', '.join(falls) if falls else 'grows with H'
    if unsure:
        words += '; the interval of the rise holds 0 from H = ' + ', '.join(unsure)
    return f'{name} {words}'


def table_of(summary: Json) -> str:
    """Return every curve and quantity as CSV: name, H, mean, low, high."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator='\n')
    writer.writerow(['name', 'H', 'mean', 'low', 'high'])
    named = {**summary['curves'], 'mix of own procedures': summary['mix_of_own_procedures']}
    named |= {f'distance of {name}': each for name, each in summary['quantities'].items()}
    for name, curve in named.items():
        for level, at in zip(summary['levels'], curve['at'], strict=True):
            writer.writerow([name, level, at['mean'], at['low'], at['high']])
    return out.getvalue()
