# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""What commands that run a study share: flags, directory, lock, progress, saved results."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
import functools
from pathlib import Path
from typing import TypeVar

import click
from fdrl_ros.cli.group import SAME_COMMAND, stopping
from fdrl_ros.cli.options import plan_from, plan_option, PlanCommand
from fdrl_ros.cli.output import console, note_command
from fdrl_ros.cli.progress_bars import ProgressBars
from fdrl_ros.deployment.plan import Plan
from fdrl_ros.errors import os_errors_as, SettingError, StoreError
from fdrl_ros.experiments.json_file import Json, write_json
from fdrl_ros.experiments.reports.report import write_report
from fdrl_ros.experiments.reports.text_table import DISCLAIMER
from fdrl_ros.experiments.run_directory import RunDirectory
from fdrl_ros.experiments.surgery_evaluation import require_surgery
from fdrl_ros.runtime.progress import Caller
from rich.console import Console
from rich.table import Table

Found = TypeVar('Found')
Draw = Callable[[Json, Path], object]


@dataclass(frozen=True)
class StudySession:
    """
    A study that a command runs in a directory which no other process uses meanwhile.

    :param directory: as the user wrote it.
    """

    run: RunDirectory
    directory: Path
    out: Console

    @classmethod
    def open(cls, directory: Path) -> 'StudySession':
        """
        Open or make a directory, keep others out of it, and print that all is simulated.

        :raises StoreBusyError: if another command works in it.
        :raises StoreError: if it cannot be used.
        """
        out = console()
        run = RunDirectory.open(directory)
        click.get_current_context().with_resource(run.lock())
        note_command(run.path)
        out.print(DISCLAIMER, style='italic')
        return cls(run, directory, out)

    def measure(self, study: Callable[..., Found], *arguments: object) -> Found:
        """Call a study with progress bars, until Ctrl-C."""
        with stopping(SAME_COMMAND) as stopped, ProgressBars(self.out) as bars:
            return study(*arguments, caller=Caller(bars, stopped))

    def save(
        self,
        name: str,
        summary: Json,
        draw: Draw | None = None,
        table: str | None = None,
    ) -> None:
        """
        Write a summary as JSON, its picture, its table and the report; print where they are.

        :param table: as CSV.
        :raises StoreError: if one of them cannot be written.
        """
        path = self.run.path / name
        write_json(path.with_suffix('.json'), summary)
        files = [f'{name}.json']
        with os_errors_as(StoreError, f'cannot write into {self.run.path}'):
            if table is not None:
                path.with_suffix('.csv').write_text(table, 'utf-8')
                files.append(f'{name}.csv')
            if draw is not None:
                draw(summary, path.with_suffix('.png'))
                files.append(f'{name}.png')
        self.show(f'saved in {self.directory}: {", ".join(files)}')
        self.report()

    def report(self) -> None:
        """
        Write the report of what lies in the directory, and print where it is.

        :raises StoreError: if it cannot be written.
        """
        page = write_report(self.run.path)[0]
        self.show(f'report: {self.directory / page.name} and {page.stem}.md')

    def print(self, tables: Iterable[Table]) -> None:
        """Print tables."""
        for each in tables:
            self.out.print(each)

    def show(self, *lines: str) -> None:
        """Print sentences as they are."""
        for line in lines:
            self.out.print(line, highlight=False, soft_wrap=True, markup=False)


@dataclass(frozen=True)
class PlanStudy(StudySession):
    """
    A study of a plan over several seeds.

    :param plan_file: file or name of the plan that the user began with, if any.
    """

    plan: Plan = Plan()
    seeds: range = range(1, 2)
    plan_file: str | None = None


def study_command(
    directory: str, seeds: int, *, of_surgery: bool = False
) -> Callable[[Callable[..., None]], click.Command]:
    """
    Make a command of a function that runs a study: its flags are a plan's, --seeds, --directory.

    The function takes a :class:`PlanStudy` and the command's other flags.

    :param directory: where results are kept by default.
    :param seeds: how many by default.
    :param of_surgery: whether other tasks are refused.
    """

    def make(function: Callable[..., None]) -> click.Command:
        @click.command(cls=PlanCommand)
        @plan_option
        @click.option(
            '--directory',
            type=click.Path(path_type=Path),
            default=directory,
            show_default=True,
            help='Where each seed and the result are kept; what is finished is not run again.',
        )
        @click.option(
            '--seeds',
            type=click.IntRange(min=1),
            default=seeds,
            show_default=True,
            help='How many seeds, from --seed on.',
        )
        @functools.wraps(function)
        def command(plan_file: str | None, directory: Path, seeds: int, **flags: object) -> None:
            groups = Plan.groups()
            own = {name: flags.pop(name) for name in list(flags) if name.split('__')[0] in groups}
            plan = plan_from(own, plan_file)
            if of_surgery:
                require_surgery(plan)
            session, first = StudySession.open(directory), plan.federation.seed
            every = range(first, first + seeds)
            opened = session.run, session.directory, session.out
            function(PlanStudy(*opened, plan, every, plan_file), **flags)

        return command

    return make


def levels_from(words: str) -> list[float]:
    """
    Read levels of heterogeneity H, in the order given.

    :raises SettingError: if they are not numbers from 0 to 1 with commas.
    """
    try:
        levels = [float(each) for each in words.split(',')]
    except ValueError:
        levels = []
    if not levels or not all(0.0 <= each <= 1.0 for each in levels):
        raise SettingError('levels', words, 'numbers from 0 to 1, separated by commas')
    return levels
