# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""`fdrl dataset show`: how recorded operations went, and A_task (FDRL Eq. 8) of who operated."""

from collections.abc import Sequence
from math import isnan
from pathlib import Path

import click
from fdrl_ros.cli.dataset.common import FILE, operator_from, world_in_words
from fdrl_ros.cli.output import console
from fdrl_ros.errors import RecordsError
from fdrl_ros.experiments.reports.text_table import DISCLAIMER
from fdrl_ros.metrics.episode import EpisodeMetrics, SHOWN, write_csv, write_json
from fdrl_ros.metrics.task import StateSet
from fdrl_ros.surgery.constants import constant
from fdrl_ros.surgery.data.dataset import Dataset
from fdrl_ros.surgery.gym.actions import ACTION_COUNT
from fdrl_ros.surgery.gym.episode_metrics import episode_metrics
from fdrl_ros.surgery.gym.state import STATE_SIZE
from rich import box
from rich.table import Table

WRITERS = {'.csv': write_csv, '.json': write_json}

LEGEND = (
    'most: of the one operation that had the most. way: of the tip. jerk: log of the '
    'dimensionless one, nearer to zero is smoother. low MAP: time below '
    f'{constant("physiology.hypotension"):g} mmHg, all operations together. '
    'NEWS2, SOFA: the worst of each operation; patients come with an illness.'
)
"""What the headings mean."""


@click.command()
@click.argument('file', type=FILE)
@click.option('--policy', type=FILE, help='File of the policy that operated, for its A_task.')
@click.option('--states', type=FILE, help="Frozen states for it: a federation's state_set.npz.")
@click.option(
    '--save',
    'targets',
    multiple=True,
    type=FILE,
    help='Write the metrics of each operation too: to a .csv or a .json; may be repeated.',
)
def show(file: Path, policy: Path | None, states: Path | None, targets: tuple[Path, ...]) -> None:
    """
    Say what is in FILE, and how the operations went.

    With --policy and --states, A_task is what that policy does in a frozen, hashed set of states,
    the same for every operation. It is left out otherwise; of the expert it is 1 by definition.
    `fdrl evaluate` measures policies on unseen patients and saves the metrics of each operation.
    """
    for each in targets:
        if each.suffix not in WRITERS:
            raise RecordsError(f'{each}: expected a name that ends in .csv or .json')
    if (policy is None) != (states is None):
        raise click.UsageError('--policy and --states need each other')
    found = Dataset.load(file)
    frozen, chosen = None, None
    if policy is not None and states is not None:
        operator, who = operator_from(policy)
        if not found.note.startswith(who):
            raise RecordsError(f'{file} is of {found.note}: expected operations of {who}')
        frozen = _state_set(states)
        chosen = operator.q_values(frozen.states).argmax(axis=1)
    metrics = [episode_metrics(each, frozen, chosen) for each in found.episodes]
    out = console()
    out.print(DISCLAIMER, style='italic')
    out.print(f'{len(found)} operations: {found.note}', soft_wrap=True)
    out.print(f'world: {world_in_words(found.world)}', soft_wrap=True)
    out.print(f'digest {found.digest}', soft_wrap=True)
    out.print(metrics_table(metrics))
    out.print(LEGEND)
    if frozen is not None:
        out.print(
            f'A_task {metrics[0].task_tolerant:.3f} (exact {metrics[0].task_exact:.3f}), of the '
            f'policy on the states {frozen.digest}, whatever the procedure',
            soft_wrap=True,
        )
    for each in targets:
        WRITERS[each.suffix](each, metrics)
        click.echo(f'saved in {each}')


def metrics_table(metrics: Sequence[EpisodeMetrics]) -> Table:
    """
    Make the table.

    A value that is undefined for an operation is left out; where none is left, the cell is empty,
    and without any cell the column is missing.
    """

    def known(procedure: str | None, metric: str) -> list[float]:
        own = (one for one in metrics if procedure in (None, one.procedure))
        return [value for one in own if not isnan(value := float(getattr(one, metric)))]

    shown = [(metric, column) for metric, column in SHOWN if known(None, metric)]
    table = Table(box=box.SIMPLE_HEAD)
    table.add_column('procedure')
    for heading in ('n', *(f'{column.heading}\n{column.how}' for _, column in shown)):
        table.add_column(heading, justify='right')
    for name in dict.fromkeys(one.procedure for one in metrics):
        cells = [str(sum(one.procedure == name for one in metrics))]
        for metric, column in shown:
            values = known(name, metric)
            joined = column.join(values) * column.factor if values else None
            cells.append('' if joined is None else format(joined, column.form))
        table.add_row(name, *cells)
    return table


def _state_set(path: Path) -> StateSet:
    """Read a set of states of the surgical world."""
    found = StateSet.load(path)
    form = (found.states.shape[1], found.costs.shape[1])
    if form != (STATE_SIZE, ACTION_COUNT):
        raise RecordsError(
            f'{path} has {form[0]} state numbers and {form[1]} actions: '
            f'expected {STATE_SIZE} and {ACTION_COUNT}'
        )
    return found
