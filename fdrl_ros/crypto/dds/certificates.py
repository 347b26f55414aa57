# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""
X.509 certificates of DDS Security: two authorities, one certificate an enclave, a revocation list.

All keys are ECDSA P-256 (DDS Security 1.1, 9.3.1). The subject of an enclave's certificate is its
path alone, as `ros2 security` has it, since the permissions name that subject. What binds it to
the roster is a URI beside the subject, which the middleware does not read.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta, UTC
from ipaddress import ip_address
from typing import Final, Self

from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ec import (
    EllipticCurvePrivateKey,
    generate_private_key,
    SECP256R1,
)
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    load_der_private_key,
    load_pem_private_key,
    NoEncryption,
    PrivateFormat,
)
from cryptography.x509.oid import NameOID
from fdrl_ros.errors import SecurityError

AUTHORITY_DAYS: Final = 3650
"""Validity of the authorities' certificates, and of the revocation list."""

EARLY: Final = timedelta(days=1)
"""How long before it was made a certificate is valid: some middleware reads UTC as local time."""

LONGEST_SUBJECT: Final = 64
"""Most letters of a common name (RFC 5280)."""

_URN: Final = 'urn:fdrl:'


@dataclass(frozen=True)
class Binding:
    """
    What binds an enclave's certificate to the roster.

    :param federation: name of the federation.
    :param party: member of the roster, a robot or a tool.
    :param key: fingerprint of the member's signing key; 'none' for who is not in the roster.
    :param serial: of the roster by which the certificate was made.
    """

    federation: str
    party: str
    key: str
    serial: int

    def uri(self) -> str:
        """Return it as the certificate holds it."""
        return f'{_URN}{self.federation}:{self.party}:{self.key}:{self.serial}'

    @classmethod
    def of(cls, certificate: x509.Certificate) -> 'Binding':
        """
        Read it out of a certificate.

        :raises SecurityError: if there is none.
        """
        try:
            names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName)
            (uri,) = names.value.get_values_for_type(x509.UniformResourceIdentifier)
            federation, party, key, serial = uri.removeprefix(_URN).split(':')
            found = cls(federation, party, key, int(serial))
        except (x509.ExtensionNotFound, ValueError) as error:
            raise SecurityError('the certificate is not bound to a roster') from error
        if found.uri() != uri:
            raise SecurityError('the certificate is not bound to a roster')
        return found


@dataclass(frozen=True)
class Authority:
    """A certificate authority: its certificate, which all know, and its private key."""

    certificate: x509.Certificate
    key: EllipticCurvePrivateKey

    @classmethod
    def make(cls, name: str, now: datetime) -> Self:
        """
        Draw a key and sign its certificate with it.

        :param name: common name; longer ones are cut.
        :param now: UTC.
        """
        key = generate_private_key(SECP256R1())
        subject = _name(name[:LONGEST_SUBJECT])
        builder = _builder(subject, subject, key, now, now + timedelta(days=AUTHORITY_DAYS))
        builder = builder.add_extension(x509.BasicConstraints(True, 0), critical=True)
        return cls(builder.sign(key, SHA256()), key)

    @classmethod
    def of(cls, certificate: x509.Certificate, der: bytes) -> Self:
        """
        Put an authority together again.

        :param der: its private key, as :meth:`der` returns it.
        :raises SecurityError: if the key is damaged or of another certificate.
        """
        try:
            key = load_der_private_key(der, None)
        except (ValueError, TypeError) as error:
            raise SecurityError('the private key of an authority is damaged') from error
        if not isinstance(key, EllipticCurvePrivateKey) or (
            key.public_key() != certificate.public_key()
        ):
            raise SecurityError('the private key of an authority is not that of its certificate')
        return cls(certificate, key)

    def der(self) -> bytes:
        """Return the private key as bytes."""
        return self.key.private_bytes(Encoding.DER, PrivateFormat.PKCS8, NoEncryption())

    def issue(
        self,
        enclave: str,
        binding: Binding,
        now: datetime,
        days: int,
        usage: x509.ObjectIdentifier | None = None,
        places: Iterable[str] = (),
    ) -> tuple[x509.Certificate, bytes]:
        """
        Make key and certificate of an enclave, or of a party's link.

        :param enclave: its path, such as `/robot_1/env`, or the party's name: at most 64 letters.
        :param now: UTC.
        :param days: validity from then on; it ends with that of the authority at the latest.
        :param usage: the one end of a TLS connection that it serves for; any use unless given.
        :param places: names or addresses of hosts at which it may be met.
        :returns: the certificate, and the private key as PEM in clear, as the middleware reads it.
        :raises SecurityError: if the path is too long for a certificate, or the authority expired.
        """
        if len(enclave) > LONGEST_SUBJECT:
            raise SecurityError(
                f'enclave {enclave} has {len(enclave)} letters, a certificate holds '
                f'{LONGEST_SUBJECT}: take shorter names'
            )
        if time_faults(self.certificate, now):
            raise SecurityError('the authority has expired: run `fdrl security rotate` for all')
        key = generate_private_key(SECP256R1())
        end = min(now + timedelta(days=days), self.certificate.not_valid_after_utc)
        builder = _builder(_name(enclave), self.certificate.subject, key, now, end)
        uri = x509.UniformResourceIdentifier(binding.uri())
        hosts = [_place(each) for each in places]
        if usage is not None:
            builder = builder.add_extension(x509.ExtendedKeyUsage([usage]), critical=True)
        certificate = (
            builder.add_extension(x509.BasicConstraints(False, None), critical=False)
            .add_extension(x509.SubjectAlternativeName([uri, *hosts]), critical=False)
            .sign(self.key, SHA256())
        )
        pem = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
        return certificate, pem

    def revocations(self, serials: Iterable[int], now: datetime) -> bytes:
        """
        Sign the list of revoked certificates, PEM.

        It lasts as long as the authority: with an expired list the middleware would refuse
        everybody.

        :param serials: numbers of the certificates.
        :param now: UTC.
        """
        builder = x509.CertificateRevocationListBuilder(
            self.certificate.subject, now - EARLY, self.certificate.not_valid_after_utc
        )
        for serial in sorted(set(serials)):
            one = x509.RevokedCertificateBuilder(serial, now - EARLY).build()
            builder = builder.add_revoked_certificate(one)
        return builder.sign(self.key, SHA256()).public_bytes(Encoding.PEM)


def pem(certificate: x509.Certificate) -> bytes:
    """Return a certificate as a file holds it."""
    return certificate.public_bytes(Encoding.PEM)


def certificate_fingerprint(certificate: x509.Certificate) -> str:
    """Return the SHA-256 of a certificate in hexadecimal, for people to compare."""
    return certificate.fingerprint(SHA256()).hex()


def read_certificate(data: bytes) -> x509.Certificate:
    """
    Read a certificate, PEM.

    :raises SecurityError: if it is damaged.
    """
    try:
        return x509.load_pem_x509_certificate(data)
    except ValueError as error:
        raise SecurityError('no certificate') from error


def revoked_serials(data: bytes, authority: x509.Certificate) -> frozenset[int]:
    """
    Read a revocation list, PEM.

    :raises SecurityError: if it is damaged or another authority's.
    """
    try:
        found = x509.load_pem_x509_crl(data)
        signed = found.is_signature_valid(authority.public_key())  # type: ignore[arg-type]
    except (ValueError, TypeError) as error:
        raise SecurityError('no revocation list') from error
    if not signed or found.issuer != authority.subject:
        raise SecurityError('the revocation list is not signed by this authority')
    return frozenset(each.serial_number for each in found)


def common_name(certificate: x509.Certificate) -> str:
    """Return the subject's common name if there is nothing else in the subject, or ''."""
    names = list(certificate.subject)
    if len(names) != 1 or names[0].oid != NameOID.COMMON_NAME:
        return ''
    return str(names[0].value)


def faults(
    certificate: x509.Certificate, authority: x509.Certificate, key: bytes, now: datetime
) -> Sequence[str]:
    """
    Say what is wrong with an enclave's certificate and private key.

    :param key: PEM.
    :param now: UTC.
    """
    found = []
    try:
        certificate.verify_directly_issued_by(authority)
    except (InvalidSignature, ValueError, TypeError):
        found.append('its certificate is not signed by the identity authority')
    try:
        private = load_pem_private_key(key, None)
    except (ValueError, TypeError):
        found.append('its private key is damaged')
    else:
        if private.public_key() != certificate.public_key():
            found.append('its private key is not that of its certificate')
    return [*found, *time_faults(certificate, now)]


def time_faults(certificate: x509.Certificate, now: datetime, *, soon: bool = False) -> list[str]:
    """
    Say whether a certificate is valid at a time.

    :param now: UTC.
    :param soon: whether the last tenth of its validity is a fault too.
    """
    start, end = certificate.not_valid_before_utc, certificate.not_valid_after_utc
    if now < start:
        return [f'its certificate is not valid before {start:%Y-%m-%d %H:%M} UTC']
    if now > end:
        return [f'its certificate has expired on {end:%Y-%m-%d %H:%M} UTC']
    if soon and now > end - (end - start) / 10:
        return [f'its certificate expires on {end:%Y-%m-%d}']
    return []


def utc(seconds: float) -> datetime:
    """Return a time since 1970 as X.509 holds it: whole seconds, UTC."""
    return datetime.fromtimestamp(int(seconds), UTC)


def _name(common: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, common)])


def _place(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ip_address(host))
    except ValueError:
        return x509.DNSName(host)


def _builder(
    subject: x509.Name,
    issuer: x509.Name,
    key: EllipticCurvePrivateKey,
    now: datetime,
    end: datetime,
) -> x509.CertificateBuilder:
    return x509.CertificateBuilder(
        issuer,
        subject,
        key.public_key(),
        x509.random_serial_number(),
        now - EARLY,
        end,
    )
