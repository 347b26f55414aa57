# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""
Masks that cancel in the sum, also after drop-outs (FDRL Eq. 6; Bonawitz et al. 2017).

Two hospitals agree on a key by X25519 and HKDF-SHA256. AES-256-CTR stretches it into integers
uniform modulo the plaintext modulus t. The hospital whose name sorts lower adds them and the other
subtracts them. Each hospital also adds a mask of its own. The sum over all members, less their own
masks, is exact; the sum over fewer members is computationally indistinguishable from noise. A
hospital that drops out after the keys are fixed leaves its pair masks in the others' sum. Its mask
secret, restored from t shares, removes them; the survivors' self seeds remove their own masks.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
import hashlib
from itertools import islice
from typing import Final

from cryptography.hazmat.primitives.ciphers import Cipher, CipherContext
from cryptography.hazmat.primitives.ciphers.algorithms import AES256
from cryptography.hazmat.primitives.ciphers.modes import CTR
from fdrl_ros.crypto.masking.round_secret import (
    AttemptSecrets,
    binding,
    derive,
    joined,
    joined_names,
    KEY_BYTES,
    mask_secret_for,
    RoundSecret,
)
from fdrl_ros.crypto.masking.share_sealing import KeyList
from fdrl_ros.errors import CryptoError
import numpy as np
from numpy.typing import NDArray

# Integers drawn at a time, so that a mask stays in the processor's cache.
CHUNK: Final = 2**14
# Masks added at a time; at most 127, so that a byte can count wraps of their sum either way.
TOGETHER: Final = 100

_PAIR_MASK = b'fdrl_ros pair mask 4'
_ZEROS = memoryview(bytes(8 * CHUNK))


class WrongSecretError(CryptoError):
    """
    A restored secret is not the one behind what its owner published.

    :param owner: whose secret it should be; this hospital dealt wrong shares, or t holders lie.
    """

    def __init__(self, owner: str) -> None:
        self.owner = owner
        super().__init__(f'the secret restored for {owner!r} does not fit what it published')


@dataclass(frozen=True)
class MaskContext:
    """
    What the pair keys of one attempt are bound to.

    The member set is part of it: if a lying aggregator names different members to two hospitals,
    their masks do not cancel, so the sum is lost instead of revealing a difference of two sums.

    :param federation: its name.
    :param round: round number, >= 0.
    :param attempt: attempt within the round, >= 0.
    :param members: names of all members, in any order.
    :param setup: digest of everything else that the members must agree on.
    """

    federation: str
    round: int
    attempt: int
    members: Collection[str]
    setup: bytes = b''

    @cached_property
    def encoded(self) -> bytes:
        """Return the context as bytes; the member set is digested once for all pairs."""
        names = hashlib.sha256(joined_names(self.members))
        place = self.federation, self.round, self.attempt
        return binding(_PAIR_MASK, *place, names.digest(), self.setup)


def mask(key: bytes, count: int, modulus: int) -> NDArray[np.int64]:
    """
    Stretch a key into integers uniform in [0, modulus).

    Words of 64 bits come from AES-256-CTR; those above the largest multiple of the modulus
    are rejected, so that the remainder is exactly uniform. A key is for one mask: a longer
    mask begins with the shorter one.

    :param key: 32 bytes: of :func:`pair_key`, or a self seed, whose mask a hospital adds alone.
    :param count: how many integers.
    :param modulus: plaintext modulus t, 2 to 2^62.
    :returns: shape (count,).
    :raises CryptoError: if an argument does not fit.
    """
    return sum_of_masks([(key, True)], count, modulus)


def net_mask(
    secrets: AttemptSecrets,
    peers: Mapping[str, bytes],
    *,
    count: int,
    modulus: int,
    setup: bytes = b'',
    members: Collection[str] = (),
) -> NDArray[np.int64]:
    """
    Sum a hospital's masks: its own, plus or minus one for each peer.

    A pair mask is added where the hospital's name sorts before the peer's, and subtracted where
    after. The net masks of all members therefore add up to the sum of their own masks modulo t.
    The caller uses the secrets of an attempt for one update only.

    :param peers: by their names the public key that each member with whom this one masks
        published for this hospital, from signed messages.
    :param members: all members, who mask with each other or with others; peers and this hospital
        unless given.
    :param count: slots of the whole update.
    :param modulus: plaintext modulus t.
    :param setup: digest of everything else that the members must agree on.
    :returns: integers in [0, t), shape (count,), to be added to the slots modulo t.
    :raises CryptoError: if there is no peer, or the hospital is its own peer.
    """
    mine = secrets.name
    if not peers:
        raise CryptoError('no peers: without them nothing would be masked')
    if mine in peers:
        raise CryptoError(f'{mine!r} is in its own list of peers')
    place = secrets.federation, secrets.round, secrets.attempt
    context = MaskContext(*place, members or (mine, *peers), setup)
    terms = [
        (pair_key(context, secrets.mask(theirs), public, mine=mine, theirs=theirs), mine < theirs)
        for theirs, public in peers.items()
    ]
    terms.append((secrets.self_seed, True))
    return sum_of_masks(terms, count, modulus)


def leftover_mask(
    keys: KeyList,
    members: Collection[str],
    setup: bytes = b'',
    *,
    self_seeds: Mapping[str, bytes],
    mask_secrets: Mapping[str, bytes],
    count: int,
    modulus: int,
    bucket: Collection[str] = (),
) -> NDArray[np.int64]:
    """
    Sum the masks that remain in the survivors' sum, to be subtracted modulo t.

    These are the survivors' own masks, and their pair masks with hospitals that dropped out.

    :param keys: what the members published, in the attempt of the masks.
    :param members: who masked with each other.
    :param setup: digest of everything else that the members agreed on.
    :param self_seeds: of every survivor, restored from shares, 32 bytes each.
    :param mask_secrets: of everybody else, restored from shares, 32 bytes each.
    :param count: slots of the whole update.
    :param modulus: plaintext modulus t.
    :param bucket: members who masked with each other, whose survivors are summed; all members
        unless given.
    :returns: integers in [0, t), shape (count,).
    :raises WrongSecretError: if a secret is not the one behind what its owner published.
    :raises CryptoError: if a secret is missing or too many, or both secrets of one member are
        given, which would uncover its update.
    """
    both = sorted(self_seeds.keys() & mask_secrets.keys())
    if both:
        raise CryptoError(f'both secrets of {both[0]!r}: together they uncover its update')
    summed = bucket or members
    if self_seeds.keys() | mask_secrets.keys() != set(summed) or not self_seeds:
        raise CryptoError(
            f'{len(self_seeds)} survivors and {len(mask_secrets)} others of {len(summed)} '
            f'members: expected one secret of each, and a survivor'
        )
    if not set(members) <= keys.keys.keys():
        raise CryptoError('the list of keys lacks a member')
    context = MaskContext(keys.federation, keys.round, keys.attempt, members, setup)
    for kind, secrets in (('self_seed', self_seeds), ('mask_secret', mask_secrets)):
        for name, secret in secrets.items():
            if not keys.fits(name, kind, secret):
                raise WrongSecretError(name)

    def terms() -> Iterable[tuple[bytes, bool]]:
        yield from ((seed, True) for seed in self_seeds.values())
        for dropped, secret in mask_secrets.items():
            for survivor in keys.holders(dropped):
                if survivor not in self_seeds:
                    continue
                pair, public = mask_secret_for(secret, survivor), keys.mask_key(survivor, dropped)
                key = pair_key(context, pair, public, mine=dropped, theirs=survivor)
                yield key, survivor < dropped

    return sum_of_masks(terms(), count, modulus)


def pair_key(
    context: MaskContext, secret: RoundSecret, their_public: bytes, *, mine: str, theirs: str
) -> bytes:
    """
    Derive the key of one pair's mask, 32 bytes; both ends derive the same key.

    :param secret: this end's for the peer.
    :param their_public: the peer's public half for this end, from a signed message.
    :raises CryptoError: on a bad key, or a round or attempt out of range.
    """
    ends = sorted([(mine.encode(), secret.public), (theirs.encode(), their_public)])
    return derive(secret.agree(their_public), context.encoded + joined(*ends[0], *ends[1]))


def sum_of_masks(
    terms: Iterable[tuple[bytes, bool]], count: int, modulus: int
) -> NDArray[np.int64]:
    """
    Add masks, or subtract them, in pieces that stay in the cache.

    :param terms: key of each mask, and whether it is added.
    :returns: integers in [0, modulus), shape (count,).
    :raises CryptoError: if an argument does not fit.
    """
    if count < 0 or not 2 <= modulus <= 2**62:
        raise CryptoError(f'count {count!r}, modulus {modulus!r}: expected >= 0, 2 to 2^62')
    total = np.zeros(count, dtype=np.uint64)
    words, spare = np.empty(CHUNK + 2, dtype='<u8'), np.empty(CHUNK, dtype=np.uint64)
    terms = iter(terms)
    while some := list(islice(terms, TOGETHER)):
        streams = [(_stream(key), added) for key, added in some]
        # A sum may wrap at 2^64 with each mask; the wraps are counted and corrected afterwards.
        most = len(some)
        worth = np.array(
            [wraps * 2**64 % modulus for wraps in range(-most, most + 1)], dtype=np.uint64
        )
        for start in range(0, count, CHUNK):
            piece = total[start : start + CHUNK]
            sums, wraps = np.zeros_like(piece), np.full(piece.size, most, dtype=np.uint8)
            over = spare.view(np.bool_)[: piece.size]
            for stream, added in streams:
                drawn = _draw(stream, words, piece.size, modulus)
                if added:
                    sums += drawn
                    np.less(sums, drawn, out=over)
                    wraps += over.view(np.uint8)
                else:
                    np.less(sums, drawn, out=over)
                    sums -= drawn
                    wraps -= over.view(np.uint8)
            _reduce(sums, modulus, spare)
            piece += worth.take(wraps, mode='clip')
            piece += sums
            _reduce(piece, modulus, spare)
    return total.view(np.int64)


def mask_pieces(
    keys: Sequence[bytes], pieces: int, size: int, modulus: int
) -> Iterator[NDArray[np.int64]]:
    """
    Stretch several keys into masks, piece by piece.

    :param size: of a piece, at most :data:`CHUNK`.
    :returns: integers in [0, modulus), shape (keys, size), as :func:`mask` draws them.
    """
    words, spare = np.empty(size + 2, dtype='<u8'), np.empty(size, dtype=np.uint64)
    streams = [_stream(key) for key in keys]
    for _ in range(pieces):
        piece = np.empty((len(streams), size), dtype=np.uint64)
        for row, stream in zip(piece, streams, strict=True):
            row[:] = _draw(stream, words, size, modulus)
            _reduce(row, modulus, spare)
        yield piece.view(np.int64)


def _reduce(values: NDArray[np.uint64], modulus: int, spare: NDArray[np.uint64]) -> None:
    """Take the remainder in place; NumPy divides much faster than it finds remainders."""
    quotient = np.floor_divide(values, np.uint64(modulus), out=spare[: values.size])
    quotient *= np.uint64(modulus)
    values -= quotient


def _stream(key: bytes) -> CipherContext:
    """Return the key stream of a mask."""
    if not isinstance(key, bytes) or len(key) != KEY_BYTES:
        raise CryptoError(f'mask key: expected {KEY_BYTES} bytes')
    return Cipher(AES256(key), CTR(bytes(16))).encryptor()


def _draw(
    stream: CipherContext, words: NDArray[np.uint64], size: int, modulus: int
) -> NDArray[np.uint64]:
    """
    Draw words below the largest multiple of the modulus, shape (size,).

    :param words: the target, two words longer because the cipher needs room for one more block.
    """
    last = np.uint64(2**64 // modulus * modulus - 1)
    filled = 0
    while True:
        stream.update_into(_ZEROS[: 8 * (size - filled)], words[filled:].view(np.uint8).data)
        drawn = words[filled:size]
        if drawn.max() <= last:
            return words[:size]
        kept = drawn[drawn <= last]
        words[filled : filled + kept.size] = kept
        filled += kept.size
