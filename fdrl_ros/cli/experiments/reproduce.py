# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""`fdrl reproduce`: the experiments of a paper, with its numbers beside ours."""

from typing import Final

import click
from fdrl_ros.cli.group import FdrlGroup

PAPERS: Final = {
    'fdrl': ('experiments.fdrl', 'Repeat the experiments of the FDRL paper, claim by claim.'),
    'dp-dqn': ('experiments.sepsis', 'Repeat the experiments of DP-DQN on ICU-Sepsis.'),
    'fedst': ('experiments.fedst', 'Repeat the experiments of FedST on made-up surgical video.'),
}
"""Each paper's command, as the table of all commands has them: some need PyTorch."""


@click.group(cls=FdrlGroup, table=PAPERS, path='reproduce')
def reproduce() -> None:
    """Repeat a paper's experiments, with its numbers."""
