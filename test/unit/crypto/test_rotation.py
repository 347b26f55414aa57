# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""Keys and rosters change whole or not at all, and no revoked key or older roster comes back."""

import contextlib
from dataclasses import replace
import fcntl
import json
import os
from pathlib import Path
import shutil
import stat

from fdrl_ros.crypto.he.encryption import SecretContext
from fdrl_ros.crypto.he.schemes import choose_scheme
from fdrl_ros.crypto.keys.he_key import he_bytes, load_he
from fdrl_ros.crypto.keys.key_file import label, Passphrase, seal, unseal
from fdrl_ros.crypto.keys.keystore import (
    check_opens,
    KEY_FILE,
    load_identity,
    load_root_public,
    make_federation,
    NewFederation,
    ROOT_FILE,
    ROSTER_FILE,
)
from fdrl_ros.crypto.keys.roster import ring, Roster
from fdrl_ros.crypto.keys.rotation import (
    change_passphrase,
    HE_NAME,
    private_keys,
    RosterChanges,
    rotate_he,
)
from fdrl_ros.crypto.keys.signing import Identity
from fdrl_ros.crypto.keys.transaction import reading, transaction
from fdrl_ros.errors import KeyFileError, PassphraseError, RosterError, RosterRollbackError
from fdrl_ros.runtime.durable import read_secret, write_secret
import pytest
from support.killing import killed_at_every_step
from support.sample_size import sampled

pytestmark = pytest.mark.usefixtures('quick_scrypt')
NAMES = ['hospital_1', 'hospital_2', 'hospital_3', 'hospital_4']
SIZES = dict.fromkeys(NAMES, 500)
SCHEME = choose_scheme(100, 4, 16)


def told(words=b'correct horse'):
    return Passphrase(words, 'a file', cost=14)


PASSPHRASE = told()


@pytest.fixture(scope='module')
def made(tmp_path_factory):
    """Make a federation with a key for decryption, in clear."""
    directory = tmp_path_factory.mktemp('made') / 'keys'
    make_federation(directory, NewFederation(SIZES, threshold=3))
    write_secret(directory / HE_NAME, he_bytes(SecretContext.generate(SCHEME)))
    return directory


@pytest.fixture
def directory(made, tmp_path):
    shutil.copytree(made, tmp_path / 'keys')
    return tmp_path / 'keys'


def roster_of(directory):
    return Roster.load(directory / ROSTER_FILE, load_root_public(directory / ROOT_FILE))


def everybody_starts(directory, passphrase=None):
    """Do what every party does when it starts; return the roster and the HE key's digest."""
    with reading(directory):
        roster = roster_of(directory)
        for member in roster.members:
            path = directory / member.name / KEY_FILE
            identity = load_identity(path, member.name, passphrase=passphrase)
            assert identity.public == member.public
        check_opens(directory / HE_NAME, passphrase)
        digest = label(read_secret(directory / HE_NAME), 'x').about['public']
    return roster, digest


def leftovers(directory):
    return list(directory.rglob('.*'))


def test_rotated_party_has_a_new_key_and_the_old_one_is_revoked(directory):
    before = roster_of(directory)
    after = RosterChanges(directory).rotate('hospital_2')
    roster, _ = everybody_starts(directory)
    assert roster == after and roster.serial == 2 and roster.threshold == before.threshold
    old, new = before.member('hospital_2'), after.member('hospital_2')
    assert new.public != old.public and new.size == old.size
    assert [(each.name, each.public) for each in roster.revoked] == [('hospital_2', old.public)]
    assert [each.name for each in roster.members] == [each.name for each in before.members]
    assert not leftovers(directory)


@pytest.mark.parametrize(
    ('change', 'words'),
    [
        (lambda keys: keys.rotate('root'), 'the root cannot be rotated'),
        (lambda keys: keys.rotate('hospital_9'), 'not in roster'),
        (lambda keys: keys.revoke('aggregator'), 'rotate its key instead'),
        (lambda keys: keys.revoke('key_authority'), 'rotate its key instead'),
        (lambda keys: keys.admit('hospital_1', 5), None),
        (lambda keys: keys.admit('aggregator', 5), None),
        (lambda keys: keys.admit('root', 5), None),
        (lambda keys: keys.admit('../x', 5), None),
        (lambda keys: keys.admit('hospital_5', 0), None),
    ],
    ids=range(9),
)
def test_changes_that_cannot_be_are_refused_and_change_nothing(directory, change, words):
    before = (directory / ROSTER_FILE).read_bytes()
    with pytest.raises(RosterError, match=words):
        change(RosterChanges(directory))
    assert (directory / ROSTER_FILE).read_bytes() == before and not leftovers(directory)
    everybody_starts(directory)


def test_revoked_member_leaves_and_its_key_is_erased(directory):
    roster = RosterChanges(directory).revoke('hospital_2')
    assert [each.name for each in roster.hospitals] == ['hospital_1', 'hospital_3', 'hospital_4']
    assert roster.threshold == 3 and not (directory / 'hospital_2').exists()
    with pytest.raises(RosterError, match='roster 2 revoked it'):
        roster.member('hospital_2')
    roster = RosterChanges(directory).revoke('operator')
    assert len(roster.hospitals) == 3 and roster.revoked[1].name == 'operator'
    everybody_starts(directory)
    for threshold in (None, 2):
        with pytest.raises(RosterError, match='without hospital_1 2 hospitals are left, and 3'):
            RosterChanges(directory).revoke('hospital_1', threshold)
    assert everybody_starts(directory)[0].serial == 3


def test_admitted_hospital_has_a_key_and_counts_and_comes_back_with_another(directory):
    roster = RosterChanges(directory).admit('hospital_5', 70)
    assert roster.threshold == 4 and roster.member('hospital_5').size == 70
    assert [member.name for member in roster.hospitals] == [*NAMES, 'hospital_5']
    assert RosterChanges(directory).admit('hospital_6', 1, threshold=5).threshold == 5
    old = roster.member('hospital_2')
    RosterChanges(directory).revoke('hospital_2')
    with pytest.raises(RosterError, match='revoked'):
        RosterChanges(directory).admit('hospital_2', 500, public=old.public)
    roster = RosterChanges(directory).admit('hospital_2', 500)
    assert roster.member('hospital_2').public != old.public
    everybody_starts(directory)


def test_ring_of_neighbours_is_drawn_anew_for_other_hospitals_and_kept_otherwise(tmp_path):
    directory = tmp_path / 'keys'
    names = [f'hospital_{number}' for number in range(1, 23)]
    make_federation(directory, NewFederation(dict.fromkeys(names, 500)))
    write_secret(directory / HE_NAME, he_bytes(SecretContext.generate(SCHEME)))
    root = load_identity(directory / 'root' / KEY_FILE, 'root')
    sparse = replace(roster_of(directory), serial=2, **ring(22, neighbours=20))
    sparse.save(directory / ROSTER_FILE, root)
    seeds = [sparse.ring_seed]

    def changed(roster, is_drawn):
        loaded, _ = everybody_starts(directory)
        graph = loaded.neighbourhoods
        assert loaded == roster and graph.withstands_lies and graph.degree == 20
        assert graph.hospitals == tuple(sorted(each.name for each in roster.hospitals))
        assert (roster.ring_seed not in seeds) == is_drawn
        seeds.append(roster.ring_seed)

    changed(RosterChanges(directory).rotate('hospital_2'), is_drawn=False)
    changed(RosterChanges(directory).renew((0, 2**33)), is_drawn=False)
    changed(RosterChanges(directory).admit('hospital_23', 70), is_drawn=True)
    changed(RosterChanges(directory).rotate('operator'), is_drawn=False)
    changed(RosterChanges(directory).revoke('hospital_2'), is_drawn=True)
    assert len({*seeds}) == 3
    # Among 21 so few would not be enough: all mask with all.
    roster = RosterChanges(directory).revoke('hospital_3')
    assert roster.neighbourhoods.is_complete and len(roster.hospitals) == 21
    assert everybody_starts(directory)[0] == roster and roster.ring_seed == ''


def test_key_that_was_made_elsewhere_is_taken_by_its_public_half(directory):
    theirs = Identity.generate('hospital_5')
    roster = RosterChanges(directory).admit('hospital_5', 70, public=theirs.public)
    assert roster.member('hospital_5').public == theirs.public
    assert not (directory / 'hospital_5').exists()
    newer = Identity.generate('hospital_1')
    roster = RosterChanges(directory).rotate('hospital_1', newer.public)
    assert roster.member('hospital_1').public == newer.public
    assert not (directory / 'hospital_1').exists(), 'the revoked key must not stay here'
    for known in (newer.public, roster.revoked[0].public, bytes(5)):
        with pytest.raises(RosterError):
            RosterChanges(directory).rotate('hospital_2', known)


def test_another_root_or_one_that_has_followed_a_newer_roster_signs_nothing(directory, tmp_path):
    old = (directory / ROSTER_FILE).read_bytes()
    RosterChanges(directory).rotate('hospital_2')
    (directory / ROSTER_FILE).write_bytes(old)
    with pytest.raises(RosterRollbackError, match='older than roster 2'):
        RosterChanges(directory).revoke('hospital_1')
    make_federation(tmp_path / 'other', NewFederation(SIZES))
    shutil.copy(tmp_path / 'other/root' / KEY_FILE, directory / 'root' / KEY_FILE)
    with pytest.raises(KeyFileError, match='not the root that root.pub pins'):
        RosterChanges(directory).rotate('hospital_1')


def test_he_key_is_drawn_anew_for_the_same_scheme(directory):
    _, before = everybody_starts(directory)
    digest = rotate_he(directory, after_round=7)
    assert everybody_starts(directory)[1] == digest != before
    secret, after_round = load_he(directory / HE_NAME)
    assert secret.scheme == SCHEME and secret.public.digest == digest and after_round == 7
    (directory / HE_NAME).unlink()
    with pytest.raises(KeyFileError, match='draws it when it starts'):
        rotate_he(directory)


def test_he_key_that_is_damaged_or_relabelled_is_refused(directory, tmp_path):
    path = directory / HE_NAME
    data = path.read_bytes()
    for place in range(0, len(data), 9973):
        path.write_bytes(data[:place] + bytes([data[place] ^ 1]) + data[place + 1 :])
        with pytest.raises(KeyFileError):
            load_he(path)
    shutil.copy(directory / 'hospital_1' / KEY_FILE, path)
    with pytest.raises(KeyFileError, match='not the secret key of the homomorphic'):
        load_he(path)
    holds = label(data, path).holds
    key, about = unseal(data, holds, None, path)
    for changed in (about | {'public': '00' * 32}, about | {'after_round': None}, {}):
        path.write_bytes(seal(key, holds, changed, None))
        with pytest.raises(KeyFileError, match='label names another key'):
            load_he(path)
    path.write_bytes(seal(key[:-1], holds, about, None))
    with pytest.raises(KeyFileError, match='checksum'):
        load_he(path)


def test_passphrase_of_all_keys_changes_and_goes(directory):
    names = change_passphrase(directory, None, PASSPHRASE)
    assert len(names) == 9 and HE_NAME in names and 'root/identity.key' in names
    everybody_starts(directory, PASSPHRASE)
    with pytest.raises(PassphraseError):
        everybody_starts(directory)
    assert {stat.S_IMODE((directory / each).stat().st_mode) for each in names} == {0o600}
    newer = told(b'battery staple')
    change_passphrase(directory, PASSPHRASE, newer)
    everybody_starts(directory, newer)
    with pytest.raises(PassphraseError):
        change_passphrase(directory, PASSPHRASE, None)
    everybody_starts(directory, newer)
    change_passphrase(directory, newer, None)
    everybody_starts(directory)
    assert label((directory / HE_NAME).read_bytes(), 'x').about['scheme'].startswith('BFV, N = ')


def test_keys_partly_in_clear_are_all_encrypted_in_the_end(directory):
    change_passphrase(directory, None, PASSPHRASE)
    RosterChanges(directory, PASSPHRASE).rotate('hospital_1')
    assert label((directory / 'hospital_1' / KEY_FILE).read_bytes(), 'x').sealed
    guest = directory / 'guest' / KEY_FILE
    guest.parent.mkdir(mode=0o700)
    write_secret(guest, he_bytes(SecretContext.generate(SCHEME)))
    change_passphrase(directory, PASSPHRASE, PASSPHRASE)
    check_opens(guest, PASSPHRASE)


def test_erased_keys_are_written_over(directory, monkeypatch):
    """A second name of the file, as a backup tool makes it, shows what became of its bytes."""
    synced, fsync = {}, os.fsync

    def noted(descriptor):
        fsync(descriptor)
        if stat.S_ISREG(os.fstat(descriptor).st_mode):
            synced[os.fstat(descriptor).st_ino] = Path(f'/proc/self/fd/{descriptor}').read_bytes()

    monkeypatch.setattr(os, 'fsync', noted)
    for name in (f'hospital_1/{KEY_FILE}', HE_NAME, f'hospital_2/{KEY_FILE}'):
        os.link(directory / name, directory / name.replace('/', '.'))
    RosterChanges(directory).rotate('hospital_1')
    RosterChanges(directory).revoke('hospital_2')
    rotate_he(directory)
    for name in (f'hospital_1.{KEY_FILE}', HE_NAME.replace('/', '.'), f'hospital_2.{KEY_FILE}'):
        former = directory / name
        assert synced[former.stat().st_ino] == former.read_bytes() == bytes(former.stat().st_size)


def test_former_keys_of_a_change_that_an_older_version_left_are_written_over(directory):
    folder = directory / '.decided'
    folder.mkdir()
    (folder / 'list.json').write_text(json.dumps({'written': [], 'removed': []}))
    for name in ('0.before', 'removed_0.before'):
        (folder / name).write_bytes(b'a former key')
        os.link(folder / name, directory / name)
    with reading(directory):
        assert not folder.exists()
    for name in ('0.before', 'removed_0.before'):
        assert not any((directory / name).read_bytes())


ACTIONS = {
    'rotate': lambda directory: RosterChanges(directory).rotate('hospital_2'),
    'revoke': lambda directory: RosterChanges(directory).revoke('hospital_2'),
    'admit': lambda directory: RosterChanges(directory).admit('hospital_5', 70),
    'rotate_he': rotate_he,
}


@pytest.mark.parametrize('name', ACTIONS)
def test_federation_starts_wherever_a_change_of_its_keys_was_killed(made, tmp_path, name):
    directory, action = tmp_path / 'keys', ACTIONS[name]
    before, digest = everybody_starts(made)

    def begin():
        shutil.rmtree(directory, ignore_errors=True)
        shutil.copytree(made, directory)

    happened = []
    every = sampled(1, 13)
    for step in killed_at_every_step(begin, lambda: action(directory), every):
        roster, he_digest = everybody_starts(directory)
        changed = roster.serial == 2 if name != 'rotate_he' else he_digest != digest
        happened.append(changed)
        assert changed or (roster, he_digest) == (before, digest)
        if name == 'revoke' and changed:
            assert not (directory / 'hospital_2').exists()
        assert changed or list_keys(directory) == list_keys(made)
        if step % 4 == 0:  # It can be done, or done again.
            RosterChanges(directory).rotate('hospital_3')
            everybody_starts(directory)
            assert not leftovers(directory)
    assert happened == sorted(happened) and {False, True} == set(happened)


def list_keys(directory):
    return [(name, (directory / name).read_bytes()) for name in private_keys(directory)]


def test_keys_open_with_the_old_or_the_new_passphrase_wherever_its_change_was_killed(
    made, tmp_path
):
    directory = tmp_path / 'keys'
    before, after = told(b'correct horse'), told(b'battery staple')
    shutil.copytree(made, tmp_path / 'sealed')
    change_passphrase(tmp_path / 'sealed', None, before)

    def begin():
        shutil.rmtree(directory, ignore_errors=True)
        shutil.copytree(tmp_path / 'sealed', directory)

    opened = []
    # The new key is computed before, in this process, so that the children are quick.
    change_passphrase(shutil.copytree(made, tmp_path / 'warm'), None, after)
    action = lambda: change_passphrase(directory, before, after)  # noqa: E731
    for _ in killed_at_every_step(begin, action, every=sampled(2, 25)):
        with reading(directory):
            data = read_secret(directory / 'root' / KEY_FILE)
        now = after if data != read_secret(tmp_path / 'sealed/root' / KEY_FILE) else before
        everybody_starts(directory, now)
        opened.append(now is after)
    assert opened == sorted(opened) and {False, True} == set(opened)


def test_nobody_reads_keys_while_they_change(directory):
    descriptor = os.open(directory, os.O_RDONLY)
    with transaction(directory) as changes:
        changes.write('a', b'x')
        with pytest.raises(BlockingIOError):
            fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
        assert not (directory / 'a').exists()
    fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    os.close(descriptor)
    with reading(directory), reading(directory):
        assert (directory / 'a').read_bytes() == b'x'


def test_two_changes_at_once_wait_for_each_other(directory):
    running: list[int] = []
    for _ in range(2):
        running.append(os.fork())
        if not running[-1]:
            with contextlib.suppress(BaseException):
                RosterChanges(directory).rotate('operator')
                os._exit(0)
            os._exit(1)
    assert [os.waitpid(child, 0)[1] for child in running] == [0, 0]
    roster, _ = everybody_starts(directory)
    assert roster.serial == 3 and len(roster.revoked) == 2


def test_error_in_a_change_leaves_everything_as_it_was(directory):
    before = list_keys(directory)
    with pytest.raises(ZeroDivisionError), transaction(directory) as changes:
        changes.write(f'hospital_1/{KEY_FILE}', b'x')
        changes.remove(f'hospital_2/{KEY_FILE}')
        1 / 0  # noqa: B018
    assert list_keys(directory) == before and not leftovers(directory)


def test_directory_that_cannot_be_written_or_holds_no_key_is_our_error(directory, tmp_path):
    (directory / '.staged').write_text('in the way')
    with pytest.raises(KeyFileError, match='cannot be changed'):
        RosterChanges(directory).rotate('hospital_1')
    everybody_starts(directory)
    (tmp_path / 'empty').mkdir()
    for name, words in (('empty', 'holds no private key'), ('missing', 'No such file')):
        with pytest.raises(KeyFileError, match=words):
            change_passphrase(tmp_path / name, None, None)
