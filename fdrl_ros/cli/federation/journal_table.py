# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""Entries of round journals as tables for people."""

from collections import deque
from collections.abc import Iterator

from fdrl_ros.federation.journal.journal import Entry
from rich.console import Console
from rich.table import Table
from rich.text import Text

_SHORT = 12  # hexadecimal digits of a hash that people compare


def contributions(out: Console, releases: Iterator[Entry], last: int) -> bool:
    """
    Print who contributed to the policy of each round.

    :param last: how many rounds, from the end.
    :returns: whether there was any.
    """
    kept, title = _newest(releases, last, 'rounds', 'Who contributed to what')
    table = Table(title=title)
    for heading in ('round', 'attempt', 'released', 'policy', 'hospital', 'n', 'update', 'ledger'):
        table.add_column(heading, justify='right' if heading == 'n' else 'left', no_wrap=True)
    table.add_column('outcome')
    for entry in kept:
        fields = entry.fields
        outcome = 'older weights' if fields['rolled_back'] else 'new policy'
        if fields['reason']:
            outcome += f': {fields["reason"]}'
        first = [entry.round, entry.attempt, entry.time, fields['policy'][:_SHORT]]
        parts = fields['contributors'] or {'nobody': {'size': '', 'update': '', 'ledger': ''}}
        for name, part in parts.items():
            entries, _, _ = part['ledger'].partition(':')
            row = (*first, name, part['size'], part['update'][:_SHORT], entries, outcome)
            table.add_row(*map(_text, row))
            first, outcome = [''] * len(first), ''
        table.add_section()
    return _print(out, table)


def entries_table(out: Console, entries: Iterator[Entry], last: int) -> bool:
    """
    Print the entries of one journal.

    :param last: how many, from the end.
    :returns: whether there was any.
    """
    kept, title = _newest(entries, last, 'entries')
    table = Table(title=title)
    for heading in ('entry', 'time', 'round', 'attempt', 'kind'):
        table.add_column(heading, no_wrap=True)
    table.add_column('what')
    for entry in kept:
        what = ', '.join(f'{name} {_words(value)}' for name, value in entry.fields.items())
        row = (entry.number, entry.time, entry.round, entry.attempt, entry.kind, what)
        table.add_row(*map(_text, row))
    return _print(out, table)


def _newest(
    entries: Iterator[Entry], last: int, of: str, what: str = ''
) -> tuple[deque[Entry], str]:
    """Return the last entries, and a title that says whose or what and how many there are."""
    kept: deque[Entry] = deque(maxlen=last)
    count = 0
    for entry in entries:
        count += 1
        kept.append(entry)
        what = what or entry.party
    return kept, what if count <= last else f'{what} (the last {last} of {count} {of})'


def _print(out: Console, table: Table) -> bool:
    if table.rows:
        out.print(table)
    return bool(table.rows)


def _words(value: object) -> str:
    """Write a value in short."""
    if isinstance(value, dict | list):
        return ', '.join(map(str, value)) or 'nobody'
    if isinstance(value, bool):
        return 'yes' if value else 'no'
    before, colon, after = str(value).rpartition(':')
    if len(after) == 64 and ' ' not in after:
        after = after[:_SHORT]
    return before + colon + after or '-'


def _text(value: object) -> Text:
    """Take it as it is: no markup, and nothing that would move a terminal's cursor."""
    return Text(''.join(mark if mark.isprintable() else '?' for mark in str(value)))
