# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""The top of the command line, with every command below it."""

from typing import Final

import click
from fdrl_ros.cli.group import FdrlGroup
from fdrl_ros.experiments.reports.versions import package_version
from fdrl_ros.runtime.orphans import end_with_launcher

COMMANDS: Final = {
    'audit': (
        'fdrl_ros.cli.experiments.audit:audit',
        'Train one hospital with canaries among its patients, and bound its epsilon from below.',
    ),
    'dataset': (
        'fdrl_ros.cli.dataset.dataset:dataset',
        'Record operations to one file, replay, show and convert them.',
    ),
    'draw': (
        'fdrl_ros.cli.experiments.draw:draw',
        'Draw the expert operating, one picture for each procedure, into DIRECTORY.',
    ),
    'evaluate': (
        'fdrl_ros.cli.experiments.evaluate:evaluate',
        'Evaluate a run directory again, or one or more policy files.',
    ),
    'experiment': (
        'fdrl_ros.cli.experiments.experiment:experiment',
        'Repeat training and evaluation with several seeds and compare.',
    ),
    'export': (
        'fdrl_ros.cli.federation.hosts:export',
        'Copy out of DIRECTORY what the host of PARTIES needs, and nothing of the others.',
    ),
    'heterogeneity': (
        'fdrl_ros.cli.experiments.heterogeneity:heterogeneity',
        'Measure how far hospitals are apart, and what a policy loses abroad, at H = 0 to 1.',
    ),
    'join': (
        'fdrl_ros.cli.federation.hosts:join',
        'Run the parties whose keys lie in DIRECTORY, until Ctrl-C; who dies is started again.',
    ),
    'journal': (
        'fdrl_ros.cli.federation.journal:journal',
        "Show and verify the round journals of a federation's parties.",
    ),
    'keys': (
        'fdrl_ros.cli.federation.keys:keys',
        'Make, show and change the keys and the signed roster of a federation.',
    ),
    'migrate': (
        'fdrl_ros.cli.federation.migrate:migrate',
        'Bring the state files of an older version to this one, so that the rounds go on.',
    ),
    'operator': (
        'fdrl_ros.cli.federation.orders:operator',
        "Order the servers of a running federation something, signed with an operator's key.",
    ),
    'policies': (
        'fdrl_ros.cli.robot.policies:policies',
        'Show, pin, lock and veto the policies of a robot; export one as a model.',
    ),
    'prepare': (
        'fdrl_ros.cli.federation.prepare:prepare',
        'Make DIRECTORY ready: plan, keys, directories, public starting policy.',
    ),
    'privacy': (
        'fdrl_ros.cli.federation.privacy:privacy',
        'Show and verify the privacy ledgers of hospitals.',
    ),
    'run': (
        'fdrl_ros.cli.federation.run:run',
        'Run the whole system over ROS 2 and compare the policies.',
    ),
    'selector': (
        'fdrl_ros.cli.robot.selector:selector',
        'Measure the meta-surgical selector, which picks a policy at every tick.',
    ),
    'sepsis': (
        'fdrl_ros.cli.experiments.sepsis:sepsis',
        'Reproduce the results of the DP-DQN paper on ICU-Sepsis.',
    ),
    'shield': (
        'fdrl_ros.cli.robot.shield:shield',
        'Prove that the shield keeps its limits, try to break it, and say what it costs.',
    ),
    'train': (
        'fdrl_ros.cli.experiments.train:train',
        'Train a federation in this process, without ROS.',
    ),
    'utility': (
        'fdrl_ros.cli.experiments.utility:utility',
        "Measure what privacy costs: success of one hospital's own policy against epsilon.",
    ),
    'version': (
        'fdrl_ros.cli.version:version',
        'Print the versions of this package, Python and the libraries.',
    ),
}
"""Each command: where it is, and the first paragraph of its help."""


@click.group(cls=FdrlGroup, table=COMMANDS)
@click.version_option(package_version(), prog_name='fdrl')
def main() -> None:
    """
    Federated deep reinforcement learning for surgical robots.

    Hospitals train together without showing anyone their patients; a robot picks the policy that
    suits the patient in front of it. Simulated, for research, not a medical device.
    """
    end_with_launcher()
