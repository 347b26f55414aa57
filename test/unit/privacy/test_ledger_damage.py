# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""
A ledger that was changed, cut or damaged is refused, and its first bad entry is named.

`test_ledger_mutation.py` changes every column, table and byte.
"""

from contextlib import closing
import shutil
import sqlite3

from fdrl_ros.errors import LedgerCorruptError, LedgerVersionError
from fdrl_ros.privacy.accountant.accountant import Charge
from fdrl_ros.privacy.ledger.chain import Entry, Owner
from fdrl_ros.privacy.ledger.content import read_content
from fdrl_ros.privacy.ledger.file import write_entry
from fdrl_ros.privacy.ledger.ledger import Ledger
import pytest

OWNER = Owner('hospital_1', 'patient', 1e-4, 8.0)
CHARGE = Charge(2.0, 0.128, 20)


@pytest.fixture(scope='module')
def written(tmp_path_factory):
    """Four reserved blocks in a closed ledger that tests copy, and its head."""
    path = tmp_path_factory.mktemp('written') / 'hospital_1.ledger'
    with Ledger(path, OWNER) as ledger:
        for round, block in ((1, 0), (1, 1), (2, 0), (2, 1)):
            ledger.reserve(round=round, block=block, charge=CHARGE, inputs=bytes([round, block]))
        head = ledger.chain.head
    return path, head


@pytest.fixture
def copied(written, tmp_path):
    return shutil.copy(written[0], tmp_path / 'copied')


def alter(path, *statements):
    """Change a ledger behind its back."""
    with closing(sqlite3.connect(path)) as connection, connection:
        for statement in statements:
            connection.execute(statement)


def moved(old, new):
    return f'UPDATE entry SET number = {new} WHERE number = {old}'


@pytest.mark.parametrize(
    'first, statements',
    [
        (2, ['UPDATE entry SET noise_multiplier = 2.0000000000000004 WHERE number = 2']),
        (2, ['UPDATE entry SET noise_multiplier = 9e999 WHERE number = 2']),
        (4, ['UPDATE entry SET inputs = zeroblob(32) WHERE number = 4']),
        (1, ["UPDATE entry SET digest = x'' WHERE number = 1"]),
        (1, [moved(3, 0)]),
        (3, [moved(3, 7)]),
        (1, ['DELETE FROM entry WHERE number = 1']),
        (3, ['DELETE FROM entry WHERE number = 3']),
        (2, ['DELETE FROM entry WHERE number = 2', moved(3, 2), moved(4, 3)]),
    ],
)
def test_the_first_changed_or_removed_entry_is_named(copied, first, statements):
    alter(copied, *statements)
    with pytest.raises(LedgerCorruptError, match=f'entry {first} is missing or changed'):
        Ledger(copied, OWNER)


def test_a_ledger_cut_at_its_end_is_refused_by_who_saw_a_later_head(written, copied):
    alter(copied, 'DELETE FROM entry WHERE number = 4')
    with pytest.raises(LedgerCorruptError, match='has 3 entries and had 4'):
        Ledger(copied, OWNER, seen=written[1])


def test_another_history_of_the_same_length_is_refused_by_who_saw_the_head(written, tmp_path):
    with Ledger(tmp_path / 'other', OWNER) as ledger:
        for block in range(5):
            ledger.reserve(round=1, block=block, charge=CHARGE, inputs=b'weights')
        with pytest.raises(LedgerCorruptError, match='entry 4 is not the one seen'):
            ledger.verify(written[1])


def test_a_changed_owner_is_noticed_even_by_the_new_owner(copied):
    alter(copied, 'UPDATE owner SET budget = 80.0')
    for budget in (8.0, 80.0):
        with pytest.raises(LedgerCorruptError, match='owner was changed'):
            Ledger(copied, Owner('hospital_1', 'patient', 1e-4, budget))


@pytest.mark.parametrize('content', [b'', b'text', bytes(8192), b'SQLite format 3\0' * 512])
def test_what_is_no_database_is_refused_and_kept(tmp_path, content):
    path = tmp_path / 'ledger'
    path.touch(0o600)
    path.write_bytes(content)
    with pytest.raises(LedgerCorruptError):
        Ledger(path, OWNER)
    assert path.read_bytes() == content


def test_another_database_or_version_is_refused(tmp_path, copied):
    other = tmp_path / 'other'
    other.touch(0o600)
    alter(other, 'CREATE TABLE entry (number)')
    with pytest.raises(LedgerCorruptError, match='not a ledger'):
        Ledger(other, OWNER)
    for version in (1, 2, 3, 5):
        alter(copied, f'PRAGMA user_version = {version}')
        with pytest.raises(LedgerVersionError, match=f'version {version}, and .* reads version 4'):
            Ledger(copied, OWNER)


@pytest.mark.parametrize(
    'statement',
    [
        'CREATE TRIGGER t BEFORE INSERT ON entry BEGIN SELECT RAISE(IGNORE); END',
        'CREATE INDEX more ON entry (steps)',
    ],
)
def test_a_ledger_with_more_in_it_is_refused(copied, statement):
    """A trigger could make reservations vanish while the hospital goes on."""
    alter(copied, statement)
    with pytest.raises(LedgerCorruptError, match='other tables'):
        Ledger(copied, OWNER)


def test_a_chain_takes_no_block_twice_and_leaves_out_no_number(written):
    chain = read_content(written[0]).chain
    assert chain.fits(chain.next(3, 0, CHARGE, b'inputs'))
    assert not chain.fits(chain.next(1, 0, CHARGE, b'other inputs'))
    assert not chain.fits(Entry.after(chain.head.digest, 6, 3, 0, CHARGE, b'inputs'))


@pytest.mark.parametrize(
    'change',
    [{'sampling_probability': 0.0}, {'noise_multiplier': -1.0}, {'steps': -5}, {'group': 0}],
)
def test_what_no_hospital_can_charge_is_refused_though_its_hashes_are_right(copied, change):
    """Such an entry could lower epsilon, or stop it from being told at all."""
    entry = read_content(copied).chain.next(3, 0, CHARGE._replace(**change), b'inputs')
    with closing(sqlite3.connect(copied)) as connection, connection:
        write_entry(connection, entry)
    for read in (lambda: Ledger(copied, OWNER), lambda: read_content(copied)):
        with pytest.raises(LedgerCorruptError, match='was never charged'):
            read()


@pytest.mark.parametrize('statements', [[], ['VACUUM']])
def test_a_last_entry_that_was_removed_by_sqlite_is_not_called_harmless(copied, statements):
    alter(copied, 'DELETE FROM entry WHERE number = (SELECT max(number) FROM entry)')
    alter(copied, *statements)
    (problem,) = read_content(copied).problems()
    assert 'removed' in problem or 'bytes where its entries make' in problem
