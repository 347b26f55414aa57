# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""`fdrl policies export`: a policy as an ONNX model, and how well that agrees with it."""

from dataclasses import replace
from pathlib import Path

import click
from fdrl_ros.cli.group import stopping
from fdrl_ros.cli.options import plan_from, plan_option, PlanCommand
from fdrl_ros.cli.output import console
from fdrl_ros.deployment.plan import Plan, SURGERY
from fdrl_ros.deployment.policy_file import load_policy
from fdrl_ros.deployment.robot.public_value import PublicValuation
from fdrl_ros.deployment.robot.robot_policies import signed_policy
from fdrl_ros.errors import os_errors_as, SettingError, StoreError
from fdrl_ros.experiments.reports.text_table import make_table
from fdrl_ros.experiments.surgery_evaluation import make_probe
from fdrl_ros.learner.records.collection import HospitalSimulator
from fdrl_ros.policy import Policy
from fdrl_ros.policy.onnx_model import Agreement, agreement, EDGES, export, OnnxModel, quantise
from fdrl_ros.runtime.progress import Stopped
from fdrl_ros.surgery.gym.state import STATE_BOUND
import numpy as np
from rich.table import Table

_MOST_STATES = 10_000


@click.command('export', cls=PlanCommand)
@click.argument('policy', type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.argument('target', type=click.Path(dir_okay=False, path_type=Path))
@click.option('--int8', is_flag=True, help='Matrices and what they multiply as 8-bit integers.')
@click.option('--units', is_flag=True, help='The model takes values in units and scales them.')
@plan_option
def export_policy(
    policy: Path, target: Path, int8: bool, units: bool, plan_file: str | None, **flags: object
) -> None:
    """
    Write POLICY, a file such as runs/latest/policies/global_6.npz, as the ONNX model TARGET.

    Or one that a robot keeps: runs/latest/federation/robot_1/policies/global_....policy, whose
    signature is then checked.

    Of another task than surgery: with --task, or --plan runs/NAME/federation/plan.yaml.

    Then see in how many states of the frozen set of --evaluation-state-patients the model takes
    the same action. Its ranges for --int8 come from public patients that the policy operates on.
    Of another task both are states of the public patients of --evaluation-state-patients.
    """
    plan = plan_from(flags, plan_file)
    signed, surgery = policy.suffix == '.policy', plan.federation.task == SURGERY
    ours = signed_policy(policy) if signed else load_policy(policy).policy(plan)
    scales = np.array([field.scale for field in plan.spec.fields])
    if units and not len(scales):
        raise SettingError('--units', units, 'no images, which have no units')
    bound = STATE_BOUND if surgery else None
    model = export(ours, scales=scales if units else None, bound=bound)

    def as_taken(states: np.ndarray) -> np.ndarray:
        return states.astype(np.float64) * scales if units else states

    out = console()
    with stopping() as stopped:
        states = make_probe(plan).states.states if surgery else _public_states(plan, stopped)
        if int8:
            met = _states_met(plan, ours, stopped) if surgery else states
            model = quantise(model, as_taken(met))
    # What goes through units and back is rounded: both shall see the same.
    seen = (as_taken(states) / scales).astype(np.float32) if units else states
    expected, found = ours.q_values(seen), OnnxModel(model).q_values(as_taken(states))
    with os_errors_as(StoreError, f'cannot write the model {target}'):
        part = target.with_name(target.name + '.part')
        part.write_bytes(model)
        part.replace(target)
    if plan.spec.continuous or expected.ndim > 2:
        error = float(np.abs(expected - found).max())
        out.print(f'largest difference in {len(states)} states: {error:.2g}')
    else:
        same = agreement(expected, found)
        out.print(agreement_table(same))
        out.print(
            f'{same.same:.2%} of {same.states} states get the same action; what is lost is '
            f'{same.loss:.2g} of Q on average',
        )
    out.print(f'saved in {target}: {len(model)} bytes', soft_wrap=True)


def _states_met(plan: Plan, policy: Policy, stopped: Stopped) -> np.ndarray:
    """Return states of public patients whom a policy operates on."""
    known = PublicValuation(plan, policy, stopped).experience(policy)
    return np.concatenate([each.states for each in known.values()])


def _public_states(plan: Plan, stopped: Stopped) -> np.ndarray:
    """Return states of public patients whom the task's guide treats."""
    patients = plan.evaluation.state_patients
    settings = replace(plan.collection, patients=patients, guide='expert')
    simulator = HospitalSimulator(plan.task, plan.world, settings)
    return simulator.collect(plan.population(None), stopped=stopped).states[:_MOST_STATES]


def agreement_table(found: Agreement) -> Table:
    """Tell how many states have which margin, and how many of them get another action."""
    rows = []
    for place, (count, other) in enumerate(zip(found.margins, found.differing, strict=True)):
        low, high = EDGES[place], EDGES[place + 1]
        words = f'{low:g} to {high:g}' if np.isfinite(high) else f'above {low:g}'
        rows.append((words, count, other))
    return make_table(
        'Actions of the model beside those of the policy',
        ('margin, spreads of Q', 'states', 'another action'),
        rows,
        numbers='right',
    )
