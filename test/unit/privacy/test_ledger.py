# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""The ledger: durable before it returns, one writer, one owner, never above the budget."""

import hashlib
import math
import os
from pathlib import Path
import resource
import signal
import sqlite3
import stat
import subprocess
import sys
import tempfile
import threading

import fdrl_ros
from fdrl_ros.errors import (
    BudgetExceededError,
    LedgerCorruptError,
    LedgerError,
    LedgerLockedError,
    LedgerOwnerError,
    PrivacyError,
)
from fdrl_ros.privacy.accountant.accountant import Charge, epsilon_pld, epsilon_rdp
from fdrl_ros.privacy.ledger.chain import Head, Owner
from fdrl_ros.privacy.ledger.ledger import Ledger
from hypothesis import given, settings, strategies
import numpy as np
import pytest

OWNER = {
    'hospital': 'hospital_1',
    'unit': 'patient',
    'delta': 1e-4,
    'budget': 8.0,
    'model': 'dueling network 5-64-64-3',
}
BLOCK = {'noise_multiplier': 2.0, 'sampling_probability': 0.128, 'steps': 20}


def reserve(ledger, round, block=0, inputs=b'weights and records', **changes):
    charge = Charge(**(BLOCK | changes))
    return ledger.reserve(round=round, block=block, charge=charge, inputs=inputs)


@pytest.fixture
def path(tmp_path):
    return tmp_path / 'hospital_1.ledger'


def test_a_new_ledger_has_spent_nothing(path):
    with Ledger(path, Owner(**OWNER)) as ledger:
        assert ledger.epsilon() == ledger.epsilon_rdp() == 0.0
        assert ledger.history() == ()
        assert ledger.head().entries == 0
        assert len(ledger.head().digest) == 32
        assert ledger.blocks(1) == 0
    assert [each.name for each in path.parent.iterdir()] == [path.name]


def test_what_is_reserved_is_charged_and_kept(path):
    with Ledger(path, Owner(**OWNER)) as ledger:
        reservation = reserve(ledger, 1)
        assert reservation.charge == Charge(2.0, 0.128, 20)
        assert reservation.inputs == hashlib.sha256(b'weights and records').digest()
        reserve(ledger, 1, 1, steps=1, group=2)
        history = ledger.history()
        head = ledger.head()
    with Ledger(path, Owner(**OWNER), seen=head) as ledger:
        assert ledger.history() == history == (Charge(2.0, 0.128, 20), Charge(2.0, 0.128, 1, 2))
        assert ledger.epsilon() == epsilon_pld(history, 1e-4)
        assert ledger.epsilon_rdp() == epsilon_rdp(history, 1e-4)
        assert ledger.head() == head
        assert ledger.blocks(1) == 2


def test_the_chain_is_the_hashes_written_out(path):
    with Ledger(path, Owner(**OWNER)) as ledger:
        first = ledger.head().digest
        reserve(ledger, 3, 1)
        numbers = np.array([1, 3, 1], '<i8').tobytes() + np.array([2.0, 0.128], '<f8').tobytes()
        numbers += np.array([20, 1], '<i8').tobytes()
        inputs = hashlib.sha256(b'weights and records').digest()
        link = hashlib.sha256(numbers + inputs).digest()
        assert ledger.links() == link
        assert ledger.head() == Head(1, hashlib.sha256(first + link).digest())


def test_links_lead_from_every_head_that_there_was_to_the_newest(path, monkeypatch):
    with Ledger(path, Owner(**OWNER)) as ledger:
        heads = [ledger.head()]
        for block in range(6):
            reserve(ledger, 1, block, steps=1)
            heads.append(ledger.head())
        links = ledger.links()
        for number, head in enumerate(heads):
            assert list(head.followed(links[32 * number :])) == heads[number:]
        monkeypatch.setattr('fdrl_ros.privacy.ledger.ledger.MOST_LINKS', 2)
        assert list(heads[4].followed(ledger.links())) == heads[4:]


def test_asking_again_charges_nothing(path):
    with Ledger(path, Owner(**OWNER)) as ledger:
        first = reserve(ledger, 1)
        head = ledger.head()
        assert reserve(ledger, np.int64(1), steps=np.int64(20)) == first
        assert ledger.head() == head
    with Ledger(path, Owner(**OWNER)) as ledger:
        assert reserve(ledger, 1) == first
        assert ledger.head() == head


@pytest.mark.parametrize(
    'change',
    [
        {'inputs': b'other records'},
        {'noise_multiplier': 1.0},
        {'sampling_probability': 0.1},
        {'steps': 19},
    ],
)
def test_a_block_is_never_reserved_for_something_else(path, change):
    with Ledger(path, Owner(**OWNER)) as ledger:
        reserve(ledger, 1)
        head = ledger.head()
        with pytest.raises(PrivacyError, match='release it twice'):
            reserve(ledger, 1, **change)
        assert ledger.head() == head


@pytest.mark.parametrize(
    'change',
    [
        {'inputs': b''},
        {'steps': 0},
        {'steps': 1.5},
        {'steps': -1},
        {'sampling_probability': 0.0},
        {'sampling_probability': 1.5},
        {'noise_multiplier': -1.0},
        {'noise_multiplier': math.nan},
        {'round': -1},
        {'round': 2**63},
        {'block': 0.5},
    ],
)
def test_a_reservation_that_cannot_be_is_refused(path, change):
    with Ledger(path, Owner(**OWNER)) as ledger:
        with pytest.raises(PrivacyError):
            reserve(ledger, **({'round': 1} | change))
        assert ledger.head().entries == 0


def test_what_would_pass_the_budget_is_refused_and_not_written(path):
    with Ledger(path, Owner(**OWNER)) as ledger:
        reserve(ledger, 1)
        spent, head = ledger.epsilon(), ledger.head()
        with pytest.raises(BudgetExceededError) as refusal:
            reserve(ledger, 2, steps=5000)
        assert refusal.value.spent == spent == ledger.epsilon()
        assert refusal.value.wanted > refusal.value.budget == 8.0
        assert ledger.head() == head
        with pytest.raises(BudgetExceededError):
            ledger.check(Charge(2.0, 0.128, 5000))
        ledger.check(Charge(2.0, 0.128, 1))
        assert ledger.head() == head


def test_steps_without_noise_need_a_budget_without_limit(tmp_path):
    with Ledger(tmp_path / 'finite', Owner(**OWNER)) as ledger:
        with pytest.raises(BudgetExceededError):
            reserve(ledger, 1, noise_multiplier=0.0)
    with Ledger(tmp_path / 'infinite', Owner(**(OWNER | {'budget': math.inf}))) as ledger:
        reserve(ledger, 1, noise_multiplier=0.0)
        assert ledger.epsilon() == math.inf
    with Ledger(tmp_path / 'infinite', Owner(**(OWNER | {'budget': math.inf}))) as ledger:
        assert ledger.epsilon() == math.inf


CHARGES = strategies.builds(
    Charge,
    strategies.sampled_from([1.0, 2.0]),
    strategies.sampled_from([0.128, 1.0]),
    strategies.sampled_from([1, 50]),
    strategies.just(1),
)


@settings(max_examples=10, deadline=None)
@given(strategies.sampled_from([0.5, 2.0, 8.0]), strategies.lists(CHARGES, max_size=5))
def test_the_budget_is_never_passed_and_epsilon_never_falls(budget, charges):
    with tempfile.TemporaryDirectory() as folder:
        with Ledger(Path(folder) / 'ledger', Owner(**(OWNER | {'budget': budget}))) as ledger:
            for round, charge in enumerate(charges):
                before = ledger.epsilon()
                try:
                    ledger.reserve(round=round, block=0, charge=charge, inputs=b'x')
                except BudgetExceededError as refusal:
                    assert refusal.wanted > budget
                    assert ledger.epsilon() == before
                # The account that decides and the one that reports round apart.
                assert before <= ledger.epsilon() <= budget * (1.0 + 1e-6)


CHILD = """
import sys, time
from fdrl_ros.privacy.accountant.accountant import Charge
from fdrl_ros.privacy.ledger.chain import Owner
from fdrl_ros.privacy.ledger.ledger import Ledger
owner = Owner('hospital_1', 'patient', 1e-4, 8.0, 'dueling network 5-64-64-3')
ledger = Ledger(sys.argv[1], owner)
ledger.reserve(round=1, block=0, charge=Charge(2.0, 0.128, 20), inputs=b'weights and records')
print('reserved', flush=True)
sys.stdin.read()
"""


def test_a_killed_hospital_keeps_its_reservation_and_a_living_one_its_lock(path):
    root = str(Path(fdrl_ros.__file__).parent.parent)
    child = subprocess.Popen(
        [sys.executable, '-c', CHILD, str(path)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env={**os.environ, 'PYTHONPATH': root},
    )
    try:
        assert child.stdout.readline() == b'reserved\n'
        with pytest.raises(LedgerLockedError):
            Ledger(path, Owner(**OWNER))
    finally:
        child.send_signal(signal.SIGKILL)
        child.communicate()
    with Ledger(path, Owner(**OWNER)) as ledger:
        assert ledger.history() == (Charge(2.0, 0.128, 20),)
        head = ledger.head()
        reserve(ledger, 1)
        assert ledger.head() == head


def test_threads_of_one_hospital_share_a_ledger(path):
    with Ledger(path, Owner(**OWNER)) as ledger:
        threads = [threading.Thread(target=reserve, args=(ledger, i)) for i in range(6)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert len(ledger.history()) == 6
        ledger.verify()


@pytest.mark.parametrize(
    'change',
    [
        {'hospital': 'hospital_2'},
        {'unit': 'transition'},
        {'delta': 1e-5},
        {'budget': 9.0},
        {'model': 'dueling network 5-64-64-4'},
    ],
)
def test_a_ledger_belongs_to_one_hospital_unit_delta_budget_and_model(path, change):
    Ledger(path, Owner(**OWNER)).close()
    with pytest.raises(LedgerOwnerError, match=next(iter(change))):
        Ledger(path, Owner(**(OWNER | change)))
    Ledger(path, Owner(**OWNER)).close()


@pytest.mark.parametrize(
    'change',
    [
        {'unit': 'step'},
        {'delta': 0.0},
        {'delta': math.nan},
        {'budget': math.nan},
        {'budget': -1.0},
    ],
)
def test_an_owner_that_cannot_be_begins_nothing(path, change):
    with pytest.raises(PrivacyError):
        Ledger(path, Owner(**(OWNER | change)))
    assert not path.exists()


def test_the_file_is_its_owners_alone(path):
    old = os.umask(0)
    try:
        with Ledger(path, Owner(**OWNER)) as ledger:
            reserve(ledger, 1)
            modes = {stat.S_IMODE(each.stat().st_mode) for each in path.parent.iterdir()}
    finally:
        os.umask(old)
    assert modes == {0o600}
    path.chmod(0o640)
    with pytest.raises(LedgerError, match='open to others'):
        Ledger(path, Owner(**OWNER))


def test_a_link_a_folder_or_a_missing_folder_is_refused(tmp_path, path):
    Ledger(path, Owner(**OWNER)).close()
    (tmp_path / 'link').symlink_to(path)
    (tmp_path / 'folder').mkdir(0o700)
    for name in ('link', 'folder', 'missing/ledger'):
        with pytest.raises(LedgerError):
            Ledger(tmp_path / name, Owner(**OWNER))


def test_a_closed_ledger_reserves_nothing(path):
    ledger = Ledger(path, Owner(**OWNER))
    ledger.close()
    ledger.close()
    with pytest.raises(LedgerError, match='closed'):
        reserve(ledger, 1)


def test_a_ledger_that_cannot_be_written_closes_and_charges_nothing(path, monkeypatch):
    def full(*_):
        raise sqlite3.OperationalError('database or disk is full')

    ledger = Ledger(path, Owner(**OWNER))
    with monkeypatch.context() as patch:
        patch.setattr('fdrl_ros.privacy.ledger.ledger.write_entry', full)
        with pytest.raises(LedgerError, match='cannot be written'):
            reserve(ledger, 1)
    with pytest.raises(LedgerError, match='closed'):
        reserve(ledger, 1)
    with Ledger(path, Owner(**OWNER)) as again:
        assert again.head().entries == 0


def test_a_ledger_that_had_entries_is_not_begun_anew(path):
    with pytest.raises(LedgerError, match='is missing and had 3 entries'):
        Ledger(path, Owner(**OWNER), seen=Head(3, bytes(32)))
    assert not path.exists()


@pytest.mark.parametrize('text', ['', '3', 'x:' + 'a' * 64, '3:abc', '9' * 5000 + ':' + 'a' * 64])
def test_what_is_no_head_is_refused(text):
    with pytest.raises(PrivacyError, match='expected entries:hash'):
        Head.parse(text)


@pytest.mark.parametrize('what', ['replaced', 'removed', 'written', 'moved'])
def test_a_ledger_that_is_not_as_it_was_left_reserves_nothing_more(path, tmp_path, what):
    ledger = Ledger(path, Owner(**OWNER))
    older = path.read_bytes()
    reserve(ledger, 1)
    if what == 'replaced':  # as by restoring a backup under a running hospital
        (tmp_path / 'backup').touch(0o600)
        (tmp_path / 'backup').write_bytes(older)
        (tmp_path / 'backup').rename(path)
    elif what == 'removed':
        path.unlink()
    elif what == 'moved':
        path.rename(tmp_path / 'elsewhere')
        Ledger(path, Owner(**OWNER)).close()
    else:
        path.write_bytes(path.read_bytes())
    with pytest.raises(LedgerCorruptError, match='while it was open'):
        reserve(ledger, 2)
    with pytest.raises(LedgerError, match='closed'):
        reserve(ledger, 1)


def test_a_process_forked_from_a_killed_hospital_does_not_keep_its_ledger(path):
    hold, release = os.pipe()
    said, say = os.pipe()
    hospital = os.fork()
    if hospital == 0:
        ledger = Ledger(path, Owner(**OWNER))
        if os.fork() == 0:
            os.close(release)
            os.write(say, b'.')
            os.read(hold, 1)  # it lives until the test is over
            os._exit(0)
        os.read(said, 1)
        reserve(ledger, 1)
        os.kill(os.getpid(), signal.SIGKILL)
    assert os.waitstatus_to_exitcode(os.waitpid(hospital, 0)[1]) == -signal.SIGKILL
    with Ledger(path, Owner(**OWNER)) as ledger:
        assert ledger.blocks(1) == 1
    for each in (hold, release, said, say):
        os.close(each)


def test_what_a_killed_beginning_left_is_swept_away(path):
    Ledger(path, Owner(**OWNER)).close()
    os.link(path, f'{path}.draft-12345678')  # killed after linking
    Path(f'{path}.draft-abcdefgh').write_bytes(b'half')  # killed before
    path.with_name(path.name + '.backup').write_bytes(b'')
    Ledger(path, Owner(**OWNER)).close()
    names = sorted(each.name for each in path.parent.iterdir())
    assert names == [path.name, path.name + '.backup']


def test_each_round_is_found_without_searching(path):
    with Ledger(path, Owner(**(OWNER | {'budget': math.inf}))) as ledger:
        heads = []
        for round, block in ((1, 0), (1, 1), (5, 0), (2, 0), (5, 1)):
            heads.append(ledger.head())
            reserve(ledger, round, block)
        assert [ledger.blocks(round) for round in (1, 2, 3, 5)] == [2, 1, 0, 2]
        assert ledger.head_before(1) == heads[0]
        assert ledger.head_before(5) == heads[2]
        assert ledger.head_before(2) == heads[3]
        assert ledger.head_before(7) == ledger.head()


def test_the_tight_bound_decides_where_the_quick_one_would_refuse(path):
    charge = Charge(2.0, 0.128, 20)
    tight, quick = (each([charge] * 5, 1e-4) for each in (epsilon_pld, epsilon_rdp))
    assert tight < quick
    with Ledger(path, Owner(**(OWNER | {'budget': 0.5 * (tight + quick)}))) as ledger:
        for round in range(5):
            reserve(ledger, round)
        assert ledger.epsilon() == pytest.approx(tight)
        assert ledger.epsilon_rdp() > 0.5 * (tight + quick)
    with Ledger(path.with_name('less'), Owner(**(OWNER | {'budget': 0.99 * tight}))) as ledger:
        for round in range(4):
            reserve(ledger, round)
        with pytest.raises(BudgetExceededError):
            reserve(ledger, 4)


def test_a_full_disk_charges_nothing_and_loses_nothing(path):
    owner = OWNER | {'budget': 1e6}
    with Ledger(path, Owner(**owner)) as ledger:
        reserve(ledger, 1)
        size = path.stat().st_size
        before, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
        # The journal fits, then the file may not grow.
        resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
        try:
            with pytest.raises(LedgerError, match='cannot be written'):
                for round in range(2, 200):
                    reserve(ledger, round)
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, (before, hard))
        head = ledger.head()
    with Ledger(path, Owner(**owner), seen=head) as ledger:
        assert ledger.head() == head and head.entries > 1
        reserve(ledger, 200)
        assert ledger.head().entries == head.entries + 1
