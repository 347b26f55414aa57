# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""The top of the command line, with every command below it."""

import click
from fdrl_ros.cli.dataset.dataset import dataset
from fdrl_ros.cli.experiments.audit import audit
from fdrl_ros.cli.experiments.draw import draw
from fdrl_ros.cli.experiments.evaluate import evaluate
from fdrl_ros.cli.experiments.experiment import experiment
from fdrl_ros.cli.experiments.heterogeneity import heterogeneity
from fdrl_ros.cli.experiments.sepsis import sepsis
from fdrl_ros.cli.experiments.train import train
from fdrl_ros.cli.experiments.utility import utility
from fdrl_ros.cli.federation.hosts import export, join
from fdrl_ros.cli.federation.journal import journal
from fdrl_ros.cli.federation.keys import keys
from fdrl_ros.cli.federation.orders import operator
from fdrl_ros.cli.federation.prepare import prepare
from fdrl_ros.cli.federation.privacy import privacy
from fdrl_ros.cli.federation.run import run
from fdrl_ros.cli.group import FdrlGroup
from fdrl_ros.cli.robot.policies import policies
from fdrl_ros.cli.robot.selector import selector
from fdrl_ros.cli.robot.shield import shield
from fdrl_ros.cli.version import version
from fdrl_ros.experiments.reports.versions import package_version
from fdrl_ros.runtime.orphans import end_with_launcher


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
