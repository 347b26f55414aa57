# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""
The roster: all parties, signed by the federation's offline root key.

It names every party with its role and public key, the n_i that each hospital declares (FDRL Eq. 2
uses it as weight), the threshold, the revoked keys, and its validity. Parties never take any of it
from a message: each pins the root's public key and loads the file. Each roster has a higher serial
number than the one before. A party remembers the newest roster that it used and refuses older
ones; otherwise whoever can put an old file in place would undo a revocation.
"""

from dataclasses import asdict, dataclass, replace
from functools import cached_property
import hashlib
import json
from pathlib import Path
import re
import time
from typing import Any, Final, Self

from fdrl_ros.crypto.keys.signing import fingerprint, Identity, PUBLIC_KEY_BYTES, verify
from fdrl_ros.crypto.masking.buckets import Buckets, buckets_of, check_buckets, FEWEST
from fdrl_ros.crypto.masking.neighbourhoods import (
    default_neighbours,
    fewest_neighbours,
    MOST_HOLDERS,
    MOST_HOSPITALS,
    Neighbourhoods,
    new_seed,
    SEED_BYTES,
)
from fdrl_ros.errors import (
    CryptoError,
    os_errors_as,
    RosterError,
    RosterRollbackError,
    RosterTimeError,
    StoreError,
)
from fdrl_ros.runtime.durable import replacing

ROLES: Final = ('hospital', 'aggregator', 'key_authority', 'operator')

NAME: Final = re.compile(r'[a-z][a-z0-9_]{0,62}', re.ASCII)
"""Names of parties and federations, as in topics."""


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
        """Refuse a member that cannot take part."""
        _check_key('member', self.name, self.public)
        if self.role not in ROLES:
            raise RosterError(f'{self.name}: role {self.role!r}, expected one of {ROLES}')
        least, most = (1, 2**53) if self.role == 'hospital' else (0, 0)
        if type(self.size) is not int or not least <= self.size <= most:
            words = 'at least 1 record' if least else 'none'
            raise RosterError(f'{self.name}: size {self.size!r}, expected {words}')


@dataclass(frozen=True)
class Revoked:
    """
    A key that is no longer valid.

    :param name: the party whose key it was.
    :param public: Ed25519 public key, 32 bytes.
    :param serial: number of the first roster without it.
    """

    name: str
    public: bytes
    serial: int

    def __post_init__(self) -> None:
        """Refuse an entry that cannot be a former key of a member."""
        _check_key('revoked', self.name, self.public)
        if type(self.serial) is not int or self.serial < 2:
            raise RosterError(f'revoked {self.name}: by roster {self.serial!r}, expected from 2')


FEWEST_HOSPITALS: Final = FEWEST

SERVERS: Final = ('aggregator', 'key_authority')
"""Names of the servers, which are their roles too."""

CLOCK_SKEW: Final = 300
"""Tolerated clock difference at the start and end of a roster, second."""

# Prefix of what the root signs, so that it cannot pass as another message.
_SIGNED: Final = b'fdrl_ros roster 2\n'
_FORMAT: Final = 2
_LATEST: Final = 2**38  # seconds since 1970: the year 10680
_FILE_BYTES = 2**24


def default_threshold(hospitals: int) -> int:
    """Return t = floor(2n / 3) + 1: a lying aggregator cannot form two groups of that size."""
    return 2 * hospitals // 3 + 1


def usual_neighbours(hospitals: int, threshold: int | None, buckets: int) -> int:
    """Return k where nobody chose it, with the parameters of :func:`ring`."""
    strict = threshold is not None and threshold > default_threshold(hospitals)
    return 0 if strict or buckets else default_neighbours(hospitals)


def ring(
    hospitals: int,
    threshold: int | None = None,
    neighbours: int | None = None,
    buckets: int = 0,
) -> dict[str, Any]:
    """
    Return the fields of a roster with neighbours or buckets, in an order that is drawn here.

    :param threshold: t, if it was chosen; a higher one than by default takes all others.
    :param neighbours: k, if it was chosen; 0 means all others, as in buckets.
    :param buckets: of a round; 0 for one sum of all.
    """
    if neighbours is None:
        neighbours = usual_neighbours(hospitals, threshold, buckets)
    seed = new_seed().hex() if neighbours or buckets else ''
    return {'neighbours': neighbours, 'buckets': buckets, 'ring_seed': seed}


def _check_name(kind: str, name: str) -> None:
    if not isinstance(name, str) or not NAME.fullmatch(name):
        raise RosterError(f'{kind} {name!r}: expected a name such as hospital_1')


def _check_key(kind: str, name: str, public: bytes) -> None:
    _check_name(kind, name)
    if not isinstance(public, bytes) or len(public) != PUBLIC_KEY_BYTES:
        raise RosterError(f'{kind} {name}: expected a public key of {PUBLIC_KEY_BYTES} bytes')


@dataclass(frozen=True)
class Roster:
    """
    All parties of one federation.

    :param federation: its name, part of every signed message and derived key.
    :param threshold: t, how many hospitals must agree; more than half of them.
    :param members: hospitals in their order, then the servers and operators.
    :param disjoint_patients: whether no patient is in two hospitals; only then do epsilons
        compose in parallel.
    :param serial: number of this roster; its successor has the next number.
    :param not_before: start of its validity, in seconds since 1970 (UTC).
    :param expires: end of its validity, likewise; None means never.
    :param revoked: keys that are no longer valid, in the order of revocation.
    :param neighbours: k, with how many others each hospital masks; 0 means with all.
    :param ring_seed: from which follows who they are, or who is in which bucket, 64 hexadecimal
        digits; empty with all and one sum.
    :param buckets: of a round, each with a sum of its own, whose hospitals mask with each other; 0
        for one sum of all.
    """

    federation: str
    threshold: int
    members: tuple[Member, ...]
    disjoint_patients: bool
    serial: int = 1
    not_before: int = 0
    expires: int | None = None
    revoked: tuple[Revoked, ...] = ()
    neighbours: int = 0
    ring_seed: str = ''
    buckets: int = 0

    def __post_init__(self) -> None:
        """Refuse a roster that contradicts itself."""
        _check_name('federation', self.federation)
        if type(self.disjoint_patients) is not bool:
            raise RosterError(f'disjoint_patients = {self.disjoint_patients!r}: expected a bool')
        self._check_numbers()
        ended = [key.public for key in self.revoked]
        for what, values in (
            ('members have the same name', [member.name for member in self.members]),
            ('members have the same public key', [member.public for member in self.members]),
            ('revocations name the same key', ended),
        ):
            if len(set(values)) != len(values):
                raise RosterError(f'two {what}')
        for member in self.members:
            if member.public in ended:
                raise RosterError(f'{member.name} has a revoked key')
        count = len(self.hospitals)
        if count < FEWEST_HOSPITALS:
            raise RosterError(f'{count} hospitals: expected {FEWEST_HOSPITALS}, to hide each')
        if type(self.threshold) is not int or not count / 2 < self.threshold <= count:
            raise RosterError(
                f'threshold {self.threshold!r}: expected over half of {count}, and at most {count}'
            )
        for role in SERVERS:
            found = sum(member.role == role for member in self.members)
            if found != 1:
                raise RosterError(f'{found} members are {role}: expected exactly one')
        if count > MOST_HOSPITALS or self.neighbourhoods.degree >= MOST_HOLDERS:
            raise RosterError(
                f'{count} hospitals, {self.neighbours or "all others"} as neighbours of each: at '
                f'most {MOST_HOSPITALS}, and {MOST_HOLDERS - 1} neighbours'
            )
        try:
            check_buckets(self.buckets, count)
        except CryptoError as error:
            raise RosterError(str(error)) from error
        if self.buckets and self.neighbours:
            raise RosterError(f'{self.buckets} buckets: expected 0 where few are neighbours')

    def _check_numbers(self) -> None:
        """Refuse an impossible serial number or validity."""
        if type(self.serial) is not int or not 1 <= self.serial < 2**53:
            raise RosterError(f'serial {self.serial!r}: expected a whole number from 1')
        if any(key.serial > self.serial for key in self.revoked):
            raise RosterError(f'roster {self.serial} tells of keys revoked by a later one')
        start, end = self.not_before, self.expires
        for time_limit in (start, _LATEST if end is None else end):
            if type(time_limit) is not int or not 0 <= time_limit <= _LATEST:
                raise RosterError(f'valid from {start!r} to {end!r}: expected whole UTC seconds')
        if end is not None and end <= start:
            raise RosterError(f'valid from {start} to {end}: it would never be')

    @cached_property
    def hospitals(self) -> tuple[Member, ...]:
        """Return the hospitals in the roster's order."""
        return tuple(member for member in self.members if member.role == 'hospital')

    @cached_property
    def _by_name(self) -> dict[str, Member]:
        return {member.name: member for member in self.members}

    @cached_property
    def neighbourhoods(self) -> Neighbourhoods:
        """
        Return who masks with whom.

        :raises RosterError: if there are too few neighbours, or their seed is not valid.
        """
        names, number = [member.name for member in self.hospitals], self.neighbours
        if type(number) is not int or not isinstance(self.ring_seed, str):
            raise RosterError(f'neighbours {number!r}: expected a whole number')
        if number and self.threshold > default_threshold(len(names)):
            raise RosterError(
                f'a threshold of {self.threshold} holds only if each hospital masks with all '
                'others: set neighbours to 0, or leave the threshold at '
                f'{default_threshold(len(names))}'
            )
        try:
            seed = bytes.fromhex(self.ring_seed)
            if seed.hex() != self.ring_seed:
                raise ValueError('expected lower-case hexadecimal digits')
            if self.buckets and len(seed) != SEED_BYTES:
                raise ValueError(f'{len(seed)} bytes, expected {SEED_BYTES} with buckets')
            if self.buckets and not number:
                seed = b''  # it is that of the buckets
            return Neighbourhoods(names, self.threshold, number, seed)
        except ValueError as error:
            raise RosterError(f'seed of the neighbourhoods: {error}') from error
        except CryptoError as error:
            raise RosterError(f'neighbours: {error}') from error

    @property
    def quorum(self) -> int:
        """Return the fewest hospitals whose sum may be decrypted: max(3, t)."""
        return max(FEWEST_HOSPITALS, self.threshold)

    def buckets_of(self, round: int) -> Buckets:
        """Return which hospitals are summed together in a round; none if all are."""
        if not self.buckets:
            return ()
        names = [each.name for each in self.hospitals]
        return buckets_of(self.federation, self.digest_bytes, names, round, self.buckets)

    @property
    def n_max(self) -> int:
        """Return the largest size that a hospital declares."""
        return max(member.size for member in self.hospitals)

    def member(self, name: str) -> Member:
        """
        Return the member of that name.

        :raises RosterError: if the roster does not name it.
        """
        if name in self._by_name:
            return self._by_name[name]
        ended = [key.serial for key in self.revoked if key.name == name]
        since = f': roster {ended[-1]} revoked it' if ended else ''
        raise RosterError(f'{name!r} is not in roster {self.serial} of {self.federation}{since}')

    def check_time(self, now: float) -> None:
        """
        Refuse a roster that is not valid at a time, within :data:`CLOCK_SKEW`.

        :param now: seconds since 1970 (UTC).
        :raises RosterTimeError: if it is not valid yet, or has expired.
        """
        late = self.expires is not None and now > self.expires + CLOCK_SKEW
        if late or now < self.not_before - CLOCK_SKEW:
            raise RosterTimeError(
                f'roster {self.serial} of {self.federation} is valid {self.validity}, and by this '
                f"host's clock it is {utc(now)}: check the clock; if it is right, take the newest "
                f'roster, or have the root sign one (`fdrl keys renew`)'
            )

    @property
    def validity(self) -> str:
        """Describe the validity in words."""
        start = f'from {utc(self.not_before)} on' if self.not_before else ''
        end = f'until {utc(self.expires)}' if self.expires is not None else ''
        return f'{start} {end}'.strip() or 'without a limit'

    def successor(self, **changes: Any) -> Self:
        """
        Return the next roster, which lists removed keys as revoked.

        With other hospitals their neighbours are drawn anew, as many as the same promise takes.
        Buckets are always: who knows the seed could make a key by which it chooses with whom it
        is.

        :param changes: fields to replace; `buckets` of another number.
        :raises RosterError: if they contradict each other.
        """
        kept = {member.public for member in changes.get('members', self.members)}
        ended = tuple(
            Revoked(member.name, member.public, self.serial + 1)
            for member in self.members
            if member.public not in kept
        )
        before, after = (
            {member.name for member in members if member.role == 'hospital'}
            for members in (self.members, changes.get('members', self.members))
        )
        if self.neighbours and before != after:
            strict = self.neighbourhoods.withstands_lies
            fewest = fewest_neighbours(len(after), withstands_lies=strict)
            changes |= ring(len(after), neighbours=fewest)
        count = changes.get('buckets', self.buckets)
        if count or self.buckets:
            chosen = changes.get('threshold'), 0 if count else None, count
            changes = ring(len(after), *chosen) | changes
        return replace(self, serial=self.serial + 1, revoked=self.revoked + ended, **changes)

    def to_dict(self) -> dict[str, Any]:
        """Return the signed content as JSON values, without a complete graph and one bucket."""
        written = asdict(self)
        for name in ('neighbours', 'buckets', 'ring_seed'):
            if not written[name]:
                del written[name]
        for entry in (*written['members'], *written['revoked']):
            entry['public'] = entry['public'].hex()
        return {**written, 'members': [*written['members']], 'revoked': [*written['revoked']]}

    def canonical(self) -> bytes:
        """Return the canonical bytes that the root signs."""
        text = json.dumps(self.to_dict(), sort_keys=True, separators=(',', ':'))
        return _SIGNED + text.encode('ascii')

    @property
    def digest(self) -> str:
        """Return the SHA-256 digest of the canonical bytes, in hexadecimal."""
        return self.digest_bytes.hex()

    @cached_property
    def digest_bytes(self) -> bytes:
        """Return the same digest as 32 bytes."""
        return hashlib.sha256(self.canonical()).digest()

    def signed_bytes(self, root: Identity) -> bytes:
        """Return the content of a roster file, which :meth:`load` reads."""
        signature = root.sign(self.canonical()).hex()
        document = {'format': _FORMAT, 'roster': self.to_dict(), 'signature': signature}
        return (json.dumps(document, indent=2) + '\n').encode('ascii')

    def save(self, path: Path, root: Identity) -> None:
        """Sign and write the roster, durably."""
        with replacing(path) as file:
            file.write(self.signed_bytes(root))

    @classmethod
    def load(cls, path: Path, root_public: bytes) -> Self:
        """
        Read a roster and check that the pinned root signed it.

        :param root_public: the root's public key, not from the file itself.
        :raises RosterError: if the file is missing, damaged, not signed by this root, or
            contradicts itself.
        """
        with os_errors_as(RosterError, f'roster {path}'):
            with path.open('rb') as file:
                data = file.read(_FILE_BYTES + 1)
        if len(data) > _FILE_BYTES:
            raise RosterError(f'roster {path}: longer than 16 MiB')
        try:
            document = json.loads(data, object_pairs_hook=_without_duplicates)
            signature = bytes.fromhex(document['signature'])
            known = set(document) == {'format', 'roster', 'signature'}
            if not known or document['format'] != _FORMAT:
                raise RosterError(
                    f'roster {path}: another format than {_FORMAT}, such as an older version of '
                    f'fdrl_ros wrote: make the federation anew with `fdrl keys init`'
                )
            roster = cls.from_dict(document['roster'])
        except (ValueError, TypeError, KeyError, RecursionError) as error:
            raise RosterError(f'roster {path} is damaged: {error!r}') from error
        if not verify(root_public, signature, roster.canonical()):
            pinned = fingerprint(root_public)
            raise RosterError(f'roster {path} is not signed by the pinned root {pinned}')
        return roster

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> Self:
        """Read :meth:`to_dict` back; refuse additional, missing or differently written fields."""
        keys: dict[str, Any] = {
            name: tuple(
                kind(**{**entry, 'public': bytes.fromhex(entry['public'])})
                for entry in values[name]
            )
            for name, kind in (('members', Member), ('revoked', Revoked))
        }
        roster = cls(**{**values, **keys})
        if roster.to_dict() != values:
            raise RosterError('roster: its fields have another form')
        return roster


def utc(seconds: float) -> str:
    """Format a time as 2026-11-21 09:30 UTC."""
    return time.strftime('%Y-%m-%d %H:%M UTC', time.gmtime(seconds))


def _without_duplicates(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Refuse a JSON object with a repeated key, which parsers and people read differently."""
    if len(dict(pairs)) != len(pairs):
        raise RosterError('roster: a key is named twice')
    return dict(pairs)


ROSTER_MEMORY: Final = 'roster.seen'
"""File that records the newest roster, in a party's state directory."""


def remember_roster(path: Path, roster: Roster) -> None:
    """
    Refuse a roster older than the newest one used, and record this one durably.

    :param path: the file that records the newest roster.
    :raises RosterRollbackError: if it is older, differs from the recorded one of its number, or is
        of another federation.
    :raises StoreError: if the memory is damaged or cannot be written.
    """
    if check_remembered(path, roster):
        return
    with os_errors_as(StoreError, f'{path} cannot be used'):
        with replacing(path) as file:
            file.write(memory_of(roster))


def check_remembered(path: Path, roster: Roster) -> bool:
    """
    Refuse a roster as :func:`remember_roster` does, without recording it.

    :returns: whether this roster is the recorded one.
    :raises RosterRollbackError: if it is older, differs from the recorded one of its number, or is
        of another federation.
    :raises StoreError: if the memory is damaged or cannot be read.
    """
    try:
        if not path.exists():
            return False
        seen = json.loads(path.read_bytes())
        _compare(path, roster, seen['federation'], seen['serial'], seen['digest'])
        return bool(seen['serial'] == roster.serial)
    except OSError as error:
        raise StoreError(f'{path} cannot be used: {error.strerror}') from error
    except (ValueError, KeyError, TypeError) as error:
        raise StoreError(f'{path} is damaged; it names the newest roster: restore it') from error


def memory_of(roster: Roster) -> bytes:
    """Return the record of a roster as the file holds it."""
    seen = {name: getattr(roster, name) for name in ('federation', 'serial', 'digest')}
    return (json.dumps(seen) + '\n').encode('ascii')


def _compare(path: Path, roster: Roster, federation: str, serial: int, digest: str) -> None:
    here = f'roster {roster.serial} of {roster.federation}'
    if roster.federation != federation:
        raise RosterRollbackError(f'{here}: this party was of federation {federation} ({path})')
    if roster.serial < serial:
        raise RosterRollbackError(
            f'{here} is older than roster {serial}, which this party has used ({path}): take the '
            f'newest one; to bring back an old roster would bring back keys that were revoked'
        )
    if roster.serial == serial and roster.digest != digest:
        raise RosterRollbackError(
            f'{here} has the digest {roster.digest[:16]}..., and the one that this party used '
            f'({path}) {digest[:16]}...: the root signed two of one number, or the federation was '
            f'made anew under its old name; ask who holds the root'
        )
