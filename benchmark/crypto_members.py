# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""
What a round costs one party, by how many members there are, as work that times itself.

Of the others' messages only a few are real ones: they are taken again and again, since it
costs the same to open the same sealed shares again, to add the same ciphertext again, and
to restore the same secret again.
"""

from collections.abc import Callable
import itertools
import time

from crypto_work import Attempt, Round, SETTINGS, threshold, Updates
from fdrl_ros.crypto.he.encryption import choose_scheme
from fdrl_ros.crypto.masking.round_secret import KEY_BYTES
from fdrl_ros.crypto.masking.share_sealing import deal, open_shares, seal_shares, SEALED_BYTES
from fdrl_ros.crypto.masking.sharing import Recovery, SHARE_BYTES
from turns import Work

SENDERS = 9
"""Other members whose sealed shares are real."""


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
        self._scheme = choose_scheme(n_parameters, members, SETTINGS.bits)

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
        self.attempt.net_mask(self._name, self._scheme)


class KeyAuthority:
    """
    The key authority among so many hospitals, none of which drops out.

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

    def release(self) -> None:
        """Restore what is left of the masks, add, decrypt, unmask, average."""
        names = self._attempt.names
        recovery = Recovery(threshold(len(names)), names, names)
        if {recovery.recover(self._shares) for _ in names} != {self._seed}:
            raise RuntimeError('another secret was restored than was shared')
        mask = self._attempt.leftover_mask(self._round.scheme)
        slots = self._round.decrypt(self._round.add(self._sent))
        self._round.masked(slots, -mask)
        self._round.mean(slots)  # these updates had no mask


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
    party = KeyAuthority(n_parameters, members)
    return lambda: seconds_of(party.release)


def upload(n_parameters: int, members: int) -> int:
    """
    Return the bytes of what a hospital makes in a round in which nobody drops out.

    Ciphertexts, two public keys and the digest of its self seed, sealed shares for every other
    member, and a share of each member's self seed; without names, signatures and ledger.
    """
    scheme = choose_scheme(n_parameters, members, SETTINGS.bits)
    return (
        scheme.ciphertexts * scheme.ciphertext_bytes
        + 3 * KEY_BYTES
        + (members - 1) * SEALED_BYTES
        + members * SHARE_BYTES
    )
