# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""`fdrl report`: results of a run or a study as one page."""

from pathlib import Path

import click
from fdrl_ros.errors import SettingError
from fdrl_ros.experiments.reports.report import write_report


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
    if opened and click.launch(str(html.resolve())):
        click.echo(f'no browser could be started: open {html.resolve()}', err=True)
