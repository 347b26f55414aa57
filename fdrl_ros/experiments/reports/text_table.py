# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""One way to make the tables of every study and command, and what is printed beside results."""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from rich.console import JustifyMethod
from rich.markup import escape
from rich.table import Table

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
    rows: list[tuple[str, ...]]

    def markdown(self) -> str:
        """Return the table as Markdown, below its title."""
        return f'## {self.title}\n\n{self.markdown_rows()}'

    def markdown_rows(self) -> str:
        """Return the table as Markdown, without its title."""
        lines = [self.headings, ('---',) * len(self.headings), *self.rows]
        return '\n'.join(f'| {" | ".join(row)} |' for row in lines) + '\n'
