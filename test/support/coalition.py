# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""
What a coalition of servers and hospitals can compute from everything that it holds.

It has the secret key of the homomorphic encryption, the round seeds of its hospitals and whatever
was ever said. So it knows the masked slots of every update, its own shares of every secret, what
was revealed, and each secret that enough of these shares restore. An honest update is then a row

    masked slots = update + known masks + unknown masks

and what the coalition learns are the combinations of rows in which all unknown masks cancel.
"""

from collections.abc import Collection, Iterable
from dataclasses import dataclass, field
from fractions import Fraction
import hashlib

from fdrl_ros.crypto.he.encryption import SecretContext
from fdrl_ros.crypto.keys.roster import Roster
from fdrl_ros.crypto.masking.masks import mask, MaskContext, pair_key
from fdrl_ros.crypto.masking.round_secret import AttemptSecrets, mask_secret_for, RoundSeed
from fdrl_ros.crypto.masking.share_sealing import (
    KeyList,
    open_parcel,
    own_keys,
    PARCEL_BYTES,
    SealError,
)
from fdrl_ros.crypto.masking.sharing import Recovery, SHARE_BYTES, ShareError
from fdrl_ros.federation.hospital.state import RoundSeeds
from fdrl_ros.federation.protocol.attempt import key_list, settle_digest, setup_digest, split
from fdrl_ros.federation.protocol.message import (
    AttemptId,
    MaskedUpdate,
    Message,
    Reveal,
    RoundKey,
    RoundStatus,
    Shares,
)
import numpy as np

MASK, SELF = 'mask_secret', 'self_seed'
Unknown = tuple[object, ...]
Fact = tuple[dict[str, int], np.ndarray]
Combination = dict[object, Fraction]


class FixedSeeds(RoundSeeds):
    """Round seeds that follow from a number, so that a test can draw them again."""

    def __init__(self, name: str, number: int, *, federation: str = 'test') -> None:
        super().__init__(None, federation=federation, name=name)
        self._number = number

    def of(self, round: int) -> RoundSeed:
        """Return the seed of a round, also when it was forgotten."""
        seed = hashlib.sha256(f'{self._number} {self._name} {round}'.encode()).digest()
        return RoundSeed(seed, self._federation, round, self._name)


@dataclass
class Row:
    """One chunk of an honest hospital's update in one attempt, less the known masks."""

    sender: str
    slots: np.ndarray
    unknown: dict[Unknown, int]


@dataclass
class Coalition:
    """
    Corrupt hospitals, the aggregator and the key authority, with all that they hold.

    :param seeds: of each corrupt hospital; one may have several, to say different things.
    :param found: secrets that it guessed.
    """

    roster: Roster
    secret: SecretContext
    seeds: dict[str, list[RoundSeeds]]
    keys: dict[tuple[str, AttemptId], list[RoundKey]] = field(default_factory=dict)
    lists: dict[bytes, KeyList] = field(default_factory=dict)
    setups: dict[bytes, tuple[KeyList, tuple[str, ...]]] = field(default_factory=dict)
    settled: dict[bytes, tuple[bytes, tuple[str, ...]]] = field(default_factory=dict)
    heard: list[Message] = field(default_factory=list)
    shares: dict[tuple[str, AttemptId, bytes, str], dict[str, bytes]] = field(default_factory=dict)
    found: dict[tuple[str, AttemptId, str], bytes] = field(default_factory=dict)

    def hear(self, messages: Iterable[Message]) -> None:
        """Keep messages, and work out what they are about."""
        for message in messages:
            of = message.id
            match message:
                case RoundKey():
                    self.keys.setdefault((message.envelope.sender, of), []).append(message)
                case RoundStatus() if message.keyed:
                    named = self.roster.neighbourhoods.named
                    told = [self.keys[name, of][0] for name in named(message.keyed)]
                    lists = named(message.members), named(message.survivors)
                    self.tell(told, *lists, message.terms_digest)
                case Shares() | Reveal() | MaskedUpdate():
                    self.heard.append(message)

    def tell(
        self,
        keys: Collection[RoundKey],
        members: Collection[str],
        survivors: Collection[str],
        terms: bytes,
    ) -> None:
        """Note a list of keys, members and survivors that some hospital was told of."""
        listed = key_list(self.roster, keys, next(iter(keys)).id, terms)
        listed = self.lists.setdefault(listed.digest, listed)
        setup = setup_digest(listed, members)
        self.setups[setup] = listed, tuple(sorted(members))
        self.settled[settle_digest(setup, survivors)] = setup, tuple(survivors)

    def own(self, name: str, of: AttemptId) -> list[AttemptSecrets]:
        """Return the secrets of a corrupt hospital."""
        return [each.of(of[0]).attempt(of[1]) for each in self.seeds.get(name, [])]

    def gather(self) -> None:
        """Open what was sealed for corrupt hospitals, and take what was revealed."""
        for message in self.heard:
            sender, of = message.envelope.sender, message.id
            if isinstance(message, Shares) and message.keys_digest in self.lists:
                listed = self.lists[message.keys_digest]
                for name, each in split(
                    message.parcels, PARCEL_BYTES, listed.holders(sender), sender, 'parcels'
                ).items():
                    for secrets in self.own(name, of):
                        if name == sender or listed.keys[name] != own_keys(secrets, listed.graph):
                            continue
                        try:
                            pair = open_parcel(listed, sender, name, each, secrets.sealing(sender))
                        except SealError:
                            continue
                        self._hold(sender, of, listed, MASK, name, pair.mask_secret)
                        self._hold(sender, of, listed, SELF, name, pair.self_seed)
            if isinstance(message, Reveal):
                setup, survivors = self.settled[message.settle_digest]
                listed, members = self.setups[setup]
                for place, name in enumerate(listed.graph.holders(sender, set(members))):
                    start = SHARE_BYTES * place
                    share = message.shares[start : start + SHARE_BYTES]
                    kind = SELF if name in survivors else MASK
                    self._hold(name, of, listed, kind, sender, share)

    def _hold(
        self, dealer: str, of: AttemptId, listed: KeyList, kind: str, holder: str, share: bytes
    ) -> None:
        self.shares.setdefault((dealer, of, listed.digest, kind), {})[holder] = share

    def restored(
        self, name: str, of: AttemptId, kind: str, listed: KeyList | None = None
    ) -> bytes | None:
        """
        Return a secret if it is known: one's own, a guess, or what enough shares restore.

        :param listed: in which its owner published it, if several were published.
        """
        candidates = [_of_kind(secrets, kind) for secrets in self.own(name, of)]
        if (name, of, kind) in self.found:
            candidates.append(self.found[name, of, kind])
        for (dealer, where, digest, what), shares in self.shares.items():
            if (dealer, where, what) == (name, of, kind) and len(
                shares
            ) >= self.roster.neighbourhoods.threshold:
                along = self.lists[digest]
                recovery = Recovery(along.threshold, along.holders(dealer), list(shares))
                try:
                    candidates.append(recovery.recover(shares))
                except ShareError:
                    continue
        lists = [listed] if listed else [each for each in self.lists.values() if name in each.keys]
        fitting = (each for each in candidates if any(at.fits(name, kind, each) for at in lists))
        return next(fitting, None)

    def rows(self) -> list[list[Row]]:
        """Return the honest updates that are held, chunk by chunk, less all known masks."""
        rows: dict[int, list[Row]] = {}
        for message in self.heard:
            sender = message.envelope.sender
            if isinstance(message, MaskedUpdate) and sender not in self.seeds:
                rows.setdefault(message.chunk, []).append(self._row(message, sender))
        return [rows[chunk] for chunk in sorted(rows)]

    def _row(self, message: MaskedUpdate, sender: str) -> Row:
        of, scheme = message.id, self.secret.scheme
        listed, members = self.setups[message.setup_digest]
        size = scheme.slots - scheme.checks  # check slots follow from the others
        row = Row(sender, SecretContext.decrypt(self.secret, message.ciphertext)[:size], {})

        def take_off(key: bytes, added: bool) -> None:
            whole = mask(key, scheme.slots * (message.chunk + 1), scheme.plain_modulus)
            part = whole[scheme.slots * message.chunk :][:size]
            row.slots = (row.slots - part if added else row.slots + part) % scheme.plain_modulus

        seed = self.restored(sender, of, SELF)
        if seed is None:
            row.unknown[SELF, sender, of] = 1
        else:
            take_off(seed, True)
        for peer in listed.masking(sender, set(members)):
            if peer == sender:
                continue
            for end, other in ((sender, peer), (peer, sender)):
                secret = self.restored(end, of, MASK, listed)
                if secret is not None:
                    key = pair_key(
                        MaskContext(self.roster.federation, *of, members, message.setup_digest),
                        mask_secret_for(secret, other),
                        listed.mask_key(other, end),
                        mine=end,
                        theirs=other,
                    )
                    take_off(key, sender < peer)
                    break
            else:
                ends = tuple(sorted((sender, peer)))
                row.unknown[MASK, ends, of, message.setup_digest] = 1 if sender < peer else -1
        return row


def learned(rows: list[Row], modulus: int) -> list[Fact]:
    """
    Return all that rows of one chunk tell of honest updates.

    :returns: the combinations of hospitals' updates that are known and do not follow from each
        other, and what each is, modulo the plaintext modulus.
    """
    facts = []
    for weights in _cancelling([row.unknown for row in rows]):
        about: dict[str, int] = {}
        value = np.zeros_like(rows[0].slots)
        for row, weight in zip(rows, weights, strict=True):
            # Masks are added or subtracted whole: so are rows in which they cancel.
            assert weight.denominator == 1
            about[row.sender] = about.get(row.sender, 0) + int(weight)
            value = (value + int(weight) * row.slots) % modulus
        facts.append((about, value))
    return _independent(facts)


def _of_kind(secrets: AttemptSecrets, kind: str) -> bytes:
    return secrets.self_seed if kind == SELF else secrets.mask_secret


def _without(row: Combination, pivot_row: Combination) -> Combination:
    """Take a multiple of another row off a row, so that the other's first entry cancels."""
    pivot = next(iter(pivot_row))
    factor = row.get(pivot, Fraction(0)) / pivot_row[pivot]
    entries = {
        name: row.get(name, Fraction(0)) - factor * pivot_row.get(name, Fraction(0))
        for name in row.keys() | pivot_row.keys()
    }
    return {name: value for name, value in entries.items() if value}


def _cancelling(rows: list[dict[Unknown, int]]) -> list[list[Fraction]]:
    """Return a basis of the combinations of rows in which every unknown cancels."""
    # The places of a row's combination stand behind its unknowns, so that they are never pivots.
    left: list[Combination] = [
        {name: Fraction(sign) for name, sign in row.items()} | {place: Fraction(1)}
        for place, row in enumerate(rows)
    ]
    unknowns = {name for row in rows for name in row}
    for unknown in sorted(unknowns, key=repr):
        having = [row for row in left if unknown in row]
        if having:
            pivot_row = {unknown: having[0][unknown]} | having[0]
            left = [_without(row, pivot_row) for row in left if row is not having[0]]
    return [[row.get(place, Fraction(0)) for place in range(len(rows))] for row in left]


def _independent(facts: list[Fact]) -> list[Fact]:
    """Leave out what follows from the facts before it."""
    basis: list[Combination] = []
    kept = []
    for about, value in facts:
        rest: Combination = {name: Fraction(weight) for name, weight in about.items() if weight}
        for row in basis:
            rest = _without(rest, row)
        if rest:
            basis.append(rest)
            kept.append((about, value))
    return kept
