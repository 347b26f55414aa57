# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""
The ledger's hash chain: head_i = SHA-256(head_(i-1), link_i), with link_i = SHA-256(entry i).

Whoever can write the file can also rebuild the chain from its start; only a head that another
party remembers reveals that. The chain makes one remembered head vouch for every entry before it.
Links alone let other parties walk from head to head. They reveal nothing about the entries, whose
inputs depend on records and on the secret noise key.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
import hashlib
import re
import struct
from typing import NamedTuple, Self

from fdrl_ros.errors import PrivacyError
from fdrl_ros.privacy.accountant.accountant import Account, Charge, epsilon_pld

DIGEST = 32
"""Bytes of a head's hash, and of a link."""

HEAD_BYTES = 8 + DIGEST
"""Bytes of a head: its number of entries and its hash."""

BIRTH = 16
"""Random bytes that identify a ledger."""

MOST_LINKS = 2**14
"""Most links sent with an update: how old a remembered head may be."""


class Head(NamedTuple):
    """The state of a ledger: its number of entries and the hash of the last one."""

    entries: int
    digest: bytes

    def __str__(self) -> str:
        """Return the form that people compare and :meth:`parse` reads, such as 12:9f86d0..."""
        return f'{self.entries}:{self.digest.hex()}'

    @classmethod
    def parse(cls, text: str) -> Self:
        """
        Parse the form of :meth:`__str__`.

        :raises PrivacyError: if the text is not a head.
        """
        found = re.fullmatch(r'([0-9]{1,19}):([0-9a-fA-F]{64})', text.strip())
        if found is None:
            raise PrivacyError(f'head {text!r}: expected entries:hash, the hash in 64 hex digits')
        return cls(int(found[1]), bytes.fromhex(found[2]))

    def to_bytes(self) -> bytes:
        """Return the number of entries, 8 bytes little-endian, and the hash, 32 bytes."""
        return self.entries.to_bytes(8, 'little') + self.digest

    @classmethod
    def from_bytes(cls, data: bytes) -> Self:
        """
        Parse the form of :meth:`to_bytes`.

        :raises PrivacyError: if it has another length.
        """
        if len(data) != HEAD_BYTES:
            raise PrivacyError(f'a head of {len(data)} bytes: expected {HEAD_BYTES}')
        return cls(int.from_bytes(data[:8], 'little'), data[8:])

    def followed(self, links: bytes) -> Iterator['Head']:
        """
        Walk the chain from here: yield this head, then the head after each link.

        :param links: of the following entries in order, 32 bytes each.
        """
        entries, digest = self
        yield self
        for at in range(0, len(links), DIGEST):
            entries, digest = entries + 1, _after(digest, links[at : at + DIGEST])
            yield Head(entries, digest)


_PROMISE = ('hospital', 'unit', 'delta', 'budget', 'model')


@dataclass(frozen=True)
class Owner:
    """
    The owner of a ledger and its promise; its hash begins the chain.

    ``birth``: 16 random bytes that distinguish the ledger from any other of the same hospital; the
    noise of a training depends on them.
    """

    hospital: str
    unit: str
    delta: float
    budget: float
    model: str = ''
    birth: bytes = b''

    @cached_property
    def digest(self) -> bytes:
        """Return the SHA-256 that the first entry builds on."""
        names = [name.encode() for name in (self.hospital, self.unit, self.model)]
        text = b''.join(struct.pack('<I', len(name)) + name for name in names)
        text += struct.pack('<dd', self.delta, self.budget) + self.birth
        return hashlib.sha256(b'fdrl_ros ledger 4 ' + text).digest()

    def difference_from(self, other: 'Owner') -> str:
        """Describe the first difference from another promise; empty if there is none."""
        for name in _PROMISE:
            mine, theirs = getattr(self, name), getattr(other, name)
            if mine != theirs:
                return f'was begun for {name} {mine!r}, not {theirs!r}'
        return ''


@dataclass(frozen=True)
class Entry:
    """One row: a block of steps, the digest of its inputs, and the hash of the chain up to it."""

    number: int
    round: int
    block: int
    charge: Charge
    inputs: bytes
    digest: bytes

    @classmethod
    def after(
        cls, last: bytes, number: int, round: int, block: int, charge: Charge, inputs: bytes
    ) -> Self:
        """Make the entry that follows digest `last`."""
        hashed = hashlib.sha256(inputs).digest()
        link = _link(number, round, block, charge, hashed)
        return cls(number, round, block, charge, hashed, _after(last, link))

    @cached_property
    def link(self) -> bytes:
        """Return the SHA-256 of this entry alone, 32 bytes, which other parties may see."""
        return _link(self.number, self.round, self.block, self.charge, self.inputs)

    def fits(self, last: bytes) -> bool:
        """Return whether this row is unchanged and follows digest `last`."""
        try:
            expected = _after(last, self.link)
        except (struct.error, TypeError):
            return False
        return self.digest == expected


def _link(number: int, round: int, block: int, charge: Charge, inputs: bytes) -> bytes:
    numbers = struct.pack('<qqqddqq', number, round, block, *charge)
    return hashlib.sha256(numbers + inputs).digest()


def _after(last: bytes, link: bytes) -> bytes:
    return hashlib.sha256(last + link).digest()


class Chain:
    """
    The entries of a ledger in memory, each bound to the one before; entries are only added.

    `account` quickly prices one more charge; its last digits depend on earlier questions. Those of
    :meth:`epsilon` do not.
    """

    def __init__(self, owner: Owner) -> None:
        """
        Begin with no entry.

        :raises PrivacyError: if the owner's delta is not valid.
        """
        self.owner = owner
        self.account = Account(owner.delta)
        self._entries: list[Entry] = []
        self._by_block: dict[tuple[int, int], Entry] = {}
        self._rounds: dict[int, tuple[int, int]] = {}

    @property
    def entries(self) -> Sequence[Entry]:
        """All entries, oldest first."""
        return tuple(self._entries)

    @property
    def head(self) -> Head:
        """The number of entries and the hash of the last one."""
        return self.head_at(len(self._entries))

    def head_at(self, count: int) -> Head:
        """Return the head after that many entries."""
        return Head(count, self._entries[count - 1].digest if count else self.owner.digest)

    def head_before(self, round: int) -> Head:
        """Return the head before the first block of a round."""
        return self.head_at(self._rounds.get(round, (len(self._entries), 0))[0])

    def links(self, most: int = MOST_LINKS) -> bytes:
        """
        Return the links that lead to the head, 32 bytes each; they reveal nothing about entries.

        :param most: of so many newest entries, oldest first.
        """
        count = len(self._entries)
        newest = self._entries[max(0, count - most) :]
        return b''.join(entry.link for entry in newest)

    def blocks(self, round: int) -> int:
        """Return how many blocks of a round are charged."""
        return self._rounds.get(round, (0, 0))[1]

    def get(self, round: int, block: int) -> Entry | None:
        """Return the entry of a block, if there is one."""
        return self._by_block.get((round, block))

    def next(self, round: int, block: int, charge: Charge, inputs: bytes) -> Entry:
        """Make the next entry without adding it."""
        count, last = self.head
        return Entry.after(last, count + 1, round, block, charge, inputs)

    def fits(self, entry: Entry) -> bool:
        """Return whether an entry follows the last one and its block is new."""
        count, last = self.head
        new = (entry.round, entry.block) not in self._by_block
        return entry.number == count + 1 and new and entry.fits(last)

    def add(self, entry: Entry) -> None:
        """
        Add an entry that fits.

        :raises PrivacyError: if its charge is not valid.
        """
        self.account.add(entry.charge)
        before, blocks = self._rounds.get(entry.round, (len(self._entries), 0))
        self._rounds[entry.round] = (before, blocks + 1)
        self._by_block[entry.round, entry.block] = entry
        self._entries.append(entry)

    def history(self) -> tuple[Charge, ...]:
        """Return every charge, oldest first."""
        return tuple(entry.charge for entry in self._entries)

    def epsilon(self) -> float:
        """Return the spent epsilon by the tight accountant."""
        return epsilon_pld(self.history(), self.owner.delta)

    def epsilons_rdp(self) -> list[float]:
        """Return the epsilon after each entry by the quick upper bound."""
        grown, epsilons = Account(self.owner.delta), []
        for charge in self.history():
            grown.add(charge)
            epsilons.append(grown.epsilon_rdp())
        return epsilons

    def contradiction(self, seen: Head) -> str:
        """Describe why this ledger cannot contain a head; empty if it can."""
        count = len(self._entries)
        if seen.entries > count:
            return (
                f'has {count} entries and had {seen.entries}: an old copy was restored, or its '
                'end was cut'
            )
        if self.head_at(seen.entries) != seen:
            return f'was rewritten: entry {seen.entries} is not the one seen before'
        return ''
