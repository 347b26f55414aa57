# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""
What privacy costs one hospital: success of its own policy against epsilon, over several seeds.

Every epsilon learns from the same records, start, order of steps and number of them, by the very
trainer that runs in a hospital; only clipping and noise differ. Finished seeds are kept.
"""

from collections.abc import Sequence
from contextlib import closing
from dataclasses import asdict, replace
import math
from pathlib import Path

from fdrl_ros.deployment.parties.hospital import noise_source
from fdrl_ros.deployment.plan import Plan
from fdrl_ros.deployment.prepare import learn_public_start
from fdrl_ros.experiments.intervals import interval, over_seeds, RATIO, SHARE
from fdrl_ros.experiments.json_file import Json
from fdrl_ros.experiments.study import chosen_settings, Part, Study, Work
from fdrl_ros.learner.records.collection import HospitalSimulator
from fdrl_ros.learner.records.records import Records
from fdrl_ros.learner.settings import PrivacySettings
from fdrl_ros.learner.trainer import Trainer, TrainingSetup
from fdrl_ros.privacy.accountant.calibration import noise_multiplier_for
from fdrl_ros.privacy.ledger.chain import Owner
from fdrl_ros.privacy.ledger.ledger import Ledger
from fdrl_ros.runtime.durable import make_private_directory
from fdrl_ros.runtime.progress import Caller, NOBODY
from fdrl_ros.surgery.gym.episode import run_episode
from fdrl_ros.surgery.gym.surgery_env import SurgeryEnv
from fdrl_ros.surgery.patient.cohort import Cohort
import numpy as np

EPSILONS = (math.inf, 8.0, 4.0, 2.0, 1.0)
"""What is compared; infinity learns without clipping and noise."""

STARTS = ('public', 'random')
"""Weights that learning begins with: learned on public patients, or drawn."""

_UNCLIPPED = 1e6


def run_utility(
    directory: Path, plan: Plan, seeds: Sequence[int], caller: Caller = NOBODY
) -> Json:
    """
    Measure every seed, and sum up.

    :param directory: gets ``parts/``, one JSON file a seed, and is gone on from them.
    :param plan: its hospital 1 is the one that learns; seed, budget and noise do not count.
    :returns: success by start and epsilon, with intervals; and what of the non-private success is
        kept, paired by seed.
    :raises TrainingStopped: as soon as the caller says so; call it again to go on.
    :raises StoreError: if a part is damaged, or of other settings.
    """
    plan = plan.with_all_weights()  # a random start learns nothing by its first bias alone
    parts = [
        Part(
            f'seed_{seed}',
            {'settings': _relevant_settings(plan)},
            (plan.changed({'federation': {'seed': seed}}),),
            f'seed {seed}',
        )
        for seed in seeds
    ]
    study = Study(
        'utility',
        directory / 'parts',
        measure,
        lambda part: summarise([part], plan, seeds),
        plan.evaluation.workers,
    )
    return summarise(study.run(parts, caller), plan, seeds)


def summarise(rows: Sequence[Json], plan: Plan, seeds: Sequence[int]) -> Json:
    """
    Sum up over seeds.

    :param rows: what :func:`measure` returns of each seed.
    """

    def column(start: str, name: str) -> Json:
        found = [row['success'][start] for row in rows]
        kept = [each[name] / each['inf'] if each['inf'] > 0.0 else None for each in found]
        return {
            'success': interval([each[name] for each in found], SHARE),
            'kept': interval(kept, RATIO),
        }

    names = [name_of(epsilon) for epsilon in EPSILONS]
    return {
        'seeds': list(seeds),
        'settings': _relevant_settings(plan),
        'unit': plan.privacy.unit,
        'delta': plan.privacy.delta,
        'private': plan.federation.noise == 'secure',
        'start': over_seeds([row['start'] for row in rows], SHARE),
        'sigma_m': rows[0]['sigma_m'],
        'epsilon_spent': rows[0]['epsilon_spent'],
        'steps': rows[0]['steps'],
        'results': {start: {name: column(start, name) for name in names} for start in STARTS},
    }


def measure(plan: Plan, work: Work) -> Json:
    """Measure one seed."""
    total = work_of(plan)
    home = plan.cohorts[0]
    patients = plan.collection.patients
    work.tell(0, total, 'collects')
    records = HospitalSimulator(plan.task, plan.world, plan.collection).collect(
        home,
        progress=lambda done, _: work.tell(done, total, 'collects'),
        stopped=work.caller.stopped,
    )
    public = learn_public_start(
        plan, lambda what, done, count: work.tell(patients, total, what), work.caller.stopped
    )
    rng = np.random.default_rng(plan.federation.seed)
    starts = {'public': public, 'random': plan.network.draw(rng)}
    part: Json = {
        'success': {start: {} for start in STARTS},
        'start': {},
        'sigma_m': {},
        'epsilon_spent': {},
        'steps': steps_of(plan, records.n_patients),
    }
    done = patients

    def success(weights: np.ndarray, words: str) -> float:
        nonlocal done
        found = success_of(weights, home, plan, work)
        done += plan.evaluation.patients
        work.tell(done, total, words)
        return found

    for start, weights in starts.items():
        part['start'][start] = success(weights, f'{start} start')
        for epsilon in EPSILONS:
            name = name_of(epsilon)
            privacy = privacy_at(plan, epsilon, records.n_patients)
            learned, part['epsilon_spent'][name] = learn_at(
                records, weights, plan, privacy, work, f'{start}_{name}'
            )
            part['sigma_m'][name] = privacy.noise_multiplier
            part['success'][start][name] = success(learned, f'{start} start, epsilon {name}')
    return part


def success_of(weights: np.ndarray, home: Cohort, plan: Plan, work: Work) -> float:
    """Return the share of a hospital's unseen patients that a policy succeeds on."""
    policy, ends = plan.network.policy(weights), []
    with closing(SurgeryEnv(settings=plan.world)) as env:
        for index in range(plan.evaluation.patients):
            work.check()
            ends.append(run_episode(env, policy, home.patient(index, 'test')).success)
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
        epsilon=epsilon, delta=chosen.delta, phases=[(rate, steps_of(plan, units))]
    )
    return replace(chosen, noise_multiplier=sigma, budget=epsilon)


def steps_of(plan: Plan, units: int) -> int:
    """Return the steps of all rounds and local epochs."""
    epoch = math.ceil(units / plan.privacy.batch)
    return plan.rounds.rounds * plan.learner.epochs * epoch


def learn_at(
    records: Records,
    weights: np.ndarray,
    plan: Plan,
    privacy: PrivacySettings,
    work: Work,
    name: str,
) -> tuple[np.ndarray, float | None]:
    """
    Train all rounds of a hospital at one epsilon, in a ledger of its own.

    :param privacy: of :func:`privacy_at`.
    :param name: of the folder of ledger and checkpoint, and of the noise.
    :returns: the weights, and the epsilon spent, None if there was no noise.
    """
    directory = work.directory / name
    make_private_directory(directory)
    with Ledger(
        directory / 'ledger.sqlite',
        Owner(
            hospital=plan.hospitals[0],
            unit=privacy.unit,
            delta=privacy.delta,
            budget=privacy.budget,
        ),
    ) as ledger:
        source = noise_source(directory, f'utility {name}', plan)
        setup = TrainingSetup(
            plan.network, plan.learner, privacy, ledger, source, fields=plan.spec.names
        )
        trainer = Trainer(setup, records, directory / 'checkpoint')
        for round in range(1, plan.rounds.rounds + 1):
            result = trainer.train(
                weights, round, report=lambda progress: None, stopped=work.caller.stopped
            )
            weights = result.weights
        return weights, None if math.isinf(ledger.epsilon()) else ledger.epsilon()


def _relevant_settings(plan: Plan) -> Json:
    """Return the settings that numbers here depend on, but for the seed."""
    privacy = asdict(plan.privacy).keys() - {'budget', 'noise_multiplier'}
    federation = ('hospitals', 'heterogeneity', 'procedures', 'noise', 'gap', 'disturbances')
    groups = ('learner', 'collection', 'pretraining', 'world')
    return {
        **chosen_settings(plan, *groups, federation=federation, privacy=sorted(privacy)),
        'rounds': plan.rounds.rounds,
        'patients': plan.evaluation.patients,
    }
