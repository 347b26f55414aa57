# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""All faults of a table at once: their places, never a patient's identity (DP-DQN section 4.2)."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from fdrl_ros.errors import RecordsError

MOST_FAULTS = 20
"""Kinds of fault that a message tells; the rest are counted."""
MOST_LINES = 3
"""Lines that it names of each kind."""


@dataclass(frozen=True)
class Fault:
    """
    One kind of fault.

    ``lines``: the first that have it, at most MOST_LINES; none if it is of the whole file.
    ``count``: how many lines have it. ``column``: none if it is of a whole line.
    """

    lines: tuple[int, ...]
    column: str | None
    detail: str
    count: int = 1

    @property
    def place(self) -> str:
        """Describe the place, such as 'lines 3, 4, 5 and 12 more, column HR'."""
        words = []
        if self.lines:
            more = self.count - len(self.lines)
            lines = ', '.join(str(each) for each in self.lines)
            lines += f' and {more} more' if more else ''
            words.append(f'line{"s" if self.count > 1 else ""} {lines}')
        words += [] if self.column is None else [f'column {self.column}']
        return ', '.join(words)


class TableError(RecordsError):
    """
    A table cannot be used; names the places, never a patient's number or name.

    Messages end in logs and diagnostics, which leave the hospital. ``line``, ``column`` and
    ``detail`` are of the first fault, ``faults`` has all that are told, ``more`` counts the lines
    of other kinds.
    """

    def __init__(self, path: Path, faults: Sequence[Fault], more: int = 0) -> None:
        first = faults[0]
        self.path = path
        self.faults = tuple(faults)
        self.more = more
        self.line = first.lines[0] if first.lines else None
        self.column = first.column
        self.detail = first.detail
        if len(self.faults) == 1 and not more:
            place = f', {first.place}' if first.place else ''
            super().__init__(f'{path}{place}: {first.detail}')
            return
        said = [f'{each.place}: {each.detail}' for each in self.faults]
        said += [f'and {more} more' if more else '']
        super().__init__(f'{path}: ' + '; '.join(each for each in said if each))


class FaultList:
    """Collects faults, in bounded memory however many there are."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._found: dict[tuple[str | None, str], Fault] = {}
        self._more = 0

    def __bool__(self) -> bool:
        """Return whether there is a fault."""
        return bool(self._found)

    def add(self, lines: Sequence[int], column: str | None, detail: str) -> None:
        """
        Note a kind of fault, or more lines of it.

        :param lines: rising.
        """
        key = (column, detail)
        if key not in self._found and len(self._found) >= MOST_FAULTS:
            self._more += len(lines)
            return
        known = self._found.get(key, Fault((), column, detail, 0))
        kept = tuple(sorted({*known.lines, *lines[:MOST_LINES]}))[:MOST_LINES]
        self._found[key] = Fault(kept, column, detail, known.count + len(lines))

    def check(self) -> None:
        """
        Go on only if nothing is wrong.

        :raises TableError: with all faults, in the order of lines.
        """
        if self._found:
            ordered = sorted(self._found.values(), key=lambda each: each.lines[:1])
            raise TableError(self.path, ordered, self._more)
