# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""Certificates and signed documents of DDS Security: round trips, and every refusal."""

from datetime import timedelta
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives.asymmetric.ec import SECP256R1
from fdrl_ros.crypto.dds.certificates import (
    Authority,
    Binding,
    common_name,
    faults,
    pem,
    read_certificate,
    revoked_serials,
    time_faults,
    utc,
)
from fdrl_ros.crypto.dds.smime import signed, verified
from fdrl_ros.errors import SecurityError
from hypothesis import given
from hypothesis import strategies as some
import pytest

NOW = utc(1_800_000_000)
AUTHORITY, OTHER = Authority.make('authority', NOW), Authority.make('authority', NOW)
BINDING = Binding('federation', 'hospital_1', 'abcd-efgh-abcd-efgh-abcd', 3)
CERTIFICATE, KEY = AUTHORITY.issue('/hospital_1/trainer', BINDING, NOW, 100)
DOCUMENT = signed(b'<dds>\n  <permissions/>\n</dds>\n', AUTHORITY)
FOREIGN = Path(__file__).parents[2] / 'data'


def test_a_certificate_names_its_enclave_alone_and_is_bound_to_the_roster():
    assert isinstance(CERTIFICATE.public_key().curve, SECP256R1)
    assert CERTIFICATE.subject.rfc4514_string() == 'CN=/hospital_1/trainer'
    read = read_certificate(pem(CERTIFICATE))
    assert common_name(read) == '/hospital_1/trainer' and Binding.of(read) == BINDING
    assert faults(read, AUTHORITY.certificate, KEY, NOW) == []
    constraints = read.extensions.get_extension_for_class(x509.BasicConstraints).value
    assert not constraints.ca


def test_another_authority_another_key_and_another_time_are_faults():
    other, key = OTHER.issue('/hospital_1/trainer', BINDING, NOW, 100)
    assert faults(CERTIFICATE, OTHER.certificate, KEY, NOW) == [
        'its certificate is not signed by the identity authority'
    ]
    assert faults(CERTIFICATE, AUTHORITY.certificate, key, NOW) == [
        'its private key is not that of its certificate'
    ]
    assert faults(CERTIFICATE, AUTHORITY.certificate, KEY[:-40], NOW) == [
        'its private key is damaged'
    ]
    days = timedelta(days=101)
    for now, words in ((NOW + days, 'has expired'), (NOW - days, 'is not valid before')):
        (fault,) = faults(CERTIFICATE, AUTHORITY.certificate, KEY, now)
        assert words in fault
    for day, told in ((89, []), (90, ['its certificate expires on 2027-04-25'])):
        assert time_faults(CERTIFICATE, NOW + timedelta(days=day), soon=True) == told
        assert time_faults(CERTIFICATE, NOW + timedelta(days=day)) == []


def test_an_authority_comes_back_from_its_key_and_from_no_other():
    again = Authority.of(AUTHORITY.certificate, AUTHORITY.der())
    assert faults(*again.issue('/a/b', BINDING, NOW, 1)[:1], AUTHORITY.certificate, b'', NOW) == [
        'its private key is damaged'
    ]
    for der in (OTHER.der(), b'', AUTHORITY.der()[:-1]):
        with pytest.raises(SecurityError):
            Authority.of(AUTHORITY.certificate, der)


def test_what_is_no_certificate_or_bound_to_no_roster_is_refused():
    for data in (b'', b'-----BEGIN CERTIFICATE-----\n', KEY):
        with pytest.raises(SecurityError):
            read_certificate(data)
    with pytest.raises(SecurityError, match='not bound'):
        Binding.of(AUTHORITY.certificate)
    with pytest.raises(SecurityError, match='65 letters'):
        AUTHORITY.issue('/' + 64 * 'a', BINDING, NOW, 1)


def test_no_certificate_outlives_its_authority():
    late = NOW + timedelta(days=3600)
    certificate, _ = AUTHORITY.issue('/a/b', BINDING, late, 100)
    assert certificate.not_valid_after_utc == AUTHORITY.certificate.not_valid_after_utc
    with pytest.raises(SecurityError, match='the authority has expired'):
        AUTHORITY.issue('/a/b', BINDING, late + timedelta(days=51), 100)


@given(some.sets(some.integers(1, 2**150)))
def test_a_revocation_list_holds_what_was_put_in(serials):
    data = AUTHORITY.revocations(serials, NOW)
    assert revoked_serials(data, AUTHORITY.certificate) == serials
    with pytest.raises(SecurityError, match='not signed'):
        revoked_serials(data, OTHER.certificate)


@pytest.mark.parametrize('data', [b'', b'-----BEGIN X509 CRL-----\n', pem(CERTIFICATE)])
def test_what_is_no_revocation_list_is_refused(data):
    with pytest.raises(SecurityError):
        revoked_serials(data, AUTHORITY.certificate)


@given(some.text(some.characters(codec='utf-8', exclude_characters='\r')))
def test_a_signed_text_comes_back_as_it_was(text):
    data = text.encode()
    assert verified(signed(data, AUTHORITY), AUTHORITY.certificate) == data


@given(some.integers(0, len(DOCUMENT) - 1), some.integers(1, 255))
def test_a_document_with_a_changed_byte_is_refused_or_says_the_same(place, change):
    changed = bytearray(DOCUMENT)
    changed[place] ^= change
    try:
        text = verified(bytes(changed), AUTHORITY.certificate)
    except SecurityError:
        return
    # Headers around it are not signed.
    assert text == b'<dds>\n  <permissions/>\n</dds>\n'


@given(some.binary())
def test_what_is_no_signed_document_is_refused(data):
    for document in (data, DOCUMENT[: len(DOCUMENT) // 2] + data, data + DOCUMENT[-300:]):
        with pytest.raises(SecurityError):
            verified(document, AUTHORITY.certificate)


def test_a_text_that_was_changed_or_signed_by_others_is_refused():
    with pytest.raises(SecurityError, match='not signed by the permissions authority'):
        verified(DOCUMENT, OTHER.certificate)
    with pytest.raises(SecurityError, match='changed after'):
        verified(DOCUMENT.replace(b'permissions', b'permission'), AUTHORITY.certificate)


def test_a_document_that_openssl_signed_is_verified():
    authority = read_certificate((FOREIGN / 'openssl_ca.pem').read_bytes())
    data = (FOREIGN / 'openssl_signed.p7s').read_bytes()
    assert verified(data, authority) == b'<dds>\n  <a/>\n</dds>\n'
    with pytest.raises(SecurityError, match='changed after'):
        verified(data.replace(b'<a/>', b'<b/>'), authority)
