# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""An account: several ledgers, one budget, never less in it than all of them have spent."""

from dataclasses import replace
import hashlib
import math
import os
from pathlib import Path
import shutil
import tempfile
import traceback

from fdrl_ros.errors import (
    BudgetExceededError,
    LedgerCorruptError,
    LedgerError,
    LedgerLockedError,
    LedgerOwnerError,
)
from fdrl_ros.privacy.accountant.accountant import Account, Charge, epsilon_pld, epsilon_rdp
from fdrl_ros.privacy.ledger import account as accounts
from fdrl_ros.privacy.ledger.account import AccountedLedger, Note, parts, SharedAccount
from fdrl_ros.privacy.ledger.chain import Owner
from fdrl_ros.privacy.ledger.content import read_content
from fdrl_ros.privacy.ledger.file import note_path
from fdrl_ros.privacy.ledger.ledger import Ledger
from hypothesis import given, settings, strategies
import pytest
from scipy import optimize, stats
from support.epsilon_reference import upper_and_lower
from support.ledger_killing import check_accounts, HospitalForker
from support.sample_size import sampled

OWNER = Owner('hospital_1', 'patient', 1e-4, 8.0, 'dueling network 5-64-64-3')
UNLIMITED = replace(OWNER, budget=1e6)
CHARGE = Charge(2.0, 0.128, 20)


def opened(folder, name, owner=UNLIMITED, account='account'):
    return AccountedLedger(folder / name, owner, folder / account)


def reserve(ledger, round, charge=CHARGE, inputs=b'weights and records'):
    return ledger.reserve(round=round, block=0, charge=charge, inputs=inputs)


def spend(folder, name, count=1, charge=CHARGE, owner=UNLIMITED):
    """Spend some more blocks of a ledger."""
    with opened(folder, name, owner) as ledger:
        first = ledger.chain.head.entries
        for round in range(first, first + count):
            reserve(ledger, round, charge)


def account_in(folder):
    return read_content(folder / 'account').chain


def charges_of(chain):
    return [entry.charge for entry in chain.entries if entry.charge.steps]


def fill_up(ledger, charge, most=10**6):
    """Reserve blocks until the budget refuses one; return how many."""
    for count in range(most):
        try:
            reserve(ledger, 1000 + count, charge)
        except BudgetExceededError:
            return count
    return most


def exact_epsilon(mu, delta):
    """Return epsilon of a Gaussian release of sensitivity over noise mu (Balle and Wang)."""

    def above(epsilon):
        cdf = stats.norm.cdf
        ratio = epsilon / mu
        return cdf(mu / 2 - ratio) - math.exp(epsilon) * cdf(-mu / 2 - ratio) - delta

    return optimize.brentq(above, 0.0, 100.0, xtol=1e-12)


def test_federations_compose_exactly_and_cost_less_than_the_sum_of_their_epsilons(tmp_path):
    spend(tmp_path, 'knee', 9, Charge(6.0, 1.0, 1))
    spend(tmp_path, 'hip', 4, Charge(5.0, 1.0, 2))
    spend(tmp_path, 'knee', 1, Charge(3.0, 1.0, 1))
    squared = 9 / 36 + 8 / 25 + 1 / 9
    chain = account_in(tmp_path)
    assert chain.epsilon() == pytest.approx(exact_epsilon(math.sqrt(squared), 1e-4), rel=1e-6)
    knee, hip = parts(chain)
    assert (knee.ledger, knee.blocks) == (str(tmp_path / 'knee'), 10)
    assert (hip.ledger, hip.blocks) == (str(tmp_path / 'hip'), 4)
    assert knee.epsilon == read_content(tmp_path / 'knee').chain.epsilon()
    assert hip.epsilon == pytest.approx(exact_epsilon(math.sqrt(8 / 25), 1e-4), rel=1e-6)
    assert max(knee.epsilon, hip.epsilon) < chain.epsilon() < knee.epsilon + hip.epsilon


def test_sampled_steps_of_federations_compose_as_another_accountant_says(tmp_path):
    knee, hip = Charge(1.5, 0.1, 40), Charge(3.0, 0.25, 100)
    spend(tmp_path, 'knee', 2, knee)
    spend(tmp_path, 'hip', 1, hip)
    upper, lower = upper_and_lower([(1.5, 0.1, 80, 1), (3.0, 0.25, 100, 1)], 1e-4, 1e-4)
    assert lower <= account_in(tmp_path).epsilon() <= 1.01 * upper


def test_what_all_federations_together_would_exceed_is_refused_in_each(tmp_path):
    allowed = 7
    low, high = (epsilon_pld([CHARGE] * count, 1e-4) for count in (allowed, allowed + 1))
    owner = replace(OWNER, budget=0.5 * (low + high))
    spend(tmp_path, 'knee', 4, owner=owner)
    with opened(tmp_path, 'hip', owner) as hip, opened(tmp_path, 'knee', owner) as knee:
        hip.check(Charge(2.0, 0.128, 3 * 20))
        with pytest.raises(BudgetExceededError):
            hip.check(Charge(2.0, 0.128, 4 * 20))
        assert fill_up(hip, CHARGE) == 3
        files = {each: each.read_bytes() for each in tmp_path.iterdir()}
        for ledger in (hip, knee):
            with pytest.raises(BudgetExceededError) as refusal:
                reserve(ledger, 99)
            assert refusal.value.spent == pytest.approx(low)
            assert refusal.value.wanted == pytest.approx(high)
            assert refusal.value.budget == owner.budget
            with pytest.raises(BudgetExceededError) as checked:
                ledger.check(CHARGE)
            assert checked.value.spent == pytest.approx(low)
        assert files == {each: each.read_bytes() for each in tmp_path.iterdir()}
        # Nothing is lost: what fits is taken, and old blocks may be repeated.
        reserve(knee, 98, Charge(100.0, 0.001, 1))
        assert reserve(hip, 1000).number == 1
    # The quick bound of all would have refused it, and so would the sum.
    assert epsilon_rdp([CHARGE] * allowed, 1e-4) > owner.budget
    assert sum(part.epsilon for part in parts(account_in(tmp_path))) > owner.budget


def test_ledger_without_an_account_is_refused_by_its_own_budget_alone(tmp_path):
    with Ledger(tmp_path / 'alone', OWNER) as ledger:
        reserve(ledger, 1)
        assert ledger.charged_elsewhere() == ()
    assert [each.name for each in tmp_path.iterdir()] == ['alone']


def test_charge_that_a_kill_left_in_the_account_alone_counts_once(tmp_path, monkeypatch):
    low, high = (epsilon_pld([CHARGE] * count, 1e-4) for count in (2, 3))
    owner = replace(OWNER, budget=0.5 * (low + high))
    spend(tmp_path, 'knee', owner=owner)
    with monkeypatch.context() as patch, opened(tmp_path, 'hip', owner) as hip:
        patch.setattr(Ledger, '_append', killed_in_a_ledger(Ledger._append))
        with pytest.raises(KeyboardInterrupt):
            reserve(hip, 1)
    assert charges_of(account_in(tmp_path)) == [CHARGE] * 2
    with opened(tmp_path, 'knee', owner) as knee, pytest.raises(BudgetExceededError):
        reserve(knee, 2)
    with opened(tmp_path, 'hip', owner) as hip:
        assert hip.chain.head.entries == 0
        hip.check(CHARGE)  # it is paid for
        reserve(hip, 1)
        with pytest.raises(BudgetExceededError):
            reserve(hip, 2)
    assert charges_of(account_in(tmp_path)) == [CHARGE] * 2


def killed_in_a_ledger(append):
    def killed(self, entry):
        if not isinstance(self, SharedAccount):
            raise KeyboardInterrupt
        append(self, entry)

    return killed


def test_another_block_in_place_of_one_that_was_never_drawn_is_charged_too(tmp_path, monkeypatch):
    with monkeypatch.context() as patch, opened(tmp_path, 'knee') as knee:
        patch.setattr(Ledger, '_append', killed_in_a_ledger(Ledger._append))
        with pytest.raises(KeyboardInterrupt):
            reserve(knee, 1)
    with opened(tmp_path, 'knee') as knee:
        reserve(knee, 1, inputs=b'the weights of the next attempt')
        assert knee.chain.head.entries == 1
    assert charges_of(account_in(tmp_path)) == [CHARGE] * 2


PROMISES = {'unit': 'transition', 'delta': 1e-5, 'budget': 9.0}


@pytest.mark.parametrize('name', PROMISES)
def test_ledger_that_promises_something_else_is_refused(tmp_path, name):
    spend(tmp_path, 'knee', owner=OWNER)
    other = replace(OWNER, **{name: PROMISES[name]})
    with pytest.raises(LedgerOwnerError, match=f'{name} .*the same unit, delta and budget'):
        opened(tmp_path, 'hip', other)
    assert len(charges_of(account_in(tmp_path))) == 1
    # It may spend a budget of its own.
    Ledger(tmp_path / 'hip', other).close()


def test_other_names_and_models_share_an_account(tmp_path):
    spend(tmp_path, 'knee')
    spend(tmp_path, 'hip', owner=replace(UNLIMITED, hospital='hospital_7', model='cnn'))
    assert [part.blocks for part in parts(account_in(tmp_path))] == [1, 1]


def test_ledger_brings_what_it_had_spent_into_the_account(tmp_path):
    spend(tmp_path, 'hip')
    with Ledger(tmp_path / 'knee', UNLIMITED) as ledger:
        for round in range(3):
            reserve(ledger, round, Charge(1.0, 0.5, 7))
    before = read_content(tmp_path / 'knee').chain.history()
    for _ in range(2):
        opened(tmp_path, 'knee').close()
        assert charges_of(account_in(tmp_path)) == [CHARGE, *before]


def test_ledger_of_an_account_is_not_opened_without_it(tmp_path):
    spend(tmp_path, 'knee')
    with pytest.raises(LedgerError, match='shared account'):
        Ledger(tmp_path / 'knee', UNLIMITED)
    spend(tmp_path, 'knee')


def test_account_that_is_lost_does_not_begin_again(tmp_path):
    spend(tmp_path, 'knee')
    (tmp_path / 'account').rename(tmp_path / 'kept')
    for _ in range(2):
        with pytest.raises(LedgerError, match=r'account is missing and had'):
            opened(tmp_path, 'knee')
        assert not (tmp_path / 'account').exists()
    (tmp_path / 'kept').rename(tmp_path / 'account')
    spend(tmp_path, 'knee')


def test_account_that_is_lost_before_anything_was_spent_does_not_begin_again(tmp_path):
    opened(tmp_path, 'knee').close()
    (tmp_path / 'account').unlink()
    with pytest.raises(LedgerError, match='is missing'):
        opened(tmp_path, 'knee')


def test_account_that_is_lost_under_a_hospital_stops_it_before_its_next_block(tmp_path):
    with opened(tmp_path, 'knee') as knee:
        reserve(knee, 1)
        (tmp_path / 'account').unlink()
        for asked in (lambda: reserve(knee, 2), lambda: knee.check(CHARGE)):
            with pytest.raises(LedgerError, match='is missing'):
                asked()
        assert knee.chain.head.entries == 1


def test_older_account_is_refused(tmp_path):
    spend(tmp_path, 'knee')
    shutil.copy(tmp_path / 'account', tmp_path / 'older')
    spend(tmp_path, 'hip')
    spend(tmp_path, 'knee')
    newest = (tmp_path / 'account').read_bytes()
    shutil.copy(tmp_path / 'older', tmp_path / 'account')
    for name, words in (('knee', 'lacks entry 2'), ('hip', 'had 3: an old copy was restored')):
        with pytest.raises(LedgerCorruptError, match=words):
            opened(tmp_path, name)
    (tmp_path / 'account').write_bytes(newest)
    spend(tmp_path, 'knee')


def test_older_account_is_refused_by_a_hospital_that_trains(tmp_path):
    with opened(tmp_path, 'knee') as knee:
        reserve(knee, 1)
        older = (tmp_path / 'account').read_bytes()
        reserve(knee, 2)
        (tmp_path / 'account').write_bytes(older)
        with pytest.raises(LedgerCorruptError, match='an old copy was restored'):
            reserve(knee, 3)
        assert knee.chain.head.entries == 2


def test_another_account_is_not_taken_for_the_one_that_was_charged(tmp_path):
    spend(tmp_path, 'knee')
    with opened(tmp_path, 'hip', account='other') as hip:
        reserve(hip, 1)
    (tmp_path / 'other').replace(tmp_path / 'account')
    with pytest.raises(LedgerCorruptError, match='was rewritten'):
        opened(tmp_path, 'knee')


def test_account_may_be_moved_but_not_copied(tmp_path):
    spend(tmp_path, 'knee')
    shutil.copy(tmp_path / 'account', tmp_path / 'elsewhere')
    with pytest.raises(LedgerError, match='a copy would miss'):
        opened(tmp_path, 'knee', account='elsewhere')
    (tmp_path / 'account').unlink()
    with opened(tmp_path, 'knee', account='elsewhere') as knee:
        reserve(knee, 2)
    assert Note.read(tmp_path / 'knee').path == tmp_path / 'elsewhere'
    assert len(charges_of(read_content(tmp_path / 'elsewhere').chain)) == 2


@pytest.mark.parametrize('content', [b'', b'3:12\n/account', b'\xff' * 9])
def test_damaged_note_is_refused(tmp_path, content):
    spend(tmp_path, 'knee')
    note_path(tmp_path / 'knee').write_bytes(content)
    with pytest.raises(LedgerCorruptError, match='damaged'):
        opened(tmp_path, 'knee')


def test_damaged_account_is_refused_and_nothing_is_charged(tmp_path):
    spend(tmp_path, 'knee', 3)
    content = bytearray((tmp_path / 'account').read_bytes())
    at = content.index(hashlib.sha256(read_content(tmp_path / 'knee').chain.links()[:32]).digest())
    content[at] ^= 1
    (tmp_path / 'account').write_bytes(content)
    with pytest.raises(LedgerCorruptError):
        opened(tmp_path, 'knee')


def test_account_that_another_process_keeps_open_is_waited_for(tmp_path, monkeypatch):
    monkeypatch.setattr(accounts, '_PATIENCE', 0.05)
    with opened(tmp_path, 'knee') as knee:
        with SharedAccount(tmp_path / 'account', UNLIMITED, None):
            with pytest.raises(LedgerLockedError):
                reserve(knee, 1)
        reserve(knee, 1)


def test_of_processes_that_race_for_the_rest_of_a_budget_none_exceeds_it(tmp_path):
    """Each would take 14 blocks, and all together may take 20."""
    allowed, each, names = 20, 14, ('knee', 'hip', 'hernia')
    low, high = (epsilon_pld([CHARGE] * count, 1e-4) for count in (allowed, allowed + 1))
    owner = replace(OWNER, budget=0.5 * (low + high))
    begin, start = os.pipe()
    children = []
    for name in names:
        if (child := os.fork()) == 0:
            status = 1
            try:
                os.close(start)
                os.read(begin, 1)  # until the parent closes the other end
                with opened(tmp_path, name, owner) as ledger:
                    status = 100 + fill_up(ledger, CHARGE, each)
            except BaseException:
                traceback.print_exc()
            finally:
                os._exit(status)
        children.append(child)
    os.close(start)
    counts = [os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) - 100 for pid in children]
    os.close(begin)
    assert min(counts) >= 0 and sum(counts) == allowed
    chain = account_in(tmp_path)
    assert sorted(part.blocks for part in parts(chain)) == sorted(counts)
    assert low == pytest.approx(chain.epsilon()) and chain.epsilon() <= owner.budget
    ledgers = [read_content(tmp_path / name).chain.head.entries for name in names]
    assert ledgers == counts


def test_kill_before_any_system_call_leaves_no_block_out_of_the_account(tmp_path):
    with HospitalForker() as forker:
        assert check_accounts(forker, tmp_path, every=19) > 200


CHARGES = strategies.builds(
    Charge,
    strategies.sampled_from([1.0, 1.7, 4.0]),
    strategies.sampled_from([0.02, 0.3, 1.0]),
    strategies.integers(1, 30),
    strategies.just(1),
)
# Which ledger charges what, and whether it is killed before it has the charge itself, and opened.
HISTORIES = strategies.lists(
    strategies.tuples(strategies.integers(0, 2), CHARGES, strategies.booleans()),
    min_size=1,
    max_size=8,
)


@settings(max_examples=sampled(60, 10), deadline=None)
@given(HISTORIES)
def test_epsilon_is_never_below_that_of_all_charges_in_any_order(history):
    with tempfile.TemporaryDirectory() as name, pytest.MonkeyPatch.context() as patch:
        folder, drawn_for, kept = Path(name), [], Ledger._append
        ledgers: dict[int, AccountedLedger] = {}
        for round, (number, charge, kill) in enumerate(history):
            if number not in ledgers:
                ledgers[number] = opened(folder, str(number))
            patch.setattr(Ledger, '_append', killed_in_a_ledger(kept) if kill else kept)
            try:
                reserve(ledgers[number], round, charge)
                drawn_for.append(charge)
            except KeyboardInterrupt:
                ledgers.pop(number).close()
        for ledger in ledgers.values():
            ledger.close()
        chain = account_in(folder)
        assert sorted(charges_of(chain)) == sorted(charge for _, charge, _ in history)
        spent = chain.epsilon()
        if drawn_for:
            _, lower = upper_and_lower(drawn_for, 1e-4, 1e-3)
            assert spent >= lower
        for order in (drawn_for, drawn_for[::-1], sorted(drawn_for)):
            assert spent >= (1.0 - 1e-9) * Account(1e-4, order).epsilon_pld()
