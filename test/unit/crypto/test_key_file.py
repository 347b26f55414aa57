# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""Key files: what is sealed opens with its passphrase alone, and damage is never a key."""

import hashlib
import json
import pickle

from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305
from fdrl_ros.crypto.keys import key_file
from fdrl_ros.crypto.keys.key_file import label, Passphrase, seal, unseal
from fdrl_ros.errors import KeyFileError, PassphraseError
from hypothesis import given, settings
from hypothesis import strategies as st
import pytest
from support.sample_size import sampled

CHEAP = 14
HOLDS = 'identity of hospital_1'
ABOUT = {'created': 1_763_715_600, 'public': '00ff'}
KEY = bytes(range(32))


def told(words=b'correct horse'):
    return Passphrase(words, 'a file', cost=CHEAP)


PASSPHRASE = told()
CLEAR = seal(KEY, HOLDS, ABOUT, None)
SEALED = seal(KEY, HOLDS, ABOUT, PASSPHRASE)


def header(data):
    return json.loads(data.split(b'\n')[1])


def with_header(data, fields):
    """Write another header over the same key, with a checksum that is right."""
    magic, _, rest = data.split(b'\n', 2)
    line = json.dumps(fields, sort_keys=True, separators=(',', ':')).encode()
    data = b'\n'.join([magic, line, rest[:-32]])
    return data + hashlib.sha256(data).digest()


@pytest.mark.parametrize('passphrase', [None, PASSPHRASE])
def test_key_comes_back_with_what_may_be_known_of_it(passphrase):
    data = seal(KEY, HOLDS, ABOUT, passphrase)
    assert unseal(data, HOLDS, passphrase, 'x') == (KEY, ABOUT)
    found = label(data, 'x')
    assert (found.holds, found.about, found.sealed) == (HOLDS, ABOUT, passphrase is not None)
    assert (KEY in data) == (passphrase is None)


def test_file_opens_with_the_standards_of_other_libraries():
    fields = header(SEALED)['seal']
    salt, nonce = bytes.fromhex(fields['salt']), bytes.fromhex(fields['nonce'])
    key = hashlib.scrypt(
        b'correct horse', salt=salt, n=2 ** fields['log2_n'], r=8, p=1, dklen=32, maxmem=2**26
    )
    start = SEALED.index(b'\n', SEALED.index(b'\n') + 1) + 1
    body = SEALED[start:-32]
    assert ChaCha20Poly1305(key).decrypt(nonce, body, SEALED[:start]) == KEY


def test_scrypt_is_that_of_rfc_7914():
    passphrase = Passphrase(b'pleaseletmein')
    expected = '7023bdcb3afd7348461c06cd81fd38ebfda8fbba904f8e3ea9b543f6545da1f2'
    assert passphrase.key(b'SodiumChloride', 14).hex() == expected


@pytest.mark.parametrize(
    'data, holds, passphrase, words',
    [
        (SEALED, HOLDS, told(b'battery staple'), 'passphrase in a file is not the one'),
        (SEALED, HOLDS, None, 'is encrypted: .*FDRL_PASSPHRASE_FILE'),
        (CLEAR, HOLDS, PASSPHRASE, 'not encrypted.*fdrl keys passphrase'),
        (SEALED, 'identity of root', PASSPHRASE, 'of hospital_1, not the identity of root'),
    ],
)
def test_wrong_passphrases_and_keys_are_told_apart_and_not_shown(data, holds, passphrase, words):
    error = PassphraseError if holds == HOLDS else KeyFileError
    with pytest.raises(error, match=words) as caught:
        unseal(data, holds, passphrase, 'x')
    hidden = 'horse', 'staple', KEY.hex()
    assert not any(word in str(caught.value) for word in hidden) and b'horse' not in SEALED


def test_passphrase_is_long_enough_and_is_never_shown():
    for words in (b'', b'seven77', bytes(1025)):
        with pytest.raises(PassphraseError, match='expected 8 to 1024'):
            Passphrase(words)
    assert repr(PASSPHRASE) == "Passphrase('a file')"
    with pytest.raises(TypeError):
        pickle.dumps(PASSPHRASE)


def test_one_party_pays_for_scrypt_once(monkeypatch):
    costs, scrypt = [], key_file.Scrypt

    def counted(**values):
        costs.append(values['n'])
        return scrypt(**values)

    monkeypatch.setattr(key_file, 'Scrypt', counted)
    first = told()
    files = [seal(KEY, HOLDS, ABOUT, first) for _ in range(5)]
    second = told()
    for each in files:
        unseal(each, HOLDS, second, 'x')
    unseal(seal(KEY, HOLDS, ABOUT, second), HOLDS, told(), 'x')
    assert costs == [2**CHEAP] * 3


def test_salt_is_not_taken_over_from_a_cheaper_file_or_one_that_does_not_open():
    dear, wrong = Passphrase(b'correct horse', cost=CHEAP + 1), told(b'battery staple')
    unseal(SEALED, HOLDS, dear, 'x')
    assert header(seal(KEY, HOLDS, ABOUT, dear))['seal']['log2_n'] == CHEAP + 1
    with pytest.raises(PassphraseError):
        unseal(SEALED, HOLDS, wrong, 'x')
    again = header(seal(KEY, HOLDS, ABOUT, wrong))
    assert again['seal']['salt'] != header(SEALED)['seal']['salt']


@pytest.mark.parametrize('data', [CLEAR, SEALED], ids=['clear', 'sealed'])
def test_every_changed_byte_is_found(data):
    for place in range(len(data)):
        for bit in (1, 0x80):
            changed = bytearray(data)
            changed[place] ^= bit
            for passphrase in (None, PASSPHRASE):
                with pytest.raises(KeyFileError):
                    unseal(bytes(changed), HOLDS, passphrase, 'x')
            with pytest.raises(KeyFileError):
                label(bytes(changed), 'x')


@pytest.mark.parametrize('data', [CLEAR, SEALED], ids=['clear', 'sealed'])
def test_every_cut_and_every_addition_is_found(data):
    for other in (*(data[:end] for end in range(len(data))), data + b'\0', data + b'\n', data * 2):
        with pytest.raises(KeyFileError):
            unseal(other, HOLDS, None, 'x')


@settings(max_examples=25, deadline=None)
@given(st.integers(0, len(SEALED) - 33), st.integers(1, 255))
def test_who_changes_a_sealed_file_and_its_checksum_is_found(place, mask):
    changed = bytearray(SEALED[:-32])
    changed[place] ^= mask
    data = bytes(changed) + hashlib.sha256(changed).digest()
    with pytest.raises(KeyFileError):
        unseal(data, HOLDS, PASSPHRASE, 'x')


@settings(max_examples=sampled(60, 20), deadline=None)
@given(st.binary(max_size=300), st.booleans())
def test_garbage_is_no_key(garbage, summed):
    data = b'fdrl_ros key file 1\n' + garbage
    data += hashlib.sha256(data).digest() if summed else b''
    with pytest.raises(KeyFileError):
        unseal(data, HOLDS, None, 'x')


@pytest.mark.parametrize(
    'changes',
    [
        *({'log2_n': cost} for cost in (13, 19, 2**70, 14.0, True)),
        *({'salt': salt} for salt in ('', '00' * 2**10)),
        *({'nonce': nonce} for nonce in ('00' * 11, 5)),
        *({'r': 9}, {'p': 2**20}, {'kdf': 'none'}, {'cipher': 'AES'}, {'more': 1}),
    ],
    ids=str,
)
def test_parameters_are_judged_before_memory_is_taken(monkeypatch, changes):
    fields = header(SEALED)
    fields['seal'] |= changes
    monkeypatch.setattr(key_file, 'Scrypt', None)
    with pytest.raises(KeyFileError, match='asks for other parameters'):
        unseal(with_header(SEALED, fields), HOLDS, told(), 'x')


FORM = {'holds': HOLDS, 'about': {}, 'seal': None}


@pytest.mark.parametrize(
    'fields',
    [
        [],
        {'holds': HOLDS, 'about': {}},
        *(
            FORM | change
            for change in ({'about': []}, {'holds': 5}, {'seal': 'none'}, {'more': 1})
        ),
        FORM | {'about': {'x': 'y' * 5000}},
    ],
    ids=lambda fields: str(fields)[:40],
)
def test_header_of_another_form_is_refused(fields):
    with pytest.raises(KeyFileError, match='damaged'):
        unseal(with_header(CLEAR, fields), HOLDS, None, 'x')


def test_header_is_taken_in_its_one_form_only():
    data = CLEAR[:-32].replace(b'"seal":null', b'"seal": null')
    with pytest.raises(KeyFileError, match='one form'):
        unseal(data + hashlib.sha256(data).digest(), HOLDS, None, 'x')
    with pytest.raises(KeyFileError, match='bytes about its key'):
        seal(KEY, HOLDS, {'x': 'y' * 5000}, None)
