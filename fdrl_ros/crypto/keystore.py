# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""
Secrets on disk: directories of mode 0700, files of mode 0600, never overwritten.

One directory per party holds its signing key, so that the directory is what is carried to
the party's host. Beside them lie the public files, ``root.pub`` and ``roster.json``.
"""

from collections.abc import Mapping, Sequence
import os
from pathlib import Path
import stat
from typing import Final

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    KeySerializationEncryption,
    load_pem_private_key,
    NoEncryption,
    PrivateFormat,
)
from fdrl_ros.crypto.roster import default_threshold, Member, Roster
from fdrl_ros.crypto.signing import Identity, PUBLIC_KEY_BYTES
from fdrl_ros.errors import KeyFileError, RosterError

KEY_FILE: Final = 'identity.pem'
ROOT_FILE: Final = 'root.pub'
ROSTER_FILE: Final = 'roster.json'
# Parties that every federation has besides its hospitals; the root signs and stays offline.
ROOT: Final = 'root'
SERVERS: Final = ('aggregator', 'key_authority', 'operator')

_SECRET_BYTES = 2**24


def make_private_directory(path: Path) -> None:
    """
    Make a directory that only its owner may enter, or check one that exists.

    :raises KeyFileError: if it cannot be made, or others may enter it.
    """
    try:
        path.mkdir(mode=0o700, parents=True, exist_ok=True)
        found = path.stat()
    except OSError as error:
        raise KeyFileError(f'key directory {path}: {error.strerror}') from error
    _refuse_others(path, found)


def write_secret(path: Path, data: bytes) -> None:
    """
    Write secret bytes to a new file of mode 0600, durably.

    :raises KeyFileError: if the file exists already or cannot be written.
    """
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    try:
        with os.fdopen(os.open(path, flags, 0o600), 'wb') as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
    except FileExistsError as error:
        raise KeyFileError(f'{path} exists and is not overwritten; remove it yourself') from error
    except OSError as error:
        raise KeyFileError(f'{path} cannot be written: {error.strerror}') from error


def read_secret(path: Path) -> bytes:
    """
    Read a file that only its owner may read.

    :raises KeyFileError: if it is missing, no regular file, of another owner, readable by
        others, or too long.
    """
    try:
        # Opened once and judged by its descriptor: the name may change in between.
        flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
        with os.fdopen(os.open(path, flags), 'rb') as file:
            found = os.fstat(file.fileno())
            if not stat.S_ISREG(found.st_mode):
                raise KeyFileError(f'{path} is not a regular file')
            _refuse_others(path, found)
            data = file.read(_SECRET_BYTES + 1)
    except OSError as error:
        raise KeyFileError(f'{path} cannot be read: {error.strerror}') from error
    if len(data) > _SECRET_BYTES:
        raise KeyFileError(f'{path} is longer than {_SECRET_BYTES} bytes: not a key file')
    return data


def save_identity(identity: Identity, path: Path, *, passphrase: str | None = None) -> None:
    """
    Write a signing key to a new file, encrypted if there is a passphrase.

    :raises KeyFileError: if the file exists already or cannot be written.
    """
    encryption: KeySerializationEncryption = NoEncryption()
    if passphrase is not None:
        if not passphrase:
            raise KeyFileError('the passphrase is empty; leave it out to store the key in clear')
        encryption = BestAvailableEncryption(passphrase.encode())
    data = identity.private.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, encryption)
    write_secret(path, data)


def load_identity(path: Path, name: str, *, passphrase: str | None = None) -> Identity:
    """
    Read a signing key.

    :param name: the party whose key this is.
    :raises KeyFileError: as :func:`read_secret`, or if the passphrase is missing or wrong,
        or the file holds no Ed25519 key.
    """
    data = read_secret(path)
    try:
        private = load_pem_private_key(data, passphrase.encode() if passphrase else None)
    except TypeError as error:
        wanted = 'give none' if passphrase else 'it is encrypted'
        raise KeyFileError(f'{path}: passphrase: {wanted}') from error
    except Exception as error:  # The library raises several kinds on damaged keys.
        raise KeyFileError(f'{path}: the key is damaged or the passphrase wrong') from error
    if not isinstance(private, Ed25519PrivateKey):
        raise KeyFileError(f'{path} holds another kind of key than Ed25519')
    return Identity(name, private)


def load_root_public(path: Path) -> bytes:
    """
    Read the public key of the root, which every party pins.

    :raises KeyFileError: if the file is missing or holds no such key.
    """
    try:
        with path.open('rb') as file:
            text = file.read(1024)
        public = bytes.fromhex(text.decode('ascii').strip())
    except OSError as error:
        raise KeyFileError(f'{path} cannot be read: {error.strerror}') from error
    except ValueError as error:
        raise KeyFileError(f'{path} holds no public key in hexadecimal') from error
    if len(public) != PUBLIC_KEY_BYTES:
        raise KeyFileError(f'{path}: {len(public)} bytes, expected {PUBLIC_KEY_BYTES}')
    return public


def make_federation(
    directory: Path,
    hospitals: Sequence[str],
    *,
    federation: str = 'federation',
    sizes: Mapping[str, int],
    threshold: int | None = None,
    disjoint_patients: bool = False,
    passphrase: str | None = None,
) -> Roster:
    """
    Make all keys of a new federation and its signed roster.

    Afterwards each party's directory goes to its host together with ``root.pub`` and
    ``roster.json``, and the root's directory to a place that is not on the network.

    :param directory: made if it is missing; what it holds is never overwritten.
    :param hospitals: names, at least three.
    :param federation: name of the federation.
    :param sizes: n_i that each hospital declares.
    :param threshold: t; by default floor(2n / 3) + 1.
    :param disjoint_patients: whether no patient is in two hospitals.
    :param passphrase: encrypts every private key, if given.
    :returns: the roster.
    :raises RosterError: if the names or sizes cannot make a roster; nothing is written.
    :raises KeyFileError: if a file exists already or cannot be written.
    """
    if set(sizes) != set(hospitals) or ROOT in hospitals:
        raise RosterError(
            f'hospitals {list(hospitals)} and sizes of {list(sizes)}: expected the same names, '
            f'none of them {ROOT!r}'
        )
    identities = {name: Identity.generate(name) for name in (*hospitals, *SERVERS)}
    members = [
        *(Member(name, 'hospital', identities[name].public, sizes[name]) for name in hospitals),
        *(Member(name, name, identities[name].public) for name in SERVERS),
    ]
    roster = Roster(
        federation,
        default_threshold(len(hospitals)) if threshold is None else threshold,
        tuple(members),
        disjoint_patients,
    )
    root = Identity.generate(ROOT)
    make_private_directory(directory)
    if any(directory.iterdir()):
        raise KeyFileError(f'{directory} is not empty: keys are never overwritten')
    for identity in (root, *identities.values()):
        make_private_directory(directory / identity.name)
        save_identity(identity, directory / identity.name / KEY_FILE, passphrase=passphrase)
    (directory / ROOT_FILE).write_text(root.public.hex() + '\n', encoding='ascii')
    roster.save(directory / ROSTER_FILE, root)
    return roster


def _refuse_others(path: Path, found: os.stat_result) -> None:
    """Refuse a file or directory that anybody but its owner, us, may use."""
    if found.st_uid != os.geteuid():
        raise KeyFileError(f'{path} belongs to user {found.st_uid}, not to {os.geteuid()}')
    if stat.S_IMODE(found.st_mode) & 0o077:
        raise KeyFileError(
            f'{path} has mode {stat.S_IMODE(found.st_mode):04o}, open to others; '
            f'run: chmod go-rwx {path}'
        )
