# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""`fdrl journal`: who contributed to what, and whether all who took part say the same."""

from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
import re

import click
from fdrl_ros.cli.options import json_option
from fdrl_ros.cli.output import console, counted, echo_json, fail_if
from fdrl_ros.crypto.keys.signing import fingerprint
from fdrl_ros.deployment.journal_inspection import FilesBesideJournals, STATE
from fdrl_ros.deployment.layout import Layout
from fdrl_ros.errors import FdrlError, JournalError
from fdrl_ros.experiments.json_file import Json
from fdrl_ros.federation.journal.comparison import compare, Comparison
from fdrl_ros.federation.journal.journal import Entry, FILE, Head, read
from fdrl_ros.federation.journal.reader import Progress
from fdrl_ros.page.acts import JOURNAL as ACTS
from fdrl_ros.page.acts import verify_acts
from rich.console import Console
from rich.progress import BarColumn, DownloadColumn, TextColumn, TimeRemainingColumn
from rich.progress import Progress as Bars
from rich.table import Table
from rich.text import Text

SHORT = 24
"""Hexadecimal digits of a head that people write down."""

_SHORT = 12  # hexadecimal digits of a hash that people compare

_PATH = click.argument('path', metavar='DIRECTORY', type=click.Path(path_type=Path))


@click.group()
def journal() -> None:
    """
    Show and verify the round journals of the parties.

    Each party keeps one file, journal.jsonl in its directory: a signed line for everything that it
    did in a round, each with the hash of the line before. A hospital notes what it sent, signed
    and took, the key authority what it released out of whose updates, the aggregator how each
    round went. They hold hashes and names, nothing secret, nothing of patients, and may be copied:
    put those of other hosts into the directories of their parties here to compare all of them.

    docs/journal.md says what is found, and what cannot be.
    """


@journal.command()
@_PATH
@json_option
@click.option(
    '--quick',
    is_flag=True,
    help='Check the last signature of each key alone; it covers all before it. For very long '
    'journals.',
)
@click.option(
    '--seen',
    'heads',
    multiple=True,
    metavar='PARTY=ENTRIES:HASH',
    help='A head that somebody saw of a journal, as verify prints it; may be repeated.',
)
def verify(path: Path, as_json: bool, quick: bool, heads: tuple[str, ...]) -> None:
    """
    Find whatever was done to the journals; exit code 1 if it was anything.

    DIRECTORY is that of a run, a federation or a party. Every journal there is read byte by byte:
    its chain of hashes, its signatures by keys that the roster names or revoked. It is compared
    with its party's state file, the hospital's privacy ledger and the key authority's policies
    where they are here; a party that ran here must have them. Then the parties are compared: the
    key authority released each round once and none is missing, out of the very updates that the
    hospitals noted as sent, for the survivors that they signed; and they took the policies that
    were released.

    The acts of people on the page (page_acts.jsonl) are followed line by line; nobody signs them.

    Write the heads that are printed down elsewhere: --seen finds what was cut off the end later,
    together with the state file.
    """
    layout, files, names = _find_journals(path)
    seen: dict[str, dict[str, Head]] = {}
    for name, head in map(_seen_head, heads):
        others = seen.setdefault(name, {})
        others[f'somebody {len(others) + 1}' if others else 'somebody'] = head
    around = FilesBesideJournals(layout, names)
    for name, head in around.noted.items():
        seen.setdefault(name, {})[STATE] = head
    # A journal that somebody saw is looked for, too.
    files |= {name: layout.party(name) / FILE for name in seen}
    _check_some(files, path)
    roster = layout.roster()
    with _progress(files, not as_json) as progress:
        found = compare(files, roster, seen=seen, quick=quick, progress=progress)
    around.judge(found)
    problems = around.problems + found.problems + _faults_of_acts(layout)
    if found.omitted:
        problems.append(f'and {counted(found.omitted, "problem")} more')
    document = _document(found, around, problems)
    if as_json:
        echo_json(document)
    else:
        _print_parties(document, seen)
    fail_if(problems)


@journal.command()
@_PATH
@click.option('--party', metavar='NAME', help='Every entry of this party.')
@click.option('--round', 'of_round', type=click.IntRange(min=0), help='Of this round alone.')
@click.option(
    '--last',
    type=click.IntRange(min=1),
    default=100,
    show_default=True,
    help='How many rounds or entries, from the end.',
)
def show(path: Path, party: str | None, of_round: int | None, last: int) -> None:
    """
    Print who contributed to what.

    DIRECTORY is that of a run, a federation or a party, or a journal file. By default, and for
    --round, it is the key authority that tells which updates made which policy, and all tell who
    was blamed for spoiling a round; --party and --round show the entries themselves. The chain of
    hashes is checked on the way; whose they are, `fdrl journal verify` tells.
    """
    files = {path.name: path} if path.is_file() else _find_journals(path)[1]
    _check_some(files, path)
    if party is not None and party not in files:
        raise JournalError(f'no journal of {party!r} here: expected one of {", ".join(files)}')
    chosen = list(files.values()) if party is None else [files[party]]

    def entries(file: Path) -> Iterator[Entry]:
        return (entry for entry in read(file) if of_round in (None, entry.round))

    out, shown = console(), False
    if party is None:
        for file in chosen:
            releases = (entry for entry in entries(file) if entry.kind == 'release')
            shown |= contributions(out, releases, last)
    if party is not None or of_round is not None or not shown:
        for file in chosen:
            shown |= entries_table(out, entries(file), last)
    if party is None:
        blames(out, map(entries, chosen), last)
    if not shown:
        click.echo('no such entry')


def _find_journals(path: Path) -> tuple[Layout, dict[str, Path], list[str]]:
    """Return the federation, its journals by party, and whose there could be."""
    path = path.resolve()
    layout, party = Layout.find(path.parent if path.name == FILE else path)
    names = [member.name for member in layout.roster().members]
    there = sorted(file.parent.name for file in layout.directory.glob(f'*/{FILE}'))
    names += [name for name in there if name not in names]  # who left the roster
    if party:
        names = [party]
    return layout, {name: layout.party(name) / FILE for name in names if name in there}, names


def _check_some(files: dict[str, Path], path: Path) -> None:
    if not files:
        raise JournalError(f'no journal in {path}: its parties have not started yet')


def _seen_head(text: str) -> tuple[str, Head]:
    found = re.fullmatch(rf'(\w+)=(\d{{1,18}}):([0-9a-f]{{{SHORT},64}})', text, re.ASCII)
    if found is None or len(found[3]) % 2:
        raise click.BadParameter(
            f'{text!r}: expected PARTY=ENTRIES:HASH, of the hash at least {SHORT} hex digits',
            param_hint='--seen',
        )
    return found[1], Head(int(found[2]), bytes.fromhex(found[3]))


@contextmanager
def _progress(files: dict[str, Path], wanted: bool) -> Iterator[Progress]:
    """Draw how many bytes were read, on a terminal."""
    out = Console(stderr=True)
    columns = (TextColumn('verifying'), BarColumn(), DownloadColumn(), TimeRemainingColumn())
    shown = wanted and out.is_terminal
    with Bars(*columns, console=out, transient=True, disable=not shown) as bars:
        total = sum(file.stat().st_size for file in files.values() if file.exists())
        task = bars.add_task('', total=total)
        yield lambda done: bars.update(task, completed=done)


def _document(found: Comparison, around: FilesBesideJournals, problems: list[str]) -> Json:
    """Return what was found, as JSON values."""
    parties = {
        name: {
            'entries': journal.head.entries,
            'head': str(journal.head),
            'short_head': f'{journal.head.entries}:{journal.head.digest.hex()[:SHORT]}',
            'keys': [fingerprint(key) for key in journal.keys],
            'cut_short': journal.cut_short,
            'begun': journal.times[0],
            'ended': journal.times[1],
            **asdict(around.beside[name]),
        }
        for name, journal in found.parties.items()
    }
    return {
        'parties': parties,
        'first_round': found.released[0],
        'last_round': found.released[1],
        'updates_compared': found.compared,
        'blamed': [
            {**blamed._asdict(), 'noted_by': names} for blamed, names in found.blamed.items()
        ],
        'remarks': found.remarks,
        'problems': problems,
    }


def _faults_of_acts(layout: Layout) -> list[str]:
    """Return what was done to the journal of the page's acts, if there is one."""
    path = layout.directory / ACTS
    try:
        if path.exists():
            verify_acts(path)
    except FdrlError as error:
        return [str(error)]
    return []


def _print_parties(document: Json, seen: dict[str, dict[str, Head]]) -> None:
    for name, party in document['parties'].items():
        saw = [f'the head that {who} saw' for who in seen.get(name, {}) if who != STATE]
        missing = ''.join(
            f'; {how}: {" and ".join(party[key])}'
            for key, how in (('missing', 'not here'), ('unread', 'not read, see below'))
            if party[key]
        )
        click.echo(
            f'{name}: {counted(party["entries"], "entry", "entries")}, whole and signed by '
            f'{party["keys"][-1] if party["keys"] else "nobody yet"}, head {party["short_head"]}; '
            f'compared with {" and ".join(party["compared"] + saw) or "nothing else"}{missing}'
        )
    if document['last_round']:
        click.echo(
            f'rounds {document["first_round"]} to {document["last_round"]} released; '
            f'{counted(document["updates_compared"], "update")} compared with what their '
            'hospitals noted'
        )
    for blamed in document['blamed']:
        noted_by = ', '.join(blamed['noted_by'])
        words = f'{blamed["hospital"]} was blamed in round {blamed["round"]}: it {blamed["fault"]}'
        click.echo(_plain_text(f'{words} (noted by {noted_by})').plain)
    for remark in document['remarks']:
        click.echo(remark)


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
            table.add_row(*map(_plain_text, row))
            first, outcome = [''] * len(first), ''
        table.add_section()
    return _print_rows(out, table)


def blames(out: Console, journals: Iterator[Iterator[Entry]], last: int) -> None:
    """
    Print which hospitals were blamed for spoiling a round, and whose journals say so.

    :param last: how many, from the end.
    """
    found: dict[tuple[int, int, str, str], list[str]] = {}
    for journal in journals:
        for entry in journal:
            if entry.kind == 'blame':
                fields = entry.fields
                row = entry.round, entry.attempt, fields['hospital'], fields['fault']
                found.setdefault(row, []).append(entry.party)
    table = Table(title='Who was blamed')
    for heading in ('round', 'attempt', 'hospital'):
        table.add_column(heading, no_wrap=True)
    for heading in ('what it did', 'noted by'):
        table.add_column(heading)
    for blamed in sorted(found)[-last:]:
        table.add_row(*map(_plain_text, (*blamed, ', '.join(found[blamed]))))
    _print_rows(out, table)


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
        what = ', '.join(f'{name} {_in_short(value)}' for name, value in entry.fields.items())
        row = (entry.number, entry.time, entry.round, entry.attempt, entry.kind, what)
        table.add_row(*map(_plain_text, row))
    return _print_rows(out, table)


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


def _print_rows(out: Console, table: Table) -> bool:
    if table.rows:
        out.print(table)
    return bool(table.rows)


def _in_short(value: object) -> str:
    """Write a value in short."""
    if isinstance(value, dict | list):
        return ', '.join(map(str, value)) or 'nobody'
    if isinstance(value, bool):
        return 'yes' if value else 'no'
    before, colon, after = str(value).rpartition(':')
    if re.fullmatch('[0-9a-f]{64,}', after):
        after = after[:_SHORT]
    return before + colon + after or '-'


def _plain_text(value: object) -> Text:
    """Take it as it is: no markup, and nothing that would move a terminal's cursor."""
    return Text(''.join(mark if mark.isprintable() else '?' for mark in str(value)))
