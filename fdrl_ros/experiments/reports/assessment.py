# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""Assess a run: collect its policies, value and evaluate them, and sum up."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
import math
from pathlib import Path

from fdrl_ros.deployment.layout import Layout, ROBOTS
from fdrl_ros.deployment.ledger_inspection import inspect_hospital
from fdrl_ros.deployment.parties.hospital import HOME, ledger_spent, Spent
from fdrl_ros.deployment.plan import Plan
from fdrl_ros.deployment.policy_file import load_policy
from fdrl_ros.errors import PolicyError
from fdrl_ros.experiments.evaluation import Evaluation, Evaluator, Extras, PolicyContender
from fdrl_ros.experiments.json_file import Json
from fdrl_ros.experiments.patient_results import (
    BY_GROUP,
    NORMAL_95,
    PatientResults,
    score_of,
    Scores,
)
from fdrl_ros.experiments.reports.versions import commit, versions
from fdrl_ros.experiments.round_recorder import RoundNote
from fdrl_ros.experiments.surgery_evaluation import SurgeryEvaluator
from fdrl_ros.experiments.training import alone_path
from fdrl_ros.policy import Policy
from fdrl_ros.privacy.accountant.accountant import epsilon_paper, PAPER_ORDER, sum_guarantees
from fdrl_ros.privacy.mechanism import mean_noise_std
from fdrl_ros.runtime.progress import Caller, NOBODY
from fdrl_ros.surgery.task import SurgeryTask
import numpy as np


def evaluator_of(plan: Plan) -> Evaluator:
    """Return what compares the policies of a plan's task."""
    kind = SurgeryEvaluator if isinstance(plan.task, SurgeryTask) else Evaluator
    return kind(plan)


@dataclass(frozen=True, eq=False)
class PolicyResults:
    """
    What the policies of a run did on unseen patients.

    :param evaluations: by row of the table.
    :param learning: the global policy after each round, rounds from 0 on: rows of the round, then
        each of the evaluator's `learned` scores with the ends of its 95 % interval.
    """

    evaluator: Evaluator
    evaluations: dict[str, Evaluation]
    learning: list[tuple[float, ...]]
    extras: Extras


@dataclass(frozen=True, eq=False)
class Assessment(PolicyResults):
    """
    Everything that is known of a run at its end.

    :param ledger_problems: what is wrong with a hospital's ledger, by hospital; its epsilon is
        then the whole budget.
    :param disjoint: whether the roster says that no patient is in two hospitals.
    """

    rounds: list[RoundNote]
    spent: dict[str, Spent]
    ledger_problems: dict[str, str]
    disjoint: bool

    @property
    def plan(self) -> Plan:
        """The settings of the run."""
        return self.evaluator.plan

    @property
    def epsilon(self) -> dict[str, float]:
        """What each hospital has spent."""
        return {name: each.epsilon for name, each in self.spent.items()}

    def summary(self) -> Json:
        """Return what ``summary.json`` holds."""
        count = max(len(self.rounds), 1)
        plan = self.plan
        privacy = plan.privacy
        shared: tuple[float | None, float | None] = (None, None)
        if not self.disjoint:
            shared = sum_guarantees(self.epsilon.values(), privacy.delta)
        return {
            'task': {'name': plan.identity.name, 'version': plan.identity.version},
            'learner': {'kind': plan.learner.kind, 'network': plan.network.name},
            'world_hash': plan.identity.world_hash,
            'world': dict(vars(plan.world)),
            'commit': commit(),
            'policies': {name: each.score for name, each in self.evaluations.items()},
            **{f'by_{column}': found for column, found in self.groups().items()},
            'epsilon': self.epsilon,
            'attack_bounds': {name: each.attacks._asdict() for name, each in self.spent.items()},
            'ledger_problems': self.ledger_problems,
            'delta': privacy.delta,
            'unit': privacy.unit,
            'disjoint_patients': self.disjoint,
            'epsilon_of_shared_patients': shared[0],
            'delta_of_shared_patients': shared[1],
            'sigma_m': privacy.noise_multiplier,
            's': mean_noise_std(
                noise_multiplier=privacy.noise_multiplier,
                clip_norm=privacy.clip_norm,
                expected_batch=privacy.batch,
            ),
            'epsilon_paper': epsilon_paper(PAPER_ORDER, privacy.noise_multiplier),
            'release': plan.federation.release,
            'rounds': len(self.rounds),
            'rounds_planned': plan.rounds.rounds,
            'blamed': {name: each.blamed[name] for each in self.rounds for name in each.blamed},
            'ended': self.rounds[-1].ended if self.rounds else '',
            'round_seconds': sum(each.seconds for each in self.rounds) / count,
            'he_seconds': sum(each.he_seconds for each in self.rounds) / count,
            'update_bytes': max((each.update_bytes for each in self.rounds), default=0),
            'peak_memory': max(
                (each.peak_memory for each in self.rounds if each.peak_memory is not None),
                default=None,
            ),
            'n_parameters': plan.network.layout.n_parameters,
            'seed': plan.federation.seed,
            'versions': versions(),
        }

    def differences(self) -> dict[str, dict[str, float]]:
        """
        Compare what the federation made with every other row on the same patients.

        That is the home policies on the patients of their hospitals, or without any the global
        policy.

        :returns: other policy to metric to mean lead; the half width of the 95 % interval over
            the patients of this run beside it.
        """
        return {
            name: paired_lead(self.evaluations[self.main], each, self.evaluator.scores)
            for name, each in self.evaluations.items()
            if name != self.main
        }

    @property
    def main(self) -> str:
        """The row of what a federation's robots get."""
        return main_row(self.evaluations)

    def groups(self) -> dict[str, Json]:
        """
        Return the results of each group of patients.

        :returns: column to group to policy to scores; columns that the task does not have are
            left out.
        """
        results = {name: each.results for name, each in self.evaluations.items()}
        found = {column: scores_by(column, results) for column in self.evaluator.grouped}
        return {column: each for column, each in found.items() if each}

    def compared_rows(self) -> list[str]:
        """Return the rows that groups of patients are compared by."""
        return compared_rows(self.evaluations)


def main_row(names: Collection[str]) -> str:
    """Return the row of what a federation's robots get, among the policies of a run."""
    return 'home' if 'home' in names else 'global'


def scores_by(column: str, results: Mapping[str, PatientResults]) -> dict[str, Json]:
    """
    Return the scores of each group of patients; those without the column have none.

    :param results: by policy.
    :returns: group to policy to scores.
    """
    found: dict[str, Json] = {}
    for name, each in results.items():
        if column in each.columns:
            for group, own in each.groups(column).items():
                found.setdefault(group, {})[name] = score_of(own, BY_GROUP)
    return found


def compared_rows(names: Collection[str]) -> list[str]:
    """Return those policies of a run that groups of patients are compared by, in their order."""
    rows = ('expert', 'random', 'pretrained', 'alone', 'global', 'home', 'selector')
    return [each for each in rows if each in names]


def paired_lead(one: Evaluation, other: Evaluation, scores: Scores) -> dict[str, float]:
    """
    Return how far one policy is ahead of another, patient by patient.

    :raises PolicyError: if they were not evaluated on the same patients.
    """
    if not np.array_equal(one.results.column('patient'), other.results.column('patient')):
        raise PolicyError(f'{one.name} and {other.name} were evaluated on different patients')
    lead: dict[str, float] = {}
    for name, score in scores.items():
        if score.compared and score.paired:
            ours, theirs = (
                each.results.column(score.paired).astype(np.float64) for each in (one, other)
            )
            gap = score.sign * (ours - theirs)
            gap = gap[~np.isnan(gap)]
            lead[name] = float(gap.mean()) if len(gap) else math.nan
            spread = float(gap.std(ddof=1)) if len(gap) > 1 else math.nan
            lead[f'{name}_half_width'] = NORMAL_95 * spread / max(len(gap), 1) ** 0.5
        elif score.compared:
            lead[name] = one.score[name] - other.score[name]
    return lead


def line_up(layout: Layout, plan: Plan, policies: Path) -> tuple[dict[str, Policy], list[str]]:
    """
    Read every policy of a run.

    :param policies: directory of what was released.
    :returns: by name, and the names of those that a selector may choose.
    """
    files = {'pretrained': layout.pretrained}
    for name in plan.hospitals:
        if alone_path(layout, name).exists():
            files[f'local_{name}'] = alone_path(layout, name)
    files['global'] = released_globals(policies)[-1][1]
    choices = ['global']
    for name in plan.hospitals:
        if (policies / f'{name}.npz').exists():
            files[name] = policies / f'{name}.npz'
            choices.append(name)
        if plan.home.epochs and (layout.party(name) / HOME).exists():
            files[f'home_{name}'] = layout.party(name) / HOME
    untrained = plan.network.policy(plan.network.draw(np.random.default_rng(plan.federation.seed)))
    loaded = {name: _load(path, plan) for name, path in files.items()}
    return {'untrained': untrained, **loaded}, choices


def _load(path: Path, plan: Plan) -> Policy:
    return load_policy(path).policy(plan)


def released_globals(policies: Path) -> list[tuple[int, Path]]:
    """
    List the global policy of each round, oldest first.

    :raises PolicyError: if there is none yet.
    """
    numbered = [
        (path.stem.removeprefix('global_'), path) for path in policies.glob('global_*.npz')
    ]
    found = [(int(number), path) for number, path in numbered if number.isdigit()]
    if not found:
        raise PolicyError(f'{policies} holds no global policy: train first')
    return sorted(found)


def evaluate_policies(
    layout: Layout, plan: Plan, policies: Path, caller: Caller = NOBODY
) -> PolicyResults:
    """
    Evaluate every policy of a run, and the selector among them, on unseen patients.

    :param policies: directory of what was released.
    :raises TrainingStopped: as soon as the caller says so.
    """
    evaluator = evaluator_of(plan)
    rows, choices = line_up(layout, plan, policies)
    robots = [layout.party(name) for name in ROBOTS]
    contenders = evaluator.contenders(rows, choices, caller, robots)
    evaluator.keep(layout)
    evaluations = evaluator.evaluate(contenders, plan.evaluation.patients, caller)
    return PolicyResults(
        evaluator=evaluator,
        evaluations=evaluations,
        learning=_learning(evaluator, policies, caller),
        extras=evaluator.extras(contenders, evaluations),
    )


def assess(layout: Layout, results: PolicyResults, rounds: list[RoundNote]) -> Assessment:
    """
    Add to the results of a run's policies what its rounds were and what they cost.

    :param layout: of the run; no hospital of it works meanwhile.
    """
    plan = results.evaluator.plan
    return Assessment(
        **vars(results),
        rounds=rounds,
        spent={name: ledger_spent(layout, name, plan) for name in plan.hospitals},
        ledger_problems={
            name: found.problems[0]
            for name in plan.hospitals
            if (found := inspect_hospital(layout, name, plan)).problems
        },
        disjoint=layout.roster().disjoint_patients,
    )


def _learning(evaluator: Evaluator, policies: Path, caller: Caller) -> list[tuple[float, ...]]:
    """Evaluate the global policy of each round on the first of the unseen patients."""
    plan = evaluator.plan
    contenders = [
        PolicyContender(f'round {number}', _load(path, plan))
        for number, path in released_globals(policies)
    ]
    found = evaluator.evaluate(contenders, plan.evaluation.round_patients, caller)
    columns = [f'{name}{end}' for name in evaluator.learned for end in ('', '_low', '_high')]
    return [
        (int(name.split()[1]), *(each.score[column] for column in columns))
        for name, each in found.items()
    ]
