# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""
Whenever a hospital is killed, its ledger has every block that was drawn, and at most one more.

Some 15 kills; `make nightly` makes 500 more at random, and one before every system call.
"""

from fdrl_ros.privacy.ledger.chain import Owner
from fdrl_ros.privacy.ledger.ledger import Ledger
import numpy as np
import pytest
from support.ledger_killing import check, HospitalForker, LOCKED, notes_of, OWNER


@pytest.fixture(scope='module')
def forker():
    with HospitalForker() as each:
        yield each


def test_a_hospital_killed_again_and_again_never_forgets_a_block(forker, tmp_path):
    rng = np.random.default_rng(4)
    path, head = tmp_path / 'ledger', None
    for _ in range(12):
        forker.killed_after(path, rng.integers(4), rng.uniform(0.0, 0.01))
        head = check(path, head)
    assert head.entries >= 5


def test_a_hospital_killed_before_any_system_call_never_forgets_a_block(forker, tmp_path):
    call = 0
    while forker.killed_before_call(path := tmp_path / f'{call}.ledger', call, blocks=1):
        head = check(path, None)
        assert not forker.killed_before_call(path, 10**6, blocks=1)
        assert check(path, head).entries in (1, 2)
        call += 17
    assert call > 90


def test_of_hospitals_that_open_one_ledger_at_once_one_spends(forker, tmp_path):
    path, head = tmp_path / 'ledger', None
    for count in (2, 4):
        assert forker.at_once(path, count, blocks=3) == [0] + [LOCKED] * (count - 1)
        head = check(path, head)
    assert head.entries == 6
    assert sorted(tmp_path.iterdir()) == sorted([path, notes_of(path)])


def test_reading_the_file_in_the_same_process_does_not_unlock_it(forker, tmp_path):
    """Closing a file drops all locks that SQLite has on it, whoever opened it in this process."""
    path = tmp_path / 'ledger'
    with Ledger(path, Owner(**OWNER)):
        path.read_bytes()
        assert forker.at_once(path, 2, blocks=1) == [LOCKED, LOCKED]
    assert forker.at_once(path, 1, blocks=1) == [0]
