# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""The ledger: durable before it returns, one writer, one owner, never above the budget."""

from dataclasses import replace
import hashlib
import itertools
import math
import os
from pathlib import Path
import resource
import signal
import sqlite3
import stat
import threading

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
import numpy as np
import pytest

OWNER = Owner('hospital_1', 'patient', 1e-4, 8.0, 'dueling network 5-64-64-3')
UNLIMITED = replace(OWNER, budget=math.inf)


def reserve(ledger, round, block=0, inputs=b'weights and records', **changes):
    charge = Charge(2.0, 0.128, 20)._replace(**changes)
    return ledger.reserve(round=round, block=block, charge=charge, inputs=inputs)


@pytest.fixture
def path(tmp_path):
    return tmp_path / 'hospital_1.ledger'


@pytest.fixture
def ledger(path):
    with Ledger(path, OWNER) as ledger:
        yield ledger


def test_a_new_ledger_has_spent_nothing(ledger, path):
    assert ledger.epsilon() == ledger.epsilon_bound() == 0.0
    assert ledger.chain.history() == ()
    assert ledger.chain.head.entries == ledger.chain.blocks(1) == 0
    ledger.close()
    assert [file.name for file in path.parent.iterdir()] == [path.name]


def test_what_is_reserved_is_charged_and_kept(ledger, path):
    reservation = reserve(ledger, 1)
    assert reservation.charge == Charge(2.0, 0.128, 20)
    assert reservation.inputs == hashlib.sha256(b'weights and records').digest()
    reserve(ledger, 1, 1, steps=1, group=2)
    history, head = ledger.chain.history(), ledger.chain.head
    ledger.close()
    with Ledger(path, OWNER, seen=head) as again:
        assert (
            again.chain.history() == history == (Charge(2.0, 0.128, 20), Charge(2.0, 0.128, 1, 2))
        )
        assert again.epsilon() == epsilon_pld(history, 1e-4)
        assert again.epsilon_bound() == epsilon_rdp(history, 1e-4)
        assert again.chain.head == head
        assert again.chain.blocks(1) == 2


def test_the_chain_is_the_hashes_written_out(ledger):
    first = ledger.chain.head.digest
    reserve(ledger, 3, 1)
    numbers = np.array([1, 3, 1], '<i8').tobytes() + np.array([2.0, 0.128], '<f8').tobytes()
    numbers += np.array([20, 1], '<i8').tobytes()
    inputs = hashlib.sha256(b'weights and records').digest()
    link = hashlib.sha256(numbers + inputs).digest()
    assert ledger.chain.links() == link
    assert ledger.chain.head == Head(1, hashlib.sha256(first + link).digest())


def test_links_lead_from_every_head_that_there_was_to_the_newest(ledger):
    heads = [ledger.chain.head]
    for block in range(6):
        reserve(ledger, 1, block, steps=1)
        heads.append(ledger.chain.head)
    links = ledger.chain.links()
    for number, head in enumerate(heads):
        assert list(head.followed(links[32 * number :])) == heads[number:]
    assert list(heads[4].followed(ledger.chain.links(2))) == heads[4:]


def test_asking_again_charges_nothing(ledger, path):
    first, head = reserve(ledger, 1), ledger.chain.head
    assert reserve(ledger, np.int64(1), steps=np.int64(20)) == first
    ledger.close()
    with Ledger(path, OWNER) as again:
        assert reserve(again, 1) == first
        assert again.chain.head == head


@pytest.mark.parametrize('change', [{'inputs': b'x'}, {'noise_multiplier': 1.0}, {'steps': 19}])
def test_a_block_is_never_reserved_for_something_else(ledger, change):
    reserve(ledger, 1)
    head = ledger.chain.head
    with pytest.raises(PrivacyError, match='release it twice'):
        reserve(ledger, 1, **change)
    assert ledger.chain.head == head


def test_a_reservation_that_cannot_be_is_refused(ledger):
    wrong = {'inputs': [b''], 'steps': [0, 1.5], 'sampling_probability': [1.5], 'block': [0.5]}
    for name, values in (wrong | {'round': [-1, 2**63]}).items():
        for value in values:
            with pytest.raises(PrivacyError):
                reserve(ledger, **({'round': 1} | {name: value}))
    assert ledger.chain.head.entries == 0


def test_what_would_pass_the_budget_is_refused_and_not_written(ledger):
    reserve(ledger, 1)
    spent, head = ledger.epsilon(), ledger.chain.head
    with pytest.raises(BudgetExceededError) as refusal:
        reserve(ledger, 2, steps=5000)
    assert refusal.value.spent == spent == ledger.epsilon()
    assert refusal.value.wanted > refusal.value.budget == 8.0
    with pytest.raises(BudgetExceededError):
        ledger.check(Charge(2.0, 0.128, 5000))
    ledger.check(Charge(2.0, 0.128, 1))
    with pytest.raises(BudgetExceededError):
        reserve(ledger, 2, noise_multiplier=0.0)
    assert ledger.chain.head == head


def test_steps_without_noise_need_a_budget_without_limit(path):
    for _ in range(2):
        with Ledger(path, UNLIMITED) as ledger:
            reserve(ledger, 1, noise_multiplier=0.0)
            assert ledger.epsilon() == math.inf


@pytest.mark.parametrize('budget', [0.5, 2.0, 8.0])
def test_the_budget_is_never_passed_and_epsilon_never_falls(path, budget):
    charges = list(itertools.product([1.0, 2.0], [0.128, 1.0], [1, 50]))
    with Ledger(path, replace(OWNER, budget=budget)) as ledger:
        for round, number in enumerate(np.random.default_rng(1).permutation(len(charges))):
            before = ledger.epsilon()
            try:
                ledger.reserve(round=round, block=0, charge=Charge(*charges[number]), inputs=b'x')
            except BudgetExceededError as refusal:
                assert refusal.wanted > budget
                assert ledger.epsilon() == before
            # The account that decides and the one that reports round apart.
            assert before <= ledger.epsilon() <= budget * (1.0 + 1e-6)


def test_threads_of_one_hospital_share_a_ledger(ledger):
    threads = [threading.Thread(target=reserve, args=(ledger, i)) for i in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(ledger.chain.history()) == 6
    ledger.verify()


def test_a_ledger_belongs_to_one_hospital_unit_delta_budget_and_model(ledger, path):
    ledger.close()
    other = Owner('hospital_2', 'transition', 1e-5, 9.0, 'dueling network 5-64-64-4')
    for name in ('hospital', 'unit', 'delta', 'budget', 'model'):
        with pytest.raises(LedgerOwnerError, match=name):
            Ledger(path, replace(OWNER, **{name: getattr(other, name)}))
    Ledger(path, OWNER).close()


@pytest.mark.parametrize('change', [{'unit': 'step'}, {'delta': None}, {'budget': math.nan}])
def test_an_owner_that_cannot_be_begins_nothing(path, change):
    with pytest.raises(PrivacyError):
        Ledger(path, replace(OWNER, **change))
    assert not path.exists()


def test_the_file_is_its_owners_alone(path):
    old = os.umask(0)
    try:
        with Ledger(path, OWNER) as ledger:
            reserve(ledger, 1)
            modes = {stat.S_IMODE(file.stat().st_mode) for file in path.parent.iterdir()}
    finally:
        os.umask(old)
    assert modes == {0o600}
    path.chmod(0o640)
    with pytest.raises(LedgerError, match='open to others'):
        Ledger(path, OWNER)


def test_a_link_a_folder_or_a_missing_folder_is_refused(ledger, tmp_path, path):
    ledger.close()
    (tmp_path / 'link').symlink_to(path)
    (tmp_path / 'folder').mkdir(0o700)
    for name in ('link', 'folder', 'missing/ledger'):
        with pytest.raises(LedgerError):
            Ledger(tmp_path / name, OWNER)
    with pytest.raises(LedgerError, match='missing/ledger: make its folder first'):
        Ledger(tmp_path / 'missing' / 'ledger', OWNER)


def test_a_ledger_that_cannot_be_written_closes_and_charges_nothing(ledger, path, monkeypatch):
    def full(*_):
        raise sqlite3.OperationalError('database or disk is full')

    with monkeypatch.context() as patch:
        patch.setattr('fdrl_ros.privacy.ledger.ledger.write_entry', full)
        with pytest.raises(LedgerError, match='cannot be written'):
            reserve(ledger, 1)
    with pytest.raises(LedgerError, match='closed'):
        reserve(ledger, 1)
    with Ledger(path, OWNER) as again:
        assert again.chain.head.entries == 0


def test_a_ledger_that_had_entries_is_not_begun_anew(path):
    with pytest.raises(LedgerError, match='is missing and had 3 entries'):
        Ledger(path, OWNER, seen=Head(3, bytes(32)))
    assert not path.exists()


@pytest.mark.parametrize('text', ['', '3', 'x:' + 'a' * 64, '3:abc', '9' * 5000 + ':' + 'a' * 64])
def test_what_is_no_head_is_refused(text):
    with pytest.raises(PrivacyError, match='expected entries:hash'):
        Head.parse(text)


@pytest.mark.parametrize('what', ['replaced', 'removed', 'written', 'moved'])
def test_a_ledger_that_is_not_as_it_was_left_reserves_nothing_more(ledger, path, tmp_path, what):
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
        Ledger(path, OWNER).close()
    else:
        path.write_bytes(path.read_bytes())
    with pytest.raises(LedgerCorruptError, match='while it was open'):
        reserve(ledger, 2)
    with pytest.raises(LedgerError, match='closed'):
        reserve(ledger, 1)


def test_a_killed_hospital_keeps_its_reservation_and_its_lock_ends_with_it(path):
    """A process that it forked, and that lives on, does not keep the lock either."""
    hold, release = os.pipe()
    reserved_end, report = os.pipe()
    hospital = os.fork()
    if hospital == 0:
        ledger = Ledger(path, OWNER)
        if os.fork() == 0:
            os.close(release)
            os.read(hold, 1)  # it lives until the test is over
            os._exit(0)
        reserve(ledger, 1)
        os.write(report, b'.')
        signal.pause()
    os.read(reserved_end, 1)
    with pytest.raises(LedgerLockedError):
        Ledger(path, OWNER)
    os.kill(hospital, signal.SIGKILL)
    os.waitpid(hospital, 0)
    with Ledger(path, OWNER) as ledger:
        head = ledger.chain.head
        reserve(ledger, 1)
        assert ledger.chain.head == head and head.entries == 1
    for descriptor in (hold, release, reserved_end, report):
        os.close(descriptor)


def test_what_a_killed_beginning_left_is_swept_away(ledger, path):
    ledger.close()
    os.link(path, f'{path}.draft-12345678')  # killed after linking
    Path(f'{path}.draft-abcdefgh').write_bytes(b'half')  # killed before
    path.with_name(path.name + '.backup').write_bytes(b'')
    Ledger(path, OWNER).close()
    names = sorted(file.name for file in path.parent.iterdir())
    assert names == [path.name, path.name + '.backup']


def test_each_round_is_found_without_searching(path):
    with Ledger(path, UNLIMITED) as ledger:
        heads = []
        for round, block in ((1, 0), (1, 1), (5, 0), (2, 0), (5, 1)):
            heads.append(ledger.chain.head)
            reserve(ledger, round, block)
        assert [ledger.chain.blocks(round) for round in (1, 2, 3, 5)] == [2, 1, 0, 2]
        assert [ledger.chain.head_before(round) for round in (1, 5, 2)] == [heads[0], *heads[2:4]]
        assert ledger.chain.head_before(7) == ledger.chain.head


def test_the_tight_bound_decides_where_the_quick_one_would_refuse(path):
    charge = Charge(2.0, 0.128, 20)
    tight, quick = (epsilon([charge] * 5, 1e-4) for epsilon in (epsilon_pld, epsilon_rdp))
    assert tight < quick
    with Ledger(path, replace(OWNER, budget=0.5 * (tight + quick))) as ledger:
        for round in range(5):
            reserve(ledger, round)
        assert ledger.epsilon() == pytest.approx(tight)
        assert ledger.epsilon_bound() == 0.5 * (tight + quick) < quick
    with Ledger(path.with_name('less'), replace(OWNER, budget=0.99 * tight)) as ledger:
        for round in range(4):
            reserve(ledger, round)
        with pytest.raises(BudgetExceededError):
            reserve(ledger, 4)


def test_a_full_disk_charges_nothing_and_loses_nothing(path):
    with Ledger(path, UNLIMITED) as ledger:
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
        head = ledger.chain.head
    with Ledger(path, UNLIMITED, seen=head) as ledger:
        assert ledger.chain.head == head and head.entries > 1
        reserve(ledger, 200)
        assert ledger.chain.head.entries == head.entries + 1
