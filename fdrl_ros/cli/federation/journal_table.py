# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""Entries of round journals as tables for people."""

from collections import deque
from collections.abc import Iterator
from typing import Any

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
    kept, count = _newest(releases, last)
    if not kept:
        return False
    table = Table(title=_title('Who contributed to what', len(kept), count, 'rounds'))
    for heading in ('round', 'attempt', 'released', 'policy', 'hospital', 'n', 'update', 'ledger'):
        table.add_column(heading, justify='right' if heading == 'n' else 'left', no_wrap=True)
    table.add_column('outcome')
    for entry in kept:
        fields = entry.fields
        outcome = 'older weights' if fields['rolled_back'] else 'new policy'
        if fields['reason']:
            outcome += f': {fields["reason"]}'
        first = [f'{entry.round}', f'{entry.attempt}', entry.time, fields['policy'][:_SHORT]]
        parts = fields['contributors'] or {'nobody': {'size': '', 'update': '', 'ledger': ''}}
        for name, part in parts.items():
            entries, _, _ = part['ledger'].partition(':')
            row = [*first, name, str(part['size']), part['update'][:_SHORT], entries, outcome]
            table.add_row(*map(_text, row))
            first, outcome = [''] * len(first), ''
        table.add_section()
    out.print(table)
    return True


def entries_table(out: Console, entries: Iterator[Entry], last: int) -> bool:
    """
    Print the entries of one journal.

    :param last: how many, from the end.
    :returns: whether there was any.
    """
    kept, count = _newest(entries, last)
    if not kept:
        return False
    table = Table(title=_title(kept[-1].party, len(kept), count, 'entries'))
    for heading in ('entry', 'time', 'round', 'attempt', 'kind'):
        table.add_column(heading, no_wrap=True)
    table.add_column('what')
    for entry in kept:
        what = ', '.join(f'{name} {_words(value)}' for name, value in entry.fields.items())
        numbers = (f'{entry.number}', entry.time, f'{entry.round}', f'{entry.attempt}')
        table.add_row(*map(_text, (*numbers, entry.kind, what)))
    out.print(table)
    return True


def _newest(entries: Iterator[Entry], last: int) -> tuple[list[Entry], int]:
    """Return the last entries, and how many there are."""
    kept: deque[Entry] = deque(maxlen=last)
    count = 0
    for entry in entries:
        kept.append(entry)
        count += 1
    return list(kept), count


def _title(what: str, shown: int, count: int, of: str) -> str:
    return what if shown == count else f'{what} (the last {shown} of {count} {of})'


def _words(value: Any) -> str:
    """Write a value in short."""
    if isinstance(value, dict):
        return ', '.join(value) or 'nobody'
    if isinstance(value, list):
        return ', '.join(map(str, value)) or 'nobody'
    if isinstance(value, bool):
        return 'yes' if value else 'no'
    before, colon, after = str(value).rpartition(':')
    if len(after) == 64 and ' ' not in after:
        after = after[:_SHORT]
    return before + colon + after or '-'


def _text(value: str) -> Text:
    """Take it as it is: no markup, and nothing that would move a terminal's cursor."""
    return Text(''.join(each if each.isprintable() else '?' for each in value))
