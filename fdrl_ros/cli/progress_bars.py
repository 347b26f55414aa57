# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""Progress on the terminal: one bar for each hospital or policy; plain lines in a log."""

from types import TracebackType
from typing import Self

from fdrl_ros.runtime.progress import Progress
from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    TaskID,
    TextColumn,
    TimeElapsedColumn,
)
from rich.progress import (
    Progress as Bars,
)

WORDS = {
    'pretrain': 'public start',
    'collect': 'collecting patients',
    'train': 'training together',
    'alone': 'training alone',
    'value': 'valuing',
    'evaluate': 'evaluating',
    'operate': 'operating',
    'draw': 'drawing',
    'demonstrate': 'demonstrating',
    'replay': 'going through again',
    'audit part': 'auditing',
    'utility part': 'measuring',
    'heterogeneity part': 'measuring',
    'coverage part': 'measuring',
    'selector part': 'comparing',
    'sepsis part': 'learning',
    'experiment part': 'experiment',
    'shield': 'shield',
    'attack': 'shield attack',
    'attack part': 'attacking',
    'cost': 'shield cost',
    'cost part': 'operating',
}
LINES = {
    'collect': 4,
    'train': 4,
    'alone': 4,
    'utility part': 8,
    'sepsis': 20,
    'sepsis part': 0,
    'attack part': 0,
    'cost part': 0,
}
"""How many lines a log gets of a piece of work, where that is not one."""
PASSING = ('value', 'evaluate', 'sepsis part', 'attack part', 'cost part')
"""What is not shown any more once it is done."""
AT_ONCE = ('utility part', 'sepsis')
"""What says in a log that it has begun."""


class ProgressBars:
    """Draws what is reported; use it in a `with`."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._bars = Bars(
            TextColumn('{task.description}'),
            BarColumn(bar_width=30),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            TextColumn('{task.fields[detail]}'),
            console=console,
        )
        self._tasks: dict[tuple[str, str], TaskID] = {}
        self._said: dict[tuple[str, str], int] = {}

    def __enter__(self) -> Self:
        """Begin to draw."""
        if self._console.is_terminal:
            self._bars.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Leave the bars as they are."""
        if self._console.is_terminal:
            self._bars.stop()

    def __call__(self, progress: Progress) -> None:
        """Show how far a piece of work is."""
        key = (progress.what, progress.who)
        words = f'{WORDS.get(progress.what, progress.what)}: {progress.who}'
        if not self._console.is_terminal:
            self._say(key, progress, words)
            return
        if key not in self._tasks:
            self._make_room()
            self._tasks[key] = self._bars.add_task(words, total=progress.total, detail='')
        self._bars.update(
            self._tasks[key],
            completed=progress.done,
            total=progress.total,
            detail=progress.detail,
        )
        if progress.done >= progress.total and progress.what in PASSING:
            self._bars.remove_task(self._tasks.pop(key))

    def _make_room(self) -> None:
        """Take away what is done when the bars would not fit on the screen."""
        if len(self._tasks) < self._console.height - 8:
            return
        for key, task in list(self._tasks.items()):
            if self._bars.tasks[self._bars.task_ids.index(task)].finished:
                self._bars.remove_task(self._tasks.pop(key))

    def _say(self, key: tuple[str, str], progress: Progress, words: str) -> None:
        """Print a line at each part of what takes long, and at the end of the rest."""
        parts = LINES.get(progress.what, 1)
        part = parts * progress.done // max(progress.total, 1)
        begun = -1 if progress.what in AT_ONCE else 0
        if not parts or self._said.get(key, begun) >= part:
            return
        self._said[key] = part
        line = f'{words} {progress.done}/{progress.total} {progress.detail}'.rstrip()
        self._console.print(line, highlight=False, soft_wrap=True)
