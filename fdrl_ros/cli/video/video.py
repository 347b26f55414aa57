# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""`fdrl video`: draw labelled surgical video, and look at it."""

from pathlib import Path

import click
from fdrl_ros.cli.group import SAME_COMMAND, stopping
from fdrl_ros.cli.output import console
from fdrl_ros.cli.progress_bars import ProgressBars
from fdrl_ros.errors import SettingError
from fdrl_ros.runtime.progress import Caller
from fdrl_ros.segmentation.clip import Clips
from fdrl_ros.segmentation.clip_files import ClipFiles, Drawn, make_clips
from fdrl_ros.segmentation.overlay import MOVING, write_moving, write_sheet
from fdrl_ros.segmentation.scenes import site_clip, SITES

_SITE = click.Choice(list(SITES))


@click.group()
def video() -> None:
    """Draw labelled surgical video, and look at it."""


@video.command()
@click.argument('directory', type=click.Path(file_okay=False, path_type=Path))
@click.option('--site', required=True, type=_SITE, help='Whose operations.')
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


@video.command()
@click.argument(
    'directory', required=False, type=click.Path(exists=True, file_okay=False, path_type=Path)
)
@click.option('--site', type=_SITE, help='Instead of a DIRECTORY: draw this one.')
@click.option('--first', default=0, show_default=True, type=click.IntRange(0), help='Clip.')
@click.option(
    '--clips', default=4, show_default=True, type=click.IntRange(1, 100), help='At most so many.'
)
@click.option(
    '--columns', default=6, show_default=True, type=click.IntRange(1, 100), help='Frames of each.'
)
@click.option(
    '--size', default=192, show_default=True, type=click.IntRange(16, 2048), help='With --site.'
)
@click.option('--seed', default=1, show_default=True, type=click.IntRange(0), help='With --site.')
@click.option(
    '--save',
    default='video.png',
    show_default=True,
    type=click.Path(dir_okay=False, path_type=Path),
    help='A sheet of frames; the first clip moves if this ends in .gif or .webp.',
)
def show(
    directory: Path | None,
    site: str | None,
    first: int,
    clips: int,
    columns: int,
    size: int,
    seed: int,
    save: Path,
) -> None:
    """Draw frames of clips with their labels: of a DIRECTORY, or of a --site."""
    if (directory is None) == (site is None):
        raise SettingError('site', site, 'either a DIRECTORY or a --site')
    moving = save.suffix.lower() in MOVING
    count = 1 if moving else clips
    shown: Clips
    if directory is not None:
        files = ClipFiles(directory)
        if first >= len(files):
            raise SettingError('first', first, f'0 to {len(files) - 1}')
        shown = files[first : first + count]
    else:
        assert site is not None
        numbers = range(first, first + count)
        shown = [site_clip(site, seed, each, frames=16, size=size) for each in numbers]
    if moving:
        write_moving(save, shown[0])
    else:
        write_sheet(save, shown, columns)
    click.echo(save)
