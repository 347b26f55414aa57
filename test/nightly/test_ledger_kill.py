# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""
500 random kill -9 points, and one before every system call: no drawn block is ever forgotten.

Takes about five minutes; run by `make nightly`. A file changes in system calls alone, so the kills
before each of them leave every state that a kill can leave. Some of these states have a journal
that the next opening plays back: that opening is killed before each of its calls too.
"""

import shutil

from fdrl_ros.privacy.ledger.content import read_content
import numpy as np
import pytest
from support.ledger_killing import (
    check,
    check_accounts,
    drawn,
    HospitalForker,
    LOCKED,
    notes_of,
)

SETTINGS = {
    'seed': 2026,
    'kills': 500,
    'kills_of_one_ledger': 20,
    'most_blocks': 4,
    'longest_wait': 0.02,
}

pytestmark = pytest.mark.slow


@pytest.fixture(scope='module')
def forker():
    with HospitalForker() as each:
        yield each


def test_500_kills_at_random_never_forget_a_block(forker, tmp_path, figures):
    rng = np.random.default_rng(SETTINGS['seed'])
    over, journals, unborn, blocks = 0, 0, 0, 0
    for kill in range(SETTINGS['kills']):
        if kill % SETTINGS['kills_of_one_ledger'] == 0:
            path, head = tmp_path / f'{kill}.ledger', None
        blocks_drawn = rng.integers(SETTINGS['most_blocks'])
        forker.killed_after(path, blocks_drawn, rng.uniform(0.0, SETTINGS['longest_wait']))
        unborn += not path.exists()
        journals += path.exists() and read_content(path).interrupted
        before, head = head, check(path, head)
        over += head is not None and head.entries > len(drawn(path))
        blocks += 0 if head is None else head.entries - (before.entries if before else 0)
    figures.append(
        {
            'kills': SETTINGS['kills'],
            'under_reported': 0,
            'over_reported_by_one': int(over),
            'interrupted_commits': int(journals),
            'before_the_ledger_was_there': int(unborn),
            'blocks': int(blocks),
        }
    )
    assert over and journals and blocks > 100


def test_a_kill_before_any_system_call_never_forgets_a_block(forker, tmp_path, figures):
    call, played_back, interrupted = 0, 0, []
    while forker.killed_before_call(path := tmp_path / f'{call}.ledger', call, blocks=3):
        head = check(path, None)
        if head is not None and read_content(path).interrupted:
            interrupted.append(path)
        call += 1
    for path in interrupted:
        head, again = check(path, None), 0
        while True:
            copy = tmp_path / f'{path.stem}_{again}.ledger'
            for end in ('', '-journal'):
                shutil.copy(f'{path}{end}', f'{copy}{end}')
            if notes_of(path).exists():
                shutil.copy(notes_of(path), notes_of(copy))
            if not forker.killed_before_call(copy, again, blocks=1):
                break
            check(copy, head)
            assert not forker.killed_before_call(copy, 10**6, blocks=1)
            assert not read_content(copy).interrupted
            check(copy, head)
            again += 1
        played_back += again
    figures.append({'calls': call, 'interrupted_commits': len(interrupted), 'then': played_back})
    assert call > 100 and interrupted and played_back > 100


def test_a_kill_before_any_system_call_leaves_no_block_out_of_the_account(forker, tmp_path):
    assert check_accounts(forker, tmp_path, every=1) > 200


def test_of_hospitals_that_open_one_ledger_at_once_one_spends(forker, tmp_path, figures):
    path, head = tmp_path / 'ledger', None
    for crowd in range(100):
        if crowd % 10 == 0:
            path, head = tmp_path / f'{crowd}.ledger', None
        assert forker.at_once(path, 4, blocks=2) == [0] + [LOCKED] * 3
        head = check(path, head)
        assert head.entries == 2 * (crowd % 10 + 1)
    figures.append({'crowds': 100, 'hospitals_in_each': 4, 'that_spent': 1})
