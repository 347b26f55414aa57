# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""
The format of every private key on disk, in clear text or sealed under a passphrase.

scrypt (RFC 7914) derives a key from the passphrase and ChaCha20-Poly1305 (RFC 8439) seals with it.
The file names their parameters, which are checked before any memory is allocated. Public facts
(whose key, since when) stand in front in clear text and are authenticated.
"""

from collections.abc import Mapping
from dataclasses import dataclass
import hashlib
import hmac
import json
import os
from typing import Final, NoReturn, TypedDict

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305
from cryptography.hazmat.primitives.kdf.scrypt import Scrypt
from fdrl_ros.errors import KeyFileError, PassphraseError

COST: Final = 17
"""Base-2 logarithm of scrypt's N: with r = 8 it takes 128 MiB, and half a second of one core."""

COSTS: Final = range(14, 19)
"""Accepted values of a file: 16 to 256 MiB."""

PASSPHRASE_BYTES: Final = range(8, 1025)
"""A key file of random bytes is a passphrase too."""

PASSPHRASE_HINT: Final = (
    'put the passphrase into a file of mode 0600 and name that file in the variable '
    'FDRL_PASSPHRASE_FILE, or to a node as its parameter passphrase_file'
)
"""How to give a passphrase to a party."""

_MAGIC = b'fdrl_ros key file 1\n'
_BLOCK, _LANES = 8, 1  # r and p of scrypt
_SALT_BYTES = 16
_NONCE_BYTES = 12
_HEADER_BYTES = 4096
_SUM_BYTES = 32


class _Seal(TypedDict):
    """How a key is sealed: algorithms, their parameters, and what was drawn."""

    cipher: str
    kdf: str
    log2_n: int
    nonce: str
    p: int
    r: int
    salt: str


class _Header(TypedDict):
    """Header of a key file, as JSON."""

    about: Mapping[str, object]
    holds: str
    seal: _Seal | None


class Passphrase:
    """
    A passphrase with the keys that scrypt derived from it, so that each salt is paid for once.

    :param secret: 8 to 1024 bytes.
    :param source: where the passphrase came from, for messages.
    :param cost: base-2 logarithm of scrypt's N for keys sealed from now on.
    :raises PassphraseError: if it is too short or too long.
    """

    def __init__(self, secret: bytes, source: str = 'what was typed', *, cost: int = COST) -> None:
        """Store the passphrase; keys are derived on first use."""
        if len(secret) not in PASSPHRASE_BYTES:
            raise PassphraseError(f'{source} has {len(secret)} bytes: expected 8 to 1024')
        self.source = source
        self._secret = secret
        self._cost = cost
        self._keys: dict[tuple[bytes, int], bytes] = {}
        self._salt: tuple[bytes, int] | None = None

    def __repr__(self) -> str:
        """Show the source only."""
        return f'Passphrase({self.source!r})'

    def __reduce__(self) -> NoReturn:
        """Refuse to be pickled."""
        raise TypeError('a passphrase is not written anywhere')

    def key(self, salt: bytes, cost: int) -> bytes:
        """Derive a key with scrypt, 32 bytes."""
        if (salt, cost) not in self._keys:
            scrypt = Scrypt(salt=salt, length=32, n=2**cost, r=_BLOCK, p=_LANES)
            self._keys[salt, cost] = scrypt.derive(self._secret)
        return self._keys[salt, cost]

    def salt(self) -> tuple[bytes, int]:
        """Return salt and cost for the next sealing; all keys of a party share one salt."""
        self._salt = self._salt or (os.urandom(_SALT_BYTES), self._cost)
        return self._salt

    def adopt(self, salt: bytes, cost: int) -> None:
        """Reuse the salt of an opened file, unless its cost is too low."""
        if self._salt is None and cost >= self._cost:
            self._salt = (salt, cost)


@dataclass(frozen=True)
class Label:
    """
    The public header of a key file.

    :param holds: owner and kind of the key.
    :param about: public facts, strings and whole numbers.
    :param sealed: whether a passphrase is needed.
    """

    holds: str
    about: Mapping[str, object]
    sealed: bool


def seal(
    key: bytes, holds: str, about: Mapping[str, object], passphrase: Passphrase | None
) -> bytes:
    """
    Serialise a private key.

    :param holds: owner and kind of the key, which :func:`unseal` checks.
    :param about: public facts, strings and whole numbers.
    :param passphrase: to seal under; None leaves the key in clear text.
    """
    fields: _Header = {'about': dict(about), 'holds': holds, 'seal': None}
    if passphrase is None:
        return _summed(_header(fields) + key)
    salt, cost = passphrase.salt()
    nonce = os.urandom(_NONCE_BYTES)
    fields['seal'] = _seal_fields(salt, nonce, cost)
    header = _header(fields)
    cipher = ChaCha20Poly1305(passphrase.key(salt, cost))
    return _summed(header + cipher.encrypt(nonce, key, header))


def label(data: bytes, where: object) -> Label:
    """
    Read the public header of a key file.

    :param where: the file, for messages.
    :raises KeyFileError: if it is damaged.
    """
    fields, _ = _read(data, where)
    return Label(fields['holds'], fields['about'], fields['seal'] is not None)


def unseal(
    data: bytes, holds: str, passphrase: Passphrase | None, where: object
) -> tuple[bytes, Mapping[str, object]]:
    """
    Read a private key.

    :param holds: expected owner and kind of the key.
    :param passphrase: required if the key is sealed, and refused if not: whoever gives one
        expects that the key is protected.
    :param where: the file, for messages.
    :returns: the key, and the public facts stored with it.
    :raises PassphraseError: if the passphrase is missing, wrong, or not needed.
    :raises KeyFileError: if the file is damaged, holds another key, or asks for other parameters.
    """
    fields, start = _read(data, where)
    if fields['holds'] != holds:
        raise KeyFileError(f'{where} holds the {fields["holds"]}, not the {holds}')
    body = data[start:-_SUM_BYTES]
    if fields['seal'] is None:
        if passphrase is not None:
            raise PassphraseError(
                f'{where} is not encrypted, but a passphrase was given ({passphrase.source}): '
                f'encrypt it with `fdrl keys passphrase`, or give none'
            )
        return body, fields['about']
    salt, nonce, cost = _checked_seal(fields['seal'], where)
    if passphrase is None:
        raise PassphraseError(f'{where} is encrypted: {PASSPHRASE_HINT}')
    cipher = ChaCha20Poly1305(passphrase.key(salt, cost))
    try:
        key = cipher.decrypt(nonce, body, data[:start])
    except InvalidTag:
        source = passphrase.source
        raise PassphraseError(f'{where}: the passphrase in {source} is not the one') from None
    passphrase.adopt(salt, cost)
    return key, fields['about']


def _header(fields: _Header) -> bytes:
    """Serialise the header; there is one form only."""
    line = json.dumps(fields, sort_keys=True, separators=(',', ':')).encode('ascii')
    if len(line) > _HEADER_BYTES:
        raise KeyFileError(f'a key file with {len(line)} bytes about its key')
    return _MAGIC + line + b'\n'


def _summed(data: bytes) -> bytes:
    """Append a checksum, which distinguishes damage from a wrong passphrase."""
    return data + hashlib.sha256(data).digest()


def _read(data: bytes, where: object) -> tuple[_Header, int]:
    """Read the header; return its fields and where the key begins."""
    if not data.startswith(_MAGIC):
        raise KeyFileError(f'{where} is damaged, or no key file of this version of fdrl_ros')
    whole = hashlib.sha256(data[:-_SUM_BYTES]).digest()
    end = data.find(b'\n', len(_MAGIC), len(_MAGIC) + _HEADER_BYTES + 1)
    if not hmac.compare_digest(whole, data[-_SUM_BYTES:]) or end < 0:
        raise KeyFileError(f'{where} is damaged: its checksum is wrong')
    try:
        fields = json.loads(data[len(_MAGIC) : end])
        right = (
            set(fields) == {'about', 'holds', 'seal'}
            and isinstance(fields['about'], dict)
            and isinstance(fields['holds'], str)
            and isinstance(fields['seal'], dict | None)
            and data[: end + 1] == _header(fields)
            and len(data) - end - 1 >= _SUM_BYTES
        )
    except (ValueError, TypeError, RecursionError):
        right = False
    if not right:
        raise KeyFileError(f'{where} is damaged: its header is not written in the one form')
    return fields, end + 1


def _seal_fields(salt: bytes, nonce: bytes, cost: int) -> _Seal:
    """Return the header's part on the seal."""
    return {
        'cipher': 'ChaCha20-Poly1305',
        'kdf': 'scrypt',
        'log2_n': cost,
        'nonce': nonce.hex(),
        'p': _LANES,
        'r': _BLOCK,
        'salt': salt.hex(),
    }


def _checked_seal(fields: _Seal, where: object) -> tuple[bytes, bytes, int]:
    """Return salt, nonce and cost, or refuse parameters that this program never writes."""
    try:
        salt, nonce = bytes.fromhex(fields['salt']), bytes.fromhex(fields['nonce'])
        cost = fields['log2_n']
        sizes = len(salt), len(nonce), type(cost)
        right = sizes == (_SALT_BYTES, _NONCE_BYTES, int) and cost in COSTS
    except (KeyError, TypeError, ValueError):
        right = False
    if not right or fields != _seal_fields(salt, nonce, cost):
        raise KeyFileError(
            f'{where} asks for other parameters than scrypt with N = 2^{COSTS.start} to '
            f'2^{COSTS.stop - 1}, r = {_BLOCK}, p = {_LANES} and ChaCha20-Poly1305: it is not used'
        )
    return salt, nonce, cost
