# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""The noise key: what is over cannot be drawn again, what is not can, whenever it is killed."""

import hashlib
import hmac
import os
import shutil
import stat

from fdrl_ros.crypto.keys.key_file import Passphrase, seal
from fdrl_ros.errors import KeyFileError, PassphraseError, PrivacyError
from fdrl_ros.privacy.accountant.accountant import Charge
from fdrl_ros.privacy.ledger.chain import Owner
from fdrl_ros.privacy.ledger.ledger import Ledger
from fdrl_ros.privacy.noise import NoiseSource
from fdrl_ros.privacy.noise_key import HOME_ROUNDS, NoiseKey
import numpy as np
import pytest
from support.killing import killed_at_every_step
from support.ledger_killing import CHARGE, OWNER

pytestmark = pytest.mark.usefixtures('quick_scrypt')
ROUNDS = (1, 2, HOME_ROUNDS + 2, 2 * HOME_ROUNDS + 2, 3, 70, HOME_ROUNDS + 70, 3 * HOME_ROUNDS)


@pytest.fixture
def path(tmp_path):
    return tmp_path / 'noise.key'


@pytest.fixture
def ledger(tmp_path):
    with Ledger(tmp_path / 'ledger', Owner(**OWNER)) as opened:
        yield opened


def opened(path, ledger, passphrase=None):
    source = NoiseSource.secure(path, passphrase)
    source.bind(ledger)
    return source


def draw(source, round):
    return tuple(source.gaussian('gradient', round, 3, 4))


def charge(ledger, *rounds):
    for round in rounds:
        ledger.reserve(round=round, block=0, charge=Charge(**CHARGE), inputs=b'%d' % round)


def secrets_in(path):
    """Return the two secrets of a file in clear."""
    body = path.read_bytes()[:-32]
    return body[-64:-32], body[-32:]


def hkdf(key, info):
    return hmac.new(key, b'fdrl_ros noise 2 ' + info + b'\x01', hashlib.sha256).digest()


def test_a_key_file_is_made_once_for_the_owner_alone(path):
    old = os.umask(0)
    try:
        first = NoiseSource.secure(path)
    finally:
        os.umask(old)
    first.forget(3)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    again = NoiseSource.secure(path)
    assert draw(first, 4) == draw(again, 4)
    assert first.fingerprint == again.fingerprint


def test_rounds_draw_from_the_links_of_a_hash_chain(path, ledger):
    """The slow version, by HMAC written out; a seeded source of a link draws the same."""
    NoiseSource.secure(path)
    link, alone = (hkdf(each, b'ledger' + ledger.owner.birth) for each in secrets_in(path))
    source, links = opened(path, ledger), [link]
    for _ in range(141):
        links.append(hkdf(links[-1], b'next'))
    for round in ROUNDS:
        kind, of = divmod(round, HOME_ROUNDS)
        key = alone if kind == 3 else links[2 * of + (kind > 0)]
        assert draw(source, round) == draw(NoiseSource(key, private=False), round)


def test_an_erasure_changes_no_number_of_what_is_not_over(path, ledger):
    source = opened(path, ledger)
    before = {round: draw(source, round) for round in ROUNDS}
    for over in (1, 2, 3, 3):
        source.forget(over)
        source.forget(1)
        for again in (source, opened(path, ledger)):
            for round in ROUNDS:
                if round % HOME_ROUNDS > over or round >= 3 * HOME_ROUNDS:
                    assert draw(again, round) == before[round]


@pytest.mark.parametrize('over', [1, 2, HOME_ROUNDS + 2, 2 * HOME_ROUNDS + 2, 3, 3 * HOME_ROUNDS])
def test_what_is_over_can_be_drawn_by_nobody_who_has_the_directory(tmp_path, path, ledger, over):
    source = opened(path, ledger)
    held = secrets_in(path)
    before = {round: draw(source, round) for round in ROUNDS}
    source.forget(over)
    kept = b''.join(each.read_bytes() for each in tmp_path.iterdir())
    assert held[over == 3 * HOME_ROUNDS] not in kept
    for stolen in (source, opened(path, ledger)):
        for round in ROUNDS:
            if round == over or round < over < HOME_ROUNDS:
                with pytest.raises(PrivacyError, match='erased'):
                    draw(stolen, round)
                with pytest.raises(PrivacyError, match='erased'):
                    stolen.check_drawable(round)
    assert draw(source, 70) == before[70]


def test_the_blocks_of_the_disk_are_overwritten_too(path):
    source = NoiseSource.secure(path)
    with path.open('rb') as before:
        source.forget(1)
        assert set(before.read()) == {0}


def test_killed_at_any_step_a_key_draws_what_it_drew_and_erases_at_the_next_start(tmp_path):
    """A kill leaves the first link as it was or the next one, and no older one elsewhere."""
    folder = tmp_path / 'hospital'
    ledger_path, path = folder / 'ledger', folder / 'noise.key'

    def begin():
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir()
        with Ledger(ledger_path, Owner(**OWNER)) as ledger:
            charge(ledger, 1)
            opened(path, ledger).forget(1)
            (folder / 'drawn').write_text(repr(draw(opened(path, ledger), 3)))

    def erase():
        NoiseSource.secure(path).forget(2)

    for _ in killed_at_every_step(begin, erase):
        with Ledger(ledger_path, Owner(**OWNER)) as ledger:
            charge(ledger, 2)  # its block is repeated as long as the round is not erased
            source = opened(path, ledger)
            source.check_newest(ledger)
            assert repr(draw(source, 3)) == (folder / 'drawn').read_text()
            held = secrets_in(path)[0]
            source.forget(2)
            source.forget(3)
            assert held not in b''.join(each.read_bytes() for each in folder.iterdir())
            assert list(folder.glob('noise.key*')) == [path]
            with pytest.raises(PrivacyError, match='erased'):
                draw(opened(path, ledger), 2)


def test_killed_at_any_step_of_its_first_start_a_key_is_whole(tmp_path):
    folder = tmp_path / 'hospital'

    def begin():
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir()
        Ledger(folder / 'ledger', Owner(**OWNER)).close()

    def start():
        with Ledger(folder / 'ledger', Owner(**OWNER)) as ledger:
            opened(folder / 'noise.key', ledger)

    for _ in killed_at_every_step(begin, start):
        with Ledger(folder / 'ledger', Owner(**OWNER)) as ledger:
            first = draw(opened(folder / 'noise.key', ledger), 1)
            assert draw(opened(folder / 'noise.key', ledger), 1) == first


def test_another_ledger_is_refused_and_charged_nothing(tmp_path, path, ledger):
    opened(path, ledger)
    before = path.read_bytes()
    with Ledger(tmp_path / 'other', Owner(**OWNER)) as other:
        with pytest.raises(KeyFileError, match='another ledger'):
            opened(path, other)
        assert other.chain.head.entries == 0
    assert path.read_bytes() == before


def test_copies_of_a_key_that_no_ledger_had_draw_other_noise_under_each(tmp_path, path, ledger):
    NoiseSource.secure(path)
    shutil.copy(path, tmp_path / 'copy')
    with Ledger(tmp_path / 'other', Owner(**OWNER)) as other:
        for round in ROUNDS:
            ours, theirs = opened(path, ledger), opened(tmp_path / 'copy', other)
            assert draw(ours, round) != draw(theirs, round)


@pytest.mark.parametrize(
    'older, newer',
    [
        ([1], [2]),
        ([1], [HOME_ROUNDS + 1]),
        ([1], [2 * HOME_ROUNDS + 1]),
        ([1, HOME_ROUNDS + 1, 2], [3]),
        ([], [1, 2, 3]),
    ],
)
def test_an_older_key_beside_a_newer_ledger_is_refused(tmp_path, path, ledger, older, newer):
    """Where each round is erased before anything follows it, as in a federation."""

    def begin(rounds):
        for round in rounds:
            source.forget(round % HOME_ROUNDS - (round < HOME_ROUNDS))
            charge(ledger, round)
            opened(path, ledger).check_newest(ledger)

    source = opened(path, ledger)
    begin(older)
    shutil.copy(path, tmp_path / 'backup')
    begin(newer)
    shutil.copy(tmp_path / 'backup', path)
    with pytest.raises(KeyFileError, match='older than the ledger'):
        opened(path, ledger).check_newest(ledger)


def test_a_lost_key_is_replaced_by_one_that_begins_at_the_newest_round(path, ledger):
    opened(path, ledger)
    charge(ledger, 1, 2, 3 * HOME_ROUNDS, HOME_ROUNDS + 2, 3)
    path.unlink()
    source = opened(path, ledger)
    source.check_newest(ledger)
    draw(source, 3)
    for round in (1, 2, HOME_ROUNDS + 2):
        with pytest.raises(PrivacyError, match='erased'):
            draw(source, round)


def test_a_file_that_is_put_back_under_a_running_hospital_is_not_written(tmp_path, path):
    source = NoiseSource.secure(path)
    shutil.copy(path, tmp_path / 'backup')
    source.forget(1)
    shutil.copy(tmp_path / 'backup', path)
    with pytest.raises(KeyFileError, match='changed while it was in use'):
        source.forget(2)
    assert path.read_bytes() == (tmp_path / 'backup').read_bytes()


def test_every_damage_is_refused_and_kept(path):
    NoiseSource.secure(path)
    whole = path.read_bytes()
    cuts = [whole[:size] for size in (0, 31, 32, 33, len(whole) - 1)]
    flips = [
        bytes([*whole[:at], whole[at] ^ 1, *whole[at + 1 :]]) for at in range(0, len(whole), 3)
    ]
    foreign = [
        seal(bytes(size), holds, about, None)
        for size, holds, about in (
            (64, 'identity of hospital_1', {}),
            (64, 'noise key', {}),
            (64, 'noise key', {'first': 'x', 'ledger': '', 'name': '00'}),
            (64, 'noise key', {'first': 0, 'ledger': 'zz', 'name': '00'}),
            (63, 'noise key', {'first': 0, 'ledger': '', 'name': '00'}),
        )
    ]
    for damaged in (*cuts, *flips, *foreign, whole + b'\0'):
        path.write_bytes(damaged)
        with pytest.raises(KeyFileError):
            NoiseSource.secure(path)
        assert path.read_bytes() == damaged


def test_the_key_of_a_version_that_erased_nothing_is_refused(path):
    path.touch(0o600)
    path.write_bytes(bytes(range(32)))
    with pytest.raises(KeyFileError, match='fdrl migrate'):
        NoiseSource.secure(path)


def test_a_file_that_others_may_read_is_refused(path):
    NoiseSource.secure(path)
    path.chmod(0o640)
    with pytest.raises(KeyFileError, match='open to others'):
        NoiseSource.secure(path)


def test_a_passphrase_seals_the_key_in_every_state(path, ledger, monkeypatch):
    monkeypatch.setattr(os, 'urandom', lambda size: bytes([size]) * size)
    passphrase, other = Passphrase(b'correct horse'), Passphrase(b'another horse')
    source = NoiseSource.secure(path, passphrase)
    assert bytes([64]) * 32 not in path.read_bytes()
    first = NoiseKey(path, passphrase).secret(2)
    source.bind(ledger)
    source.forget(1)
    key = NoiseKey(path, passphrase)
    assert key.secret(2) != first and key.secret(2) not in path.read_bytes()
    assert draw(opened(path, ledger, passphrase), 2) == draw(source, 2)
    for wrong in (None, other):
        with pytest.raises(PassphraseError):
            NoiseSource.secure(path, wrong)


def test_a_key_in_clear_is_refused_where_a_passphrase_is_given(path):
    NoiseSource.secure(path)
    with pytest.raises(PassphraseError, match='not encrypted'):
        NoiseSource.secure(path, Passphrase(b'correct horse'))


def test_a_round_too_far_ahead_is_refused_at_once(path):
    source = NoiseSource.secure(path)
    with pytest.raises(PrivacyError, match='too far ahead'):
        draw(source, HOME_ROUNDS - 1)
    with pytest.raises(PrivacyError, match='too far ahead'):
        source.forget(HOME_ROUNDS - 1)
    draw(source, 1)


def test_a_seeded_source_erases_nothing(ledger):
    source = NoiseSource.seeded(4)
    before = draw(source, 1)
    source.bind(ledger)
    source.forget(5)
    source.check_newest(ledger)
    assert draw(source, 1) == before == draw(NoiseSource.seeded(4), 1)
    assert np.isfinite(before).all()
