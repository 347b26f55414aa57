# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""
The seam to an encryption library: the four things it has to do (FDRL Eq. 6).

It makes keys, encrypts under the public one, decrypts under the secret one, and tells how much
noise it met. Everything goes in and out as arrays of residues whose shape and range the caller
has checked. Choosing and checking parameters, packing, masking, adding, the form on the wire and
the flooding of CKKS are ours and lie above the seam, so that another library takes TenSEAL's
place by offering :class:`Backend`.
"""

from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

# Residues of polynomials, shape (..., primes, N), each below its prime.
Residues = NDArray[np.uint64]


class Backend(Protocol):
    """
    One key pair of a scheme, or its public half, held by an encryption library.

    What a message is depends on the scheme. For BFV: the slots, integers in [0, t), shape (N,).
    For CKKS: the coefficients of the polynomial itself, residues of shape (data primes, N), to
    which decryption adds the noise. Ciphertexts are given by coefficients, not in NTT form.

    On what it refuses, a library raises :class:`~fdrl_ros.errors.CryptoError`.
    """

    def __init__(
        self, scheme: Any, *, public_key: Residues, secret_key: Residues | None = None
    ) -> None:
        """
        Take keys that :meth:`generate` made.

        :param scheme: checked parameters.
        :param public_key: shape (2, primes, N).
        :param secret_key: shape (primes, N), or nothing for the public half.
        """

    @classmethod
    def generate(cls, scheme: Any) -> tuple[Residues, Residues]:
        """Return a fresh public key, shape (2, primes, N), and secret key, (primes, N)."""

    def encrypt(self, message: NDArray[Any]) -> Residues:
        """Encrypt one message under the public key; returns shape (2, data primes, N)."""

    def decrypt(self, residues: Residues) -> tuple[NDArray[Any], int | None]:
        """
        Decrypt one ciphertext of shape (2, data primes, N).

        :returns: the message, and the bits of noise budget left where the scheme has one.
        """
