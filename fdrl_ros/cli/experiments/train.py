# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""`fdrl train`: the whole federation in this process, without ROS."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import click
from fdrl_ros.cli.group import stopping
from fdrl_ros.cli.options import plan_from, plan_option, PlanCommand, records_from, records_option
from fdrl_ros.cli.output import announce, console, fail_if, note_command, resumed_by, show
from fdrl_ros.cli.progress_bars import ProgressBars
from fdrl_ros.deployment.layout import Layout
from fdrl_ros.deployment.plan import Plan
from fdrl_ros.deployment.prepare import budget_words, check_accounts, check_plan, place_records
from fdrl_ros.errors import FdrlError, SettingError
from fdrl_ros.experiments.json_file import Json
from fdrl_ros.experiments.metric_logs import check_mlflow, log_to_mlflow
from fdrl_ros.experiments.ray_federation import RayEngine
from fdrl_ros.experiments.round_recorder import RoundNote, setbacks, unfinished
from fdrl_ros.experiments.run_directory import RunDirectory
from fdrl_ros.experiments.studies.experiment import run_experiment, run_training
from fdrl_ros.runtime.progress import Caller
from fdrl_ros.runtime.worker_processes import kept_workers


def run_options(command: Callable[..., None]) -> Callable[..., None]:
    """Add the flags of :func:`begin_run`."""
    for option in (
        click.option(
            '--directory',
            type=click.Path(path_type=Path),
            help='The run to begin or to go on with; a new one below --runs unless given.',
        ),
        click.option(
            '--runs',
            type=click.Path(path_type=Path),
            default='runs',
            show_default=True,
            help='Where new runs are made, named by the time.',
        ),
        click.option(
            '--mlflow',
            metavar='URI',
            help='Log the finished run to this MLflow tracking server or store too.',
        ),
        records_option,
        plan_option,
    ):
        command = option(command)
    return command


def begin_run(
    plan_file: str | None,
    own_records: tuple[str, ...],
    runs: Path,
    directory: Path | None,
    mlflow: str | None,
    **flags: object,
) -> tuple[RunDirectory, Plan]:
    """
    Make or open the run that the flags ask for, keep others out of it, and print what begins.

    :raises StoreBusyError: if another command works in it.
    """
    layout = None if directory is None else Layout(directory / 'federation')
    plan = plan_from(flags, plan_file, layout)
    own = records_from(own_records, plan, layout)
    check_plan(plan, layout, own)
    check_accounts(plan)
    if mlflow:
        check_mlflow(mlflow)
    run = RunDirectory.create(runs) if directory is None else RunDirectory.go_on(directory)
    click.get_current_context().with_resource(run.lock())
    place_records(run.layout, plan, own)
    note_command(run.path, going_on=True)
    announce(run, plan)
    if words := budget_words(plan, layout, own):
        console().print(words, soft_wrap=True)
    return run, plan


def end_run(
    run: RunDirectory, plan: Plan, rounds: Sequence[RoundNote], summary: Json, mlflow: str | None
) -> None:
    """
    Log a run that is over to MLflow, if that was asked for; say first if it ended too early.

    :param summary: its numbers; empty if nothing was evaluated.
    :raises FdrlError: if it did, or MLflow cannot be reached.
    """
    problems = [words] if (words := unfinished(rounds, plan.rounds.rounds)) else []
    if mlflow:
        try:
            log_to_mlflow(mlflow, run.path, plan, rounds, summary)
        except FdrlError as error:
            problems.append(str(error))
    fail_if(problems)


@click.command(cls=PlanCommand)
@run_options
@click.option(
    '--evaluate/--no-evaluate',
    'evaluated',
    default=True,
    help='Train each hospital alone too, and compare all policies on unseen patients.',
)
@click.option(
    '--engine',
    type=click.Choice(['process', 'ray']),
    default='process',
    show_default=True,
    help='Where hospitals work: in this process, or on many cores and hosts by Ray.',
)
@click.option(
    '--cores',
    type=click.IntRange(1),
    help='Cores that hospitals are spread over by --engine ray; all unless given.',
)
@click.option(
    '--address',
    default='',
    metavar='HOST:PORT',
    help='Ray cluster of --engine ray; a Ray of this host alone unless given.',
)
def train(evaluated: bool, engine: str, cores: int | None, address: str, **flags: Any) -> None:
    """
    Train a federation in this process, without ROS.

    The parties, their keys, ledgers and encryption are those that run on ROS 2; only the
    messages stay in memory. With --engine ray hospitals work on many cores, or on the hosts of a
    cluster, and make the same policies. Interrupted, it goes on when called with the same
    --directory. If the federation ends before its last round, as when a budget is spent, the exit
    code is 1; what was learned is kept.
    """
    where = RayEngine(cores or 0, address) if engine == 'ray' else None
    shards = 0
    if where is not None:
        shards = where.check()
    elif cores or address:
        raise SettingError('engine', engine, 'ray, where --cores or --address is given')
    run, plan = begin_run(**flags)
    if shards:
        shards = min(shards, plan.federation.hospitals)
        place = f'the Ray cluster at {address}' if address else 'Ray on this host'
        words = f'Hospitals work in up to {shards} shards of one core each: {place}.'
        console().print(words, soft_wrap=True)
    summary: Json = {}
    with (
        stopping(resumed_by(run.path)) as stopped,
        ProgressBars(console()) as bars,
        kept_workers(),
    ):
        caller = Caller(bars, stopped)
        if evaluated:
            found = run_experiment(run.path, plan, caller, where)
            rounds = found.rounds
            run.save(found)
            summary = found.summary()
        else:
            _, rounds = run_training(run.path, plan, caller, where)
            run.point_latest()
    if evaluated:
        show(run, found)
    else:
        for words in setbacks(rounds, len(rounds)):  # end_run tells of rounds that are missing
            console().print(words, style='bold red', soft_wrap=True)
        words = f'saved in {run.path}: policies/. To compare them: fdrl evaluate {run.path}'
        console().print(words, soft_wrap=True)
    end_run(run, plan, rounds, summary, flags['mlflow'])
