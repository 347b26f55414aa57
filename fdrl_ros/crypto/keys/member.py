# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""Entries of a roster: a party with its role and public key, and a key that counts no more."""

from dataclasses import dataclass
import re
from typing import Final

from fdrl_ros.crypto.keys.signing import PUBLIC_KEY_BYTES
from fdrl_ros.errors import RosterError

ROLES: Final = ('hospital', 'aggregator', 'key_authority', 'operator')

NAME: Final = re.compile(r'[a-z][a-z0-9_]{0,62}', re.ASCII)
"""A name as in topics."""


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
        if not isinstance(self.name, str) or not NAME.fullmatch(self.name):
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
class Revoked:
    """
    A key that counts no more.

    :param name: the party whose key it was.
    :param public: Ed25519 public key, 32 bytes.
    :param serial: number of the first roster without it.
    """

    name: str
    public: bytes
    serial: int

    def __post_init__(self) -> None:
        """Refuse what was no key of a member."""
        if not isinstance(self.name, str) or not NAME.fullmatch(self.name):
            raise RosterError(f'revoked {self.name!r}: expected a name such as hospital_1')
        if not isinstance(self.public, bytes) or len(self.public) != PUBLIC_KEY_BYTES:
            raise RosterError(f'revoked {self.name}: expected {PUBLIC_KEY_BYTES} bytes')
        if type(self.serial) is not int or self.serial < 2:
            raise RosterError(
                f'revoked {self.name}: by roster {self.serial!r}, expected 2 or more'
            )
