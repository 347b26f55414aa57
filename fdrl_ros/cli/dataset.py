# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""`fdrl dataset`: record operations, replay them, show, demonstrate, convert to bags and back."""

from pathlib import Path
from typing import Any

import click
from fdrl_ros.benchmark.report import DISCLAIMER
from fdrl_ros.cli.dataset_convert import convert
from fdrl_ros.cli.dataset_table import metrics_table
from fdrl_ros.cli.dataset_work import report_to, tell, working, world_from, WorldCommand
from fdrl_ros.cli.output import console
from fdrl_ros.env.actions import ACTION_COUNT
from fdrl_ros.env.dataset import Dataset
from fdrl_ros.env.measuring import episode_metrics, states_met
from fdrl_ros.env.patient import Cohort, public_cohort
from fdrl_ros.env.procedures import procedures_named
from fdrl_ros.env.recording import (
    behaving,
    demonstrations,
    record_operations,
    RecordingStopped,
)
from fdrl_ros.env.replaying import replay as go_through_again
from fdrl_ros.env.state import STATE_SIZE
from fdrl_ros.env.surgery import SurgeryEnv
from fdrl_ros.errors import PolicyError, RecordsError
from fdrl_ros.metrics.episode_file import write_csv, write_json
from fdrl_ros.policy import digest_of, Policy
from fdrl_ros.prepare import load_policy

FILE = click.Path(dir_okay=False, path_type=Path)


@click.group()
def dataset() -> None:
    """Record operations to one file, replay, show and convert them."""


@dataset.command(cls=WorldCommand)
@click.argument('file', type=FILE)
@click.option('--count', default=100, show_default=True, type=click.IntRange(1), help='Patients.')
@click.option(
    '--policy', type=FILE, help='File of the policy that operates; unless given, expert.'
)
@click.option(
    '--exploration',
    default=0.0,
    show_default=True,
    type=click.FloatRange(0, 1),
    help='Share of ticks at which a random move is made instead.',
)
@click.option('--procedures', default='all', show_default=True, help='Names or specialities.')
@click.option(
    '--hospital', default=0, show_default=True, type=click.IntRange(0), help='0: public patients.'
)
@click.option('--hospitals', default=3, show_default=True, type=click.IntRange(1))
@click.option(
    '--heterogeneity', default=0.8, show_default=True, type=click.FloatRange(0, 1), help='H.'
)
@click.option('--split', default='train', show_default=True, type=click.Choice(['train', 'test']))
@click.option('--seed', default=1, show_default=True, type=click.IntRange(0), help='Of patients.')
def record(
    file: Path,
    count: int,
    policy: Path | None,
    exploration: float,
    procedures: str,
    hospital: int,
    hospitals: int,
    heterogeneity: float,
    split: str,
    seed: int,
    **flags: Any,
) -> None:
    """
    Operate on the patients of a hospital and record it all in FILE.

    Interrupted, the same command goes on where it was.
    """
    world, names = world_from(flags), procedures_named(procedures)
    if hospital:
        cohort = Cohort(hospital - 1, hospitals, heterogeneity, seed, procedures=names)
    else:
        cohort = public_cohort(seed, heterogeneity, names)
    choice, who = None, 'expert'
    if policy is not None:
        weights, shape = load_policy(policy)
        if (shape.states, shape.actions) != (STATE_SIZE, ACTION_COUNT):
            raise PolicyError(
                f'{policy} is for {shape.states} state numbers and {shape.actions} actions: '
                f'expected {STATE_SIZE} and {ACTION_COUNT}'
            )
        choice, who = Policy(weights, shape), f'policy {digest_of(weights).hex()}'
    operate = behaving(cohort, world, seed, split, choice=choice, exploration=exploration)
    note = f'{who}, exploration {exploration:g}, {split}, {cohort!r}, {count} operations'
    with working() as (bars, stopped):
        made = record_operations(
            file,
            operate,
            count=count,
            world=world,
            note=note,
            progress=report_to(bars, 'collect', str(file)),
            stopped=stopped,
        )
    tell(file, made)


@dataset.command(cls=WorldCommand)
@click.argument('directory', type=click.Path(file_okay=False, path_type=Path))
@click.option('--procedures', default='all', show_default=True, help='Names or specialities.')
@click.option(
    '--count', default=100, show_default=True, type=click.IntRange(1), help='Of each procedure.'
)
@click.option(
    '--heterogeneity', default=0.0, show_default=True, type=click.FloatRange(0, 1), help='H.'
)
@click.option('--seed', default=0, show_default=True, type=click.IntRange(0), help='Of patients.')
def demonstrate(
    directory: Path, procedures: str, count: int, heterogeneity: float, seed: int, **flags: Any
) -> None:
    """
    Record the expert's successes on public patients, one file for each procedure in DIRECTORY.

    Interrupted, the same command goes on where it was.
    """
    world = world_from(flags)
    names = procedures_named(procedures)
    try:
        directory.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise RecordsError(f'cannot make {directory}: {error.strerror}') from error
    made = {}
    with working() as (bars, stopped):
        for name in names:
            file = directory / f'{name}.npz'
            made[file] = demonstrations(
                name,
                file,
                count,
                world=world,
                patients=public_cohort(seed, heterogeneity, (name,)),
                seed=seed,
                progress=report_to(bars, 'demonstrate', name),
                stopped=stopped,
            )
    for file, each in made.items():
        tell(file, each)


@dataset.command()
@click.argument('file', type=FILE)
@click.option('--episode', type=click.IntRange(0), help='Only this one, from 0.')
def replay(file: Path, episode: int | None) -> None:
    """Go through the operations of FILE again; exit code 1 at the first bit that differs."""
    found = Dataset.load(file)
    chosen = range(len(found)) if episode is None else [episode]
    env = SurgeryEnv(settings=found.world)
    try:
        with working() as (bars, stopped):
            told = report_to(bars, 'replay', str(file))
            for done, index in enumerate(chosen, 1):
                if stopped():
                    raise RecordingStopped(f'stopped before episode {index}')
                go_through_again(found, index, env)
                told(done, len(chosen))
    finally:
        env.close()
    click.echo(f'{file}: {len(chosen)} operations are the same, bit by bit')


@dataset.command()
@click.argument('file', type=FILE)
@click.option(
    '--save',
    'targets',
    multiple=True,
    type=FILE,
    help='Write the metrics of each operation too: to a .csv or a .json; may be repeated.',
)
def show(file: Path, targets: tuple[Path, ...]) -> None:
    """
    Say what is in FILE, and how the operations went.

    A_task is on the states that were met, judged by the expert.
    """
    writers = {'.csv': write_csv, '.json': write_json}
    for each in targets:
        if each.suffix not in writers:
            raise RecordsError(f'{each}: expected a name that ends in .csv or .json')
    found = Dataset.load(file)
    metrics = [
        episode_metrics(each, states_met(each, found.world), each.actions)
        for each in found.episodes
    ]
    out = console()
    out.print(DISCLAIMER, style='italic')
    out.print(f'{len(found)} operations: {found.note}', highlight=False, soft_wrap=True)
    out.print(f'world {found.world}', highlight=False, soft_wrap=True)
    out.print(f'digest {found.digest}', highlight=False, soft_wrap=True)
    out.print(metrics_table(metrics))
    for each in targets:
        writers[each.suffix](each, metrics)
        click.echo(f'saved in {each}')


dataset.add_command(convert)
