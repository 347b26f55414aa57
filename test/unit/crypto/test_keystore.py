# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""The key store: nobody else reads it, nothing in it is overwritten or printed."""

import os
import shutil
import stat

from fdrl_ros.crypto.keys.key_file import label, Passphrase, seal
from fdrl_ros.crypto.keys.keystore import (
    check_opens,
    KEY_FILE,
    load_identity,
    load_passphrase,
    load_root_public,
    make_federation,
    NewFederation,
    PASSPHRASE_VARIABLE,
    ROOT_FILE,
    ROSTER_FILE,
    save_identity,
    WITHOUT_PATIENTS,
)
from fdrl_ros.crypto.keys.roster import Roster
from fdrl_ros.crypto.keys.signing import Identity, verify
from fdrl_ros.errors import KeyFileError, PassphraseError, RosterError
from fdrl_ros.runtime.durable import make_private_directory, read_secret, write_secret
import pytest
from support.killing import killed_at_every_step
from support.sample_size import sampled

pytestmark = pytest.mark.usefixtures('quick_scrypt')
NAMES = ['hospital_1', 'hospital_2', 'hospital_3']
SIZES = {'hospital_1': 500, 'hospital_2': 400, 'hospital_3': 300}
PASSPHRASE = Passphrase(b'correct horse', cost=14)


def mode(path):
    return stat.S_IMODE(path.stat().st_mode)


@pytest.fixture
def identity():
    return Identity.generate('hospital_1')


def test_federation_has_a_key_for_everyone_and_a_signed_roster(tmp_path):
    directory = tmp_path / 'keys'
    made = make_federation(directory, NewFederation(SIZES, disjoint_patients=True))
    roster = Roster.load(directory / ROSTER_FILE, load_root_public(directory / ROOT_FILE))
    assert roster == made and roster.threshold == 3 and roster.n_max == 500
    assert [member.name for member in roster.members] == [*NAMES, *WITHOUT_PATIENTS]
    for member in roster.members:
        identity = load_identity(directory / member.name / KEY_FILE, member.name)
        assert verify(member.public, identity.sign(b'x'), b'x')
    root = load_identity(directory / 'root' / KEY_FILE, 'root')
    assert root.public == load_root_public(directory / ROOT_FILE)
    assert root.public not in {member.public for member in roster.members}


def test_second_federation_does_not_overwrite_the_first_and_only_its_owner_reads_it(tmp_path):
    directory, old = tmp_path / 'keys', os.umask(0)
    try:
        make_federation(directory, NewFederation(SIZES))
    finally:
        os.umask(old)
    before = {path: path.read_bytes() for path in directory.glob(f'*/{KEY_FILE}')}
    assert len(before) == 7 and {mode(path) for path in before} == {0o600}
    assert {mode(path.parent) for path in before} == {mode(directory)} == {0o700}
    with pytest.raises(KeyFileError, match='not empty'):
        make_federation(directory, NewFederation(SIZES))
    assert before == {path: path.read_bytes() for path in before}


@pytest.mark.parametrize(
    'sizes',
    [
        dict.fromkeys(NAMES[:2], 5),
        {**SIZES, 'hospital_1': 0},
        {**SIZES, 'aggregator': 5},
        {**SIZES, 'root': 5},
        {**SIZES, '../escape': 5},
    ],
)
def test_federation_that_cannot_be_leaves_nothing_behind(tmp_path, sizes):
    with pytest.raises(RosterError):
        make_federation(tmp_path / 'keys', NewFederation(sizes))
    assert not (tmp_path / 'keys').exists()


def test_passphrase_encrypts_every_private_key(tmp_path):
    make_federation(tmp_path / 'keys', NewFederation(SIZES), passphrase=PASSPHRASE)
    files = list((tmp_path / 'keys').glob(f'*/{KEY_FILE}'))
    assert len(files) == 7 and all(label(path.read_bytes(), path).sealed for path in files)
    path = tmp_path / 'keys' / 'operator' / KEY_FILE
    assert load_identity(path, 'operator', passphrase=PASSPHRASE).name == 'operator'
    check_opens(path, PASSPHRASE)
    for wrong in (Passphrase(b'battery staple', cost=14), None):
        with pytest.raises(PassphraseError):
            load_identity(path, 'operator', passphrase=wrong)
        with pytest.raises(PassphraseError):
            check_opens(path, wrong)


def test_passphrase_is_read_from_a_private_file_that_is_named(tmp_path, monkeypatch):
    monkeypatch.delenv(PASSPHRASE_VARIABLE, raising=False)
    assert load_passphrase() is None
    for place, content in enumerate((b'correct horse', b'correct horse\n', b'correct horse\r\n')):
        path = tmp_path / str(place)
        write_secret(path, content)
        monkeypatch.setenv(PASSPHRASE_VARIABLE, str(path))
        for told in (load_passphrase(path), load_passphrase()):
            assert told.key(b'salt', 14) == PASSPHRASE.key(b'salt', 14)
            assert told.source == str(path)
    # Random bytes are a key file; those within are no lines.
    write_secret(tmp_path / 'key_file', bytes(range(256)))
    assert load_passphrase(tmp_path / 'key_file').key(b's', 14)
    monkeypatch.setenv(PASSPHRASE_VARIABLE, '')
    assert load_passphrase() is None


def test_passphrase_file_that_is_missing_open_or_empty_is_refused(tmp_path):
    with pytest.raises(KeyFileError, match='cannot be read'):
        load_passphrase(tmp_path / 'missing')
    write_secret(tmp_path / 'open', b'correct horse')
    (tmp_path / 'open').chmod(0o644)
    with pytest.raises(KeyFileError, match='chmod go-rwx'):
        load_passphrase(tmp_path / 'open')
    write_secret(tmp_path / 'empty', b'\n')
    with pytest.raises(PassphraseError, match='has 0 bytes'):
        load_passphrase(tmp_path / 'empty')


def test_federation_is_made_whole_or_not_at_all_wherever_it_is_killed(tmp_path):
    directory = tmp_path / 'keys'

    def begin():
        shutil.rmtree(directory, ignore_errors=True)

    def make():
        make_federation(directory, NewFederation(SIZES))

    killed = 0
    for _ in killed_at_every_step(begin, make, every=sampled(1, 7)):
        killed += 1
        if directory.exists():  # after the last step but the directory's own sync
            Roster.load(directory / ROSTER_FILE, load_root_public(directory / ROOT_FILE))
            assert len(list(directory.glob(f'*/{KEY_FILE}'))) == 7
        else:
            make_federation(directory, NewFederation(SIZES))
        assert not (tmp_path / 'keys.part').exists()
    assert killed > 5


@pytest.mark.parametrize('bits', [0o640, 0o604, 0o660, 0o777, 0o610])
def test_file_or_directory_that_others_may_use_is_refused(tmp_path, identity, bits):
    save_identity(identity, tmp_path / 'key')
    (tmp_path / 'key').chmod(bits)
    with pytest.raises(KeyFileError, match='chmod go-rwx'):
        load_identity(tmp_path / 'key', 'hospital_1')
    (tmp_path / 'open').mkdir()
    (tmp_path / 'open').chmod(bits)
    with pytest.raises(KeyFileError, match='chmod go-rwx'):
        make_private_directory(tmp_path / 'open')


def test_links_directories_and_pipes_are_no_key_files(tmp_path, identity):
    save_identity(identity, tmp_path / 'key')
    (tmp_path / 'link').symlink_to(tmp_path / 'key')
    (tmp_path / 'folder').mkdir(mode=0o700)
    os.mkfifo(tmp_path / 'pipe', 0o600)
    for name in ('link', 'folder', 'pipe', 'missing'):
        with pytest.raises(KeyFileError):
            read_secret(tmp_path / name)
        if name != 'missing':
            with pytest.raises(KeyFileError):
                write_secret(tmp_path / name, b'x')


def test_file_that_exists_is_not_overwritten_and_one_that_cannot_be_used_is_our_error(tmp_path):
    write_secret(tmp_path / 'secret', b'first')
    with pytest.raises(KeyFileError, match='not overwritten'):
        write_secret(tmp_path / 'secret', b'second')
    assert read_secret(tmp_path / 'secret') == b'first'
    assert mode(tmp_path / 'secret') == 0o600
    with pytest.raises(KeyFileError, match='cannot be written'):
        write_secret(tmp_path / 'missing' / 'secret', b'x')
    with pytest.raises(KeyFileError):
        make_private_directory(tmp_path / 'secret' / 'below')
    make_private_directory(tmp_path / 'new' / 'keys')
    assert mode(tmp_path / 'new') == mode(tmp_path / 'new' / 'keys') == 0o700
    write_secret(tmp_path / 'long', bytes(2**24 + 1))
    with pytest.raises(KeyFileError, match='longer'):
        read_secret(tmp_path / 'long')


def test_damaged_and_foreign_keys_are_refused(tmp_path, identity):
    save_identity(identity, tmp_path / 'good')
    data = (tmp_path / 'good').read_bytes()
    holds = f'identity of {identity.name}'
    short = seal(bytes(31), holds, {'public': '00'}, None)
    other = seal(bytes(32), holds, {'public': identity.public.hex()}, None)
    unlabelled = seal(bytes(32), holds, {}, None)
    pem = b'-----BEGIN PRIVATE KEY-----'
    bad = [b'', b'garbage', pem, data[:60], data[1:], b'\0' * 500, short, other, unlabelled]
    for place, each in enumerate(bad):
        write_secret(tmp_path / str(place), each)
        with pytest.raises(KeyFileError):
            load_identity(tmp_path / str(place), 'hospital_1')


@pytest.mark.parametrize('text', ['', 'xyz', '00' * 31, 'é', '00' * 5000])
def test_what_is_no_root_key_is_refused(tmp_path, text):
    (tmp_path / 'root.pub').write_text(text)
    with pytest.raises(KeyFileError):
        load_root_public(tmp_path / 'root.pub')
    with pytest.raises(KeyFileError):
        load_root_public(tmp_path / 'missing')
