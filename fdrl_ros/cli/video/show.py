# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""`fdrl video show`: clips as pictures."""

from pathlib import Path

import click
from fdrl_ros.errors import SettingError
from fdrl_ros.segmentation.clip_files import ClipFiles
from fdrl_ros.segmentation.scenes import site_clip, SITES
from fdrl_ros.segmentation.sheet import MOVING, write_moving, write_sheet

_FRAMES = 16


@click.command()
@click.argument(
    'directory', required=False, type=click.Path(exists=True, file_okay=False, path_type=Path)
)
@click.option(
    '--site',
    'sites',
    multiple=True,
    type=click.Choice(list(SITES)),
    help='Drawn instead of a DIRECTORY; may be given again.',
)
@click.option('--first', default=0, show_default=True, type=click.IntRange(0), help='Clip.')
@click.option(
    '--clips', default=4, show_default=True, type=click.IntRange(1, 100), help='Of each site.'
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
    sites: tuple[str, ...],
    first: int,
    clips: int,
    columns: int,
    size: int,
    seed: int,
    save: Path,
) -> None:
    """Draw frames of clips with their labels: of a DIRECTORY, or of sites."""
    if (directory is None) == (not sites):
        raise SettingError('site', ', '.join(sites), 'either a DIRECTORY or --site')
    moving = save.suffix.lower() in MOVING
    count = 1 if moving else clips
    if directory is not None:
        files = ClipFiles(directory)
        if first >= len(files):
            raise SettingError('first', first, f'0 to {len(files) - 1}')
        shown = files[first : first + count]
    else:
        numbers = range(first, first + count)
        shown = [
            site_clip(site, seed, number, frames=_FRAMES, size=size)
            for site in sites
            for number in numbers
        ]
    if moving:
        write_moving(save, shown[0])
    else:
        write_sheet(save, shown, columns)
    click.echo(save)
