# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""
The way of an update: difference, scale, quantise, pack, mask, encrypt; and back for the sum.

What travels is the quantised (n_i / n_max) (theta_i - theta); the sum is applied as
theta + (n_max / sum n_i) sum (FDRL Eq. 2 and 6).
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, fields
from functools import lru_cache
import hashlib
import math

from fdrl_ros.crypto.he.encryption import PublicContext
from fdrl_ros.crypto.he.quantisation import Quantisation
from fdrl_ros.crypto.he.schemes import AnyScheme, choose_scheme, SCHEMES
from fdrl_ros.crypto.keys.roster import Roster
from fdrl_ros.crypto.masking.round_secret import joined
from fdrl_ros.crypto.masking.sketch import NormBound
from fdrl_ros.errors import CryptoError, MessageError
from fdrl_ros.federation.protocol.encoding import encode
from fdrl_ros.federation.protocol.message import EncryptionKey
import numpy as np

_TERMS = b'fdrl_ros terms of a round 1'


@dataclass(frozen=True)
class UpdateCodec:
    """How the updates of this federation become integers, and their sum a policy."""

    n_parameters: int
    quantisation: Quantisation
    scheme: AnyScheme
    bound: NormBound | None = None

    @classmethod
    def agree(
        cls,
        n_parameters: int,
        members: int,
        bits: int,
        limit: float,
        kind: str = 'bfv',
        *,
        norm: float = 0.0,
        projections: int = 0,
    ) -> 'UpdateCodec':
        """
        Derive scheme and quantisation from what the key authority announces.

        :param norm: largest L2 norm of an update; 0: that of all numbers at their limit.
        :param projections: of each update, by which the key authority bounds it.
        """
        quantisation = Quantisation(limit=limit, bits=bits, members=members)
        projected = projections > 0 and SCHEMES[kind].inspected
        scheme = choose_scheme(n_parameters, members, bits, kind, projected=projected)
        if not projected:
            return cls(n_parameters, quantisation, scheme)
        norm = norm or limit * math.sqrt(n_parameters)
        bound = NormBound(norm, projections, quantisation, scheme)
        return cls(n_parameters, quantisation, scheme, bound)

    @property
    def kind(self) -> str:
        """Name the scheme as the settings do."""
        return self.scheme.kind

    @property
    def slots(self) -> int:
        """Return how many integers mask an update: one for each slot of each ciphertext."""
        return self.scheme.ciphertexts * self.scheme.slots

    def encode(
        self, weights: np.ndarray, base: np.ndarray, share: float, uniforms: np.ndarray
    ) -> Iterator[np.ndarray]:
        """
        Quantise and pack an update, ciphertext by ciphertext; one that is too long is scaled down.

        :param weights: after training, shape (n_parameters,).
        :param base: the policy that training started from, same shape.
        :param share: n_i / n_max, in (0, 1].
        :param uniforms: for stochastic rounding, same shape, in (0, 1).
        :returns: rows of slots, shape (slots,), int64, one for each ciphertext.
        """
        size = self.scheme.integers_per_ciphertext
        if self.bound is not None:
            length = share * float(np.linalg.norm(weights.astype(np.float64) - base))
            if length > self.bound.norm:
                share *= self.bound.norm / length

        def integers(start: int) -> np.ndarray:
            part = slice(start, start + size)
            delta = share * (weights[part].astype(np.float64) - base[part])
            return self.quantisation.quantise(delta, uniforms[part])

        return self.scheme.pack_rows(map(integers, range(0, self.n_parameters, size)))

    def encrypt(
        self, slots: Iterable[np.ndarray], mask: np.ndarray, public: PublicContext
    ) -> Iterator[bytes]:
        """
        Mask packed slots modulo the plaintext modulus and encrypt row by row.

        :param slots: of :meth:`encode`.
        :param mask: shape (:attr:`slots`,).
        """
        modulus = self.scheme.plain_modulus
        pairs = zip(slots, mask.reshape(-1, self.scheme.slots), strict=True)
        masked = (self.scheme.completed((row + own) % modulus) for row, own in pairs)
        return map(public.encrypt, masked)

    def unmask(self, sums: np.ndarray, leftover: np.ndarray) -> np.ndarray:
        """
        Take off the decrypted sum what masks are left in it.

        :param sums: slots, shape (ciphertexts, slots), int64.
        :param leftover: of :func:`~fdrl_ros.crypto.masking.masks.leftover_mask`, of as many
            integers.
        :raises CryptoError: if the check slots of a sum do not fit.
        """
        for row in sums:
            self.scheme.check(row)
        unmasked: np.ndarray = (sums - leftover.reshape(sums.shape)) % self.scheme.plain_modulus
        return unmasked

    def average(self, sums: np.ndarray, sizes: list[int], n_max: int) -> np.ndarray:
        """
        Turn the unmasked sum of updates into their average, weighted by n_i.

        :param sums: slots, shape (ciphertexts, slots), int64.
        :param sizes: declared n_i of each summed hospital.
        :param n_max: the largest declared n_i of the roster.
        :returns: shape (n_parameters,), float64.
        :raises CryptoError: if a sum is out of range: the masks did not cancel.
        """
        if self.bound is not None:
            sums = self._clipped(sums, len(sizes))
        integers = self.scheme.unpack(sums, count=len(sizes))
        total = self.quantisation.dequantise_sum(integers, len(sizes))
        return n_max / sum(sizes) * total

    def _clipped(self, sums: np.ndarray, count: int) -> np.ndarray:
        """
        Clip what updates within their bound can push out of range, so that none stops the others.

        The modulus has room for it: numbers up to an eighth of it away from the middle of their
        range are clipped. Where masks did not cancel, some of the slots lie beyond that room,
        except with a probability of 4^-slots: these stay as they are.

        :param sums: slots, one number each; those after the last number hold 0.
        :param count: of the updates in each sum.
        """
        scheme, modulus, clipped = self.scheme, self.scheme.plain_modulus, sums.copy()
        left = self.n_parameters
        for row in clipped[:, : scheme.slots - scheme.checks]:
            for part, widest in ((row[:left], count * scheme.levels), (row[left:], 0)):
                middle, half = widest // 2, modulus // 2
                around = (part - middle + half) % modulus - half
                near = np.abs(around) <= modulus // 8
                part[near] = np.clip(around[near] + middle, 0, widest)
            left = max(0, left - scheme.integers_per_ciphertext)
        return clipped


@dataclass(frozen=True)
class Terms:
    """
    What a federation encrypts by, as the key authority announced it.

    :param content: SHA-256 digest of the canonical bytes of all fields of the announcement.
    """

    codec: UpdateCodec
    public: PublicContext
    content: bytes

    @classmethod
    def of(cls, codec: UpdateCodec, public: PublicContext, message: EncryptionKey) -> 'Terms':
        """Take an announcement that was checked."""
        named = (each.name for each in fields(message) if each.name != 'envelope')
        content = b''.join(encode(getattr(message, name)) for name in named)
        return cls(codec, public, hashlib.sha256(content).digest())

    def digest(self, policy_digest: bytes, roster: Roster) -> bytes:
        """
        Return the SHA-256 over all that hospitals must agree on for a sum to mean anything.

        :param policy_digest: of the policy that the round starts from.
        """
        parts = joined(_TERMS, self.content, policy_digest, roster.digest_bytes)
        return hashlib.sha256(parts).digest()


@lru_cache(maxsize=1)
def _public_context(data: bytes) -> PublicContext:
    """Read a context; parties of one process share it, 2 MB of tables with 6,928 weights."""
    return PublicContext.from_bytes(data)


def open_key(message: EncryptionKey) -> Terms:
    """
    Derive the scheme from an announcement, and check that its context is of that scheme.

    :raises MessageError: if it is not, or cannot be.
    """
    try:
        public = _public_context(message.context)
        codec = UpdateCodec.agree(
            message.n_parameters,
            message.members,
            message.bits,
            message.limit,
            public.scheme.kind,
            norm=message.norm,
            projections=message.projections,
        )
    except CryptoError as error:
        raise MessageError(message.sender, str(error)) from error
    if public.scheme != codec.scheme:
        raise MessageError(message.sender, 'a context of weaker or other parameters')
    return Terms.of(codec, public, message)
