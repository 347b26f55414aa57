# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""`fdrl journal`: who contributed to what, and whether all who took part say the same."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
import json
from pathlib import Path
import re
from typing import Any

import click
from fdrl_ros.cli.federation.journal_table import contributions, entries_table
from fdrl_ros.cli.federation.ledger_table import number
from fdrl_ros.cli.output import console
from fdrl_ros.crypto.keys.signing import fingerprint
from fdrl_ros.deployment.journal_check import STATE, Surroundings
from fdrl_ros.deployment.layout import Layout
from fdrl_ros.errors import JournalError, StoreError
from fdrl_ros.federation.journal.journal import FILE, Head, read
from fdrl_ros.federation.journal.reader import Progress, Summary
from fdrl_ros.federation.journal.rounds import compare, Comparison
from rich.console import Console
from rich.progress import BarColumn, DownloadColumn, TextColumn, TimeRemainingColumn
from rich.progress import Progress as Bars

SHORT = 24
"""Hexadecimal digits of a head that people write down."""

_PATH = click.argument('path', metavar='DIRECTORY', type=click.Path(path_type=Path))


@click.group()
def journal() -> None:
    """
    Show and verify the round journals of a federation's parties.

    Each party keeps one file, journal.jsonl in its directory: a signed line for everything that it
    did in a round, each with the hash of the line before. A hospital notes what it sent, signed
    and took, the key authority what it released out of whose updates, the aggregator how each
    round went. They hold hashes and names, nothing secret, nothing of patients, and may be copied:
    put those of other hosts into the directories of their parties here to compare all of them.

    docs/journal.md says what is found, and what cannot be.
    """


@journal.command()
@_PATH
@click.option('--json', 'as_json', is_flag=True, help='Print JSON.')
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

    Write the heads that are printed down elsewhere: --seen finds what was cut off the end later,
    together with the state file.
    """
    layout, files, names = _find(path)
    seen: dict[str, dict[str, Head]] = {}
    for name, head in map(_seen_head, heads):
        others = seen.setdefault(name, {})
        others[f'somebody {len(others) + 1}' if others else 'somebody'] = head
    around = Surroundings(layout, names)
    for name, head in around.noted.items():
        seen.setdefault(name, {})[STATE] = head
    # A journal that somebody saw is looked for, too.
    files |= {name: layout.party(name) / FILE for name in seen}
    if not files:
        raise JournalError(f'no journal in {path}: its parties have not started yet')
    roster = layout.roster()
    with _progress(files, not as_json) as progress:
        found = compare(files, roster, seen=seen, quick=quick, progress=progress)
    around.judge(found)
    problems = around.problems + found.problems
    if found.unsaid:
        problems.append(f'and {number(found.unsaid, "problem")} more')
    if as_json:
        click.echo(json.dumps(_document(found, around, problems), indent=1))
    else:
        _tell(found, around, seen)
    for problem in problems[:-1]:
        click.echo(f'fdrl: {problem}', err=True)
    if problems:
        raise JournalError(problems[-1])


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
    --round, it is the key authority that tells which updates made which policy; --party and
    --round show the entries themselves. The chain of hashes is checked on the way; whose they are,
    `fdrl journal verify` tells.
    """
    files = {path.name: path} if path.is_file() else _find(path)[1]
    if not files:
        raise JournalError(f'no journal in {path}: its parties have not started yet')
    if party is not None:
        if party not in files:
            raise JournalError(f'no journal of {party!r} here: expected {_or(files)}')
        files = {party: files[party]}
    out = console()
    shown = False
    if party is None:
        for each in files.values():
            releases = (
                entry
                for entry in read(each)
                if entry.kind == 'release' and of_round in (None, entry.round)
            )
            shown |= contributions(out, releases, last)
    if party is not None or of_round is not None or not shown:
        for each in files.values():
            found = (entry for entry in read(each) if of_round in (None, entry.round))
            shown |= entries_table(out, found, last)
    if not shown:
        click.echo('no such entry')


def _find(path: Path) -> tuple[Layout, dict[str, Path], list[str]]:
    """Return the federation, its journals by party, and whose there could be."""
    layout, alone = _layout(path)
    names = [member.name for member in layout.roster().members]
    there = sorted(each.parent.name for each in layout.directory.glob(f'*/{FILE}'))
    names += [name for name in there if name not in names]  # who left the roster
    if alone:
        names = [alone]
    files = {name: layout.party(name) / FILE for name in names if name in there}
    return layout, files, names


def _layout(path: Path) -> tuple[Layout, str]:
    """Find the federation of a run, of itself or of a party, and the party if it is one."""
    path = path.resolve()
    if path.name == FILE:
        path = path.parent
    for each, party in ((path / 'federation', ''), (path, ''), (path.parent, path.name)):
        if Layout(each).keys.exists():
            return Layout(each), party
    raise StoreError(f'{path} is neither a run nor a federation, nor a party of one')


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
    if not (wanted and out.is_terminal):
        yield lambda done: None
        return
    columns = (TextColumn('verifying'), BarColumn(), DownloadColumn(), TimeRemainingColumn())
    total = sum(each.stat().st_size for each in files.values() if each.exists())
    with Bars(*columns, console=out, transient=True) as bars:
        task = bars.add_task('', total=total)
        yield lambda done: bars.update(task, completed=done)


def _tell(found: Comparison, around: Surroundings, seen: dict[str, dict[str, Head]]) -> None:
    for name, summary in found.parties.items():
        beside, saw = around.beside[name], [who for who in seen.get(name, {}) if who != STATE]
        compared = beside.compared + [f'the head that {who} saw' for who in saw]
        missing = f'; not here: {_and(beside.missing)}' if beside.missing else ''
        click.echo(
            f'{name}: {_entries(summary.head.entries)}, whole and signed by '
            f'{fingerprint(summary.keys[-1]) if summary.keys else "nobody yet"}, head '
            f'{_short(summary.head)}; compared with {_and(compared) or "nothing else"}{missing}'
        )
    first, last = found.released
    if last:
        click.echo(
            f'rounds {first} to {last} released; {number(found.compared, "update")} compared with '
            'what their hospitals noted'
        )
    for each in found.remarks:
        click.echo(each)


def _short(head: Head) -> str:
    """Return what people write down of a head: 96 bits of its hash."""
    return f'{head.entries}:{head.digest.hex()[:SHORT]}'


def _and(words: list[str]) -> str:
    return ' and '.join(words)


def _entries(count: int) -> str:
    return f'{count} {"entry" if count == 1 else "entries"}'


def _document(found: Comparison, around: Surroundings, problems: list[str]) -> dict[str, Any]:
    return {
        'parties': {
            name: _party(each) | asdict(around.beside[name])
            for name, each in found.parties.items()
        },
        'first_round': found.released[0],
        'last_round': found.released[1],
        'updates_compared': found.compared,
        'remarks': found.remarks,
        'problems': problems,
    }


def _party(summary: Summary) -> dict[str, Any]:
    return {
        'entries': summary.head.entries,
        'head': str(summary.head),
        'short_head': _short(summary.head),
        'keys': [fingerprint(each) for each in summary.keys],
        'cut_short': summary.cut_short,
        'begun': summary.begun,
        'ended': summary.ended,
    }


def _or(names: dict[str, Path]) -> str:
    return 'one of ' + ', '.join(names)
