# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""One way to make the tables of every study and command, and what is printed beside results."""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from rich.console import JustifyMethod
from rich.markup import escape, render
from rich.table import Table
from rich.text import Text

DISCLAIMER = 'Simulated, for research, not a medical device.'
NOT_PRIVATE = 'NOT PRIVATE: noise and sampling were drawn from a seed that anyone can repeat.'
RELEASED = (
    'Hospitals release their own policies by choice: masks and encryption do not hide those, '
    'differential privacy alone protects them.'
)


def make_table(
    title: str,
    headings: Sequence[str],
    rows: Iterable[Sequence[object]],
    *,
    caption: str | None = None,
    numbers: JustifyMethod = 'left',
) -> Table:
    """
    Make a table of rows of cells, whose text is printed as it is.

    :param numbers: how the columns but the first are justified.
    """
    table = Table(title=escape(title), caption=escape(caption) if caption else None)
    for place, heading in enumerate(headings):
        table.add_column(heading, justify=numbers if place else 'left')
    for row in rows:
        table.add_row(*(escape(str(cell)) for cell in row))
    return table


class Grid(NamedTuple):
    """A table: title, headings and rows of text."""

    title: str
    headings: tuple[str, ...]
    rows: Sequence[tuple[str, ...]]

    def markdown(self) -> str:
        """Return the table as Markdown, below its title."""
        return f'## {self.title}\n\n{self.markdown_rows()}'

    def markdown_rows(self) -> str:
        """Return the table as Markdown, without its title."""
        rows = [tuple(each.replace('\n', '<br>') for each in row) for row in self.rows]
        lines = [self.headings, ('---',) * len(self.headings), *rows]
        return '\n'.join(f'| {" | ".join(row)} |' for row in lines) + '\n'

    @classmethod
    def of_table(cls, table: Table) -> 'Grid':
        """Return what a table for the terminal holds; its caption is left out."""
        columns = [[plain(cell) for cell in column.cells] for column in table.columns]
        headings = tuple(plain(column.header) for column in table.columns)
        return cls(plain(table.title or ''), headings, list(zip(*columns, strict=True)))

    @classmethod
    def of_markdown(cls, title: str, text: str) -> 'Grid':
        """Return a table that was written as Markdown."""
        rows = [
            tuple(cell.strip() for cell in line.strip().strip('|').split('|'))
            for line in text.strip().splitlines()
        ]
        return cls(title, rows[0], rows[2:])


def plain(words: object) -> str:
    """Return text of a table without markup."""
    return words.plain if isinstance(words, Text) else render(str(words)).plain
