# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""
What privacy costs one hospital: success of its own policy against epsilon, over several seeds.

Every epsilon learns from the same records, start, order of steps and number of them, by the very
trainer that runs in a hospital; only clipping and noise differ. Finished seeds are kept.
"""

from collections.abc import Callable, Sequence
from dataclasses import asdict, replace
import json
import math
from pathlib import Path
import shutil
from typing import Any

from fdrl_ros.crypto.keys.keystore import make_private_directory
from fdrl_ros.deployment.parties.hospital import noise_source
from fdrl_ros.deployment.plan import Plan
from fdrl_ros.errors import TrainingStopped
from fdrl_ros.experiments.parts import read_finished
from fdrl_ros.experiments.rounds import write_json
from fdrl_ros.experiments.studies.utility_intervals import kept_interval, success_interval
from fdrl_ros.learner.learner import TrainingProgress
from fdrl_ros.learner.pretraining import pretrain_public, untrained_weights
from fdrl_ros.learner.records.collection import collect_records
from fdrl_ros.learner.records.records import Records
from fdrl_ros.learner.settings import PrivacySettings
from fdrl_ros.learner.trainer import Trainer
from fdrl_ros.policy import Policy
from fdrl_ros.privacy.accountant.calibration import noise_multiplier_for
from fdrl_ros.privacy.ledger.ledger import Ledger
from fdrl_ros.runtime.progress import never, Progress, Report, silent, Stopped
from fdrl_ros.runtime.worker_processes import run_tasks
from fdrl_ros.surgery.gym.episode import run_episode
from fdrl_ros.surgery.gym.surgery_env import SurgeryEnv
from fdrl_ros.surgery.patient.cohort import Cohort
import numpy as np

EPSILONS = (math.inf, 8.0, 4.0, 2.0, 1.0)
"""What is compared; infinity learns without clipping and noise."""

STARTS = ('public', 'random')
"""Weights that learning begins with: learned on public patients, or drawn."""

_UNCLIPPED = 1e6

Tell = Callable[[int, str], None]
"""Told how much of :func:`work_of` is done, and what is under way."""


def run_utility(
    directory: Path,
    plan: Plan,
    seeds: Sequence[int],
    *,
    report: Report = silent,
    stopped: Stopped = never,
) -> dict[str, Any]:
    """
    Measure every seed, and sum up.

    :param directory: gets ``parts/``, one JSON file a seed, and is gone on from them.
    :param plan: its hospital 1 is the one that learns; seed, budget and noise do not count.
    :returns: success by start and epsilon, with intervals; and what of the non-private success is
        kept, paired by seed.
    :raises TrainingStopped: as soon as `stopped` says so; call it again to go on.
    :raises StoreError: if a part is damaged, or of other settings.
    """
    parts = directory / 'parts'
    parts.mkdir(parents=True, exist_ok=True)
    plans = {seed: plan.changed({'federation': {'seed': seed}}) for seed in seeds}
    paths = {seed: parts / f'seed_{seed}.json' for seed in seeds}
    found = {seed: read_part(paths[seed], plans[seed]) for seed in seeds}
    missing = [seed for seed in seeds if found[seed] is None]
    measured = run_tasks(
        measure,
        [(plans[seed], paths[seed]) for seed in missing],
        workers=plan.evaluation.workers,
        report=report,
        stopped=stopped,
    )
    found |= dict(zip(missing, measured, strict=True))
    return summarise([found[seed] or {} for seed in seeds], plan, seeds)


def summarise(rows: Sequence[dict[str, Any]], plan: Plan, seeds: Sequence[int]) -> dict[str, Any]:
    """
    Sum up over seeds.

    :param rows: what :func:`measure` returns of each seed.
    """
    table = {
        start: {
            name_of(epsilon): {
                'success': success_interval(
                    [row['success'][start][name_of(epsilon)] for row in rows]
                ),
                'kept': kept_interval(
                    [_share(row['success'][start], name_of(epsilon), 'inf') for row in rows]
                ),
            }
            for epsilon in EPSILONS
        }
        for start in STARTS
    }
    return {
        'seeds': list(seeds),
        'settings': _essence(plan),
        'unit': plan.privacy.unit,
        'delta': plan.privacy.delta,
        'private': plan.federation.noise == 'secure',
        'start': {
            start: success_interval([row['start'][start] for row in rows]) for start in STARTS
        },
        'sigma_m': rows[0]['sigma_m'],
        'epsilon_spent': rows[0]['epsilon_spent'],
        'steps': rows[0]['steps'],
        'results': table,
    }


def measure(plan: Plan, path: Path, *, report: Report, stopped: Stopped) -> dict[str, Any]:
    """
    Measure one seed and keep it; a piece of work for a worker process.

    :param path: of the file that the result is written to.
    :returns: its content.
    """
    total, name = work_of(plan), f'seed {plan.federation.seed}'

    def tell(done: int, what: str) -> None:
        if done < total:  # the end is told when the file is written
            report(Progress('utility', name, done, total, what))

    home = plan.cohorts[0]
    patients = plan.collection.patients
    tell(0, 'collects')
    records = collect_records(
        home,
        plan.collection,
        plan.world,
        progress=lambda done, _: tell(done, 'collects'),
        stopped=stopped,
    )
    public = pretrain_public(
        plan.public_cohort(),
        plan.shape,
        plan.pretraining,
        plan.collection,
        plan.world,
        seed=plan.federation.seed,
        progress=lambda what, done, count: tell(patients, what),
        stopped=stopped,
    )
    starts = {'public': public, 'random': untrained_weights(plan.shape, plan.federation.seed)}
    part: dict[str, Any] = {
        'settings': _essence(plan),
        'success': {start: {} for start in STARTS},
        'start': {},
        'sigma_m': {},
        'epsilon_spent': {},
    }
    done, each = patients, (total - patients) // (len(STARTS) * (1 + len(EPSILONS)))
    for start in STARTS:
        part['start'][start] = success_of(starts[start], home, plan, stopped)
        done += each
        tell(done, f'{start} start')
        for epsilon in EPSILONS:
            words = f'{start} start, epsilon {name_of(epsilon)}'
            directory = path.with_suffix('') / f'{start}_{name_of(epsilon)}'
            learned = _learn(records, starts[start], plan, epsilon, directory, stopped)
            part['success'][start][name_of(epsilon)] = success_of(
                learned['weights'], home, plan, stopped
            )
            for number in ('sigma_m', 'epsilon_spent'):
                part[number][name_of(epsilon)] = learned[number]
            part['steps'] = learned['steps']
            done += each
            tell(done, words)
    write_json(path, part)
    shutil.rmtree(path.with_suffix(''), ignore_errors=True)
    report(Progress('utility', name, total, total))
    return part


def success_of(weights: np.ndarray, home: Cohort, plan: Plan, stopped: Stopped) -> float:
    """Return the share of a hospital's unseen patients that a policy succeeds on."""
    policy, ends = Policy(weights, plan.shape), []
    env = SurgeryEnv(settings=plan.world)
    try:
        for index in range(plan.evaluation.patients):
            if stopped():
                raise TrainingStopped('stopped by the user')
            ends.append(run_episode(env, policy, home.patient(index, 'test')).success)
    finally:
        env.close()
    return float(np.mean(ends))


def work_of(plan: Plan) -> int:
    """Return how much is to do, in patients."""
    each = plan.evaluation.patients
    return plan.collection.patients + len(STARTS) * (1 + len(EPSILONS)) * each


def name_of(epsilon: float) -> str:
    """Return the name of an epsilon in files and tables."""
    return f'{epsilon:g}'


def privacy_at(plan: Plan, epsilon: float, units: int) -> PrivacySettings:
    """Return the plan's privacy with the noise that makes all its steps cost this epsilon."""
    chosen = plan.privacy
    if math.isinf(epsilon):
        return replace(chosen, noise_multiplier=0.0, clip_norm=_UNCLIPPED, budget=math.inf)
    rate = chosen.batch / units
    sigma = noise_multiplier_for(
        epsilon=epsilon, delta=chosen.delta, q=rate, steps=steps_of(plan, units)
    )
    return replace(chosen, noise_multiplier=sigma, budget=epsilon)


def steps_of(plan: Plan, units: int) -> int:
    """Return the steps of all rounds and local epochs."""
    epoch = math.ceil(units / plan.privacy.batch)
    return plan.rounds.rounds * plan.learner.epochs * epoch


def read_part(path: Path, plan: Plan) -> dict[str, Any] | None:
    """
    Read a finished seed, or None where there is none.

    :raises StoreError: if it is damaged, or of other settings.
    """

    def fits(part: dict[str, Any]) -> bool:
        summarise([part], plan, [plan.federation.seed])
        return bool(part['settings'] == json.loads(json.dumps(_essence(plan))))

    return read_finished(path, fits)


def _learn(
    records: Records,
    weights: np.ndarray,
    plan: Plan,
    epsilon: float,
    directory: Path,
    stopped: Stopped,
) -> dict[str, Any]:
    """Train all rounds at one epsilon, or what is left of them."""
    make_private_directory(directory)
    privacy = privacy_at(plan, epsilon, records.n_patients)
    purpose = f'utility {directory.name}'
    with Ledger.open(
        directory / 'ledger.sqlite',
        hospital=plan.hospitals[0],
        unit=privacy.unit,
        delta=privacy.delta,
        budget=privacy.budget,
    ) as ledger:
        trainer = Trainer(
            records,
            plan.shape,
            plan.learner,
            privacy,
            ledger,
            noise_source(directory, purpose, plan),
            directory / 'checkpoint',
        )
        for round in range(1, plan.rounds.rounds + 1):
            result = trainer.train(weights, round, report=_nothing, stopped=stopped)
            weights = result.weights
        spent = None if math.isinf(ledger.epsilon()) else ledger.epsilon()
    return {
        'weights': weights,
        'sigma_m': privacy.noise_multiplier,
        'epsilon_spent': spent,
        'steps': steps_of(plan, records.n_patients),
    }


def _nothing(progress: TrainingProgress) -> None:
    """Report to nobody."""


def _share(success: dict[str, float], name: str, of: str) -> float | None:
    """Return one success over another, None where that is none."""
    return success[name] / success[of] if success[of] > 0.0 else None


def _essence(plan: Plan) -> dict[str, Any]:
    """Return the settings that numbers here depend on, but for the seed."""
    every = plan.to_mapping()
    chosen = {
        name: every[name]
        for name in ('learner', 'collection', 'pretraining', 'world', 'federation')
    }
    chosen['federation'] = {
        name: chosen['federation'][name]
        for name in ('hospitals', 'heterogeneity', 'procedures', 'noise')
    }
    privacy = {
        name: value
        for name, value in asdict(plan.privacy).items()
        if name not in ('budget', 'noise_multiplier')
    }
    return {
        **chosen,
        'privacy': privacy,
        'rounds': plan.rounds.rounds,
        'patients': plan.evaluation.patients,
    }
