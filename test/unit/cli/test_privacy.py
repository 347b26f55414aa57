# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""`fdrl privacy` shows every entry, touches nothing, and finds whatever was done to a ledger."""

from dataclasses import replace
import json
import math
import os
import shutil
import sqlite3
from types import SimpleNamespace

from click.testing import CliRunner
from fdrl_ros.cli import main
from fdrl_ros.deployment.layout import Layout
from fdrl_ros.deployment.parties.hospital import (
    CHECKPOINT,
    LEDGER,
    noise_source,
    open_ledger,
)
from fdrl_ros.deployment.plan import Plan
from fdrl_ros.deployment.prepare import prepare
from fdrl_ros.errors import CheckpointError, LedgerCorruptError, LedgerError, LedgerOwnerError
from fdrl_ros.federation.hospital.state import HospitalState, LocalUpdate
from fdrl_ros.federation.protocol.ledger_watch import LedgerWatch
from fdrl_ros.federation.protocol.message import Envelope, MaskedUpdate
from fdrl_ros.federation.protocol.store import FORMAT_ROW, Store
from fdrl_ros.learner.checkpoint import Checkpoint
from fdrl_ros.learner.learner import TrainingResult
from fdrl_ros.privacy.accountant.accountant import Charge, epsilon_pld, epsilon_rdp
from fdrl_ros.privacy.ledger.account import AccountedLedger
from fdrl_ros.privacy.ledger.chain import Chain, Entry, Owner
from fdrl_ros.privacy.ledger.content import read_content
from fdrl_ros.privacy.ledger.file import file_bytes
from fdrl_ros.privacy.ledger.ledger import Ledger
from fdrl_ros.privacy.stated import stated
import numpy as np
import pytest
from support.small_run import TINY_PLAN

PLAN = Plan().changed({**TINY_PLAN, 'federation': {}, 'learner': {'hidden': 8, 'epochs': 2}})
CHARGE = Charge(2.0, 0.5, 2)
NAME = 'hospital_1'
SERVERS = ('aggregator', 'key_authority')


def fdrl(*words):
    return CliRunner().invoke(main, ['privacy', *(str(each) for each in words)])


def spend(layout, name, round, *servers):
    """Spend a round's blocks as a hospital does, and send an update that some servers see."""
    directory = layout.party(name)
    with open_ledger(directory, name, PLAN) as ledger:
        noise_source(directory, name, PLAN)
        for block in (0, 1):
            ledger.reserve(round=round, block=block, charge=CHARGE, inputs=b'weights')
        ledgers = (*ledger.chain.head, *ledger.chain.head_before(round), ledger.chain.links())
    weights = np.zeros(PLAN.network.n_parameters, np.float32)
    store = Store(layout.state(name))
    state = HospitalState(store, PLAN.network.n_parameters)
    state.keep_update(LocalUpdate(round, b'', TrainingResult(weights, 1.0, *ledgers)))
    store.close()
    for server in servers:
        store = Store(layout.state(server))
        envelope = Envelope('test', round, 1, name, 1)
        update = MaskedUpdate(envelope, 0, 1, b'', b'', b'', *ledgers, False)
        LedgerWatch(store).take(update)
        store.close()


@pytest.fixture(scope='module')
def prepared(tmp_path_factory):
    """Three hospitals; the servers saw two rounds of the first, the others have spent nothing."""
    layout = prepare(tmp_path_factory.mktemp('federations') / 'one', PLAN)
    spend(layout, NAME, 1, *SERVERS)
    shutil.copy(layout.party(NAME) / LEDGER, layout.party(NAME) / 'after_round_1')
    spend(layout, NAME, 2, *SERVERS)
    return layout


@pytest.fixture
def layout(prepared, tmp_path):
    shutil.copytree(prepared.directory, tmp_path / 'one')
    return Layout(tmp_path / 'one')


@pytest.fixture
def ledger(layout):
    return layout.party(NAME) / LEDGER


def reread(path, **changes):
    """Return the chain of a ledger rebuilt with another owner and other charges."""
    old = read_content(path).chain
    charges = changes.pop('charges', {})
    chain = Chain(replace(old.owner, **changes))
    for entry in old.entries:
        charge = entry.charge._replace(**charges)
        last = chain.head.digest
        chain.add(Entry.after(last, entry.number, entry.round, entry.block, charge, b'weights'))
    return chain


def test_show_prints_every_entry_and_what_was_spent_after_it(layout, ledger):
    with open_ledger(layout.party(NAME), NAME, PLAN) as opened:
        history, head = opened.chain.history(), opened.chain.head
    for path in (layout.directory, ledger):
        result = fdrl('show', path)
        assert result.exit_code == 0, result.output
        assert f'{NAME}: epsilon {stated(epsilon_pld(history, 1e-4), 4)}' in result.output
        assert f'head {head}' in result.output
        rows = [line.split() for line in result.output.splitlines() if ' 0.5 ' in line]
        assert [row[:7] for row in rows] == [
            ['1', '1', '0', '2', '0.5', '2', '1'],
            ['2', '1', '1', '2', '0.5', '2', '1'],
            ['3', '2', '0', '2', '0.5', '2', '1'],
            ['4', '2', '1', '2', '0.5', '2', '1'],
        ]
        assert [row[7] for row in rows] == [
            stated(epsilon_rdp(history[:count], 1e-4), 4) for count in (1, 2, 3, 4)
        ]
    assert 'hospital_2: nothing spent here' in fdrl('show', layout.directory).output


def test_hospitals_that_are_not_in_the_roster_are_shown_if_they_spent_something(
    layout, ledger, monkeypatch
):
    layout.party('hospital_9').mkdir(mode=0o700)
    spend(layout, 'hospital_9', 1)
    present, revoked = layout.roster().member('hospital_3'), SimpleNamespace(name='hospital_9')
    left = SimpleNamespace(hospitals=[present], revoked=[revoked])
    monkeypatch.setattr(Layout, 'roster', lambda self: left)
    shown = fdrl('show', layout.directory).output
    assert f'{NAME}: epsilon' in shown and 'hospital_3' in shown and 'hospital_2' not in shown
    assert 'hospital_9: epsilon' in shown  # the plan does not name it either


def test_show_prints_json(layout, ledger):
    content = json.loads(fdrl('show', '--json', layout.directory).output)
    assert content['private'] is True and content['problems'] == []
    (one,) = content['ledgers']
    assert json.loads(fdrl('show', '--json', ledger).output)['ledgers'][0] == one | {'name': NAME}
    with open_ledger(layout.party(NAME), NAME, PLAN) as opened:
        assert one['epsilon'] == opened.epsilon()
        assert one['head'] == {'entries': 4, 'digest': opened.chain.head.digest.hex()}
    assert (one['unit'], one['delta'], one['budget']) == ('patient', 1e-4, 8.0)
    assert one['model'].startswith('dueling network')
    fields = 'number round block noise_multiplier sampling_probability steps group'.split()
    assert [[each[name] for name in fields] for each in one['entries']] == [
        [1, 1, 0, 2.0, 0.5, 2, 1],
        [2, 1, 1, 2.0, 0.5, 2, 1],
        [3, 2, 0, 2.0, 0.5, 2, 1],
        [4, 2, 1, 2.0, 0.5, 2, 1],
    ]


def test_steps_without_noise_are_shown_as_infinite(tmp_path):
    path = tmp_path / 'ledger'
    with Ledger(path, Owner(hospital=NAME, unit='patient', delta=1e-5, budget=math.inf)) as ledger:
        ledger.reserve(round=1, block=0, charge=Charge(0.0, 0.5, 2), inputs=b'x')
    shown = fdrl('show', path).output
    assert 'epsilon infinite' in shown and 'no budget' in shown
    (found,) = json.loads(fdrl('show', '--json', path).output)['ledgers']
    assert found['epsilon'] == found['entries'][0]['epsilon_rdp'] == 'inf'


def test_a_ledger_is_read_while_it_is_written_and_not_touched(layout, ledger):
    def state():
        return {each: (each.stat().st_mtime_ns, each.read_bytes()) for each in folder.iterdir()}

    folder = layout.party(NAME)
    with open_ledger(folder, NAME, PLAN) as opened:
        opened.reserve(round=3, block=0, charge=CHARGE, inputs=b'weights')
        before = state()
        for path in (ledger, layout.directory):
            assert 'in use' in fdrl('show', path).output
            result = fdrl('verify', path)
            assert result.exit_code == 0 and '5 blocks, whole, in use' in result.output
        assert state() == before
        opened.reserve(round=3, block=1, charge=CHARGE, inputs=b'weights')
    assert 'in use' not in fdrl('show', ledger).output
    assert fdrl('verify', ledger).exit_code == 0


def test_a_whole_ledger_agrees_with_everyone_who_saw_it(layout, ledger):
    result = fdrl('verify', layout.directory)
    assert result.exit_code == 0, result.output
    assert 'its last update (4), the aggregator (4), the key authority (4)' in result.output
    assert result.output.count('no ledger here yet') == 2
    assert 'compared with no head' in fdrl('verify', ledger).output


def test_heads_that_servers_saw_are_printed_and_compared(layout, ledger):
    printed = fdrl('heads', layout.directory).output.splitlines()
    alone = fdrl('heads', layout.state('aggregator')).output
    name, head = alone.split()
    assert printed == [f'{server} saw {name} {head}' for server in SERVERS]
    assert fdrl('verify', ledger, '--seen', head).exit_code == 0
    for other, words in ((f'9{head[1:]}', 'an old copy'), (f'{head[:-1]}x', 'expected'), ('', '')):
        result = fdrl('verify', ledger, '--seen', other)
        assert result.exit_code == (1 if 'old' in words else 2) and words in result.stderr
    assert 'name its file' in fdrl('verify', layout.directory, '--seen', head).stderr


def restored(layout, ledger):
    shutil.copy(layout.party(NAME) / 'after_round_1', ledger)


def restored_with_the_state_of_then(layout, ledger):
    restored(layout, ledger)
    layout.state(NAME).unlink()


def rewritten(layout, ledger):
    ledger.write_bytes(file_bytes(reread(ledger, charges={'steps': 1})))


def budget_raised(layout, ledger):
    ledger.write_bytes(file_bytes(reread(ledger, budget=80.0)))


def of_another_hospital(layout, ledger):
    spend(layout, 'hospital_2', 1)
    shutil.copy(layout.party('hospital_2') / LEDGER, ledger)


def of_another_model(layout, ledger):
    ledger.write_bytes(file_bytes(reread(ledger, model='dueling network 1-2-3')))


def deleted(layout, ledger):
    ledger.unlink()


def deleted_with_the_key(layout, ledger):
    ledger.unlink()
    (ledger.parent / 'noise.key').unlink()


def deleted_with_key_and_update(layout, ledger):
    deleted_with_the_key(layout, ledger)
    layout.state(NAME).unlink()
    Store(layout.state(NAME)).close()


def emptied(layout, ledger):
    ledger.write_bytes(b'')


def made_a_link(layout, ledger):
    ledger.rename(ledger.with_name('elsewhere'))
    ledger.symlink_to('elsewhere')


def update_damaged(layout, ledger):
    store = Store(layout.state(NAME))
    store.put('update', b'{}')
    store.close()


def memory_damaged(layout, ledger):
    layout.state('aggregator').write_bytes(b'no database' * 1000)


def update_of_an_older_version(layout, ledger):
    with sqlite3.connect(layout.state(NAME)) as table:
        table.execute('DELETE FROM entry WHERE name = ?', (FORMAT_ROW,))
    table.close()
    words = 'or more: state files beside it cannot be read, see below'
    assert words in fdrl('show', layout.directory).output


@pytest.mark.parametrize(
    'harm, complaint',
    [
        (restored, 'an old copy was restored, or its end was cut (seen by its last update)'),
        (restored_with_the_state_of_then, 'its end was cut (seen by the aggregator)'),
        (rewritten, 'was rewritten: entry 4'),
        (budget_raised, 'was begun for budget 80.0, not 8.0'),
        (of_another_hospital, "was begun for hospital 'hospital_2', not 'hospital_1'"),
        (of_another_model, "was begun for model 'dueling network 1-2-3'"),
        (deleted, 'is missing, but noise was drawn'),
        (deleted_with_the_key, 'is missing, but an update went out'),
        (deleted_with_key_and_update, 'is missing, and the aggregator saw its head 4:'),
        (emptied, 'is empty'),
        (made_a_link, 'is a link'),
        (update_damaged, 'cannot be compared with its last update'),
        (update_of_an_older_version, 'run `fdrl migrate /'),
        (memory_damaged, 'cannot be compared with the aggregator'),
    ],
    ids=lambda each: getattr(each, '__name__', ''),
)
def test_whatever_was_done_to_a_hospital_is_found(layout, ledger, harm, complaint):
    harm(layout, ledger)
    before = ledger.read_bytes() if ledger.exists() else None
    result = fdrl('verify', layout.directory)
    assert result.exit_code == 1
    assert complaint in result.stderr
    assert (ledger.read_bytes() if ledger.exists() else None) == before


@pytest.mark.parametrize(
    'harm, error',
    [
        (of_another_hospital, LedgerOwnerError),
        (of_another_model, LedgerOwnerError),
        (budget_raised, LedgerOwnerError),
        (restored, LedgerError),
        (deleted_with_the_key, LedgerError),
        (made_a_link, LedgerError),
    ],
    ids=lambda each: each.__name__,
)
def test_a_hospital_does_not_train_with_such_a_ledger_and_leaves_it(layout, ledger, harm, error):
    harm(layout, ledger)
    before = sorted((each, each.stat().st_size) for each in ledger.parent.iterdir())
    with pytest.raises(error):
        open_ledger(layout.party(NAME), NAME, PLAN)
    assert sorted((each, each.stat().st_size) for each in ledger.parent.iterdir()) == before


def test_blocks_that_nobody_else_heard_of_are_remembered_by_the_checkpoint(layout, ledger):
    shutil.copy(ledger, ledger.with_name('after_round_2'))
    numbers = np.zeros(3)
    with open_ledger(layout.party(NAME), NAME, PLAN) as opened:
        opened.reserve(round=3, block=0, charge=CHARGE, inputs=b'weights')
        state = Checkpoint(3, b'start', 0, 0, numbers, numbers, numbers, numbers)
        state.save(ledger.with_name(CHECKPOINT), opened)
    assert 'its checkpoint (5)' in fdrl('verify', layout.directory).output
    open_ledger(layout.party(NAME), NAME, PLAN).close()
    shutil.copy(ledger.with_name('after_round_2'), ledger)
    assert 'had 5: an old copy was restored, or its end was cut (seen by its checkpoint)' in (
        fdrl('verify', layout.directory).stderr
    )
    with pytest.raises(LedgerCorruptError, match='seen by its checkpoint.: put back the newest'):
        open_ledger(layout.party(NAME), NAME, PLAN)
    deleted_with_key_and_update(layout, ledger)
    with pytest.raises(LedgerError, match='missing, but a checkpoint was made with its head 5:'):
        open_ledger(layout.party(NAME), NAME, PLAN)
    shutil.copy(ledger.with_name(CHECKPOINT), layout.party('hospital_2'))
    spend(layout, 'hospital_3', 1)
    shutil.copy(ledger.with_name(CHECKPOINT), layout.party('hospital_3'))
    for name in ('hospital_2', 'hospital_3'):
        assert f'/{name}/ledger.sqlite' in fdrl('verify', layout.directory).stderr
    with pytest.raises(CheckpointError, match='charged to another ledger, which may be of'):
        open_ledger(layout.party('hospital_3'), 'hospital_3', PLAN)


def test_all_that_is_wrong_is_told_and_what_is_whole_too(layout, ledger):
    for name in ('hospital_2', 'hospital_3'):
        spend(layout, name, 1)
    restored(layout, ledger)
    emptied(layout, layout.party('hospital_3') / LEDGER)
    result = fdrl('verify', layout.directory)
    assert result.exit_code == 1
    assert 'hospital_2: 2 blocks, whole' in result.output
    assert result.stderr.count('had 4: an old copy') == 3 and 'is empty' in result.stderr
    shown = fdrl('show', layout.directory)
    assert shown.exit_code == 1 and 'hospital_2: epsilon' in shown.output


def test_what_is_no_ledger_is_refused(tmp_path):
    (tmp_path / 'text').write_text('text')
    for path in (tmp_path / 'missing', tmp_path / 'text', tmp_path):
        for command in ('show', 'verify', 'heads'):
            result = fdrl(command, path)
            assert result.exit_code == 1
            assert result.stderr.count('\n') == 1
    assert 'is not there: expected a ledger file, or the directory' in (
        fdrl('show', tmp_path / 'missing').stderr
    )
    assert sorted(os.listdir(tmp_path)) == ['text']


@pytest.mark.parametrize('command', ['show', 'verify', 'heads'])
def test_a_directory_of_a_federation_that_has_no_ledger_is_refused(layout, command):
    for path in (layout.keys, layout.party('aggregator'), layout.log):
        path.mkdir(exist_ok=True)
        result = fdrl(command, path)
        assert result.exit_code == 1 and 'neither a run nor a federation' in result.stderr


def test_a_hospital_s_directory_is_its_file_and_the_heads_that_were_seen_of_it(ledger):
    by_folder, by_file = fdrl('show', ledger.parent), fdrl('show', ledger)
    assert by_folder.exit_code == by_file.exit_code == 0
    assert by_folder.output == by_file.output
    assert 'compared with no head' in fdrl('verify', ledger).output
    assert 'the aggregator (4), the key authority (4)' in fdrl('verify', ledger.parent).output


@pytest.fixture
def shared(layout, tmp_path):
    """Two federations whose ledgers of a hospital charge one account; return its file."""
    plan = PLAN.changed({'privacy': {'account': str(tmp_path / 'account')}})
    with open_ledger(layout.party(NAME), NAME, plan):
        pass
    with AccountedLedger(tmp_path / 'hip', OTHER, tmp_path / 'account') as other:
        other.reserve(round=1, block=0, charge=CHARGE, inputs=b'x')
    return tmp_path / 'account'


OTHER = Owner('hospital_7', 'patient', 1e-4, 8.0)


def test_show_tells_the_part_of_each_federation_and_the_total(layout, ledger, shared):
    total = epsilon_pld([CHARGE] * 5, 1e-4)
    for path in (layout.directory, layout.party(NAME), ledger, shared):
        result = fdrl('show', path)
        assert result.exit_code == 0, result.output
        assert result.output.count(f'account {shared}: epsilon {stated(total, 4)} of all') == 1
        rows = [line.split() for line in result.output.splitlines()[-2:]]
        assert rows == [
            ['4', stated(epsilon_pld([CHARGE] * 4, 1e-4), 4), str(ledger)],
            ['1', stated(epsilon_pld([CHARGE], 1e-4), 4), str(shared.with_name('hip'))],
        ]
        content = json.loads(fdrl('show', '--json', path).output)
        (account,) = content['accounts']
        assert (account['epsilon'], account['budget']) == (total, 8.0)
        assert [each['blocks'] for each in account['parts']] == [4, 1]
        charged = [each['account'] for each in content['ledgers']]
        assert charged == ([] if path == shared else [str(shared)])
    assert f'all of it is in account {shared}' in fdrl('verify', ledger).output
    assert fdrl('verify', shared).exit_code == 0


def test_verify_finds_an_account_that_is_lost_or_older(layout, ledger, shared):
    older = shared.read_bytes()
    spend(layout, NAME, 3)
    assert fdrl('verify', ledger).exit_code == 0
    shared.write_bytes(older)
    for verb in ('verify', 'show'):
        result = fdrl(verb, ledger)
        assert result.exit_code == 1 and f'{shared} lacks entry 5' in result.stderr
    assert 'or more of all its ledgers' in fdrl('show', ledger).output
    shared.unlink()
    result = fdrl('verify', layout.directory)
    assert result.exit_code == 1 and f'{shared} is missing' in result.stderr
