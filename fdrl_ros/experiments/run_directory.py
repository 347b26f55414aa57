# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""A run's directory: where everything of it lies, and the link to the latest one."""

from contextlib import ExitStack
from dataclasses import dataclass
import json
import os
from pathlib import Path
import time

from fdrl_ros.deployment.layout import Layout
from fdrl_ros.errors import os_errors_as, StoreError
from fdrl_ros.experiments.json_file import Json, write_json
from fdrl_ros.experiments.metric_logs import log_evaluation
from fdrl_ros.experiments.plots.run import draw_all
from fdrl_ros.experiments.reports.assessment import Assessment
from fdrl_ros.experiments.reports.report import write_report
from fdrl_ros.experiments.reports.run_table import render_text
from fdrl_ros.runtime.durable import exclusive, LOCK
import numpy as np

LATEST = 'latest'


@dataclass(frozen=True)
class RunDirectory:
    """
    One run: ``federation/`` (private), ``policies/``, ``plots/``, ``episodes/`` and numbers.

    ``operations/`` has bags of what the robot did, where it did something.

    :param path: such as ``runs/2026-11-21_09-30-00``.
    """

    path: Path

    @classmethod
    def create(cls, runs: Path, name: str | None = None) -> 'RunDirectory':
        """
        Make a directory for a new run, named by the time unless told otherwise.

        :raises StoreError: if it cannot be written.
        """
        stem = name or time.strftime('%Y-%m-%d_%H-%M-%S')
        for number in range(1000):
            path = runs / (f'{stem}_{number + 1}' if number else stem)
            try:
                path.mkdir(parents=True)
            except FileExistsError:
                continue
            except OSError as error:
                raise StoreError(f'cannot make the directory {path}: {error.strerror}') from error
            run = cls(path)
            run.point_latest()
            return run
        raise StoreError(f'{runs} holds a thousand runs named {stem}')

    @classmethod
    def open(cls, path: Path) -> 'RunDirectory':
        """
        Go on in a directory, made if it is missing; a link such as ``latest`` is followed.

        :raises StoreError: if it cannot be written, or is no run.
        """
        if path.is_symlink():
            path = path.parent / path.readlink()
        _check_run(path)
        with os_errors_as(StoreError, f'cannot make the directory {path}'):
            path.mkdir(parents=True, exist_ok=True)
        if not os.access(path, os.W_OK | os.X_OK):
            raise StoreError(f'cannot write into {path}: no permission')
        return cls(path)

    @classmethod
    def go_on(cls, path: Path) -> 'RunDirectory':
        """
        Open a run, or begin one in a directory that is new or empty.

        :raises StoreError: as :meth:`open`, or if the directory is that of something else.
        """
        run = cls.open(path)
        others = {each.name for each in run.path.iterdir()} - {LOCK, run.policies.name}
        if others and not run.layout.directory.exists():
            raise StoreError(
                f'{path} is no run, as it has no federation/, but {sorted(others)[0]}: name the '
                'directory of a run, or a new one'
            )
        return run

    def lock(self) -> ExitStack:
        """
        Keep other commands from measuring here until what is returned is closed.

        :raises StoreBusyError: if one does.
        :raises StoreError: if it cannot be written.
        """
        return exclusive(self.path)

    @property
    def layout(self) -> Layout:
        """Private files of the parties."""
        return Layout(self.path / 'federation')

    @property
    def policies(self) -> Path:
        """What was released."""
        return self.path / 'policies'

    @property
    def operations(self) -> Path:
        """Bags of what robots did, one for each time that they operated."""
        return self.path / 'operations'

    @property
    def summary(self) -> Path:
        """The numbers of the run."""
        return self.path / 'summary.json'

    def forget_results(self, rounds: int) -> None:
        """Remove summary and table if they are of fewer rounds: their epsilon is then too low."""
        try:
            before = int(json.loads(self.summary.read_text('utf-8'))['rounds'])
        except (OSError, ValueError, KeyError, TypeError):
            before = 0  # nothing there, or nothing that could be trusted
        if before < rounds:
            for path in (self.summary, self.path / 'table.txt'):
                path.unlink(missing_ok=True)

    def save(self, found: Assessment) -> None:
        """
        Write summary, table, plots, numbers of each patient and the report; point the link here.

        :raises StoreError: if something cannot be written.
        """
        with os_errors_as(StoreError, f'cannot write into {self.path}'):
            (self.path / 'table.txt').write_text(render_text(found), 'utf-8')
            (self.path / 'plan.yaml').write_text(found.plan.to_yaml(), 'utf-8')
            arrays: Json = {
                f'{name}/{column}': values
                for name, each in found.evaluations.items()
                for column, values in each.results.columns.items()
            }
            with (self.path / 'patients.npz').open('wb') as file:
                np.savez_compressed(file, **arrays)  # every number of every patient
            found.evaluator.save_episodes(self.path / 'episodes', found.evaluations)
            draw_all(found, self.path / 'plots')
        write_json(
            self.path / 'details.json',
            {
                'private': found.plan.federation.noise == 'secure',
                'differences': found.differences(),
                'learning': found.learning,
                **found.extras.details,
            },
        )
        summary = found.summary()
        write_json(self.summary, summary)
        log_evaluation(self.path, summary)
        write_report(self.path)
        self.point_latest()

    def point_latest(self) -> None:
        """
        Let ``latest`` beside the run point to it, in one step.

        :raises StoreError: if the link cannot be made.
        """
        link = self.path.parent / LATEST
        part = self.path.parent / f'.{LATEST}.{os.getpid()}'
        with os_errors_as(StoreError, f'cannot point {link} to this run'):
            part.unlink(missing_ok=True)
            part.symlink_to(self.path.name, target_is_directory=True)
            part.replace(link)


def _check_run(path: Path) -> None:
    """Refuse a directory in which a run would mix with a federation, or write over a plan."""
    if Layout(path).keys.exists():
        raise StoreError(
            f'{path} is a prepared federation, not a run: `ros2 launch` starts its nodes; name '
            'the directory of a run, or a new one'
        )
    if Layout(path).plan.exists() and not Layout(path / 'federation').plan.exists():
        raise StoreError(
            f'{path} has a plan.yaml but is no run: pass the file with --plan, and name the '
            'directory of a run, or a new one'
        )
