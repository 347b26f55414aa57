# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""`fdrl report`: results of a run or a study as one page."""

from pathlib import Path
import subprocess
import sys
from typing import Final

import click
from fdrl_ros.errors import ResourceError, SettingError
from fdrl_ros.experiments.reports.report import write_report

_OPENER: Final = 'open' if sys.platform == 'darwin' else 'xdg-open'
_OPENING = 5.0  # s after which what still runs has opened it: some openers are the browser


@click.command()
@click.argument('directory', metavar='RUN', type=click.Path(path_type=Path))
@click.option(
    '--out',
    type=click.Path(dir_okay=False, path_type=Path),
    help='The HTML file; Markdown lies beside it.  [default: report.html in RUN]',
)
@click.option('--open', 'opened', is_flag=True, help='Open it in the browser.')
def report(directory: Path, out: Path | None, opened: bool) -> None:
    """
    Write a page about a run or a study.

    RUN is a directory that `fdrl run`, `train`, `experiment`, `utility`, `heterogeneity`,
    `measures`, `audit`, `attack`, `sepsis`, `reproduce` or `selector compare` made. These write
    the page at their end too; of a run that was interrupted this shows what there is. The HTML
    file needs no other file and no network.
    """
    if out is not None and out.suffix not in ('', '.html'):
        raise SettingError('out', str(out), 'a file named *.html')
    html, markdown = write_report(directory, out)
    click.echo(f'{html} and {markdown.name}')
    if opened and not _open(html.resolve()):
        raise ResourceError(f'no browser could be started: open {html.resolve()}')


def _open(file: Path) -> bool:
    """Open a file with the desktop's program, and return whether that succeeded."""
    silent = subprocess.DEVNULL
    try:
        process = subprocess.Popen(
            [_OPENER, str(file)],
            stdin=silent,
            stdout=silent,
            stderr=silent,
            start_new_session=True,
        )
    except OSError:
        return False
    try:
        return process.wait(_OPENING) == 0
    except subprocess.TimeoutExpired:
        return True
