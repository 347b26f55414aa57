# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""`fdrl urdf`: the description of arm and patient, for other tools."""

import click
from fdrl_ros.cli.options import SettingsCommand, with_flags
from fdrl_ros.deployment.frame_settings import FrameSettings


@click.command(cls=SettingsCommand, groups={'frames': FrameSettings})
def urdf(**flags: object) -> None:
    """
    Print the URDF of arm and patient.

    Names may have a prefix, and the room may stand elsewhere, for several arms in one tree.
    """
    click.echo(with_flags(FrameSettings(), flags).mount().urdf())
