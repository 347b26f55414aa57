# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""`fdrl dataset convert`: datasets to bags and back, logs of an arm to records."""

from pathlib import Path
from typing import Any

import click
from fdrl_ros.cli.dataset.common import (
    interruptible_work,
    print_dataset,
    report_to,
    world_command,
    world_from,
)
from fdrl_ros.errors import RecordsError
from fdrl_ros.learner.records.records import Records
from fdrl_ros.surgery.data.bag import is_recording, read_log, read_recording, STORAGES, write_bag
from fdrl_ros.surgery.data.dataset import Dataset
from fdrl_ros.surgery.data.log_rewards import with_rewards

ANY = click.Path(path_type=Path)


@world_command
@click.argument('source', type=ANY)
@click.argument('target', type=ANY)
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
    made = Records.from_logs(
        [
            with_rewards(log, world, force_emphasis=force_emphasis, time_emphasis=time_emphasis)
            for log in read_log(source, robot, partial=partial)
        ]
    )
    made.save(target)
    click.echo(
        f'{target}: {len(made.actions)} transitions of {made.n_patients} patients; '
        'rewards are derived from what was measured; '
        f'fdrl train --records hospital_1={target} trains on them'
    )
