# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""
The roster: who takes part, signed by the federation's offline root key (spec section 4).

It names every party with its role and public key, the n_i that each hospital declares
(FDRL Eq. 2 weighs by it) and how many hospitals a round needs. Nothing of it is ever taken
from a message: every party pins the root's public key and loads the file.
"""

from dataclasses import dataclass
import hashlib
import json
from pathlib import Path
import re
from typing import Any, Final, Self

from fdrl_ros.crypto.signing import fingerprint, Identity, PUBLIC_KEY_BYTES, verify
from fdrl_ros.errors import RosterError

ROLES: Final = ('hospital', 'aggregator', 'key_authority', 'operator')

FEWEST_HOSPITALS: Final = 3

# First words of what the root signs, so that it is nothing else.
_SIGNED: Final = b'fdrl_ros roster 1\n'
_FORMAT: Final = 1
_NAME = re.compile(r'[a-z][a-z0-9_]{0,62}', re.ASCII)
_FILE_BYTES = 2**20


def default_threshold(hospitals: int) -> int:
    """Return t = floor(2n / 3) + 1, which a lying aggregator cannot split in two."""
    return 2 * hospitals // 3 + 1


@dataclass(frozen=True)
class Member:
    """
    One party of the federation.

    :param name: as in topics: a small letter, then small letters, digits and underscores.
    :param role: one of :data:`ROLES`.
    :param public: Ed25519 public key, 32 bytes.
    :param size: n_i, the records that a hospital declares; 0 for the others.
    """

    name: str
    role: str
    public: bytes
    size: int = 0

    def __post_init__(self) -> None:
        """Refuse a member that could not take part."""
        if not isinstance(self.name, str) or not _NAME.fullmatch(self.name):
            raise RosterError(f'member {self.name!r}: expected a name such as hospital_1')
        if self.role not in ROLES:
            raise RosterError(f'{self.name}: role {self.role!r}, expected one of {ROLES}')
        if not isinstance(self.public, bytes) or len(self.public) != PUBLIC_KEY_BYTES:
            raise RosterError(f'{self.name}: expected a public key of {PUBLIC_KEY_BYTES} bytes')
        if type(self.size) is not int or not 0 <= self.size < 2**53:
            raise RosterError(f'{self.name}: size {self.size!r}, expected a whole number')
        if (self.size > 0) != (self.role == 'hospital'):
            raise RosterError(
                f'{self.name}: size {self.size}; a hospital declares at least 1 record and any '
                f'other role 0'
            )


@dataclass(frozen=True)
class Roster:
    """
    All parties of one federation.

    :param federation: its name, part of every signed message and derived key.
    :param threshold: t, how many hospitals must agree; more than half of them.
    :param members: hospitals in their order, then the servers and operators.
    :param disjoint_patients: whether no patient is in two hospitals, which alone allows
        epsilons to compose in parallel.
    """

    federation: str
    threshold: int
    members: tuple[Member, ...]
    disjoint_patients: bool

    def __post_init__(self) -> None:
        """Refuse a roster that contradicts itself."""
        if not isinstance(self.federation, str) or not _NAME.fullmatch(self.federation):
            raise RosterError(f'federation {self.federation!r}: expected a name such as trial_1')
        if type(self.disjoint_patients) is not bool:
            raise RosterError(f'disjoint_patients = {self.disjoint_patients!r}: expected a bool')
        for what, values in (
            ('name', [member.name for member in self.members]),
            ('public key', [member.public for member in self.members]),
        ):
            if len(set(values)) != len(values):
                raise RosterError(f'two members have the same {what}')
        count = len(self.hospitals)
        if count < FEWEST_HOSPITALS:
            raise RosterError(
                f'{count} hospitals: expected at least {FEWEST_HOSPITALS}, so that a sum does '
                f'not show one hospital to another'
            )
        if type(self.threshold) is not int or not count / 2 < self.threshold <= count:
            raise RosterError(
                f'threshold {self.threshold!r}: expected more than half of {count} hospitals'
            )
        for role in ('aggregator', 'key_authority'):
            found = sum(member.role == role for member in self.members)
            if found != 1:
                raise RosterError(f'{found} members are {role}: expected exactly one')

    @property
    def hospitals(self) -> tuple[Member, ...]:
        """Return the hospitals in the roster's order."""
        return tuple(member for member in self.members if member.role == 'hospital')

    @property
    def quorum(self) -> int:
        """Return the fewest hospitals whose sum may be decrypted: max(3, t)."""
        return max(FEWEST_HOSPITALS, self.threshold)

    @property
    def n_max(self) -> int:
        """Return the largest size that a hospital declares."""
        return max(member.size for member in self.hospitals)

    def member(self, name: str) -> Member:
        """
        Return the member of that name.

        :raises RosterError: if the roster does not name it.
        """
        for member in self.members:
            if member.name == name:
                return member
        raise RosterError(f'{name!r} is not in the roster of {self.federation}')

    def to_dict(self) -> dict[str, Any]:
        """Return what the file and the signature hold, as JSON values."""
        return {
            'federation': self.federation,
            'threshold': self.threshold,
            'disjoint_patients': self.disjoint_patients,
            'members': [
                {
                    'name': member.name,
                    'role': member.role,
                    'size': member.size,
                    'public': member.public.hex(),
                }
                for member in self.members
            ],
        }

    def canonical(self) -> bytes:
        """Return the one form of bytes that is signed."""
        text = json.dumps(self.to_dict(), sort_keys=True, separators=(',', ':'))
        return _SIGNED + text.encode('ascii')

    @property
    def digest(self) -> str:
        """Return the SHA-256 digest of the canonical bytes, in hexadecimal."""
        return hashlib.sha256(self.canonical()).hexdigest()

    def sign(self, root: Identity) -> bytes:
        """Sign the canonical bytes with the root key."""
        return root.sign(self.canonical())

    def save(self, path: Path, root: Identity) -> None:
        """Sign and write the roster for people and :meth:`load` to read."""
        document = {
            'format': _FORMAT,
            'roster': self.to_dict(),
            'signature': self.sign(root).hex(),
        }
        path.write_text(json.dumps(document, indent=2) + '\n', encoding='ascii')

    @classmethod
    def load(cls, path: Path, root_public: bytes) -> Self:
        """
        Read a roster and check that the pinned root signed it.

        :param root_public: the root's public key, from a place that the file cannot change.
        :raises RosterError: if the file is missing, damaged, not signed by this root, or
            contradicts itself.
        """
        try:
            with path.open('rb') as file:
                data = file.read(_FILE_BYTES + 1)
        except OSError as error:
            raise RosterError(f'roster {path}: {error.strerror}') from error
        if len(data) > _FILE_BYTES:
            raise RosterError(f'roster {path}: longer than {_FILE_BYTES} bytes')
        try:
            document = json.loads(data, object_pairs_hook=_without_duplicates)
            signature = bytes.fromhex(document['signature'])
            known = set(document) == {'format', 'roster', 'signature'}
            if not known or document['format'] != _FORMAT:
                raise RosterError(f'roster {path}: another format than {_FORMAT}')
            roster = cls.from_dict(document['roster'])
        except (ValueError, TypeError, KeyError, RecursionError) as error:
            raise RosterError(f'roster {path} is damaged: {error!r}') from error
        if not verify(root_public, signature, roster.canonical()):
            raise RosterError(
                f'roster {path} is not signed by the pinned root {fingerprint(root_public)}'
            )
        return roster

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> Self:
        """Read :meth:`to_dict` back; what it does not name is refused."""
        fields = dict(values)
        members = tuple(
            Member(**{**member, 'public': bytes.fromhex(member['public'])})
            for member in fields.pop('members')
        )
        return cls(members=members, **fields)


def _without_duplicates(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Refuse a JSON object that names a key twice, which people and parsers read apart."""
    if len({key for key, _ in pairs}) != len(pairs):
        raise RosterError('roster: a key is named twice')
    return dict(pairs)
