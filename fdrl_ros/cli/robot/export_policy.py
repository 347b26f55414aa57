# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""`fdrl policies export`: a policy as an ONNX model, and how well that agrees with it."""

from pathlib import Path

import click
from fdrl_ros.cli.group import stopping
from fdrl_ros.cli.options import plan_from, plan_option, PlanCommand
from fdrl_ros.cli.output import console
from fdrl_ros.deployment.plan import Plan
from fdrl_ros.deployment.policy_file import load_policy
from fdrl_ros.deployment.robot.public_value import PublicValuation
from fdrl_ros.deployment.robot.robot_policies import signed_policy
from fdrl_ros.errors import os_errors_as, PolicyError, StoreError
from fdrl_ros.experiments.reports.text_table import make_table
from fdrl_ros.experiments.surgery_evaluation import make_probe
from fdrl_ros.policy import Policy
from fdrl_ros.policy.onnx_model import Agreement, agreement, EDGES, export, OnnxModel, quantise
from fdrl_ros.surgery.gym.state import scale, SCALES, STATE_BOUND, STATE_SIZE, unscale
import numpy as np
from rich.table import Table


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

    Then see in how many states of the frozen set of --evaluation-state-patients the model takes
    the same action. Its ranges for --int8 come from public patients that the policy operates on.
    """
    plan = plan_from(flags, plan_file)
    ours = _read(policy)
    try:
        ours(np.zeros(STATE_SIZE, np.float32))
    except (PolicyError, ValueError) as error:
        raise PolicyError(f'{policy} takes no {STATE_SIZE} numbers: {error}') from error
    model = export(ours, scales=SCALES if units else None, bound=STATE_BOUND)
    as_taken = unscale if units else np.asarray
    out = console()
    with stopping() as stopped:
        if int8:
            known = PublicValuation(plan, ours, stopped).experience(ours)
            met = np.concatenate([each.states for each in known.values()])
            model = quantise(model, as_taken(met))
        states = make_probe(plan).states.states
    # What goes through units and back is rounded: both shall see the same.
    seen = scale(unscale(states)) if units else states
    found = agreement(ours.q_values(seen), OnnxModel(model).q_values(as_taken(states)))
    with os_errors_as(StoreError, f'cannot write the model {target}'):
        part = target.with_name(target.name + '.part')
        part.write_bytes(model)
        part.replace(target)
    out.print(agreement_table(found))
    out.print(
        f'{found.same:.2%} of {found.states} states get the same action; what is lost is '
        f'{found.loss:.2g} of Q on average',
    )
    out.print(f'saved in {target}: {len(model)} bytes', soft_wrap=True)


def _read(path: Path) -> Policy:
    if path.suffix == '.policy':
        return signed_policy(path)
    return load_policy(path).policy(Plan())


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
