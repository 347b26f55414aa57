# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""`fdrl video make`: labelled video of a made-up site."""

from pathlib import Path

import click
from fdrl_ros.cli.group import SAME_COMMAND, stopping
from fdrl_ros.cli.output import console
from fdrl_ros.cli.progress_bars import ProgressBars
from fdrl_ros.runtime.progress import Caller
from fdrl_ros.segmentation.clip_files import Drawn, make_clips
from fdrl_ros.segmentation.scenes import SITES


@click.command()
@click.argument('directory', type=click.Path(file_okay=False, path_type=Path))
@click.option('--site', required=True, type=click.Choice(list(SITES)), help='Whose operations.')
@click.option('--clips', default=10, show_default=True, type=click.IntRange(1), help='Clips.')
@click.option(
    '--frames', default=16, show_default=True, type=click.IntRange(1), help='Of each clip.'
)
@click.option(
    '--size', default=128, show_default=True, type=click.IntRange(16, 2048), help='Pixels.'
)
@click.option(
    '--rate',
    default=5.0,
    show_default=True,
    type=click.FloatRange(0.1, 240.0),
    help='Frames a second.',
)
@click.option('--seed', default=1, show_default=True, type=click.IntRange(0), help='Of them all.')
def make(
    directory: Path, site: str, clips: int, frames: int, size: int, rate: float, seed: int
) -> None:
    """
    Draw clips of a made-up site into DIRECTORY.

    Interrupted, the same command goes on where it was.
    """
    drawn = Drawn(site, clips, frames, size, rate, seed)
    with stopping(SAME_COMMAND) as stopped, ProgressBars(console()) as bars:
        make_clips(directory, drawn, Caller(bars, stopped))
    click.echo(f'{clips} clips of site {site} ({SITES[site].surgery}) in {directory}')
