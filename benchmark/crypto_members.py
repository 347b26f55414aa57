# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""
What a round costs one party, by how many members there are, as work that times itself.

Of the others' messages only a few are real ones: they are taken again and again, since it
costs the same to open the same sealed shares again, to add the same ciphertext again, and
to restore the same secret again.
"""

from collections.abc import Callable
import hashlib
import itertools
import time

from crypto_work import Attempt, Round, SETTINGS, threshold, Updates
from fdrl_ros.crypto.encryption import choose_scheme
from fdrl_ros.crypto.round_secret import KEY_BYTES
from fdrl_ros.crypto.sealing import deal, open_shares, seal_shares, SEALED_BYTES
from fdrl_ros.crypto.sharing import Recovery, SHARE_BYTES
from fdrl_ros.crypto.signing import Identity, SIGNATURE_BYTES, verify
from turns import Work

SENDERS = 9
"""Other members whose sealed shares are real."""
MESSAGE = bytes(200)
"""Signed and verified in place of the messages of the round, without what is digested."""
SENT = 5
"""Messages that a hospital signs in a round: keys, shares, update, survivors, reveals."""


class Member:
    """
    One hospital among so many, at each step of a round.

    :param n_parameters: of the network.
    :param members: how many hospitals there are, this one included.
    """

    def __init__(self, n_parameters: int, members: int) -> None:
        self.attempt = Attempt(members)
        self._name, *others = self.attempt.names
        self._others = len(others)
        keys = self.attempt.keys()
        self._sealed = {
            name: seal_shares(self.attempt.secrets[name], keys)[self._name]
            for name in others[:SENDERS]
        }
        self.round = Round(Updates.alike(n_parameters, members))
        self._mask = self.attempt.net_mask(self._name, self.round.scheme)
        self._identity = Identity.generate(self._name)
        self._signature = self._identity.sign(MESSAGE)

    def secrets(self) -> dict[str, bytes]:
        """Derive the keys of this round, share their secrets, and open what others shared."""
        self.attempt.forget(self._name)
        ours, keys = self.attempt.secrets[self._name], self.attempt.keys()
        _ = ours.mask.public, ours.sealing.public
        sealed = seal_shares(ours, keys)
        for name in itertools.islice(itertools.cycle(self._sealed), self._others):
            open_shares(ours, keys, name, self._sealed[name])
        return sealed

    def mask(self) -> None:
        """Agree with everybody on a mask, and add them up."""
        self._mask = self.attempt.net_mask(self._name, self.round.scheme)

    def update(self) -> list[bytes]:
        """Quantise, pack, mask and encrypt."""
        return self.round.encrypt(self.round.masked(self.round.slots(0), self._mask))

    def sign(self, sent: list[bytes]) -> list[bytes]:
        """Sign what this hospital says, and check the others' keys and survivor sets."""
        digest = hashlib.sha256(b''.join(sent)).digest()
        for _ in range(2 * self._others):
            verify(self._identity.public, self._signature, MESSAGE)
        return [self._identity.sign(MESSAGE + digest) for _ in range(SENT)]


class Servers:
    """
    Aggregator and key authority among so many hospitals, none of which drops out.

    :param n_parameters: of the network.
    :param members: how many hospitals there are.
    """

    def __init__(self, n_parameters: int, members: int) -> None:
        self._attempt = Attempt(members)
        self._round = Round(Updates.alike(n_parameters, members))
        self._sent = [self._round.encrypt(self._round.slots(0))] * members
        name = self._attempt.names[0]
        dealt = deal(self._attempt.secrets[name], self._attempt.keys())
        self._shares = {holder: pair.self_seed for holder, pair in dealt.items()}
        self._seed = self._attempt.secrets[name].self_seed
        self._identity = Identity.generate(name)
        self._signature = self._identity.sign(MESSAGE)

    def aggregate(self) -> list[bytes]:
        """Check who sent it, and add."""
        self._check(1)
        return self._round.add(self._sent)

    def authorise(self) -> None:
        """Check what everybody signed, restore the masks, add once more, decrypt, unmask."""
        self._check(3)
        names = self._attempt.names
        recovery = Recovery(threshold(len(names)), names, names)
        if {recovery.recover(self._shares) for _ in names} != {self._seed}:
            raise RuntimeError('another secret was restored than was shared')
        mask = self._attempt.leftover_mask(self._round.scheme)
        slots = self._round.decrypt(self._round.add(self._sent))
        self._round.masked(slots, -mask)
        self._round.mean(slots)  # these updates had no mask
        self._identity.sign(MESSAGE)

    def _check(self, messages: int) -> None:
        for _ in range(messages * len(self._sent)):
            verify(self._identity.public, self._signature, MESSAGE)


def seconds_of(step: Callable[[], object]) -> float:
    """Return the seconds that a step takes."""
    begun = time.perf_counter()
    step()
    return time.perf_counter() - begun


def hospital(n_parameters: int, members: int, *, shares: bool = True) -> Work:
    """
    Return work that is one hospital's keys and masks, and times it.

    :param shares: whether it shares its secrets too.
    """
    member = Member(n_parameters, members)

    def work() -> float:
        if shares:
            return seconds_of(member.secrets) + seconds_of(member.mask)
        member.attempt.forget(member.attempt.names[0])
        return seconds_of(member.mask)

    return work


def key_authority(n_parameters: int, members: int) -> Work:
    """Return work that is the key authority's part of a round, and times it."""
    servers = Servers(n_parameters, members)
    return lambda: seconds_of(servers.authorise)


def protocol(n_parameters: int, members: int) -> Work:
    """
    Return work that is all that a round adds to one hospital's training, and times it.

    That is its own part, and the wait for aggregator and key authority.
    """
    member, servers = Member(n_parameters, members), Servers(n_parameters, members)

    def work() -> float:
        begun = time.perf_counter()
        member.secrets()
        member.mask()
        member.sign(member.update())
        servers.aggregate()
        servers.authorise()
        return time.perf_counter() - begun

    return work


def upload(n_parameters: int, members: int) -> int:
    """
    Return the bytes that a hospital sends in a round in which nobody drops out.

    Ciphertexts, two public keys and the digest of its self seed, sealed shares for every other
    member, a share of each member's self seed, and the signatures; no names and numbers.
    """
    scheme = choose_scheme(n_parameters, members, SETTINGS.bits)
    return (
        scheme.ciphertexts * scheme.ciphertext_bytes
        + 3 * KEY_BYTES
        + (members - 1) * SEALED_BYTES
        + members * SHARE_BYTES
        + SENT * SIGNATURE_BYTES
    )
