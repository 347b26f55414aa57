# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""The top of the command line, with every command below it."""

import click
from fdrl_ros.benchmark.versions import package_version
from fdrl_ros.cli.audit import audit
from fdrl_ros.cli.dataset import dataset
from fdrl_ros.cli.draw import draw
from fdrl_ros.cli.evaluate import evaluate
from fdrl_ros.cli.experiment import experiment
from fdrl_ros.cli.group import FdrlGroup
from fdrl_ros.cli.heterogeneity import heterogeneity
from fdrl_ros.cli.hosts import export, join
from fdrl_ros.cli.journal import journal
from fdrl_ros.cli.keys import keys
from fdrl_ros.cli.orders import operator
from fdrl_ros.cli.policies import policies
from fdrl_ros.cli.prepare import prepare
from fdrl_ros.cli.privacy import privacy
from fdrl_ros.cli.run import run
from fdrl_ros.cli.selector import selector
from fdrl_ros.cli.sepsis import sepsis
from fdrl_ros.cli.shield import shield
from fdrl_ros.cli.train import train
from fdrl_ros.cli.utility import utility
from fdrl_ros.cli.version import version
from fdrl_ros.orphans import end_with_launcher


@click.group(cls=FdrlGroup)
@click.version_option(package_version(), prog_name='fdrl')
def main() -> None:
    """
    Federated deep reinforcement learning for surgical robots.

    Hospitals train together without showing anyone their patients; a robot picks the policy that
    suits the patient in front of it. Simulated, for research, not a medical device.
    """
    end_with_launcher()


for command in (
    run,
    train,
    evaluate,
    experiment,
    heterogeneity,
    selector,
    sepsis,
    audit,
    utility,
    prepare,
    export,
    join,
    keys,
    journal,
    operator,
    policies,
    privacy,
    dataset,
    shield,
    draw,
    version,
):
    main.add_command(command)
