# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""The top of the command line, with every command below it."""

from typing import Final

import click
from fdrl_ros.cli.group import FdrlGroup
from fdrl_ros.resources import package_version
from fdrl_ros.runtime.orphans import end_with_launcher

COMMANDS: Final = {
    'attack': ('experiments.attack', 'Attack policies and updates from every seat.'),
    'audit': ('experiments.studies', 'Hold epsilon against what is released, by canaries.'),
    'dataset': ('dataset.dataset', 'Record operations to one file, replay, show, convert them.'),
    'draw': ('experiments.draw', 'Draw the expert or a policy operating.'),
    'evaluate': ('experiments.evaluate', 'Evaluate a run directory again, or files of policies.'),
    'experiment': ('experiments.studies', 'Repeat training with several seeds and compare.'),
    'export': ('federation.directory', 'Copy what the host of some parties needs, and no more.'),
    'heterogeneity': (
        'experiments.studies',
        'Measure how far hospitals are apart, at H = 0 to 1.',
    ),
    'hospitals': (
        'experiments.studies',
        'Measure what more hospitals bring: success and epsilon.',
    ),
    'join': ('federation.directory', 'Run the parties whose keys lie in a directory.'),
    'journal': ('federation.journal', 'Show and verify the round journals of the parties.'),
    'keys': ('federation.keys', 'Make, show and change the keys and the signed roster.'),
    'launch': ('federation.launch', 'Start the nodes of a launch file.'),
    'link': ('federation.link', 'Join hospitals that open no port, by a router (Zenoh).'),
    'measures': (
        'experiments.studies',
        'Show what each measure of risk and adaptation rewards.',
    ),
    'migrate': ('federation.directory', 'Bring the state files of an older version to this one.'),
    'node': ('robot.topics', 'List the nodes of a DDS domain, as `ros2 node` does.'),
    'operator': ('federation.orders', 'Send running servers an order, signed by an operator.'),
    'play': ('experiments.play', 'Watch a policy of a run operate once.'),
    'policies': ('robot.policies', 'Show, pin, lock, veto and export the policies of a robot.'),
    'prepare': ('federation.directory', 'Make a directory ready: plan, keys, starting policy.'),
    'privacy': ('federation.privacy', 'Show and verify the privacy ledgers of hospitals.'),
    'record': ('robot.record', 'Record what a robot publishes in a bag, or play a bag.'),
    'report': ('experiments.report', 'Write a page about a run or a study.'),
    'reproduce': ('experiments.reproduce', "Repeat a paper's experiments, with its numbers."),
    'run': ('federation.run', 'Run the whole system over ROS 2 and compare the policies.'),
    'security': ('federation.security', 'Make, change and check the keystore of DDS Security.'),
    'selector': ('robot.selector', 'Measure the selector, which picks a policy at every tick.'),
    'sepsis': ('experiments.sepsis', 'Reproduce the results of the DP-DQN paper on ICU-Sepsis.'),
    'shield': ('robot.shield', 'Prove that the shield keeps its limits; measure its cost.'),
    'tasks': ('experiments.tasks', 'List the tasks and learners that are registered.'),
    'topic': (
        'robot.topics',
        'List, print and time topics, as `ros2 topic` does.',
    ),
    'train': ('experiments.train', 'Train a federation in this process, without ROS.'),
    'urdf': ('robot.urdf', 'Print the URDF of arm and patient.'),
    'utility': ('experiments.studies', 'Measure what privacy costs: success against epsilon.'),
    'version': ('version', 'Print the versions of this package and its libraries.'),
    'video': ('video.video', 'Draw, show and check labelled surgical video.'),
    'watch': ('watch', 'Serve a page of the operating room and the federation.'),
}
"""Each command: the module below fdrl_ros.cli with a function of that name; what it does."""

SECTIONS: Final = {
    'Commands of a first hour': (
        ('run', 'watch', 'train', 'report', 'evaluate')
        + ('policies', 'privacy', 'draw', 'tasks', 'launch')
    ),
    'Federation': (
        ('prepare', 'export', 'join', 'link', 'keys', 'operator', 'journal', 'security', 'migrate')
    ),
    'Robot': ('topic', 'node', 'record', 'play', 'selector', 'shield', 'urdf'),
    'Studies': (
        ('experiment', 'utility', 'heterogeneity', 'hospitals', 'measures')
        + ('audit', 'attack', 'reproduce', 'sepsis')
    ),
    'Data and this installation': ('dataset', 'video', 'version'),
}
"""
The help in sections, by title; `fdrl --help` describes the first, `fdrl --advanced` all.

A name that is in no row of COMMANDS is passed over.
"""


@click.group(cls=FdrlGroup, table=COMMANDS, sections=SECTIONS)
@click.version_option(package_version(), prog_name='fdrl')
def main() -> None:
    """
    Federated deep reinforcement learning for surgical robots.

    Hospitals train together without showing anyone their patients; a robot picks the policy that
    suits the patient in front of it. Simulated, for research, not a medical device.
    """
    end_with_launcher()
