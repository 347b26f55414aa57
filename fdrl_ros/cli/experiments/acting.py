# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""Who operates in `fdrl draw` and `fdrl play`: the expert, a policy of a run, or a file."""

from pathlib import Path
from typing import NamedTuple

from fdrl_ros.deployment.layout import Layout
from fdrl_ros.deployment.plan import Plan
from fdrl_ros.deployment.policy_file import load_policy
from fdrl_ros.errors import PolicyError
from fdrl_ros.experiments.plots.pictures import Actor, expert_actor
from fdrl_ros.experiments.reports.assessment import line_up
from fdrl_ros.experiments.reports.run_report import own_plan
from fdrl_ros.experiments.surgery_evaluation import require_surgery
from fdrl_ros.policy import Policy

EXPERT = 'expert'


class Operator(NamedTuple):
    """
    Who operates.

    :param name: as files have it.
    :param plan: of the run, whose world and patients these are; the defaults without a run.
    """

    name: str
    plan: Plan
    actor: Actor


def operator_of(run: Path | None, policy: str) -> Operator:
    """
    Find who operates.

    :param run: directory of a run; None: `policy` is the expert or a file.
    :param policy: `expert`, a name such as `global`, `global_2`, `hospital_1`, `alone_hospital_1`
        or `home_hospital_1`, or a file of weights.
    :raises StoreError: if the directory is no run.
    :raises PolicyError: if there is no such policy, or it fits nothing here.
    """
    if run is None:
        file = Path(policy)
        beside = Layout(file.parent.parent / 'federation')
        plan = Plan.load(beside.plan) if beside.plan.exists() else Plan().checked()
        if policy != EXPERT:
            return _acting(file.stem, plan, load_policy(file).policy(plan, any_world=True))
    else:
        layout = Layout(run / 'federation')
        plan = own_plan(run).checked()
        if policy != EXPERT:
            return _acting(policy, plan, _of_run(run, layout, plan, policy))
    require_surgery(plan)
    return Operator(EXPERT, plan, expert_actor(plan.world))


def _of_run(run: Path, layout: Layout, plan: Plan, name: str) -> Policy:
    released = run / 'policies'
    if name.startswith('global_') and (released / f'{name}.npz').exists():
        return load_policy(released / f'{name}.npz').policy(plan)
    found, _ = line_up(layout, plan, released)
    known = {each.replace('local_', 'alone_'): own for each, own in found.items()}
    if name not in known:
        raise PolicyError(
            f'--policy {name}: {run} has no such policy, but {EXPERT}, {", ".join(known)}, and '
            'global_N of each round N'
        )
    return known[name]


def _acting(name: str, plan: Plan, policy: Policy) -> Operator:
    require_surgery(plan)
    return Operator(name, plan, lambda patient: lambda operation: int(policy(operation.state())))
