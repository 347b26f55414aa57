# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""
Whole experiments: one seed from nothing to numbers, and several seeds with paired differences.

Finished work is kept: a seed that was interrupted goes on where it stood, a finished one is
read from its file.
"""

from collections.abc import Sequence
from pathlib import Path

from fdrl_ros.deployment.layout import Layout
from fdrl_ros.deployment.plan import Plan
from fdrl_ros.experiments.intervals import over_seeds
from fdrl_ros.experiments.json_file import Json, write_json
from fdrl_ros.experiments.patient_results import compared
from fdrl_ros.experiments.ray_federation import RayEngine
from fdrl_ros.experiments.reports.assessment import (
    assess,
    Assessment,
    evaluate_policies,
    evaluator_of,
)
from fdrl_ros.experiments.round_recorder import RoundNote
from fdrl_ros.experiments.run_directory import RunDirectory
from fdrl_ros.experiments.study import Part, Study, Work
from fdrl_ros.experiments.training import (
    collect_all,
    prepare_run,
    train_all_alone,
    train_federation,
)
from fdrl_ros.runtime.progress import Caller, NOBODY


def run_training(
    directory: Path, plan: Plan, caller: Caller = NOBODY, engine: RayEngine | None = None
) -> tuple[Layout, list[RoundNote]]:
    """
    Prepare, collect and train all rounds.

    :param directory: of the run; 'federation' and 'policies' are made in it.
    :param engine: where hospitals work, see :func:`train_federation`.
    :raises TrainingStopped: as soon as the caller says so; call it again to go on.
    """
    layout = prepare_run(directory, plan, caller)
    if engine is None:
        collect_all(layout, plan, caller)
    rounds = train_federation(layout, plan, directory / 'policies', caller, engine)
    RunDirectory(directory).forget_results(len(rounds))
    return layout, rounds


def run_experiment(
    directory: Path, plan: Plan, caller: Caller = NOBODY, engine: RayEngine | None = None
) -> Assessment:
    """
    Train together and alone, and evaluate everyone on the same unseen patients.

    :param directory: of the run.
    :param engine: where hospitals of the federation work, see :func:`train_federation`.
    :raises TrainingStopped: as soon as the caller says so; call it again to go on.
    """
    layout, rounds = run_training(directory, plan, caller, engine)
    train_all_alone(layout, plan, caller)
    results = evaluate_policies(layout, plan, directory / 'policies', caller)
    return assess(layout, results, rounds)


def run_seeds(directory: Path, plan: Plan, seeds: Sequence[int], caller: Caller = NOBODY) -> Json:
    """
    Repeat the experiment with several seeds and compare them.

    :param directory: gets one JSON file a finished seed, and ``experiment.json``.
    :returns: what ``experiment.json`` holds.
    :raises StoreError: if a seed's file is damaged, or of another plan.
    """
    parts = []
    for seed in seeds:
        own = plan.changed({'federation': {'seed': seed}})
        settings = {'plan': own.to_mapping()}
        parts.append(Part(f'seed_{seed}', settings, (directory / f'seed_{seed}', own)))
    study = Study('experiment', directory, measure)
    combined = combine(study.run(parts, caller), plan, seeds)
    write_json(directory / 'experiment.json', combined)
    return combined


def measure(directory: Path, plan: Plan, work: Work) -> Json:
    """Run the experiment with one seed."""
    found = run_experiment(directory, plan, work.caller)
    return {
        'summary': found.summary(),
        'differences': found.differences(),
        'learning': found.learning,
        **found.extras.details,
    }


def combine(results: Sequence[Json], plan: Plan, seeds: Sequence[int]) -> Json:
    """
    Sum up over seeds: means, and paired differences with their 95 % intervals.

    :param results: what :func:`run_seeds` keeps of each seed.
    """
    summaries = [each['summary'] for each in results]
    scores = evaluator_of(plan).scores
    leads = compared(scores)
    means = [name for name, score in scores.items() if score.over_seeds or name in leads]
    every = [each.get('epsilon_of_shared_patients') for each in summaries]
    shared = [each for each in every if each is not None]
    return {
        'seeds': list(seeds),
        'plan': plan.to_mapping(),
        'private': plan.federation.noise == 'secure',
        'epsilon': {
            name: max(each['epsilon'][name] for each in summaries)
            for name in summaries[0]['epsilon']
        },
        'delta': plan.privacy.delta,
        'epsilon_of_shared_patients': max(shared, default=None),
        'delta_of_shared_patients': len(summaries[0]['epsilon']) * plan.privacy.delta,
        'unit': plan.privacy.unit,
        'policies': over_seeds([_chosen(each['policies'], means) for each in summaries]),
        'federated_minus': over_seeds([_chosen(each['differences'], leads) for each in results]),
    }


def _chosen(table: Json, metrics: Sequence[str]) -> Json:
    """Return some metrics of every policy."""
    return {name: {metric: row[metric] for metric in metrics} for name, row in table.items()}
