# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""
A federation of an older version goes on after `fdrl migrate`, in the middle of a round too.

`test/data/federation_format_1.tar.xz` was written by a version before 0.1.0: three hospitals in
round 2, killed as the first update was sent (`train`), and the state files of a round killed as
its policy was validated (`sum`). Version 0.1.0 wrote `federation_format_2.tar.xz`: the same two
(`train`, `fixed`), and a federation whose only round was over (`between`).
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
from fdrl_ros.errors import RoundError, StoreError
from fdrl_ros.federation.hospital.state import HospitalState
from fdrl_ros.federation.key_authority.state import KeyAuthorityState
from fdrl_ros.federation.migration import BACKUP, converted_rows, migrate_file
from fdrl_ros.federation.protocol.message import Phase
from fdrl_ros.federation.protocol.store import FORMAT, peek, Store
from fdrl_ros.privacy.noise import NoiseSource
from fdrl_ros.runtime.durable import write_secret
import numpy as np
import pytest
from support.federation_bench import SHAPE, start_of
from support.journaled_federation import Journaled
import yaml

DATA = Path(__file__).parents[2] / 'data'
NAMES = ('hospital_1', 'hospital_2', 'hospital_3')
PARTIES = ('aggregator', 'key_authority', *NAMES)


def unpacked(folder, archive):
    with tarfile.open(DATA / archive) as files:
        files.extractall(folder, filter='data')
    for path in folder.rglob('*'):
        path.chmod(0o700 if path.is_dir() else 0o600)
    return folder


@pytest.fixture
def old(tmp_path):
    return unpacked(tmp_path, 'federation_format_1.tar.xz')


@pytest.fixture
def released(tmp_path):
    return unpacked(tmp_path, 'federation_format_2.tar.xz')


def migrate(folder, names=PARTIES, *, secure=True, **options):
    size = SHAPE.n_parameters
    return [
        name
        for name in names
        if migrate_file(folder / f'{name}.sqlite', name, size, secure=secure, **options)
    ]


def rows(path):
    with closing(sqlite3.connect(path)) as table:
        return dict(table.execute('SELECT name, value FROM entry'))


def goes_on(folder, fixture, trained, *, secure=False):
    """Start all parties of a folder again, whose learners trained so many rounds."""
    raw = json.loads(fixture.read_text())['identities']
    identities = {
        name: Identity(name, Ed25519PrivateKey.from_private_bytes(bytes.fromhex(key)))
        for name, key in raw.items()
    }
    bench = Journaled(folder, hospitals=3, rounds=3, identities=identities)
    for learner in bench.learners.values():  # whose ledgers are in memory alone
        learner.secure = secure
        for round in range(1, trained + 1):
            learner.train(bench.start, round, report=lambda _: None, stopped=lambda: False)
    return bench


def check_end(bench):
    assert bench.run()
    assert (bench.policy.envelope.round, bench.policy.contributors) == (3, NAMES)
    assert not bench.compared().problems
    assert not list(bench.directory.glob('*.spool'))


def test_an_old_state_is_refused_with_the_way_out(old):
    unpacked(old / 'released', 'federation_format_2.tar.xz')
    for path in (old / 'train', old / 'released' / 'train'):
        for use in (Store, lambda path: list(peek(path, '*'))):
            with pytest.raises(StoreError, match='older version.*`fdrl migrate /'):
                use(path / 'aggregator.sqlite')


def test_rounds_go_on_in_the_middle_of_one(old):
    folder = old / 'train'
    assert migrate(folder) == list(PARTIES) and migrate(folder) == []
    bench = goes_on(folder, folder / 'fixture.json', 2)
    state = bench.parties['hospital_1'].state
    assert state.update.round == 2 and state.sent((2, 1)) and state.floor == (2, 2)
    assert bench.key_authority.round == 1
    check_end(bench)


def test_every_promise_of_a_round_is_carried_over(old):
    folder = old / 'sum'
    names = ('key_authority', 'hospital_1')
    before = {name: rows(folder / f'{name}.sqlite') for name in names}
    assert migrate(folder, names) == list(names)
    hospital = HospitalState(Store(folder / 'hospital_1.sqlite'), SHAPE.n_parameters)
    promises = hospital.record.of(2)
    assert hospital.floor == (2, 2) and not hospital.record.received
    assert promises.revealed == promises.signed[0].survivors == NAMES
    assert b''.join(promises.sent) == before['hospital_1']['sent 2']
    authority = KeyAuthorityState(Store(folder / 'key_authority.sqlite'), start_of(SHAPE))
    chosen = before['key_authority']['decrypting']
    assert authority.record.phase is Phase.SUM and authority.record.round == 1
    assert b'2 ' + authority.record.chosen_sum == chosen
    assert not authority.choose_sum(2, b'another', 'key', math.inf)
    assert authority.summed().contributors == NAMES
    assert [each.rounds for each in authority.record.served] == [2]


@pytest.mark.parametrize('secure', [True, False])
def test_rounds_of_the_release_go_on_and_seeded_noise_stays_not_secure(released, secure):
    folder = released / 'between'
    assert migrate(folder, secure=secure) == list(PARTIES)
    assert migrate(folder, secure=secure) == []
    bench = goes_on(folder, released / 'fixture.json', 1, secure=True)
    assert bench.key_authority.round == 1
    assert bench.run() and bench.policy.secure == secure
    check_end(bench)


def test_a_round_of_the_release_goes_on_in_its_next_attempt(released):
    folder = released / 'train'
    assert migrate(folder) == list(PARTIES)
    bench = goes_on(folder, released / 'fixture.json', 2)
    records = {name: bench.parties[name].state.record for name in NAMES}
    assert {(each.id, each.phase) for each in records.values()} == {((2, 2), Phase.WAITING)}
    assert not any(each.received for each in records.values())
    (before,) = records['hospital_1'].of(2).sent
    updates = {name: bench.parties[name].state.update for name in ('hospital_1', 'hospital_2')}
    assert updates['hospital_1'].round == 2
    assert bench.run(lambda: bench.key_authority.round == 2)
    assert bench.key_authority.state.released.attempt == 2
    promises = bench.parties['hospital_1'].state.record.of(2)
    assert promises.sent[0] == before and len(promises.sent) == 2
    check_end(bench)


def test_a_round_of_the_release_whose_survivors_are_fixed_has_to_end_first(released, old):
    for folder in (released / 'fixed', old / 'sum'):
        before = rows(folder / 'aggregator.sqlite')
        with pytest.raises(StoreError, match='survivors of round 2 are fixed.*once more'):
            migrate(folder)
        assert rows(folder / 'aggregator.sqlite') == before
        assert not list(folder.glob(f'*{BACKUP}*'))


def test_every_promise_of_the_release_is_carried_over(released):
    folder = released / 'fixed'
    names = ('key_authority', *NAMES)
    before = rows(folder / 'key_authority.sqlite')
    assert migrate(folder, names) == list(names)
    after = rows(folder / 'key_authority.sqlite')
    assert after == before | {'format': FORMAT}
    for name in NAMES:
        record = HospitalState(Store(folder / f'{name}.sqlite'), SHAPE.n_parameters).record
        promises = record.of(2)
        assert promises.revealed == promises.signed[0].survivors == NAMES
        assert (promises.guilty, promises.sketched, len(promises.sent)) == ((), (), 1)
        assert record.id == (2, 2) and record.sending[0].id == (2, 1) and record.over == 1
    with pytest.raises(RoundError, match='another survivor set'):
        promises.check_revealing(NAMES[:2], '')


@pytest.fixture(params=[('old', 1), ('released', 2)], ids=['format 1', 'format 2'])
def trained(request):
    """Return a folder in the middle of TRAIN, and the ending of what is kept of its files."""
    name, number = request.param
    return request.getfixturevalue(name) / 'train', f'{BACKUP}{number}'


def test_a_dry_run_changes_nothing_and_the_old_file_is_kept(trained):
    folder, ending = trained
    path = folder / 'hospital_1.sqlite'
    before = rows(path)
    assert migrate(folder, dry_run=True) == list(PARTIES)
    assert rows(path) == before
    migrate(folder)
    backup = path.with_name(path.name + ending)
    assert rows(backup) == before and backup.stat().st_mode & 0o777 == 0o600


def test_a_kill_in_the_middle_leaves_the_old_file(trained):
    folder, ending = trained
    path = folder / 'hospital_1.sqlite'
    before = rows(path)
    for step in ('_back_up', 'converted_rows', 'sync_folder'):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(f'fdrl_ros.federation.migration.{step}', killed)
            with pytest.raises(KeyboardInterrupt):
                migrate(folder, ['hospital_1'])
        assert rows(path) == before
    assert migrate(folder, ['hospital_1']) == ['hospital_1']
    assert rows(path.with_name(path.name + ending)) == before


def killed(*arguments, **options):
    raise KeyboardInterrupt


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
    assert converted(server, 'aggregator')['ledger seen'] == b'head'
    hospital = {**rows(old / 'train' / 'hospital_1.sqlite'), 'ledger seen': b'1'}
    assert 'ledger seen' not in converted(hospital, 'hospital_1')


def converted(before, party):
    return converted_rows(before, party, SHAPE.n_parameters, secure=True)


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


def test_fdrl_migrate_changes_no_file_if_one_is_refused_and_tells_of_seeded_noise(released):
    federation = released / 'run'
    plan = Plan().to_mapping() | {'federation': {'hospitals': 3, 'noise': 'seeded'}}
    for folder, over in (('fixed', False), ('between', True)):
        for name in ('a_hospital', 'aggregator', 'key_authority'):
            (federation / name).mkdir(parents=True, exist_ok=True)
            source = released / folder / f'{name.replace("a_hospital", NAMES[0])}.sqlite'
            for ending in ('', '-wal'):
                source.with_name(source.name + ending).rename(
                    federation / name / f'state.sqlite{ending}'
                )
        Layout(federation).plan.write_text(yaml.safe_dump(plan))
        before = {path: rows(path) for path in federation.glob('*/state.sqlite')}
        done = CliRunner().invoke(main, ['migrate', str(federation)])
        assert done.exit_code == (0 if over else 1), done.output
        assert over or 'survivors of round 2 are fixed' in done.stderr
        assert ({path: rows(path) for path in before} == before) == (not over)
    assert rows(federation / 'key_authority' / 'state.sqlite')['seeded'] == b'0'
    assert all(path.with_name(f'{path.name}{BACKUP}2').exists() for path in before)
