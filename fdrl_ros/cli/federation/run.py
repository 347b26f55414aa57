# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""`fdrl run`: the main job over ROS 2, from nothing to the table."""

from typing import Any

import click
from fdrl_ros.cli.experiments.train import begin_run, end_run, run_options
from fdrl_ros.cli.group import stopping
from fdrl_ros.cli.options import PlanCommand, settings_options
from fdrl_ros.cli.output import console, resumed_by, show
from fdrl_ros.cli.progress_bars import ProgressBars
from fdrl_ros.deployment.bringup import BringupSettings
from fdrl_ros.deployment.namespaces import check_namespace
from fdrl_ros.experiments.reports.assessment import assess, evaluate_policies, PolicyResults
from fdrl_ros.experiments.ros_federation import missing_ros, RosFederation
from fdrl_ros.experiments.round_recorder import read_rounds
from fdrl_ros.experiments.studies.experiment import run_training
from fdrl_ros.experiments.training import train_all_alone
from fdrl_ros.runtime.progress import Caller
from fdrl_ros.runtime.worker_processes import kept_workers

_NICENESS = 10  # of the processes that evaluate while a robot operates in real time


@click.command(cls=PlanCommand)
@run_options
@click.option(
    '--operations',
    type=click.IntRange(min=0),
    default=5,
    show_default=True,
    help='Unseen patients that the robot operates on under the selector, in real time.',
)
@click.option(
    '--page/--no-page',
    default=True,
    show_default=True,
    help='Serve a page of it meanwhile, on this host alone; its link is printed.',
)
@click.option(
    '--link',
    is_flag=True,
    help='Let Eclipse Zenoh carry the messages, over TLS and a router on this host.',
)
@settings_options(BringupSettings, {'namespace': '--namespace'})
def run(operations: int, page: bool, link: bool, namespace: str, **flags: Any) -> None:
    """
    Run the whole system over ROS 2 and compare the policies.

    Hospitals, aggregator and key authority train over DDS, each in a process of its own; then a
    robot values the policies, some ten seconds each, and operates on unseen patients under the
    selector, while other processes evaluate every policy. A page shows all of that meanwhile.
    Interrupted, it goes on when called with the same --directory. Without ROS 2 the same parties
    run in this process, as with `fdrl train`; the exit code is the same.
    """
    check_namespace('namespace', namespace)
    missing = missing_ros()
    chosen, plan = begin_run(**flags)
    out = console()
    if missing:
        out.print(f'ROS 2 is not here: {missing}.', soft_wrap=True)
        out.print('The same parties run in this process instead, without a robot.')
    niceness = _NICENESS if operations and not missing else 0
    with (
        stopping(resumed_by(chosen.path)) as stopped,
        ProgressBars(out) as bars,
        kept_workers(niceness),
    ):
        caller = Caller(bars, stopped)

        def alone(caller: Caller) -> None:
            chosen.forget_results(len(read_rounds(chosen.path / 'rounds.json')))
            train_all_alone(chosen.layout, plan, caller)

        def evaluate(caller: Caller) -> PolicyResults:
            return evaluate_policies(chosen.layout, plan, chosen.policies, caller)

        if missing:
            _, rounds = run_training(chosen.path, plan, caller)
            alone(caller)
            results = evaluate(caller)
        else:
            live = RosFederation(
                chosen,
                plan,
                caller,
                say=lambda words: out.print(words, highlight=False, soft_wrap=True),
                namespace=namespace,
                page=page,
                link=link,
            )
            rounds, results = live.operate(operations, alone, evaluate)
            if rounds[-1].round > results.learning[-1][0]:  # somebody rolled back meanwhile
                results = evaluate(caller)
        found = assess(chosen.layout, results, rounds)
        chosen.save(found)
    show(chosen, found)
    end_run(chosen, plan, rounds, found.summary(), flags['mlflow'])
