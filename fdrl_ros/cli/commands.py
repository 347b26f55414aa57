# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""The top of the command line, with every command below it."""

from typing import Final

import click
from fdrl_ros.cli.group import FdrlGroup
from fdrl_ros.experiments.reports.versions import package_version
from fdrl_ros.runtime.orphans import end_with_launcher

COMMANDS: Final = {
    'audit': 'experiments.studies',
    'dataset': 'dataset.dataset',
    'draw': 'experiments.draw',
    'evaluate': 'experiments.evaluate',
    'experiment': 'experiments.studies',
    'export': 'federation.hosts',
    'heterogeneity': 'experiments.studies',
    'join': 'federation.hosts',
    'journal': 'federation.journal',
    'keys': 'federation.keys',
    'migrate': 'federation.migrate',
    'operator': 'federation.orders',
    'policies': 'robot.policies',
    'prepare': 'federation.prepare',
    'privacy': 'federation.privacy',
    'run': 'federation.run',
    'selector': 'robot.selector',
    'sepsis': 'experiments.sepsis',
    'shield': 'robot.shield',
    'train': 'experiments.train',
    'utility': 'experiments.studies',
    'version': 'version',
}
"""Each command, a function of that name, and the module below fdrl_ros.cli that has it."""


@click.group(cls=FdrlGroup, modules=COMMANDS)
@click.version_option(package_version(), prog_name='fdrl')
def main() -> None:
    """
    Federated deep reinforcement learning for surgical robots.

    Hospitals train together without showing anyone their patients; a robot picks the policy that
    suits the patient in front of it. Simulated, for research, not a medical device.
    """
    end_with_launcher()
