# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""A ledger that was changed, cut or damaged is refused, and its first bad entry is named."""

import math
import shutil
import sqlite3
import tempfile

from fdrl_ros.errors import LedgerCorruptError, LedgerVersionError
from fdrl_ros.privacy.accountant.accountant import Charge
from fdrl_ros.privacy.ledger.chain import Owner
from fdrl_ros.privacy.ledger.content import read_content
from fdrl_ros.privacy.ledger.file import write_entry
from fdrl_ros.privacy.ledger.ledger import Ledger
from hypothesis import given, settings, strategies
import pytest
from support.sample_size import sampled

OWNER = {'hospital': 'hospital_1', 'unit': 'patient', 'delta': 1e-4, 'budget': 8.0}
BLOCK = {'noise_multiplier': 2.0, 'sampling_probability': 0.128, 'steps': 20}
COLUMNS = {
    'number': [0, 7, -1],
    'round': [5, 9],
    'block': [5, 9],
    'noise_multiplier': [2.0000000000000004, 20.0, math.inf, 0.0],
    'sampling_probability': [0.12799999999999997, 0.001, 1.0],
    'steps': [1, 21, 0, -20],
    'group_size': [0, 2, -1],
    'inputs': [b'', bytes(32)],
    'digest': [b'', bytes(32)],
}


def reserve(ledger, round, block=0, inputs=b'weights and records', **changes):
    charge = Charge(**(BLOCK | changes))
    return ledger.reserve(round=round, block=block, charge=charge, inputs=inputs)


@pytest.fixture
def path(tmp_path):
    return tmp_path / 'hospital_1.ledger'


@pytest.fixture(scope='module')
def written(tmp_path_factory):
    """Four reserved blocks in a closed ledger that tests copy."""
    path = tmp_path_factory.mktemp('written') / 'hospital_1.ledger'
    with Ledger(path, Owner(**OWNER)) as ledger:
        for round in (1, 2):
            for block in (0, 1):
                reserve(ledger, round, block, inputs=bytes([round, block]))
        head = ledger.head()
    return path, head


@pytest.fixture
def copied(written, path):
    shutil.copy(written[0], path)
    return path


def alter(path, *statements):
    """Change a ledger behind its back."""
    connection = sqlite3.connect(path)
    for statement, values in statements:
        connection.execute(statement, values)
    connection.commit()
    connection.close()


@settings(max_examples=sampled(60, 25), deadline=None)
@given(
    strategies.integers(1, 4),
    strategies.sampled_from(
        [(name, value) for name, values in COLUMNS.items() for value in values]
    ),
)
def test_a_changed_entry_is_named(written, number, change):
    name, value = change
    with tempfile.TemporaryDirectory() as folder:
        path = shutil.copy(written[0], folder)
        alter(path, (f'UPDATE entry SET {name} = ? WHERE number = ?', (value, number)))
        first = 1 if name == 'number' and value < 1 else number
        with pytest.raises(LedgerCorruptError, match=f'entry {first} is missing or changed'):
            Ledger(path, Owner(**OWNER))


@pytest.mark.parametrize('number', [1, 2, 3])
def test_a_removed_entry_is_named(copied, number):
    alter(copied, ('DELETE FROM entry WHERE number = ?', (number,)))
    with pytest.raises(LedgerCorruptError, match=f'entry {number} is missing'):
        Ledger(copied, Owner(**OWNER))


def test_a_removed_entry_is_named_even_when_the_rest_is_renumbered(copied):
    alter(
        copied,
        ('DELETE FROM entry WHERE number = 2', ()),
        ('UPDATE entry SET number = 2 WHERE number = 3', ()),
        ('UPDATE entry SET number = 3 WHERE number = 4', ()),
    )
    with pytest.raises(LedgerCorruptError, match='entry 2 is missing or changed'):
        Ledger(copied, Owner(**OWNER))


def test_a_ledger_cut_at_its_end_is_refused_by_who_saw_a_later_head(written, copied):
    alter(copied, ('DELETE FROM entry WHERE number = 4', ()))
    with pytest.raises(LedgerCorruptError, match='has 3 entries and had 4'):
        Ledger(copied, Owner(**OWNER), seen=written[1])


def test_another_history_of_the_same_length_is_refused_by_who_saw_the_head(written, path):
    with Ledger(path, Owner(**OWNER)) as ledger:
        for block in range(5):
            reserve(ledger, 1, block)
        with pytest.raises(LedgerCorruptError, match='entry 4 is not the one seen'):
            ledger.verify(written[1])


@pytest.mark.parametrize('name, value', [('budget', 80.0), ('delta', 1e-3), ('hospital', 'x')])
def test_a_changed_owner_is_noticed(copied, name, value):
    alter(copied, (f'UPDATE owner SET {name} = ?', (value,)))
    for owner in (OWNER, OWNER | {name: value}):
        with pytest.raises(LedgerCorruptError, match='owner was changed'):
            Ledger(copied, Owner(**owner))


@pytest.mark.parametrize('content', [b'', b'text', bytes(8192), b'SQLite format 3\0' * 512])
def test_what_is_no_database_is_refused_and_kept(path, content):
    path.touch(0o600)
    path.write_bytes(content)
    with pytest.raises(LedgerCorruptError):
        Ledger(path, Owner(**OWNER))
    assert path.read_bytes() == content


def test_another_database_or_version_is_refused(tmp_path, copied):
    other = tmp_path / 'other'
    other.touch(0o600)
    alter(other, ('CREATE TABLE entry (number)', ()))
    with pytest.raises(LedgerCorruptError, match='not a ledger'):
        Ledger(other, Owner(**OWNER))
    for version in (1, 2, 3, 5):
        alter(copied, (f'PRAGMA user_version = {version}', ()))
        with pytest.raises(LedgerVersionError, match=f'version {version}, and .* reads version 4'):
            Ledger(copied, Owner(**OWNER))


@pytest.mark.parametrize(
    'statement',
    [
        'CREATE TRIGGER t BEFORE INSERT ON entry BEGIN SELECT RAISE(IGNORE); END',
        'CREATE TABLE more (number)',
        'CREATE INDEX more ON entry (steps)',
    ],
)
def test_a_ledger_with_more_in_it_is_refused(copied, statement):
    """A trigger could make reservations vanish while the hospital goes on."""
    alter(copied, (statement, ()))
    with pytest.raises(LedgerCorruptError, match='other tables'):
        Ledger(copied, Owner(**OWNER))


def test_a_block_is_not_reserved_twice_in_one_chain(written, path):
    chain = read_content(written[0]).chain
    again = chain.next(1, 0, Charge(2.0, 0.128, 20), b'other inputs')
    assert not chain.fits(again)
    assert chain.fits(chain.next(3, 0, Charge(2.0, 0.128, 20), b'inputs'))


@pytest.mark.parametrize(
    'change',
    [{'sampling_probability': 0.0}, {'noise_multiplier': -1.0}, {'steps': -5}, {'group': 0}],
)
def test_what_no_hospital_can_charge_is_refused_though_its_hashes_are_right(written, path, change):
    """Such an entry could lower epsilon, or stop it from being told at all."""
    chain = read_content(written[0]).chain
    entry = chain.next(3, 0, Charge(2.0, 0.128, 20)._replace(**change), b'inputs')
    shutil.copy(written[0], path)
    connection = sqlite3.connect(path)
    write_entry(connection, entry)
    connection.commit()
    connection.close()
    with pytest.raises(LedgerCorruptError, match='was never charged'):
        Ledger(path, Owner(**OWNER))
    with pytest.raises(LedgerCorruptError, match='was never charged'):
        read_content(path)


@pytest.mark.parametrize('vacuumed', [False, True])
def test_a_last_entry_that_was_removed_by_sqlite_is_not_called_harmless(copied, vacuumed):
    alter(copied, ('DELETE FROM entry WHERE number = (SELECT max(number) FROM entry)', ()))
    if vacuumed:
        alter(copied, ('VACUUM', ()))
    (problem,) = read_content(copied).problems()
    assert 'removed' in problem or 'bytes where its entries make' in problem
