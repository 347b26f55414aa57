# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""
The way of an update: difference, scale, quantise, pack, mask, encrypt; and back for the sum.

What travels is the quantised (n_i / n_max) (theta_i - theta); the sum is applied as
theta + (n_max / sum n_i) sum (FDRL Eq. 2 and 6).
"""

from dataclasses import dataclass

from fdrl_ros.crypto.encryption import choose_scheme, PublicContext, Scheme
from fdrl_ros.crypto.quantisation import Quantisation
from fdrl_ros.errors import CryptoError, MessageError
from fdrl_ros.federation.message import EncryptionKey
import numpy as np


@dataclass(frozen=True)
class UpdateCodec:
    """How the updates of this federation become integers, and their sum a policy."""

    n_parameters: int
    quantisation: Quantisation
    scheme: Scheme

    @classmethod
    def agree(cls, n_parameters: int, members: int, bits: int, limit: float) -> 'UpdateCodec':
        """Derive scheme and quantisation from what the key authority announces."""
        return cls(
            n_parameters,
            Quantisation(limit=limit, bits=bits, members=members),
            choose_scheme(n_parameters, members, bits),
        )

    def encode(
        self, weights: np.ndarray, base: np.ndarray, share: float, uniforms: np.ndarray
    ) -> np.ndarray:
        """
        Quantise and pack an update.

        :param weights: after training, shape (n_parameters,).
        :param base: the policy that training started from, same shape.
        :param share: n_i / n_max, in (0, 1].
        :param uniforms: for stochastic rounding, same shape, in (0, 1).
        :returns: slots, shape (ciphertexts, slots), int64.
        """
        delta = share * (weights.astype(np.float64) - base.astype(np.float64))
        return self.scheme.pack(self.quantisation.quantise(delta, uniforms))

    def encrypt(
        self, slots: np.ndarray, mask: np.ndarray, public: PublicContext
    ) -> tuple[bytes, ...]:
        """Mask packed slots modulo the plaintext modulus and encrypt each row."""
        masked = (slots + mask) % self.scheme.plain_modulus
        return tuple(public.encrypt(row) for row in masked)

    def masked_slots(self) -> tuple[int, int]:
        """Return the shape of a whole update's masks: (ciphertexts, slots)."""
        return self.scheme.ciphertexts, self.scheme.slots

    def unmask(self, sums: np.ndarray, leftover: np.ndarray) -> np.ndarray:
        """
        Take off the decrypted sum what masks are left in it.

        :param sums: slots, shape (ciphertexts, slots), int64.
        :param leftover: of :func:`~fdrl_ros.crypto.masking.leftover_mask`, of as many integers.
        """
        unmasked: np.ndarray = (sums - leftover.reshape(sums.shape)) % self.scheme.plain_modulus
        return unmasked

    def apply_sum(
        self, sums: np.ndarray, base: np.ndarray, sizes: list[int], n_max: int
    ) -> np.ndarray:
        """
        Turn the decrypted sum of updates into the next policy.

        :param sums: slots, shape (ciphertexts, slots), int64.
        :param base: the policy that training started from, shape (n_parameters,).
        :param sizes: declared n_i of each summed hospital.
        :param n_max: the largest declared n_i of the roster.
        :returns: shape (n_parameters,), float32.
        :raises CryptoError: if a sum is out of range: the masks did not cancel.
        """
        integers = self.scheme.unpack(sums, self.n_parameters)
        highest = len(sizes) * (2**self.quantisation.bits - 1)
        if integers.min() < 0 or integers.max() > highest:
            raise CryptoError(f'the sum of {len(sizes)} updates lies outside [0, {highest}]')
        total = self.quantisation.dequantise_sum(integers, len(sizes))
        return (base.astype(np.float64) + n_max / sum(sizes) * total).astype(np.float32)


def open_key(message: EncryptionKey) -> tuple[UpdateCodec, PublicContext]:
    """
    Derive the scheme from an announcement, and check that its context is of that scheme.

    :raises MessageError: if it is not, or cannot be.
    """
    try:
        codec = UpdateCodec.agree(
            message.n_parameters, message.members, message.bits, message.limit
        )
        public = PublicContext.from_bytes(message.context)
    except CryptoError as error:
        raise MessageError(message.envelope.sender, str(error)) from error
    if public.scheme != codec.scheme:
        raise MessageError(message.envelope.sender, 'a context of weaker or other parameters')
    return codec, public
