# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""
What our encrypted round is compared with: NVFlare's encryption, and FedAvg in the clear.

NVFlare's own numbers and order of work, carried out by TenSEAL itself: CKKS, N = 8192, primes of
60, 40 and 40 bits, scale 2^40, relinearisation keys, one secret key that all hospitals share, by
which they encrypt. A hospital multiplies each layer by its weight and encrypts it as a vector of
its own; each vector travels with a copy of the context. The server rebuilds both, adds, multiplies
by one over the sum of weights, and sends vectors and contexts back; hospitals decrypt.
"""

import pickle
from typing import Any

from benchmarking import has, quiet, Skipped, Work
from crypto_work import LAYERS, shapes, Updates
import numpy as np
from numpy.typing import NDArray

DEGREE, PRIMES, SCALE = 8192, [60, 40, 40], 2.0**40


class Nvflare:
    """
    A round with NVFlare's encryption.

    :param updates: what is averaged.
    :param flat: whether all layers go into one vector and no context travels, which NVFlare does
        not do: what its parameters could reach.
    :raises Skipped: if TenSEAL is not installed.
    """

    def __init__(self, updates: Updates, *, flat: bool = False) -> None:
        if not has('tenseal'):
            raise Skipped('tenseal is missing: pip install tenseal')
        import tenseal

        self._tenseal: Any = tenseal
        made = tenseal.context(
            tenseal.SCHEME_TYPE.CKKS,
            poly_modulus_degree=DEGREE,
            coeff_mod_bit_sizes=PRIMES,
            encryption_type=tenseal.ENCRYPTION_TYPE.SYMMETRIC,
        )
        made.generate_relin_keys()
        made.global_scale = SCALE
        keys = {'save_galois_keys': False, 'save_relin_keys': True}
        self._secret = self._context(made.serialize(save_secret_key=True, **keys))
        self._public = self._context(made.serialize(save_secret_key=False, **keys))
        self.updates = updates
        sizes = [int(np.prod(shape)) for shape in shapes(LAYERS)]
        self._cuts = [] if flat else list(np.cumsum(sizes)[:-1])
        self._flat = flat

    def _context(self, data: bytes) -> Any:
        return self._tenseal.context_from(data)

    def encrypt(self, hospital: int) -> list[tuple[bytes, bytes]]:
        """Return what a hospital sends: each layer's vector, and the context with it."""
        layers = np.split(self.updates.values[hospital], self._cuts)
        weight = np.float64(self.updates.sizes[hospital])
        vectors = [self._tenseal.ckks_vector(self._secret, each * weight) for each in layers]
        return [self._write(each) for each in vectors]

    def add(self, sent: list[list[tuple[bytes, bytes]]]) -> list[Any]:
        """Return the mean of each layer, encrypted, as the server has it."""
        totals: list[Any] = []
        for hospital in sent:
            vectors = [self._read(each, self._public) for each in hospital]
            pairs = zip(totals, vectors, strict=True)
            totals = [one + other for one, other in pairs] if totals else vectors
        return [each * (1.0 / sum(self.updates.sizes)) for each in totals]

    def send(self, means: list[Any]) -> list[tuple[bytes, bytes]]:
        """Return what the server sends to each hospital."""
        return [self._write(each) for each in means]

    def decrypt(self, sent: list[tuple[bytes, bytes]]) -> NDArray[np.float64]:
        """Return the mean as one hospital has it."""
        vectors = [self._read(each, self._secret) for each in sent]
        key = self._secret.secret_key()
        return np.concatenate([np.array(each.decrypt(key)) for each in vectors])

    def run(self, decryptions: int) -> NDArray[np.float64]:
        """
        Play the round and return the mean.

        :param decryptions: how many of the hospitals decrypt; in NVFlare all of them do.
        """
        with quiet():  # TenSEAL warns of each vector that takes more than one ciphertext
            sent = [self.encrypt(hospital) for hospital in range(len(self.updates.sizes))]
            answer = self.send(self.add(sent))
            return [self.decrypt(answer) for _ in range(decryptions)][-1]

    def upload(self) -> int:
        """Return the bytes that one hospital sends."""
        with quiet():
            return sum(len(vector) + len(context) for vector, context in self.encrypt(0))

    def _write(self, vector: Any) -> tuple[bytes, bytes]:
        return vector.serialize(), b'' if self._flat else vector.context().serialize()

    def _read(self, data: tuple[bytes, bytes], own: Any) -> Any:
        vector, context = data
        return self._tenseal.ckks_vector_from(self._context(context) if context else own, vector)


def nvflare_rounds(updates: Updates, *, decryptions: int = 1, flat: bool = False) -> Work:
    """
    Return work that is a round with NVFlare's encryption; it counts rounds.

    :raises Skipped: if TenSEAL is not installed.
    """
    round = Nvflare(updates, flat=flat)

    def work() -> int:
        round.run(decryptions)
        return 1

    return work


def plain_upload(updates: Updates) -> bytes:
    """Return what a hospital sends in the clear: its weights, pickled."""
    return pickle.dumps(updates.values[0], pickle.HIGHEST_PROTOCOL)


def plain_round(updates: Updates) -> NDArray[np.float32]:
    """Average in the clear, in float32, with what travels pickled."""
    sent = [pickle.dumps(each, pickle.HIGHEST_PROTOCOL) for each in updates.values]
    values = np.stack([pickle.loads(each) for each in sent])
    shares = np.array(updates.sizes, dtype=np.float32) / np.float32(sum(updates.sizes))
    mean: NDArray[np.float32] = pickle.loads(pickle.dumps(shares @ values))
    return mean


def plain_rounds(updates: Updates) -> Work:
    """Return work that averages in the clear; it counts rounds."""

    def work() -> int:
        plain_round(updates)
        return 1

    return work
