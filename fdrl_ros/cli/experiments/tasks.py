# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""`fdrl tasks`: the tasks and learners that are registered, and marks of files."""

from pathlib import Path

import click
from fdrl_ros.cli.options import json_option
from fdrl_ros.cli.output import console
from fdrl_ros.deployment.marking import mark as mark_file
from fdrl_ros.deployment.plan import Plan
from fdrl_ros.deployment.registry import LEARNERS_GROUP, registered, TASKS_GROUP
from fdrl_ros.errors import FdrlError
from fdrl_ros.experiments.json_file import Json, json_text
from fdrl_ros.experiments.reports.text_table import make_table
from fdrl_ros.tasks.trial import try_task
import numpy as np
from rich.console import Console

_UNLIMITED = 10_000  # characters of a line on which any table fits

COLUMNS = ('task', 'version', 'observation', 'actions', 'world_hash', 'summary')


@click.group(invoke_without_command=True)
@json_option
@click.pass_context
def tasks(ctx: click.Context, as_json: bool) -> None:
    """
    List the tasks and learners that are registered.

    Packages register their own under the entry points fdrl_ros.tasks and fdrl_ros.learners. A
    class in a file needs no registration: `--task path/to/file.py:Class`.
    """
    if ctx.invoked_subcommand is not None:
        return
    rows = [described(name) for name in sorted(registered(TASKS_GROUP))]
    learners = sorted(registered(LEARNERS_GROUP))
    if as_json:
        click.echo(json_text({'tasks': rows, 'learners': learners}))
        return
    out = console()
    for columns in (COLUMNS, COLUMNS[:-1], ('task', 'observation', 'actions')):
        cells = [tuple(str(row[name]) for name in columns) for row in rows]
        table = make_table('Tasks', columns, cells)
        if Console(width=_UNLIMITED).measure(table).maximum <= out.width:
            break
    out.print(table)
    if columns != COLUMNS:  # what does not fit into a narrow table
        for row in rows:
            out.print(f'{row["task"]}: {row["summary"]}', markup=False)
    out.print(f'learners (--learner-kind): {", ".join(learners)}')


def described(name: str) -> Json:
    """Return a row of the table; of a task that cannot be loaded, the reason."""
    try:
        plan = Plan({'federation': {'task': name}}).checked()
        spec, task = plan.spec, plan.task
    except FdrlError as error:
        return dict.fromkeys(COLUMNS, '') | {'task': name, 'summary': f'cannot be used: {error}'}
    return {
        'task': name,
        'version': task.version,
        'observation': f'{" x ".join(map(str, spec.shape))} {spec.dtype}',
        'actions': spec.in_words,
        'world_hash': plan.identity.world_hash[:12],
        'summary': task.summary,
    }


@tasks.command()
@click.argument('files', nargs=-1, required=True, type=click.Path(path_type=Path))
@click.option('--task', default='surgery', show_default=True, help='The task that they are of.')
def mark(files: tuple[Path, ...], task: str) -> None:
    """
    Write into FILES of records or policies which task they are of.

    Only files without a mark are changed, as an older version or a program of your own made them.
    """
    plan = Plan({'federation': {'task': task}}).checked()
    for path in files:
        changed = mark_file(path, plan)
        click.echo(f'{path} {"is now" if changed else "was already"} of {plan.identity}')


@tasks.command('try')
@click.argument('task')
@click.option(
    '--patients',
    type=click.IntRange(min=1),
    default=20,
    show_default=True,
    help='Public patients, for the controller and for random actions.',
)
def try_(task: str, patients: int) -> None:
    """
    Try TASK, a name or FILE.py:CLASS, on a few public patients, before anything is trained.

    Prints what a policy sees and does, how often the controller of the records and random actions
    succeed, and what would keep a policy from learning.
    """
    plan = Plan({'federation': {'task': task}}).checked()
    found = try_task(plan.task, plan.world, plan.federation, patients)
    out, spec, states = console(), found.spec, found.states
    out.print(f'{plan.identity}', soft_wrap=True)
    if spec.fields:
        low, high = (f(states, axis=0) for f in (np.min, np.max))
        cells = [
            (each.name, each.unit, f'{each.scale:g}', f'{low[i]:.3g} to {high[i]:.3g}')
            for i, each in enumerate(spec.fields)
        ]
        headings = ('observation', 'unit', 'scale', 'a policy sees')
        out.print(make_table(f'{spec.size} numbers', headings, cells))
    else:
        out.print(f'observations: {" x ".join(map(str, spec.shape))} {spec.dtype}')
    limits = zip(spec.low, spec.high, strict=True)
    named = spec.actions or [f'{each[0]:g} to {each[1]:g}' for each in limits]
    out.print(f'actions: {", ".join(named)}', soft_wrap=True)
    for who, episodes in (('controller', found.guided), ('random', found.random)):
        if episodes:
            success = np.mean([each.success for each in episodes])
            total = np.mean([each.rewards.sum() for each in episodes])
            steps = np.mean([len(each.actions) for each in episodes])
            out.print(f'{who}: success {success:.0%}, return {total:.3g}, {steps:.3g} steps')
        else:
            out.print(f'{who}: none, so actions in the simulated records are random')
    if all(getattr(each.patient, 'values', None) == {} for each in found.random):
        out.print('all patients are alike: heterogeneity changes nothing without draw_patient')
    for words in found.warnings():
        out.print(f'Mend this: {words}.', style='bold red', soft_wrap=True)
