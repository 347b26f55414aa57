# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""Write the report of a directory of results, whatever measured it."""

from pathlib import Path

from fdrl_ros.errors import StoreError
from fdrl_ros.experiments.json_file import from_json
from fdrl_ros.experiments.reports.page import Page
from fdrl_ros.experiments.reports.run_report import is_run, run_page
from fdrl_ros.experiments.reports.study_pages import KINDS

REPORT = 'report.html'
RUN = 'run'


def kind_of(directory: Path) -> str:
    """
    Return what measured a directory: the newest of what lies there.

    :returns: :data:`RUN`, or a name of :data:`.study_pages.KINDS`.
    :raises StoreError: if nothing did that is known here.
    """
    if not directory.is_dir():
        raise StoreError(f'{directory} is no directory: name that of a run or a study')
    found = {
        name: path.stat().st_mtime
        for name in KINDS
        if (path := directory / f'{name}.json').is_file()
    }
    if is_run(directory):
        own = [
            directory / name for name in ('summary.json', 'rounds.json', 'federation/plan.yaml')
        ]
        found[RUN] = max(each.stat().st_mtime for each in own if each.exists())
    if not found:
        raise StoreError(
            f'{directory} holds no results: expected federation/plan.yaml of a run, or '
            f'{", ".join(f"{name}.json" for name in KINDS)} of a study'
        )
    return max(found, key=lambda name: found[name])


def page_of(directory: Path) -> Page:
    """
    Make the report of a directory of results.

    :raises StoreError: if it is none, or a file of it is damaged.
    """
    kind = kind_of(directory)
    if kind == RUN:
        return run_page(directory)
    path = directory / f'{kind}.json'
    try:
        return KINDS[kind].page(directory, from_json(path.read_text('utf-8')))
    except (OSError, ValueError, KeyError, TypeError, AttributeError, IndexError) as error:
        raise StoreError(
            f'{path} cannot be reported: {type(error).__name__}: {error}; '
            f'`{KINDS[kind].command} --directory {directory}` writes it anew'
        ) from error


def write_report(directory: Path, out: Path | None = None) -> list[Path]:
    """
    Write the report of a directory of results.

    :param out: of the HTML file; ``report.html`` in the directory unless given. The Markdown file
        lies beside it.
    :returns: both files, HTML first.
    :raises StoreError: if the directory holds no results, one is damaged, or a file cannot be
        written.
    """
    return page_of(directory).write(out or directory / REPORT)
