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
    cells = [tuple(str(row[name]) for name in COLUMNS) for row in rows]
    out.print(make_table('Tasks', COLUMNS, cells))
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
        'actions': f'{spec.n_actions} {"continuous" if spec.continuous else "discrete"}',
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
