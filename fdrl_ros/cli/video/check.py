# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""`fdrl video check`: whether a collection of real video is whole, and what it holds."""

from pathlib import Path

import click
from fdrl_ros.cli.group import NOTHING_KEPT, stopping
from fdrl_ros.cli.output import console, counted, fail_if
from fdrl_ros.cli.progress_bars import ProgressBars
from fdrl_ros.runtime.progress import Caller
from fdrl_ros.segmentation.readers.check import check_videos
from fdrl_ros.segmentation.readers.formats import AUTO, find_videos, FORMATS
from fdrl_ros.segmentation.readers.video import RATE


@click.command()
@click.argument('directory', type=click.Path(path_type=Path))
@click.option(
    '--format',
    'form',
    default=AUTO,
    show_default=True,
    type=click.Choice([AUTO, *FORMATS]),
    help='Whose layout it has.',
)
@click.option(
    '--rate',
    default=RATE,
    show_default=True,
    type=float,
    help='Frames a second to read, Hz; a video with fewer is read whole.',
)
def check(directory: Path, form: str, rate: float) -> None:
    """
    Read all videos below DIRECTORY; exit code 1 if anything is wrong.

    Prints clips, frames and pixels of each part, and every fault: missing, unreadable or wrongly
    sized files, unknown labels.
    """
    name, found = find_videos(directory, form, rate)
    with stopping(NOTHING_KEPT) as stopped, ProgressBars(console()) as bars:
        contents = check_videos(found, Caller(bars, stopped))
    clips = ', '.join(f'{count} {split}' for split, count in contents.clips.items())
    click.echo(f'{directory}: {name}, {counted(sum(contents.clips.values()), "clip")} ({clips})')
    click.echo(f'{counted(contents.frames, "frame")} read, {contents.labelled} labelled')
    total = max(sum(contents.pixels.values()), 1)
    for part, pixels in contents.pixels.items():
        click.echo(f'{part}: {pixels} pixels, {100.0 * pixels / total:.2f} %')
    if contents.faults:
        click.echo(f'{counted(len(contents.faults), "fault")}:', err=True)
    fail_if(contents.faults)
