# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""
Slots that tell whether whoever encrypted a row knew what is in it (spec section 4).

To a ciphertext of BFV anybody can add (0, q p / t). It then decrypts to its message plus the
product of p with the secret key, slot by slot: a hospital that signs such an update as its own
would find the key in the released policy, whatever the masks. So each row ends with sums of its
other slots, each with other public weights. The sums of honest rows keep that. Who adds what he
does not know has to guess as many sums of it: one of them can be made easy to guess, the others
are then dense in the coefficients of the key, and a wrong guess shows nothing but that it was
wrong. Masks that did not cancel are found the same way.
"""

from functools import cache
import hashlib
import math
from typing import Final

from cryptography.hazmat.primitives.ciphers import Cipher
from cryptography.hazmat.primitives.ciphers.algorithms import AES256
from cryptography.hazmat.primitives.ciphers.modes import CTR
import numpy as np
from numpy.typing import NDArray

_WEIGHTS = b'fdrl_ros weights of check slots 1'
_GUESS_BITS: Final = 64

# Slots and weights in parts of so many bits: thousands of their products add up in 63 bits.
_SLOT_BITS, _WEIGHT_BITS = 30, 16


def checks_for(modulus: int) -> int:
    """Return how many check slots leave a guess a chance of 2^-64, one being easy."""
    return 1 + math.ceil(_GUESS_BITS / math.log2(modulus))


def check_sums(slots: NDArray[np.int64], modulus: int) -> NDArray[np.int64]:
    """
    Return the check slots of rows.

    :param slots: shape (rows, slots), each in [0, modulus).
    :param modulus: plaintext modulus t, below 2^60.
    :returns: shape (rows, checks), each in [0, modulus).
    """
    checks = checks_for(modulus)
    low, high = _weights(slots.shape[1], checks)
    sums = np.zeros((len(slots), checks), dtype=np.int64)
    for row, into in zip(slots, sums, strict=True):
        parts = row & 2**_SLOT_BITS - 1, row >> _SLOT_BITS
        into[:] = [
            sum(
                int(part @ weights[:, check]) << slot_shift + weight_shift
                for part, slot_shift in zip(parts, (0, _SLOT_BITS), strict=True)
                for weights, weight_shift in ((low, 0), (high, _WEIGHT_BITS))
            )
            % modulus
            for check in range(checks)
        ]
    return sums


@cache
def _weights(slots: int, checks: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return low and high halves of the weights, which everybody knows, shape (slots, checks)."""
    key = hashlib.sha256(_WEIGHTS).digest()
    data = Cipher(AES256(key), CTR(bytes(16))).encryptor().update(bytes(4 * slots * checks))
    halves = np.frombuffer(data, '<u2').astype(np.int64).reshape(2, checks, slots)
    low, high = halves.transpose(0, 2, 1)
    return np.asfortranarray(low), np.asfortranarray(high)
