# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""Progress on the terminal: one bar for each hospital or policy; plain lines in a log."""

import threading
from typing import NamedTuple, Self

from fdrl_ros.runtime.progress import Progress
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, TaskID, TextColumn, TimeElapsedColumn
from rich.progress import Progress as Bars


class Shown(NamedTuple):
    """
    How a kind of work is shown.

    :param lines: how many lines a log gets of it.
    :param passing: whether its bar goes once it is done.
    :param at_once: whether a log also gets a line when it begins.
    """

    title: str
    lines: int = 1
    passing: bool = False
    at_once: bool = False


KINDS = {
    'pretrain': Shown('public start'),
    'collect': Shown('collecting patients', 4),
    'train': Shown('training together', 4),
    'home': Shown('fine-tuning at home', 2),
    'alone': Shown('training alone', 4),
    'value': Shown('valuing', passing=True),
    'evaluate': Shown('evaluating', passing=True),
    'operate': Shown('operating', 20),
    'draw': Shown('drawing'),
    'demonstrate': Shown('demonstrating'),
    'replay': Shown('going through again'),
    'audit part': Shown('auditing'),
    'utility part': Shown('measuring', 8, at_once=True),
    'heterogeneity part': Shown('measuring'),
    'coverage part': Shown('measuring'),
    'measures part': Shown('measuring'),
    'selector part': Shown('comparing'),
    'video': Shown('checking', 20, at_once=True),
    'fedst': Shown('all parts', 20, at_once=True),
    'fedst part': Shown('training', 0, passing=True),
    'sepsis': Shown('sepsis', 20, at_once=True),
    'sepsis part': Shown('learning', 0, passing=True),
    'leakage': Shown('attacks', 20, at_once=True),
    'leakage part': Shown('attacking', 0, passing=True),
    'policies': Shown('policies over H and s', 20, at_once=True),
    'policies part': Shown('learning', 0, passing=True),
    'records': Shown('learning curves', 20, at_once=True),
    'records part': Shown('learning', 0, passing=True),
    'rounds': Shown('round by round', 20, at_once=True),
    'rounds part': Shown('learning', 0, passing=True),
    'surface': Shown('PLR over H and s', 20, at_once=True),
    'surface part': Shown('attacking', 0, passing=True),
    'experiment part': Shown('experiment'),
    'attack': Shown('shield attack'),
    'attack part': Shown('attacking', 0, passing=True),
    'cost': Shown('shield cost'),
    'cost part': Shown('operating', 0, passing=True),
}


class ProgressBars:
    """Draws what is reported; use it in a `with`."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._lock = threading.Lock()
        self._bars = Bars(
            TextColumn('{task.description}'),
            BarColumn(bar_width=30),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            TextColumn('{task.fields[detail]}'),
            console=console,
            disable=not console.is_terminal,
        )
        self._tasks: dict[tuple[str, str], TaskID] = {}
        self._logged: dict[tuple[str, str], int] = {}

    def __enter__(self) -> Self:
        """Begin to draw."""
        self._bars.start()
        return self

    def __exit__(self, *unused: object) -> None:
        """Leave the bars as they are."""
        self._bars.stop()

    def __call__(self, progress: Progress) -> None:
        """Show how far a piece of work is; any thread may."""
        with self._lock:
            self._show(progress)

    def _show(self, progress: Progress) -> None:
        shown = KINDS.get(progress.what) or Shown(progress.what)
        key, title = (progress.what, progress.who), f'{shown.title}: {progress.who}'
        if not self._console.is_terminal:
            # A line at each part of what takes long, and at the end of the rest.
            part = shown.lines * progress.done // max(progress.total, 1)
            if shown.lines and self._logged.get(key, -shown.at_once) < part:
                self._logged[key] = part
                line = f'{title} {progress.done}/{progress.total} {progress.detail}'.rstrip()
                self._console.print(line, highlight=False, soft_wrap=True)
            return
        if key not in self._tasks:
            self._make_room()
            self._tasks[key] = self._bars.add_task(title, total=progress.total, detail='')
        self._bars.update(
            self._tasks[key], completed=progress.done, total=progress.total, detail=progress.detail
        )
        if progress.done >= progress.total and shown.passing:
            self._bars.remove_task(self._tasks.pop(key))

    def _make_room(self) -> None:
        """Take away what is done when the bars would not fit on the screen."""
        if len(self._tasks) < self._console.height - 8:
            return
        for key, task in list(self._tasks.items()):
            if self._bars.tasks[self._bars.task_ids.index(task)].finished:
                self._bars.remove_task(self._tasks.pop(key))
