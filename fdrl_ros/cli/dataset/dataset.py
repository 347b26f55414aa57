# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""`fdrl dataset`: record operations, replay, show, demonstrate, convert to bags, export."""

from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import click
from fdrl_ros.cli.dataset.common import (
    FILE,
    interruptible_work,
    operator_from,
    print_dataset,
    report_to,
    world_command,
    world_from,
)
from fdrl_ros.cli.dataset.show import show
from fdrl_ros.deployment.plan import Plan
from fdrl_ros.errors import os_errors_as, RecordsError, SettingError
from fdrl_ros.learner.records.records import Records
from fdrl_ros.learner.records.visits import read_visits
from fdrl_ros.surgery.data.bag import is_recording, read_log, read_recording, STORAGES, write_bag
from fdrl_ros.surgery.data.dataset import Dataset
from fdrl_ros.surgery.data.export import export, FORMS
from fdrl_ros.surgery.data.log_rewards import with_rewards
from fdrl_ros.surgery.data.recording import demonstrations, in_words, Operator, record_operations
from fdrl_ros.surgery.data.recording import replay as replay_bit_by_bit
from fdrl_ros.surgery.gym.surgery_env import SurgeryEnv
from fdrl_ros.surgery.patient.cohort import Cohort, public_cohort
from fdrl_ros.surgery.task import SurgeryTask
from fdrl_ros.surgery.tasks.procedures import procedures_named


@click.group()
def dataset() -> None:
    """Record operations to one file, replay, show, convert them."""


def _option(flag: str, default: object, kind: Any, help: str) -> Callable[..., Any]:
    return click.option(flag, default=default, show_default=True, type=kind, help=help)


def _patients(heterogeneity: float, seed: int, count: str) -> Callable[..., Any]:
    """Add the flags of whom a command operates on, with their defaults."""

    def add(command: Callable[..., None]) -> Callable[..., None]:
        for option in (
            _option('--seed', seed, click.IntRange(0), 'Seed of the patients.'),
            _option('--heterogeneity', heterogeneity, click.FloatRange(0, 1), 'H.'),
            _option('--procedures', 'all', str, 'Names or specialities.'),
            _option('--count', 100, click.IntRange(1), count),
        ):
            command = option(command)
        return command

    return add


@world_command
@click.argument('file', type=FILE)
@_patients(0.8, 1, 'Patients.')
@click.option(
    '--policy', type=FILE, help='File of the policy that operates; unless given, expert.'
)
@_option(
    '--exploration',
    0.0,
    click.FloatRange(0, 1),
    'Share of ticks at which a random move is made instead.',
)
@_option(
    '--hospital',
    0,
    click.IntRange(0),
    'Number of the hospital, 1 to --hospitals; 0: public patients, of none.',
)
@_option('--hospitals', 3, click.IntRange(1), 'How many there are.')
@click.option('--split', default='train', show_default=True, type=click.Choice(['train', 'test']))
def record(
    file: Path, count: int, policy: Path | None, exploration: float, split: str, **flags: Any
) -> None:
    """
    Operate on the patients of a hospital and record it all in FILE.

    Interrupted, the same command goes on where it was; with a greater --count a finished FILE
    grows.
    """
    world, names = world_from(flags), procedures_named(flags['procedures'])
    hospital, hospitals = flags['hospital'], flags['hospitals']
    seed, heterogeneity = flags['seed'], flags['heterogeneity']
    if hospital > hospitals:
        raise SettingError('hospital', hospital, f'1 to {hospitals}, or 0 for public patients')
    cohort = public_cohort(seed, heterogeneity, names)
    if hospital:
        cohort = Cohort(hospital - 1, hospitals, heterogeneity, seed, procedures=names)
    choice, who = (None, 'expert') if policy is None else operator_from(policy)
    operator = Operator(cohort, world, seed, split, choice, exploration)
    note = f'{who}, exploration {exploration}; {in_words(cohort)}, to {split} with'
    with interruptible_work() as work:
        progress = report_to(*work, 'collect', str(file))
        made = record_operations(file, operator, count=count, note=note, progress=progress)
    print_dataset(file, made)


@world_command
@click.argument('directory', type=click.Path(file_okay=False, path_type=Path))
@_patients(0.0, 0, 'Of each procedure.')
def demonstrate(
    directory: Path, procedures: str, count: int, heterogeneity: float, seed: int, **flags: object
) -> None:
    """
    Record the expert's successes on public patients, one file for each procedure in DIRECTORY.

    Interrupted, the same command goes on where it was; with a greater --count finished files
    grow.
    """
    world = world_from(flags)
    names = procedures_named(procedures)
    with os_errors_as(RecordsError, f'cannot make {directory}'):
        directory.mkdir(parents=True, exist_ok=True)
    made = {}
    with interruptible_work() as work:
        for name in names:
            file = directory / f'{name}.npz'
            made[file] = demonstrations(
                name,
                file,
                count,
                world=world,
                patients=public_cohort(seed, heterogeneity, (name,)),
                progress=report_to(*work, 'demonstrate', name),
            )
    for file, recorded in made.items():
        print_dataset(file, recorded)


@dataset.command()
@click.argument('file', type=FILE)
@click.option('--episode', type=click.IntRange(0), help='Only this one, from 0.')
def replay(file: Path, episode: int | None) -> None:
    """Go through the operations of FILE again; exit code 1 at the first bit that differs."""
    found = Dataset.load(file)
    chosen = range(len(found)) if episode is None else [episode]
    with closing(SurgeryEnv(settings=found.world)) as env, interruptible_work() as work:
        report = report_to(*work, 'replay', str(file))
        for done, index in enumerate(chosen, 1):
            replay_bit_by_bit(found, index, env)
            report(done, len(chosen))
    click.echo(f'{file}: {len(chosen)} operations are the same, bit by bit')


@world_command
@click.argument('source', type=click.Path(path_type=Path))
@click.argument('target', type=click.Path(path_type=Path))
@click.option('--robot', help='Namespace of the topics [robot_1, or the only one of the bag]')
@click.option('--storage', default='mcap', show_default=True, type=click.Choice(STORAGES))
@click.option('--records', is_flag=True, help='Make the records of a hospital out of a log.')
@click.option('--partial', is_flag=True, help='With --records: leave out what is broken off.')
@click.option('--force-emphasis', default=1.0, show_default=True, type=click.FloatRange(0))
@click.option('--time-emphasis', default=1.0, show_default=True, type=click.FloatRange(0))
def convert(
    source: Path, target: Path, robot: str | None, storage: str, records: bool, **flags: Any
) -> None:
    """
    Convert a dataset SOURCE to a bag TARGET (rosbag2), or a bag to a dataset or records.

    A bag that was made of a dataset becomes that dataset again, bit by bit. The log of a live arm
    tells states, actions and outcomes: with --records it becomes the records of a hospital, on
    which `fdrl train --records hospital_1=TARGET` trains. Their rewards are derived from what was
    measured, with the weights of the flags. Pseudonyms stay as they are.
    """
    if target.exists():
        raise RecordsError(f'{target} exists already and is not written over')
    from_bag = source.is_dir() or source.suffix in ('.mcap', '.db3')
    if from_bag and records:
        _write_records(source, target, robot, **flags)
    elif from_bag:
        if not is_recording(source):
            raise RecordsError(
                f'{source} is the log of an arm, whose patients are not known: --records makes '
                'records of it'
            )
        with interruptible_work() as work:
            progress = report_to(*work, 'replay', str(source))
            found = read_recording(source, robot, progress=progress)
        found.save(target)
        print_dataset(target, found)
    else:
        found = Dataset.load(source)
        with interruptible_work() as work:
            write_bag(
                found,
                target,
                robot=robot or 'robot_1',
                storage=storage,
                progress=report_to(*work, 'replay', str(source)),
            )
        click.echo(f'{target}: {len(found)} operations; ros2 bag play shows them')


@dataset.command('export')
@click.argument('file', type=FILE)
@click.argument('target', type=click.Path(path_type=Path))
@click.option('--to', 'form', required=True, type=click.Choice(list(FORMS)), help='Format.')
def export_dataset(file: Path, target: Path, form: str) -> None:
    r"""
    Export the operations of FILE to the new folder TARGET, in a format of others.

    minari: HDF5, as Minari 0.5 reads it; TARGET is NAME-vN. lerobot: LeRobotDataset 3.0, without
    video. Patients and seeds, with which operations are replayed, stay in FILE.
    """
    found = Dataset.load(file)
    export(found, target, form)
    steps = sum(each.length for each in found.episodes)
    click.echo(f'{target}: {len(found)} operations, {steps} steps')


@dataset.command('from-csv')
@click.argument('source', type=FILE)
@click.argument('target', type=FILE)
@click.option('--task', required=True, help='Whose fields the columns are: NAME or FILE.py:CLASS.')
@click.option('--known', type=FILE, help='Pseudonyms of consenting patients, one a line.')
def from_csv(source: Path, target: Path, task: str, known: Path | None) -> None:
    """
    Make the records of a hospital out of SOURCE, a table of visits with a line each.

    Columns: patient (a pseudonym), time, each field of the task by its name and in its unit,
    action (what was then done), reward (what came of it until the next visit); if need be stay
    (which of a patient's stays) and end (1: treatment ended, nothing follows).
    `fdrl train --task ... --records hospital_1=TARGET` trains on them.
    """
    if target.exists():
        raise RecordsError(f'{target} exists already and is not written over')
    plan = Plan({'federation': {'task': task}}).checked()
    made = read_visits(source, plan.spec, plan.identity)
    if known is not None:
        with os_errors_as(RecordsError, f'cannot read {known}'):
            made.require_known({line.strip() for line in known.read_text('utf-8').splitlines()})
    made.save(target)
    click.echo(
        f'{target}: {made.n_transitions} transitions of {made.n_patients} patients, '
        f'of {plan.identity}'
    )


def _write_records(
    source: Path,
    target: Path,
    robot: str | None,
    partial: bool,
    force_emphasis: float,
    time_emphasis: float,
    **flags: object,
) -> None:
    """Make records out of a bag of a live arm, with rewards derived from what was measured."""
    world = world_from(flags)
    logged = Records.from_logs(
        [
            with_rewards(log, world, force_emphasis=force_emphasis, time_emphasis=time_emphasis)
            for log in read_log(source, robot, partial=partial)
        ]
    )
    made = replace(logged, task=SurgeryTask().identity(world))
    made.save(target)
    click.echo(
        f'{target}: {len(made.actions)} transitions of {made.n_patients} patients; '
        'rewards are derived from what was measured; '
        f'fdrl train --records hospital_1={target} trains on them'
    )


for command in (record, demonstrate, show, convert):
    dataset.add_command(command)
