# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""The audit of a plan's training code over several seeds; finished seeds are kept."""

from collections.abc import Sequence
from dataclasses import asdict
import json
from pathlib import Path
import shutil
from typing import Any

from fdrl_ros.audit.one_run import audit, Audited
from fdrl_ros.audit.settings import AuditSettings
from fdrl_ros.deployment.parties.hospital import noise_source
from fdrl_ros.deployment.plan import Plan
from fdrl_ros.errors import StoreError
from fdrl_ros.experiments.parts import read_finished
from fdrl_ros.experiments.rounds import write_json
from fdrl_ros.learner.learner import TrainingProgress
from fdrl_ros.learner.records.collection import collect_records
from fdrl_ros.learner.records.records import Records
from fdrl_ros.runtime.progress import never, Progress, Report, silent, Stopped
from fdrl_ros.runtime.worker_processes import run_tasks
import numpy as np

NUMBERS = ('claimed', 'bound', 'gaussian', 'attainable')
"""What of :class:`Audited` is told of every seed."""

_BINS = 60  # of the scores
_STREAM = 7  # of the generators of canaries


def run_audit(
    directory: Path,
    plan: Plan,
    settings: AuditSettings,
    seeds: Sequence[int],
    *,
    report: Report = silent,
    stopped: Stopped = never,
) -> dict[str, Any]:
    """
    Audit the training of the plan's first hospital once with every seed.

    Canaries, coins, noise and starting weights differ from seed to seed, the patients do not.

    :param directory: gets ``records.npz`` and ``seeds/``, and is gone on from them.
    :returns: settings, the numbers of every seed, and whether the claim stands.
    :raises TrainingStopped: as soon as `stopped` says so; call it again to go on.
    :raises StoreError: if a file is damaged, or of other settings.
    """
    parts = directory / 'seeds'
    parts.mkdir(parents=True, exist_ok=True)
    essence = _essence(plan, settings)
    _keep_settings(directory / 'settings.json', essence)
    paths = [parts / f'seed_{seed}.json' for seed in seeds]
    found = [_read_part(path) for path in paths]
    missing = [at for at, part in enumerate(found) if part is None]
    if missing:
        _keep_records(directory / 'records.npz', plan, report, stopped)
    made = run_tasks(
        measure,
        [(plan, settings, seeds[at], directory, paths[at]) for at in missing],
        workers=plan.evaluation.workers,
        report=report,
        stopped=stopped,
    )
    for at, part in zip(missing, made, strict=True):
        found[at] = part
    return summarise(essence, list(seeds), [part for part in found if part is not None])


def measure(
    plan: Plan,
    settings: AuditSettings,
    seed: int,
    directory: Path,
    path: Path,
    *,
    report: Report,
    stopped: Stopped,
) -> dict[str, Any]:
    """
    Audit with one seed and keep what comes out; a piece of work for a worker process.

    :param path: of the file that the result is written to.
    :returns: its content.
    """
    plan = plan.changed({'federation': {'seed': seed}})
    work = path.with_suffix('.work')
    shutil.rmtree(work, ignore_errors=True)  # of an audit that was cut short
    work.mkdir()
    rounds = plan.rounds.rounds
    name, total = f'seed {seed}', 1

    def tell(progress: TrainingProgress) -> None:
        nonlocal total
        total = rounds * progress.steps
        done = (progress.round - 1) * progress.steps + progress.step
        if done < total:  # the end is told when the file is written
            report(Progress('audit', name, done, total, f'epsilon {progress.epsilon:.3f}'))

    made = audit(
        Records.load(directory / 'records.npz', plan.shape.states),
        plan.shape,
        plan.learner,
        plan.privacy,
        settings,
        rounds=rounds,
        directory=work,
        source=noise_source(work, 'audit', plan),
        rng=np.random.default_rng([_STREAM, seed]),
        report=tell,
        stopped=stopped,
    )
    part = {'seed': seed, **_numbers(made)}
    write_json(path, part)
    shutil.rmtree(work, ignore_errors=True)
    report(Progress('audit', name, total, total))
    return part


def summarise(
    essence: dict[str, Any], seeds: list[int], parts: list[dict[str, Any]]
) -> dict[str, Any]:
    """Put the seeds together: each number's mean, least and most, and whether the claim stands."""
    spreads = {}
    for name in NUMBERS:
        values = [each[name] for each in parts]
        spreads[name] = {
            'mean': float(np.mean(values)),
            'least': min(values),
            'most': max(values),
        }
    return {
        **essence,
        'seeds': seeds,
        **spreads,
        'refuted': [each['seed'] for each in parts if not each['consistent']],
        'parts': parts,
    }


def _numbers(made: Audited) -> dict[str, Any]:
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


def _keep_settings(path: Path, essence: dict[str, Any]) -> None:
    """Remember what a directory is of, and refuse to mix."""
    try:
        if path.exists():
            if json.loads(path.read_text('utf-8')) != json.loads(json.dumps(essence)):
                raise StoreError(f'{path} is of other settings: take another directory')
            return
    except (OSError, ValueError) as error:
        raise StoreError(f'{path} cannot be read: {error}') from error
    write_json(path, essence)


def _keep_records(path: Path, plan: Plan, report: Report, stopped: Stopped) -> None:
    """Collect the patients' records, unless they are there."""
    if not path.exists():
        collect_records(
            plan.cohorts[0],
            plan.collection,
            plan.world,
            progress=lambda done, count: report(Progress('collect', 'patients', done, count)),
            stopped=stopped,
        ).save(path)


def _read_part(path: Path) -> dict[str, Any] | None:
    """Read a finished seed, or None where there is none."""

    def fits(part: dict[str, Any]) -> bool:
        for name in (*NUMBERS, 'consistent', 'scores', 'seed', 'proofs'):
            part[name]
        return True  # the directory's settings were compared before

    return read_finished(path, fits)


def _essence(plan: Plan, settings: AuditSettings) -> dict[str, Any]:
    """Return the settings that numbers here depend on."""
    groups = ('federation', 'rounds', 'learner', 'privacy', 'collection', 'world')
    every = plan.to_mapping()
    chosen: dict[str, Any] = {name: every[name] for name in groups}
    return {'settings': {**chosen, 'audit': asdict(settings)}}
