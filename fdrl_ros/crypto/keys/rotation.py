# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""
Rotate, revoke and admit parties; each change ends in a new roster signed by the root.

A change happens completely or not at all, even if it is interrupted. Parties adopt it at their
next start. Revoked keys stay listed in the roster, and a party that has used a roster refuses
every older one.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from fdrl_ros.crypto.keys.he_key import he_bytes, load_he
from fdrl_ros.crypto.keys.key_file import label, Passphrase, seal, unseal
from fdrl_ros.crypto.keys.keystore import (
    AUTHORITY_FILES,
    HE_FILE,
    identity_bytes,
    KEY_FILE,
    load_identity,
    load_root_public,
    ROOT,
    ROOT_FILE,
    ROSTER_FILE,
)
from fdrl_ros.crypto.keys.roster import (
    default_threshold,
    FEWEST_HOSPITALS,
    Member,
    memory_of,
    remember_roster,
    Roster,
    ROSTER_MEMORY,
    SERVERS,
)
from fdrl_ros.crypto.keys.signing import Identity
from fdrl_ros.crypto.keys.transaction import Transaction, transaction
from fdrl_ros.crypto.masking.buckets import FEWEST
from fdrl_ros.errors import KeyFileError, RosterError
from fdrl_ros.runtime.durable import read_secret

HE_NAME: Final = f'key_authority/{HE_FILE}'
"""The secret key of the homomorphic encryption, below the key directory."""


class RosterChanges:
    """
    Changes to a key directory that holds the root's key.

    :param directory: of the keys.
    :param passphrase: of the root's key, and for new keys.
    """

    def __init__(self, directory: Path, passphrase: Passphrase | None = None) -> None:
        """Store the arguments; files are read by each change."""
        self._directory = directory
        self._passphrase = passphrase

    def rotate(self, name: str, public: bytes | None = None) -> Roster:
        """
        Give a party a new signing key; the old key is revoked and erased.

        :param public: public half of a key that was made elsewhere; None makes one here.
        :raises RosterError: if there is no such party, or the key is known already.
        :raises KeyFileError: if keys cannot be read or written.
        """
        if name == ROOT:
            raise RosterError(
                'the root cannot be rotated, since every party pins it: make a new federation'
            )
        with self._changing() as (changes, roster, sign):
            former = roster.member(name)
            rotated = replace(former, public=self._new_key(changes, name, public))
            members = (rotated if member is former else member for member in roster.members)
            return sign(members=tuple(members))

    def revoke(
        self, name: str, threshold: int | None = None, buckets: int | None = None
    ) -> Roster:
        """
        Remove a party from the roster and erase its key, if it is here.

        :param threshold: the new t; unchanged unless given, or lower where hospitals mask with
            neighbours.
        :param buckets: of a round from now on; as many as before unless given.
        :raises RosterError: if too few hospitals would be left, or it is no hospital or operator.
        :raises KeyFileError: if keys cannot be read or written.
        """
        with self._changing() as (changes, roster, sign):
            member = roster.member(name)
            if member.role in SERVERS:
                raise RosterError(f'no federation without {name}: rotate its key instead')
            left = len(roster.hospitals) - (member.role == 'hospital')
            if threshold is None:
                threshold = roster.threshold
                if roster.neighbours:  # among neighbours no higher one holds
                    threshold = min(threshold, default_threshold(left))
            needed = max(FEWEST_HOSPITALS, threshold)
            if left < needed:
                lower = ', or give a lower threshold' if left >= FEWEST_HOSPITALS else ''
                raise RosterError(
                    f'without {name} {left} hospitals are left, and {needed} must agree: admit '
                    f'another one before{lower}'
                )
            if buckets is None and roster.buckets > left // FEWEST:
                raise RosterError(
                    f'without {name} {left} hospitals are left, too few for {roster.buckets} '
                    f'buckets of {FEWEST}: admit another one before, or give fewer buckets (0 for '
                    'one sum of all, which no rule guards against poison)'
                )
            changes.remove(f'{name}/{KEY_FILE}')
            rest = tuple(other for other in roster.members if other.name != name)
            return sign(members=rest, threshold=threshold, **_chosen(buckets))

    def admit(
        self,
        name: str,
        size: int,
        threshold: int | None = None,
        public: bytes | None = None,
        buckets: int | None = None,
    ) -> Roster:
        """
        Add a hospital to the roster.

        :param size: n_i that it declares.
        :param threshold: the new t; floor(2n / 3) + 1 unless given.
        :param public: public half of a key that was made elsewhere; None makes one here.
        :param buckets: of a round from now on; as many as before unless given.
        :raises RosterError: if the name is taken or not valid, or the key is known already.
        :raises KeyFileError: if keys cannot be read or written.
        """
        with self._changing() as (changes, roster, sign):
            if name == ROOT or any(member.name == name for member in roster.members):
                raise RosterError(f'{name} is in the federation already: rotate or revoke it')
            made = Member(name, 'hospital', self._new_key(changes, name, public), size)
            hospitals = (*roster.hospitals, made)
            others = (member for member in roster.members if member.role != 'hospital')
            threshold = default_threshold(len(hospitals)) if threshold is None else threshold
            members = (*hospitals, *others)
            return sign(members=members, threshold=threshold, **_chosen(buckets))

    def renew(self, validity: tuple[int, int | None]) -> Roster:
        """
        Sign the roster again with another validity.

        :param validity: start and end, in seconds since 1970 (UTC); an end of None means never.
        :raises RosterError: if it would end before it begins.
        :raises KeyFileError: if keys cannot be read or written.
        """
        with self._changing() as (_, _, sign):
            return sign(not_before=validity[0], expires=validity[1])

    @contextmanager
    def _changing(self) -> Iterator[tuple[Transaction, Roster, Callable[..., Roster]]]:
        """
        Hold the directory; refuse a roster older than the root has signed.

        :returns: changes of files, the newest roster, and what signs the next one with other
            fields.
        """
        with transaction(self._directory) as changes:
            public = load_root_public(self._directory / ROOT_FILE)
            path = self._directory / ROOT / KEY_FILE
            root = load_identity(path, ROOT, passphrase=self._passphrase)
            if root.public != public:
                raise KeyFileError(f'{path} is not the root that {ROOT_FILE} pins')
            before = Roster.load(self._directory / ROSTER_FILE, public)
            remember_roster(self._directory / ROOT / ROSTER_MEMORY, before)

            def sign(**fields: Any) -> Roster:
                roster = before.successor(**fields)
                changes.write(ROSTER_FILE, roster.signed_bytes(root))
                changes.write(f'{ROOT}/{ROSTER_MEMORY}', memory_of(roster))
                return roster

            yield changes, before, sign

    def _new_key(self, changes: Transaction, name: str, public: bytes | None) -> bytes:
        """Return a party's public key, making the pair unless it was made elsewhere."""
        if public is not None:
            changes.remove(f'{name}/{KEY_FILE}')
            return public
        identity = Identity.generate(name)
        changes.write(f'{name}/{KEY_FILE}', identity_bytes(identity, self._passphrase))
        return identity.public


def _chosen(buckets: int | None) -> dict[str, int]:
    return {} if buckets is None else {'buckets': buckets}


def rotate_he(
    directory: Path, passphrase: Passphrase | None = None, *, after_round: int = 0
) -> str:
    """
    Replace the secret key of the homomorphic encryption by a new one of the same scheme.

    :param after_round: the newest round that was released.
    :returns: digest of the new public key.
    :raises KeyFileError: if there is no key yet, or it cannot be read or written.
    """
    with transaction(directory) as changes:
        if not (directory / HE_NAME).exists():
            raise KeyFileError(
                f'no {HE_NAME}: the key authority draws it when it starts for the first time'
            )
        before, _ = load_he(directory / HE_NAME, passphrase=passphrase)
        secret = type(before).generate(before.scheme)
        changes.write(HE_NAME, he_bytes(secret, passphrase, after_round=after_round))
    return secret.public.digest


def change_passphrase(
    directory: Path,
    before: Passphrase | None,
    after: Passphrase | None,
    *,
    beside: Sequence[str] = (),
) -> Sequence[str]:
    """
    Seal every private key of a directory again, all or none.

    :param before: opens the sealed keys.
    :param after: the new passphrase; None leaves the keys in clear text.
    :param beside: names of further key files, relative to the directory: noise keys.
    :returns: names of the files, relative to the directory.
    :raises PassphraseError: if a key does not open.
    :raises KeyFileError: if there is none, or one cannot be read or written.
    """
    with transaction(directory) as changes:
        names = [*private_keys(directory), *beside]
        if not names:
            raise KeyFileError(f'{directory} holds no private key')
        for name in names:
            path = directory / name
            data = read_secret(path)
            found = label(data, path)
            key, about = unseal(data, found.holds, before if found.sealed else None, path)
            changes.write(name, seal(key, found.holds, about, after))
    return names


def private_keys(directory: Path) -> list[str]:
    """Return the names of all files with a private key, relative to the directory."""
    return sorted(
        str(path.relative_to(directory))
        for file in (KEY_FILE, HE_FILE, *AUTHORITY_FILES)
        for path in directory.glob(f'[a-z]*/{file}')
    )
