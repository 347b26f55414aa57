# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""
A federation from before version 0.1.0 goes on after `fdrl migrate`, in the middle of a round too.

`test/data/federation_format_1.tar.xz` was written by such a version: three hospitals in round 2,
killed as the first update was sent (`train`), and the state files of a round killed as its policy
was validated (`sum`).
"""

from contextlib import closing
import json
import math
from pathlib import Path
import sqlite3
import tarfile

from click.testing import CliRunner
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from fdrl_ros.cli import main
from fdrl_ros.crypto.keys.keystore import NOISE_FILE
from fdrl_ros.crypto.keys.signing import Identity
from fdrl_ros.deployment.layout import Layout
from fdrl_ros.deployment.plan import Plan
from fdrl_ros.deployment.policy_file import load_policy
from fdrl_ros.errors import StoreError
from fdrl_ros.federation.aggregator.state import AggregatorState
from fdrl_ros.federation.hospital.state import HospitalState
from fdrl_ros.federation.key_authority.state import KeyAuthorityState
from fdrl_ros.federation.migration import BACKUP, converted_rows, migrate_file
from fdrl_ros.federation.protocol.message import Phase
from fdrl_ros.federation.protocol.store import peek, Store
from fdrl_ros.privacy.noise import NoiseSource
from fdrl_ros.runtime.durable import write_secret
import numpy as np
import pytest
from support.federation_bench import SHAPE, start_of
from support.journaled_federation import Journaled
import yaml

ARCHIVE = Path(__file__).parents[2] / 'data' / 'federation_format_1.tar.xz'
NAMES = ('hospital_1', 'hospital_2', 'hospital_3')
PARTIES = ('aggregator', 'key_authority', *NAMES)


@pytest.fixture
def old(tmp_path):
    with tarfile.open(ARCHIVE) as archive:
        archive.extractall(tmp_path, filter='data')
    for path in tmp_path.rglob('*'):
        path.chmod(0o700 if path.is_dir() else 0o600)
    return tmp_path


def migrate(folder, names=PARTIES, **options):
    size = SHAPE.n_parameters
    return [
        name for name in names if migrate_file(folder / f'{name}.sqlite', name, size, **options)
    ]


def rows(path):
    with closing(sqlite3.connect(path)) as table:
        return dict(table.execute('SELECT name, value FROM entry'))


def test_an_old_state_is_refused_with_the_way_out(old):
    path = old / 'train' / 'aggregator.sqlite'
    for use in (Store, lambda path: list(peek(path, '*'))):
        with pytest.raises(StoreError, match='older version.*`fdrl migrate /'):
            use(path)


def test_rounds_go_on_in_the_middle_of_one(old):
    folder = old / 'train'
    fixture = json.loads((folder / 'fixture.json').read_text())
    identities = {
        name: Identity(name, Ed25519PrivateKey.from_private_bytes(bytes.fromhex(raw)))
        for name, raw in fixture['identities'].items()
    }
    assert migrate(folder) == list(PARTIES) and migrate(folder) == []
    bench = Journaled(folder, hospitals=3, rounds=3, identities=identities)
    state = bench.parties['hospital_1'].state
    assert state.update.round == 2 and state.record.phase is Phase.SETTLE
    assert state.sent((2, 1)) and state.floor == (2, 1)
    assert bench.key_authority.round == 1
    for name, learner in bench.learners.items():  # whose ledgers are in memory alone
        for round in range(1, bench.parties[name].state.update.round + 1):
            learner.train(bench.start, round, report=lambda _: None, stopped=lambda: False)
    assert bench.run()
    policy = bench.policy
    assert policy.envelope.round == 3 and policy.contributors == NAMES
    assert not bench.compared().problems


def test_every_promise_of_a_round_is_carried_over(old):
    folder = old / 'sum'
    names = ('aggregator', 'key_authority', 'hospital_1')
    before = {name: rows(folder / f'{name}.sqlite') for name in names}
    assert migrate(folder, names) == list(names)
    hospital = HospitalState(Store(folder / 'hospital_1.sqlite'), SHAPE.n_parameters)
    promises = hospital.record.of(2)
    assert hospital.record.phase is Phase.SUM and hospital.floor == (2, 1)
    assert promises.revealed == promises.signed[0].survivors == NAMES
    assert b''.join(promises.sent) == before['hospital_1']['sent 2']
    assert len(hospital.record.received) == 3
    kept = rows(folder / 'aggregator.sqlite')
    heard = {name: value for name, value in before['aggregator'].items() if 'heard' in name}
    assert len(heard) == 12
    for name, value in heard.items():
        assert kept[name.replace('heard', 'received')] == value
    assert [kept[f'ledger {name}'] for name in NAMES] == [
        before['aggregator'][f'ledger {name}'] for name in NAMES
    ]
    with pytest.raises(StoreError, match='updates-2-1'):  # its record names the spool
        AggregatorState(None, Store(folder / 'aggregator.sqlite')).load()
    authority = KeyAuthorityState(Store(folder / 'key_authority.sqlite'), start_of(SHAPE))
    chosen = before['key_authority']['decrypting']
    assert authority.record.phase is Phase.SUM and authority.record.round == 1
    assert b'2 ' + authority.record.chosen_sum == chosen
    assert not authority.choose_sum(2, b'another', 'key', math.inf)
    assert authority.summed().contributors == NAMES
    assert [each.rounds for each in authority.record.served] == [2]


def test_a_dry_run_changes_nothing_and_the_old_file_is_kept(old):
    path = old / 'train' / 'hospital_1.sqlite'
    before = rows(path)
    assert migrate(old / 'train', dry_run=True) == list(PARTIES)
    assert rows(path) == before
    migrate(old / 'train')
    backup = path.with_name(path.name + BACKUP)
    assert rows(backup) == before and backup.stat().st_mode & 0o777 == 0o600


def test_a_kill_in_the_middle_leaves_the_old_file(old, monkeypatch):
    path = old / 'train' / 'hospital_1.sqlite'
    before = rows(path)

    def killed(*arguments):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr('fdrl_ros.federation.migration._back_up', killed)
        with pytest.raises(KeyboardInterrupt):
            migrate(old / 'train', ['hospital_1'])
    assert rows(path) == before
    assert migrate(old / 'train', ['hospital_1']) == ['hospital_1']


def test_what_runs_is_damaged_or_newer_is_not_migrated(old):
    folder = old / 'train'
    with closing(sqlite3.connect(folder / 'hospital_1.sqlite', isolation_level=None)) as table:
        table.execute('PRAGMA locking_mode=EXCLUSIVE')
        table.execute('BEGIN EXCLUSIVE')
        with pytest.raises(StoreError, match='locked'):
            migrate(folder, ['hospital_1'])
    for name, change, words in (
        ('hospital_2', "UPDATE entry SET value = 'x' WHERE name = 'over'", 'damaged'),
        ('hospital_3', "INSERT INTO entry VALUES ('format', x'39')", 'newer'),
    ):
        with closing(sqlite3.connect(folder / f'{name}.sqlite', isolation_level=None)) as table:
            table.execute(change)
        with pytest.raises(StoreError, match=words) as refused:
            migrate(folder, [name])
        assert ('is damaged' in str(refused.value)) == (words == 'damaged')


def test_servers_still_know_the_ledger_of_a_hospital_that_is_named_seen(old):
    server = {**rows(old / 'train' / 'aggregator.sqlite'), 'ledger seen': b'head'}
    assert converted_rows(server, 'aggregator', SHAPE.n_parameters)['ledger seen'] == b'head'
    hospital = {**rows(old / 'train' / 'hospital_1.sqlite'), 'ledger seen': b'1'}
    assert 'ledger seen' not in converted_rows(hospital, 'hospital_1', SHAPE.n_parameters)


def test_fdrl_migrate_erases_a_noise_key_that_can_draw_all_past_rounds_and_no_newer_one(tmp_path):
    layout = Layout(tmp_path)
    layout.plan.write_text(yaml.safe_dump(Plan().to_mapping()))
    keys = [tmp_path / name / NOISE_FILE for name in NAMES]
    for key in keys:
        key.parent.mkdir()
        Store(key.with_name('state.sqlite')).close()
    for key in keys[:2]:
        write_secret(key, bytes(range(32)))
    NoiseSource.secure(keys[2])
    newer = keys[2].read_bytes()
    for words, count in (((str(tmp_path), '--dry-run'), 2), ((str(tmp_path),), 2)):
        assert all(key.exists() for key in keys)
        done = CliRunner().invoke(main, ['migrate', *words])
        assert done.exit_code == 0 and done.stdout.count(NOISE_FILE) == count
    assert not any(key.exists() for key in keys[:2]) and keys[2].read_bytes() == newer
    NoiseSource.secure(keys[0])


def test_fdrl_migrate_finds_every_state_file_of_a_run(old):
    federation = old / 'run' / 'federation'
    for name in ('aggregator', 'key_authority'):
        (federation / name).mkdir(parents=True)
        (old / 'train' / f'{name}.sqlite').rename(federation / name / 'state.sqlite')
    Layout(federation).plan.write_text(yaml.safe_dump(Plan().to_mapping()))
    Layout(old / 'run').plan.write_text('')  # as an evaluation leaves a copy of its plan
    network = Plan().network
    start = network.draw(np.random.default_rng(1))
    for path in (Layout(federation).pretrained, old / 'run' / 'policies' / 'global_1.npz'):
        path.parent.mkdir(exist_ok=True)
        np.savez(path, weights=start, states=31, actions=15, hidden=np.array([64, 64]))

    def fdrl(*words):
        return CliRunner().invoke(main, ['migrate', *words])

    planned = fdrl(str(old / 'run'), '--dry-run')
    assert planned.exit_code == 0 and planned.stdout.count('would migrate') == 4
    done = fdrl(str(federation))
    assert done.exit_code == 0 and done.stdout.count('migrated') == 4 and BACKUP in done.stdout
    found = load_policy(old / 'run' / 'policies' / 'global_1.npz').policy(Plan())
    np.testing.assert_array_equal(found.weights, start)
    again = fdrl(str(old / 'run'))
    assert again.exit_code == 0 and '2 state files: all are of this version' in again.stdout
    Layout(old / 'empty').plan.parent.mkdir()
    Layout(old / 'empty').plan.write_text(yaml.safe_dump(Plan().to_mapping()))
    nobody = fdrl(str(old / 'empty'))
    assert nobody.exit_code == 1 and 'no state file' in nobody.stderr
    for path in (old / 'train', federation / 'aggregator'):
        refused = fdrl(str(path))
        assert refused.exit_code == 1 and 'neither a run nor a federation' in refused.stderr
