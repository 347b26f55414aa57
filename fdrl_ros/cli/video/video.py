# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""`fdrl video`: labelled surgical video, real or drawn."""

import click
from fdrl_ros.cli.video.prompts import prompts


@click.group()
def video() -> None:
    """Make the text vectors of the sites of surgical video."""


video.add_command(prompts)
