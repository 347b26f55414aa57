# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""Assess a run: collect its policies, value and evaluate them, and sum up."""

from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

from fdrl_ros.deployment.layout import Layout
from fdrl_ros.deployment.ledger_inspection import inspect_hospital
from fdrl_ros.deployment.parties.hospital import ledger_epsilon
from fdrl_ros.deployment.plan import Plan
from fdrl_ros.deployment.policy_file import load_policy
from fdrl_ros.deployment.robot.public_value import PublicValuation
from fdrl_ros.errors import PolicyError
from fdrl_ros.experiments.evaluation import (
    Contender,
    evaluate,
    Evaluation,
    ExpertContender,
    make_probe,
    operate_once,
    PolicyContender,
    Probe,
    SelectorContender,
    unseen_patients,
)
from fdrl_ros.experiments.json_file import Json
from fdrl_ros.experiments.patient_results import COMPARED, NORMAL_95, SCORES
from fdrl_ros.experiments.reports.versions import versions
from fdrl_ros.experiments.round_recorder import RoundNote
from fdrl_ros.experiments.training import alone_path
from fdrl_ros.policy import Policy
from fdrl_ros.privacy.accountant.accountant import epsilon_paper, PAPER_ORDER, sum_guarantees
from fdrl_ros.privacy.mechanism import mean_noise_std
from fdrl_ros.runtime.progress import Caller, NOBODY
from fdrl_ros.runtime.worker_processes import run_tasks
from fdrl_ros.selector import HOLD, ValueModel
from fdrl_ros.surgery.gym.surgery_env import SurgeryEnv
import numpy as np

PROFILED = ('expert', 'pretrained', 'global', 'selector')
"""Whose force on one patient is drawn."""


@dataclass(frozen=True, eq=False)
class Assessment:
    """
    Everything that is known of a run at its end.

    :param evaluations: by row of the table.
    :param learning: success of the global policy after each round with its 95 % interval, rounds
        from 0 on, rows (round, success, low, high).
    :param ledger_problems: what is wrong with a hospital's ledger, by hospital; its epsilon is
        then the whole budget.
    :param disjoint: whether the roster says that no patient is in two hospitals.
    :param profile: normal force of each tick on one patient, by row of the table, N.
    :param profiled: name of that patient, and the force limit of its procedure in N.
    """

    plan: Plan
    evaluations: dict[str, Evaluation]
    rounds: list[RoundNote]
    learning: list[tuple[int, float, float, float]]
    profile: dict[str, np.ndarray]
    profiled: tuple[str, float]
    epsilon: dict[str, float]
    ledger_problems: dict[str, str]
    probe_digest: str
    disjoint: bool

    def summary(self) -> Json:
        """Return what ``summary.json`` holds."""
        count = max(len(self.rounds), 1)
        privacy = self.plan.privacy
        shared: tuple[float | None, float | None] = (None, None)
        if not self.disjoint:
            shared = sum_guarantees(self.epsilon.values(), privacy.delta)
        return {
            'policies': {name: each.score for name, each in self.evaluations.items()},
            'epsilon': self.epsilon,
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
            'release': self.plan.federation.release,
            'rounds': len(self.rounds),
            'rounds_planned': self.plan.rounds.rounds,
            'ended': self.rounds[-1].ended if self.rounds else '',
            'round_seconds': sum(each.seconds for each in self.rounds) / count,
            'he_seconds': sum(each.he_seconds for each in self.rounds) / count,
            'update_bytes': max((each.update_bytes for each in self.rounds), default=0),
            'peak_memory': max(
                (each.peak_memory for each in self.rounds if each.peak_memory is not None),
                default=None,
            ),
            'n_parameters': self.plan.network.layout.n_parameters,
            'seed': self.plan.federation.seed,
            'versions': versions(),
        }

    def differences(self) -> dict[str, dict[str, float]]:
        """
        Compare the global policy with every other on the same patients.

        :returns: other policy to metric to mean lead; the half width of the 95 % interval over
            the patients of this run beside it.
        """
        return {
            name: paired_lead(self.evaluations['global'], each)
            for name, each in self.evaluations.items()
            if name != 'global'
        }


def paired_lead(one: Evaluation, other: Evaluation) -> dict[str, float]:
    """
    Return how far one policy is ahead of another, patient by patient.

    :raises PolicyError: if they were not evaluated on the same patients.
    """
    if not np.array_equal(one.results.column('patient'), other.results.column('patient')):
        raise PolicyError(f'{one.name} and {other.name} were evaluated on different patients')
    lead: dict[str, float] = {}
    for name in COMPARED:
        lead[name] = one.score[name] - other.score[name]
        paired, sign = SCORES[name].paired, SCORES[name].sign
        if paired:
            ours, theirs = (
                each.results.column(paired).astype(np.float64) for each in (one, other)
            )
            gap = sign * (ours - theirs)
            lead[name] = float(gap.mean())
            spread = float(gap.std(ddof=1)) if len(gap) > 1 else 0.0
            lead[f'{name}_half_width'] = NORMAL_95 * spread / len(gap) ** 0.5
    return lead


def line_up(layout: Layout, plan: Plan, policies: Path) -> tuple[dict[str, Policy], list[str]]:
    """
    Read every policy of a run.

    :param policies: directory of what was released.
    :returns: by row of the table but expert and selector, and which a selector may choose.
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


def assess(
    layout: Layout, plan: Plan, policies: Path, rounds: list[RoundNote], caller: Caller = NOBODY
) -> Assessment:
    """
    Evaluate every policy of a finished run on unseen patients.

    :param policies: directory of what was released.
    :raises TrainingStopped: as soon as the caller says so.
    """
    rows, choices = line_up(layout, plan, policies)
    candidates = {name: rows[name] for name in choices}
    valued = {**candidates, HOLD: None}
    tasks = [(name, policy, rows['pretrained'], plan) for name, policy in valued.items()]
    workers = plan.evaluation.workers
    models = run_tasks(fit_one, tasks, workers=workers, caller=caller)
    values = dict(zip(valued, models, strict=True))
    contenders: list[Contender] = [
        ExpertContender(),
        *(PolicyContender(name, policy) for name, policy in rows.items()),
        SelectorContender('selector', candidates, values, plan.selector, plan.shield),
    ]
    probe = make_probe(plan)
    probe.states.save(layout.directory / 'state_set.npz')
    patients = unseen_patients(plan, plan.evaluation.patients)
    evaluations = evaluate(contenders, patients, probe, plan, caller=caller)
    learning = _learning(plan, policies, probe, caller)
    stiffest = patients[plan.federation.hospitals - 1]
    with closing(SurgeryEnv(settings=plan.world)) as env:
        env.np_random = np.random.default_rng(plan.federation.seed)
        profile = {
            each.name: operate_once(env, each, stiffest, plan.world)[0].forces
            for each in contenders
            if each.name in PROFILED
        }
    return Assessment(
        plan=plan,
        evaluations=evaluations,
        rounds=rounds,
        learning=learning,
        profile=profile,
        profiled=(stiffest.name, stiffest.procedure.force_limit),
        epsilon={name: ledger_epsilon(layout, name, plan) for name in plan.hospitals},
        ledger_problems={
            name: found.problems[0]
            for name in plan.hospitals
            if (found := inspect_hospital(layout, name, plan)).problems
        },
        probe_digest=probe.states.digest,
        disjoint=layout.roster().disjoint_patients,
    )


def fit_one(
    name: str, policy: Policy | None, start: Policy, plan: Plan, caller: Caller
) -> ValueModel:
    """
    Value one candidate on public patients; a piece of work for a worker process.

    :param policy: None holds.
    :param start: the public start.
    """
    told = caller.counter('value', name)
    return PublicValuation(plan, start, caller.stopped, told).value_model(policy)


def _learning(
    plan: Plan, policies: Path, probe: Probe, caller: Caller
) -> list[tuple[int, float, float, float]]:
    """Evaluate the global policy of each round on the first of the unseen patients."""
    contenders = [
        PolicyContender(f'round {number}', _load(path, plan))
        for number, path in released_globals(policies)
    ]
    patients = unseen_patients(plan, plan.evaluation.round_patients)
    scores = evaluate(contenders, patients, probe, plan, caller=caller)
    columns = ('success', 'success_low', 'success_high')
    return [
        (int(name.split()[1]), *(each.score[column] for column in columns))
        for name, each in scores.items()
    ]
