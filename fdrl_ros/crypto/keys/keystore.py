# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""
Store secrets: directories of mode 0700, files of mode 0600, sealed if there is a passphrase.

Each party has a directory of its own for its keys, which is carried to its host. The public files
``root.pub`` and ``roster.json`` lie beside these directories.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
import os
from pathlib import Path
import shutil
import time
from typing import Final

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from fdrl_ros.crypto.keys.key_file import label, Passphrase, seal, unseal
from fdrl_ros.crypto.keys.roster import default_threshold, Member, ring, Roster
from fdrl_ros.crypto.keys.signing import Identity, PUBLIC_KEY_BYTES
from fdrl_ros.errors import KeyFileError, os_errors_as, RosterError
from fdrl_ros.runtime.durable import (
    make_private_directory,
    read_secret,
    sync_folder,
    write_secret,
)

KEY_FILE: Final = 'identity.key'
HE_FILE: Final = 'he_secret.key'
NOISE_FILE: Final = 'noise.key'
AUTHORITY_FILES: Final = ('identity_ca.key', 'permissions_ca.key')
"""Keys of the authorities of DDS Security, beside the root's, which stays offline too."""
ROOT_FILE: Final = 'root.pub'
ROSTER_FILE: Final = 'roster.json'
# Parties of every federation besides its hospitals. The root signs rosters and stays offline.
ROOT: Final = 'root'
WITHOUT_PATIENTS: Final = ('aggregator', 'key_authority', 'operator')

PASSPHRASE_VARIABLE: Final = 'FDRL_PASSPHRASE_FILE'
"""Environment variable with the path of the file that holds a party's passphrase."""

_KEY_BYTES = 32


def load_passphrase(path: Path | None = None) -> Passphrase | None:
    """
    Read the passphrase of a party's keys: all bytes of a file except the line ending.

    :param path: the file; None takes the one that :data:`PASSPHRASE_VARIABLE` names.
    :returns: None if no file is named, so keys are in clear text.
    :raises KeyFileError: as :func:`read_secret`, or if it is too short or too long.
    """
    named = os.environ.get(PASSPHRASE_VARIABLE, '')
    if path is None and not named:
        return None
    path = path or Path(named)
    return Passphrase(read_secret(path).rstrip(b'\r\n'), str(path))


def identity_bytes(identity: Identity, passphrase: Passphrase | None = None) -> bytes:
    """Serialise a signing key, sealed if there is a passphrase."""
    about = {'created': int(time.time()), 'public': identity.public.hex()}
    key = identity.private.private_bytes_raw()
    return seal(key, f'identity of {identity.name}', about, passphrase)


def save_identity(identity: Identity, path: Path, *, passphrase: Passphrase | None = None) -> None:
    """
    Write a signing key to a new file, sealed if there is a passphrase.

    :raises KeyFileError: if the file exists already or cannot be written.
    """
    write_secret(path, identity_bytes(identity, passphrase))


def load_identity(path: Path, name: str, *, passphrase: Passphrase | None = None) -> Identity:
    """
    Read a signing key.

    :param name: the party that the key must belong to.
    :raises PassphraseError: if the passphrase is missing, wrong, or not needed.
    :raises KeyFileError: as :func:`read_secret`, or if it is damaged or another party's.
    """
    key, about = unseal(read_secret(path), f'identity of {name}', passphrase, path)
    if len(key) != _KEY_BYTES:
        raise KeyFileError(f'{path} is damaged: a key of {len(key)} bytes')
    identity = Identity(name, Ed25519PrivateKey.from_private_bytes(key))
    if identity.public.hex() != about.get('public'):
        raise KeyFileError(f'{path} is damaged: its label names another public key')
    return identity


def check_opens(path: Path, passphrase: Passphrase | None) -> None:
    """
    Check that a private key of any kind can be opened.

    :raises PassphraseError: if the passphrase is missing, wrong, or not needed.
    :raises KeyFileError: as :func:`read_secret`, or if it is damaged.
    """
    data = read_secret(path)
    unseal(data, label(data, path).holds, passphrase, path)


def load_root_public(path: Path) -> bytes:
    """
    Read the root's public key, which every party pins.

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


@dataclass(frozen=True)
class NewFederation:
    """
    What the first roster of a federation says.

    :param sizes: n_i that each hospital declares, at least three, in their order.
    :param federation: its name.
    :param threshold: t; by default floor(2n / 3) + 1.
    :param neighbours: k, with how many others each hospital masks; 0 means with all. By default 0
        up to :data:`~fdrl_ros.crypto.masking.neighbourhoods.MOST_COMPLETE` hospitals.
    :param disjoint_patients: whether no patient is in two hospitals.
    :param validity: start and end of the roster, in seconds since 1970 (UTC); an end of None means
        never.
    :param publics: public keys of parties that made their own key pair; none is made for them.
    :param buckets: of a round, each with a sum of its own; 0 for one sum of all.
    """

    sizes: Mapping[str, int]
    federation: str = 'federation'
    threshold: int | None = None
    neighbours: int | None = None
    disjoint_patients: bool = False
    validity: tuple[int, int | None] = (0, None)
    publics: Mapping[str, bytes] = field(default_factory=dict)
    buckets: int = 0

    def roster(self, made: Mapping[str, bytes]) -> Roster:
        """
        Return the roster, with public keys that were made here.

        :raises RosterError: if names, sizes or keys are not valid.
        """
        publics = {**made, **self.publics}
        names = (*self.sizes, *WITHOUT_PATIENTS)
        if ROOT in names:
            raise RosterError(f'a hospital is named {ROOT!r}')
        if unknown := publics.keys() - set(names):
            raise RosterError(f'{sorted(unknown)[0]} has a public key and is no party: {names}')
        hospitals = [
            Member(name, 'hospital', publics[name], size) for name, size in self.sizes.items()
        ]
        count = len(hospitals)
        return Roster(
            self.federation,
            default_threshold(count) if self.threshold is None else self.threshold,
            (*hospitals, *(Member(name, name, publics[name]) for name in WITHOUT_PATIENTS)),
            self.disjoint_patients,
            not_before=self.validity[0],
            expires=self.validity[1],
            **ring(count, self.threshold, self.neighbours, self.buckets),
        )


def make_federation(
    directory: Path, new: NewFederation, passphrase: Passphrase | None = None
) -> Roster:
    """
    Create all keys of a new federation and its signed roster, all or nothing.

    Afterwards carry each party's directory to its host, together with ``root.pub`` and
    ``roster.json``, and the root's directory to a place off the network.

    :param directory: created if missing; existing files are never overwritten.
    :param passphrase: seals every private key, if given.
    :returns: the roster.
    :raises RosterError: if names or sizes are not valid; nothing is written.
    :raises KeyFileError: if a file exists already or cannot be written.
    """
    names = {*new.sizes, *WITHOUT_PATIENTS} - {*new.publics}
    identities = {name: Identity.generate(name) for name in names}
    roster = new.roster({name: identity.public for name, identity in identities.items()})
    root = Identity.generate(ROOT)
    directory = Path(os.path.abspath(directory))
    if os.path.lexists(directory) and (not directory.is_dir() or any(directory.iterdir())):
        raise KeyFileError(f'{directory} is not empty: keys are never overwritten')
    part = directory.with_name(directory.name + '.part')
    with os_errors_as(KeyFileError, f'{directory} cannot be made'):
        if part.exists():  # a killed attempt, whose keys nobody has seen
            shutil.rmtree(part)
        make_private_directory(part)
        for identity in (root, *identities.values()):
            make_private_directory(part / identity.name)
            save_identity(identity, part / identity.name / KEY_FILE, passphrase=passphrase)
            sync_folder(part / identity.name)
        (part / ROOT_FILE).write_text(root.public.hex() + '\n', encoding='ascii')
        roster.save(part / ROSTER_FILE, root)
        part.rename(directory)
        sync_folder(directory.parent)
    return roster
