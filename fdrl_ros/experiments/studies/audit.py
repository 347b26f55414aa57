# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""The audit of a plan's training code over several seeds; finished seeds are kept."""

from collections.abc import Sequence
from dataclasses import asdict
import functools
import operator
from pathlib import Path
import shutil

from fdrl_ros.audit.attack import Hits, plan_guesses
from fdrl_ros.audit.canary import compiled
from fdrl_ros.audit.distribution import least_p
from fdrl_ros.audit.estimate import Projections
from fdrl_ros.audit.privacy_audit import Audit, Audited, AuditSettings, BOUNDS, Evidence
from fdrl_ros.deployment.parties.hospital import noise_source
from fdrl_ros.deployment.plan import Plan
from fdrl_ros.experiments.json_file import Json
from fdrl_ros.experiments.study import chosen_settings, digest_of, Part, Study, Work
from fdrl_ros.learner.learner import TrainingProgress
from fdrl_ros.learner.records.collection import HospitalSimulator
from fdrl_ros.privacy.accountant.accountant import Charge
from fdrl_ros.privacy.noise import NoiseSource
from fdrl_ros.privacy.stated import stated
from fdrl_ros.runtime.progress import Caller, NOBODY
from fdrl_ros.runtime.random_streams import Stream
import numpy as np

_BINS = 60  # of the scores
_OTHERS = 2  # hospitals whose noise is compared

CONFIDENCES = (0.95, 0.999)
"""At which all seeds together are told."""


def run_audit(
    directory: Path,
    plan: Plan,
    settings: AuditSettings,
    seeds: Sequence[int],
    caller: Caller = NOBODY,
) -> Json:
    """
    Audit the training of the plan's first hospital once with every seed.

    Canaries, coins, noise and starting weights differ from seed to seed, the patients do not.
    Canaries need layers that are trained whole: where offsets of inputs are learned, which takes a
    frozen layer, all weights are trained in their place.

    :param directory: gets ``records_*.npz`` and ``seeds/``, and is gone on from them.
    :returns: settings, the numbers of every seed, what all prove together, and every fault.
    :raises TrainingStopped: as soon as the caller says so; call it again to go on.
    :raises StoreError: if a file is damaged, or of other settings.
    """
    plan = plan.with_all_weights()
    relevant = _relevant_settings(plan, settings)
    records = directory / f'records_{digest_of(relevant)[:12]}.npz'
    parts = [Part(f'seed_{seed}', relevant, (plan, settings, seed, records)) for seed in seeds]
    study = Study('audit', directory / 'seeds', measure, _check, plan.evaluation.workers)
    if None in study.finished(parts):
        _keep_records(records, plan, caller)
    return summarise(relevant, list(seeds), study.run(parts, caller))


def measure(plan: Plan, settings: AuditSettings, seed: int, records: Path, work: Work) -> Json:
    """
    Audit with one seed.

    :param records: file of the patients' records.
    """
    plan = plan.changed({'federation': {'seed': seed}})
    rounds = plan.rounds.rounds
    directory = work.directory / 'audit'
    shutil.rmtree(directory, ignore_errors=True)  # of an audit that was cut short
    directory.mkdir()

    def tell(progress: TrainingProgress) -> None:
        done = (progress.round - 1) * progress.steps + progress.step
        work.tell(done, rounds * progress.steps, f'epsilon {stated(progress.epsilon, 3)}')

    whole = Audit(
        plan.load_records(records),
        compiled(plan.network),
        plan.learner,
        plan.privacy,
        rounds,
        settings,
    )
    made = whole.run(
        directory,
        noise_source(directory, 'audit', plan),
        np.random.default_rng([Stream.AUDIT, seed]),
        report=tell,
        stopped=work.caller.stopped,
        others=[_noise_of(directory, name, plan) for name in plan.hospitals[:_OTHERS]],
    )
    return {'seed': seed, **_numbers(made)}


def summarise(relevant: Json, seeds: list[int], parts: list[Json]) -> Json:
    """Put the seeds together: numbers of each, what all of them prove, and every fault."""
    failure = relevant['settings']['audit']['failure']
    return {
        **relevant,
        'seeds': seeds,
        'together': {f'{each:g}': _together(parts, each) for each in CONFIDENCES},
        'faults': [
            *(f'seed {each["seed"]}: {one}' for each in parts for one in each['faults']),
            *(_faults_together(parts, failure) if len(parts) > 1 else ()),
        ],
        'parts': [{k: v for k, v in each.items() if k != 'settings'} for each in parts],
    }


def _together(parts: list[Json], confidence: float) -> Json:
    """
    Return the bounds that all seeds prove together, each with a confidence of its own.

    Seeds differ in noise, coins and canaries, and all claim the same.
    """
    one = parts[0]
    charge, delta = Charge(**one['charge']), one['delta']
    hits = functools.reduce(operator.add, (Hits(**each['hits']) for each in parts))
    sums = (Projections(**each['projections']) for each in parts)
    projections = functools.reduce(operator.add, sums)
    rng = np.random.default_rng([Stream.AUDIT, 0])
    count, failure = hits.members + hits.others, 1.0 - confidence
    planned, _ = plan_guesses([charge], count, rng, delta=delta, failure=failure)
    whole = Evidence(hits, projections, charge, planned)
    return whole.bounds(delta=delta, failure=dict.fromkeys(BOUNDS, failure))


def _faults_together(parts: list[Json], failure: float) -> list[str]:
    """Return the bounds of all seeds that are above what they claim, as sentences."""
    claimed = min(each['claimed'] for each in parts)
    bounds = _together(parts, 1.0 - failure)
    return [
        f'all seeds: epsilon is at least {bound:.3f} by bound {name!r}, {stated(claimed, 3)} is '
        'claimed'
        for name, bound in bounds.items()
        if bound > claimed
    ]


def _noise_of(directory: Path, name: str, plan: Plan) -> NoiseSource:
    """Return the noise of a hospital of the plan."""
    own = directory / name
    own.mkdir()
    return noise_source(own, name, plan)


def _numbers(made: Audited) -> Json:
    low, high = float(made.scores.min()), float(made.scores.max())
    edges = np.linspace(low, max(high, low + 1e-9), _BINS + 1)
    evidence = made.evidence
    return {
        'claimed': made.claimed,
        **made.bounds,
        'attainable': made.attainable,
        'shift': evidence.projections.mean_shift,
        'sigma': evidence.projections.sigma,
        'least_p': least_p(made.tests),
        'faults': list(made.faults),
        'tests': made.tests,
        'delta': made.delta,
        'patients': made.patients,
        'canaries': len(made.members),
        'charge': made.charge._asdict(),
        'planned': evidence.planned._asdict(),
        'hits': asdict(evidence.hits),
        'projections': asdict(evidence.projections),
        'seconds': round(made.seconds, 2),
        'scores': {
            'edges': edges.tolist(),
            'members': np.histogram(made.scores[made.members], edges)[0].tolist(),
            'others': np.histogram(made.scores[~made.members], edges)[0].tolist(),
        },
    }


def _keep_records(path: Path, plan: Plan, caller: Caller) -> None:
    """Collect the patients' records, unless they are there."""
    path.parent.mkdir(parents=True, exist_ok=True)
    if not path.exists():
        HospitalSimulator(plan.task, plan.world, plan.collection).collect(
            plan.population(0),
            progress=caller.counter('collect', 'patients'),
            stopped=caller.stopped,
        ).save(path)


def _check(part: Json) -> None:
    for name in ('claimed', *BOUNDS, 'attainable', 'faults', 'scores', 'seed', 'delta', 'charge'):
        part[name]
    Hits(**part['hits']), Projections(**part['projections'])


def _relevant_settings(plan: Plan, settings: AuditSettings) -> Json:
    """Return the settings that numbers here depend on."""
    groups = ('federation', 'rounds', 'learner', 'privacy', 'collection', 'world')
    return {'settings': {**chosen_settings(plan, *groups), 'audit': asdict(settings)}}
