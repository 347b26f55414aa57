# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""Everything that can be done to a ledger behind its hospital's back, for tests."""

from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass, replace
import hashlib
from pathlib import Path
import sqlite3
import struct
from typing import NamedTuple

from fdrl_ros.deployment.ledger_inspection import inspect_file
from fdrl_ros.errors import LedgerError
from fdrl_ros.privacy.accountant.accountant import Charge
from fdrl_ros.privacy.ledger.chain import Chain, Entry, Head, Owner
from fdrl_ros.privacy.ledger.content import read_content
from fdrl_ros.privacy.ledger.file import file_bytes
from fdrl_ros.privacy.ledger.ledger import Ledger
import numpy as np

OWNER = Owner('hospital_1', 'patient', 1e-5, 50.0, 'dueling network 5-64-64-3')
ENTRIES = 60
PAGE = 4096
_COLUMNS = {
    'number': [0, 7, 61, -1],
    'round': [5, 99],
    'block': [5, 99],
    'noise_multiplier': [2.0000000000000004, 20.0, 0.0],
    'sampling_probability': [0.12799999999999997, 0.001, 1.0],
    'steps': [1, 21, 0, -20],
    'group_size': [0, 2, -1],
    'inputs': [b'', bytes(32)],
    'digest': [b'', bytes(32)],
}
_OWNER_COLUMNS = {
    'hospital': ['hospital_2'],
    'unit': ['transition'],
    'delta': [1e-4],
    'budget': [500.0],
    'model': ['dueling network 5-64-64-4'],
    'birth': [bytes(16), b''],
    'digest': [bytes(32)],
}
_STATEMENTS = (
    'CREATE TRIGGER t BEFORE INSERT ON entry BEGIN SELECT RAISE(IGNORE); END',
    'CREATE TRIGGER t AFTER INSERT ON entry BEGIN DELETE FROM entry WHERE number = 9; END',
    'CREATE VIEW v AS SELECT * FROM entry',
    'CREATE TABLE more (number)',
    'CREATE INDEX i ON entry (steps)',
    'DROP TABLE owner',
    'DELETE FROM owner',
    'INSERT INTO owner SELECT * FROM owner',
    'PRAGMA user_version = 1',
    'PRAGMA application_id = 1',
    'PRAGMA journal_mode = WAL',
)


@dataclass(frozen=True)
class Victim:
    """
    A ledger of many entries.

    :param copies: the file with 0, 1, 2 ... entries.
    :param journals: what undoes the entry of that number, less 1.
    """

    copies: tuple[bytes, ...]
    journals: tuple[bytes, ...]
    chain: Chain

    @property
    def head(self) -> Head:
        """The head that somebody saw last."""
        return self.chain.head


def make_victim(path: Path) -> Victim:
    """Fill a ledger, and keep a copy of the file and of its journal at every entry."""
    with Ledger(path, OWNER) as ledger:
        copies, journals = [path.read_bytes()], []
        for number in range(ENTRIES):
            ledger.reserve(
                round=number // 3,
                block=number % 3,
                charge=Charge(2.0, 0.128, 20),
                inputs=b'weights of %d' % number,
            )
            copies.append(path.read_bytes())
            journals.append(_hot(path.with_name(path.name + '-journal').read_bytes(), copies[-2]))
    return Victim(tuple(copies), tuple(journals), read_content(path).chain)


def _hot(journal: bytes, before: bytes) -> bytes:
    """Put back the head of a journal that a commit cleared: it is valid again then."""
    (checksum,) = struct.unpack_from('>I', journal, 512 + 4 + PAGE)
    page = journal[512 + 4 : 512 + 4 + PAGE]
    nonce = (checksum - sum(page[PAGE - 200 :: -200])) % 2**32
    records = (len(journal) - 512) // (PAGE + 8)
    head = struct.pack('>5I', records, nonce, len(before) // PAGE, 512, PAGE)
    return bytes.fromhex('d9d505f920a163d7') + head + journal[28:]


# What is done to a ledger: each writes `path` and what lies beside it.


def flip(victim: Victim, rng: np.random.Generator, path: Path) -> None:
    """Change one bit anywhere."""
    content = bytearray(victim.copies[-1])
    content[rng.integers(len(content))] ^= 1 << rng.integers(8)
    path.write_bytes(content)


def flip_written(victim: Victim, rng: np.random.Generator, path: Path) -> None:
    """Change one bit of a byte that is not zero."""
    content = np.frombuffer(victim.copies[-1], np.uint8).copy()
    content[rng.choice(np.flatnonzero(content))] ^= 1 << rng.integers(8)
    path.write_bytes(content.tobytes())


def smear(victim: Victim, rng: np.random.Generator, path: Path) -> None:
    """Overwrite a stretch with zeros, ones, or noise, as a bad disk does."""
    content = bytearray(victim.copies[-1])
    count = int(rng.integers(1, 2 * PAGE))
    at = int(rng.integers(len(content) - count))
    filler = (bytes(count), b'\xff' * count, rng.bytes(count))[rng.integers(3)]
    if content[at : at + count] == filler:
        filler = rng.bytes(count)
    content[at : at + count] = filler
    path.write_bytes(content)


def swap_pages(victim: Victim, rng: np.random.Generator, path: Path) -> None:
    """Exchange two pages, or put an older one in the place of a newer."""
    content, older = bytearray(victim.copies[-1]), victim.copies[rng.integers(ENTRIES)]
    pages = len(content) // PAGE
    while content == victim.copies[-1]:
        here, there = (int(each) * PAGE for each in rng.integers(pages, size=2))
        source = older if rng.integers(2) and there + PAGE <= len(older) else victim.copies[-1]
        content[here : here + PAGE] = source[there : there + PAGE]
    path.write_bytes(content)


def edit(victim: Victim, rng: np.random.Generator, path: Path) -> None:
    """Change a value of an entry or of the owner by SQL."""
    table, columns = (('entry', _COLUMNS), ('owner', _OWNER_COLUMNS))[int(rng.integers(6) == 0)]
    column = str(rng.choice(list(columns)))
    value = columns[column][rng.integers(len(columns[column]))]
    where = f' WHERE number = {rng.integers(1, ENTRIES + 1)}' if table == 'entry' else ''
    _query(victim.copies[-1], path, f'UPDATE OR REPLACE {table} SET {column} = ?{where}', value)


def delete(victim: Victim, rng: np.random.Generator, path: Path) -> None:
    """Remove some entries by SQL, and number the others anew or not."""
    first = int(rng.integers(1, ENTRIES + 1))
    last = int(rng.integers(first, ENTRIES + 1))
    _query(victim.copies[-1], path, f'DELETE FROM entry WHERE number BETWEEN {first} AND {last}')
    if rng.integers(2):
        shift = f'UPDATE entry SET number = number - {last - first + 1} WHERE number > {last}'
        _query(path.read_bytes(), path, shift)


def rearrange(victim: Victim, rng: np.random.Generator, path: Path) -> None:
    """Give a ledger what none has, or take what every one has."""
    _query(victim.copies[-1], path, str(rng.choice(_STATEMENTS)))


def forge(victim: Victim, rng: np.random.Generator, path: Path) -> None:
    """Change an entry or the owner, or drop an entry, and rebuild every hash after it."""
    entries, owner = list(victim.chain.entries), victim.chain.owner
    at = int(rng.integers(ENTRIES))
    match rng.integers(4):
        case 0:
            entries[at] = replace(entries[at], charge=entries[at].charge._replace(steps=1))
        case 1:
            entries[at] = replace(entries[at], inputs=rng.bytes(32))
        case 2:
            del entries[at]
        case 3:
            owner = replace(owner, budget=500.0)
    path.write_bytes(file_bytes(_rebuilt(owner, entries)))


def cut(victim: Victim, rng: np.random.Generator, path: Path) -> None:
    """Truncate the file, half of the time at the end of a page."""
    content = victim.copies[-1]
    count = int(rng.integers(len(content)))
    path.write_bytes(content[: count - count % PAGE if rng.integers(2) else count])


def append(victim: Victim, rng: np.random.Generator, path: Path) -> None:
    """Write more at the end, half of the time a whole page."""
    count = PAGE if rng.integers(2) else int(rng.integers(1, 2 * PAGE))
    path.write_bytes(victim.copies[-1] + (bytes(count) if rng.integers(2) else rng.bytes(count)))


def roll_back(victim: Victim, rng: np.random.Generator, path: Path) -> None:
    """Put back an older copy."""
    path.write_bytes(victim.copies[rng.integers(ENTRIES)])


def regrow(victim: Victim, rng: np.random.Generator, path: Path) -> None:
    """Put back an older copy and go on with it, until it is as long as before, or longer."""
    chain = Chain(victim.chain.owner)
    count = int(rng.integers(ENTRIES))
    for entry in victim.chain.entries[:count]:
        chain.add(entry)
    for number in range(count, ENTRIES + int(rng.integers(3))):
        charge = victim.chain.entries[0].charge
        chain.add(chain.next(number // 3, number % 3, charge, b'other weights'))
    path.write_bytes(file_bytes(chain))


def undo(victim: Victim, rng: np.random.Generator, path: Path) -> None:
    """Lay a valid old journal beside the file, which makes SQLite undo a commit."""
    number = ENTRIES - 1 if rng.integers(2) else int(rng.integers(ENTRIES))
    path.write_bytes(victim.copies[-1])
    path.with_name(path.name + '-journal').write_bytes(victim.journals[number])


def exchange(victim: Victim, rng: np.random.Generator, path: Path) -> None:
    """Put another hospital's ledger in the place."""
    owner = replace(victim.chain.owner, hospital=f'hospital_{rng.integers(2, 9)}')
    path.write_bytes(file_bytes(_rebuilt(owner, list(victim.chain.entries))))


Attack = Callable[[Victim, np.random.Generator, Path], None]
ATTACKS: dict[Attack, int] = {
    flip: 250,
    flip_written: 150,
    smear: 50,
    swap_pages: 50,
    edit: 100,
    delete: 50,
    rearrange: 40,
    forge: 60,
    cut: 80,
    append: 40,
    roll_back: 60,
    regrow: 20,
    undo: 30,
    exchange: 20,
}
"""Each with how often it is made: 1000 in all."""

# No SQLite reads the number of the SQLite that wrote last, so here alone a byte may change
# unseen: to the number of another SQLite.
INERT = range(96, 100)


class Finding(NamedTuple):
    """Whether an attack was found, and whether that took a head that somebody saw."""

    found: bool
    by_head: bool


def attack_and_inspect(
    attack: Attack, victim: Victim, rng: np.random.Generator, path: Path
) -> Finding:
    """
    Do something to a copy, inspect it, and let a hospital try to go on with it.

    What is not found must be one of the few bytes that nobody reads; what a hospital accepts must
    be what it had.
    """
    path.touch(0o600)
    attack(victim, rng, path)
    content = path.read_bytes()
    assert content != victim.copies[-1] or path.with_name(path.name + '-journal').exists()
    alone = inspect_file(path, {}, OWNER).problems
    found = inspect_file(path, {'the aggregator': victim.head}, OWNER).problems
    if not found:
        pairs = zip(content, victim.copies[-1], strict=True)
        assert {at for at, (one, other) in enumerate(pairs) if one != other} <= {*INERT}
    assert path.read_bytes() == content, 'inspecting changed the file'
    try:
        with Ledger(path, OWNER, seen=victim.head) as ledger:
            assert ledger.chain.head == victim.head
            assert ledger.chain.history() == victim.chain.history()
    except LedgerError:
        assert found
    return Finding(bool(found), not alone)


def _rebuilt(owner: Owner, entries: list[Entry]) -> Chain:
    chain = Chain(owner)
    for entry in entries:
        count, last = chain.head
        numbers = (count + 1, entry.round, entry.block, *entry.charge)
        link = hashlib.sha256(struct.pack('<qqqddqq', *numbers) + entry.inputs).digest()
        chain.add(replace(entry, number=count + 1, digest=hashlib.sha256(last + link).digest()))
    return chain


def _query(content: bytes, path: Path, statement: str, *values: object) -> None:
    path.write_bytes(content)
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.execute(statement, values)
