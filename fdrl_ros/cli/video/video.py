# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""`fdrl video`: labelled surgical video, real or drawn."""

import click
from fdrl_ros.cli.video.check import check


@click.group()
def video() -> None:
    """Check collections of labelled surgical video."""


video.add_command(check)
