# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""Signing: published vectors, and False for whatever is not exactly a signature."""

from fdrl_ros.crypto.keys.signing import fingerprint, Identity, verify
from hypothesis import given, settings, strategies
import pytest

IDENTITY = Identity.generate('hospital_1')


def test_verification_is_rfc_8032():
    # Section 7.1, test 2: one byte, 0x72.
    public = bytes.fromhex('3d4017c3e843895a92b70aa74d1b7ebc9c982ccf2ec4968cc0cd55f12af4660c')
    signature = bytes.fromhex(
        '92a009a9f0d4cab8720e820b5f642540a2b27b5416503f8fb3762223ebdb69da'
        '085ac1e43e15996e458f3613d0f11d8c387b2eaeb4302aeeb00d291612bb0c00'
    )
    assert verify(public, signature, b'\x72')
    assert not verify(public, signature, b'\x73')


@settings(deadline=None)
@given(strategies.binary(max_size=200), strategies.data())
def test_one_flipped_bit_anywhere_is_noticed(message, data):
    parts = [IDENTITY.public, IDENTITY.sign(message), message]
    assert verify(*parts)
    which = data.draw(strategies.integers(0, 2 if message else 1))
    place = data.draw(strategies.integers(0, 8 * len(parts[which]) - 1))
    flipped = bytearray(parts[which])
    flipped[place // 8] ^= 1 << place % 8
    parts[which] = bytes(flipped)
    assert not verify(*parts)


@pytest.mark.parametrize('bad', [b'', b'\0' * 31, b'\xff' * 32, b'\0' * 65, None, 'text', 3])
def test_malformed_parts_are_false_and_no_error(bad):
    signature = IDENTITY.sign(b'message')
    assert not verify(bad, signature, b'message')
    assert not verify(IDENTITY.public, bad, b'message')
    assert not verify(IDENTITY.public, signature, bad)


def test_signature_of_another_is_refused():
    other = Identity.generate('hospital_2')
    assert not verify(IDENTITY.public, other.sign(b'message'), b'message')


def test_fingerprint_is_short_and_of_the_key():
    assert len(fingerprint(IDENTITY.public)) == 24
    assert fingerprint(IDENTITY.public) != fingerprint(Identity.generate('x').public)
    # SHA-256 of nothing, e3b0c442 98fc1c14 9afbf4c8 99..., five bits a letter.
    assert fingerprint(b'') == '4oym-iquy-7qob-jgx3-6tej'


def test_repr_shows_no_private_key():
    private = IDENTITY.private.private_bytes_raw().hex()
    assert private not in repr(IDENTITY)
    assert repr(IDENTITY) == f"Identity('hospital_1', {fingerprint(IDENTITY.public)})"
