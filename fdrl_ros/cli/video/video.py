# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""`fdrl video`: labelled surgical video, real or drawn."""

import click
from fdrl_ros.cli.video.check import check
from fdrl_ros.cli.video.make import make
from fdrl_ros.cli.video.prompts import prompts
from fdrl_ros.cli.video.show import show


@click.group()
def video() -> None:
    """Draw, show and check labelled surgical video."""


for each in (check, make, prompts, show):
    video.add_command(each)
