# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""The audit of a plan's training code over several seeds; finished seeds are kept."""

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
import shutil

from fdrl_ros.audit.canary import compiled
from fdrl_ros.audit.privacy_audit import Audit, Audited, AuditSettings
from fdrl_ros.deployment.parties.hospital import noise_source
from fdrl_ros.deployment.plan import Plan
from fdrl_ros.experiments.json_file import Json
from fdrl_ros.experiments.study import chosen_settings, digest_of, Part, Study, Work
from fdrl_ros.learner.learner import TrainingProgress
from fdrl_ros.learner.records.collection import HospitalSimulator
from fdrl_ros.runtime.progress import Caller, NOBODY
from fdrl_ros.runtime.random_streams import Stream
import numpy as np

NUMBERS = ('claimed', 'bound', 'gaussian', 'attainable')
"""What of :class:`Audited` is told of every seed."""

_BINS = 60  # of the scores


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
    :returns: settings, the numbers of every seed, and whether the claim stands.
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
        work.tell(done, rounds * progress.steps, f'epsilon {progress.epsilon:.3f}')

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
    )
    return {'seed': seed, **_numbers(made)}


def summarise(relevant: Json, seeds: list[int], parts: list[Json]) -> Json:
    """Put the seeds together: each number's mean, least and most, and whether the claim stands."""
    columns = {name: [each[name] for each in parts] for name in NUMBERS}
    spreads = {
        name: {'mean': float(np.mean(values)), 'least': min(values), 'most': max(values)}
        for name, values in columns.items()
    }
    return {
        **relevant,
        'seeds': seeds,
        **spreads,
        'refuted': [each['seed'] for each in parts if not each['consistent']],
        'parts': [{k: v for k, v in each.items() if k != 'settings'} for each in parts],
    }


def _numbers(made: Audited) -> Json:
    low, high = float(made.scores.min()), float(made.scores.max())
    edges = np.linspace(low, max(high, low + 1e-9), _BINS + 1)
    return {
        **{name: getattr(made, name) for name in NUMBERS},
        'consistent': made.consistent,
        'delta': made.delta,
        'patients': made.patients,
        'canaries': len(made.members),
        'members': int(made.members.sum()),
        'charge': made.charge._asdict(),
        'proofs': [asdict(each) for each in made.proofs],
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
    for name in (*NUMBERS, 'consistent', 'scores', 'seed', 'proofs'):
        part[name]


def _relevant_settings(plan: Plan, settings: AuditSettings) -> Json:
    """Return the settings that numbers here depend on."""
    groups = ('federation', 'rounds', 'learner', 'privacy', 'collection', 'world')
    return {'settings': {**chosen_settings(plan, *groups), 'audit': asdict(settings)}}
