# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""
Documents signed as S/MIME (RFC 8551), the form in which DDS Security reads its rules.

The text stands in clear before its signature: a CMS structure (RFC 5652) in DER. No library here
verifies one, so this reads the few fields that a signature of one signer has.
"""

import base64
from collections.abc import Iterator
import hashlib
import re
from typing import Final

from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ec import ECDSA, EllipticCurvePublicKey
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import Encoding, pkcs7
from fdrl_ros.crypto.dds.certificates import Authority
from fdrl_ros.errors import SecurityError

_BYTES = 2**22
_SEQUENCE, _SET, _OCTETS, _OID, _CONTEXT_0 = 0x30, 0x31, 0x04, 0x06, 0xA0
_SIGNED_DATA: Final = bytes.fromhex('2a864886f70d010702')
_MESSAGE_DIGEST: Final = bytes.fromhex('2a864886f70d010904')
_SHA256: Final = bytes.fromhex('608648016503040201')
_ECDSA_SHA256: Final = bytes.fromhex('2a8648ce3d040302')
_TEXT: Final = b'Content-Type: text/plain\r\n\r\n'
_FORM: Final = re.compile(
    rb'.*?boundary="?(?P<mark>[^"\r\n;]{1,200})"?\r?\n.*?'
    rb'--(?P=mark)\r?\n(?P<text>.*?)\r?\n--(?P=mark)\r?\n(?P<head>.*?)\r?\n\r?\n'
    rb'(?P<signature>[A-Za-z0-9+/=\s]+?)\s*--(?P=mark)--\s*',
    re.DOTALL,
)


def signed(text: bytes, authority: Authority) -> bytes:
    """Return a text with its signature."""
    builder = pkcs7.PKCS7SignatureBuilder(text)
    builder = builder.add_signer(authority.certificate, authority.key, SHA256())
    options = [pkcs7.PKCS7Options.Text, pkcs7.PKCS7Options.DetachedSignature]
    return builder.sign(Encoding.SMIME, options)


def verified(data: bytes, authority: x509.Certificate) -> bytes:
    """
    Return the text of a signed document.

    :param authority: who must have signed it.
    :returns: the text, with lines that end in a line feed.
    :raises SecurityError: if it is damaged, or this authority did not sign it.
    """
    form = _FORM.fullmatch(data) if len(data) <= _BYTES else None
    if form is None:
        raise SecurityError('no document with a signature')
    content = b'\r\n'.join(form['text'].replace(b'\r\n', b'\n').split(b'\n'))
    try:
        signature, attributes = _signer(base64.b64decode(form['signature'], validate=False))
        told = _attribute(attributes, _MESSAGE_DIGEST)
    except (ValueError, IndexError) as error:
        raise SecurityError('its signature is damaged') from error
    if hashlib.sha256(content).digest() != told:
        raise SecurityError('its text was changed after it was signed')
    public = authority.public_key()
    assert isinstance(public, EllipticCurvePublicKey)
    # What is signed are the attributes, as the set that they are.
    whole = bytes([_SET]) + attributes[1:]
    try:
        public.verify(signature, whole, ECDSA(SHA256()))
    except InvalidSignature as error:
        raise SecurityError('it is not signed by the permissions authority') from error
    if not content.startswith(_TEXT):
        raise SecurityError('it is signed, but no plain text')
    return content.removeprefix(_TEXT).replace(b'\r\n', b'\n')


def _signer(der: bytes) -> tuple[bytes, bytes]:
    """
    Return signature and signed attributes of a CMS structure with one signer.

    :raises ValueError: if it is something else.
    """
    kind, content = _parts(_only(der, _SEQUENCE))
    if _only(kind, _OID) != _SIGNED_DATA:
        raise ValueError('no signed data')
    *_, signers = _parts(_only(_only(content, _CONTEXT_0), _SEQUENCE))
    (signer,) = _parts(_only(signers, _SET))
    _, _, digest, attributes, algorithm, signature = _parts(_only(signer, _SEQUENCE))
    if _algorithm(digest) != _SHA256 or _algorithm(algorithm) != _ECDSA_SHA256:
        raise ValueError('another algorithm')
    _only(attributes, _CONTEXT_0)
    return _only(signature, _OCTETS), attributes


def _attribute(attributes: bytes, name: bytes) -> bytes:
    """
    Return the octets of an attribute that is there once.

    :raises ValueError: if it is not.
    """
    found = []
    for each in _parts(_only(attributes, _CONTEXT_0)):
        kind, values = _parts(_only(each, _SEQUENCE))
        if _only(kind, _OID) == name:
            (value,) = _parts(_only(values, _SET))
            found.append(_only(value, _OCTETS))
    (octets,) = found
    return octets


def _algorithm(element: bytes) -> bytes:
    """Return the object identifier of an algorithm."""
    return _only(_parts(_only(element, _SEQUENCE))[0], _OID)


def _parts(content: bytes) -> list[bytes]:
    return list(_elements(content))


def _only(element: bytes, tag: int) -> bytes:
    """
    Return the content of one DER element.

    :raises ValueError: if it has another tag or length.
    """
    start, end = _extent(element, 0)
    if element[0] != tag or end != len(element):
        raise ValueError('another element')
    return element[start:]


def _elements(content: bytes) -> Iterator[bytes]:
    """Yield the DER elements that follow each other, each with its tag and length."""
    place = 0
    while place < len(content):
        _, end = _extent(content, place)
        yield content[place:end]
        place = end


def _extent(data: bytes, place: int) -> tuple[int, int]:
    """
    Return where the content of the DER element at a place begins and ends.

    :raises ValueError: if it ends behind the data.
    :raises IndexError: if the data ends before its length.
    """
    length, start = data[place + 1], place + 2
    if length >= 0x80:
        count = length - 0x80
        length = int.from_bytes(data[start : start + count], 'big')
        start += count
        if not 1 <= count <= 4:
            raise ValueError('a length of another form')
    if start + length > len(data):
        raise ValueError('an element without its end')
    return start, start + length
