# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""
Encrypt, sum and decrypt a million weights of ten hospitals, and check that the sum is exact.

All parties' work is added up: quantise, pack and encrypt at ten hospitals, add at the aggregator
and again at the key authority, decrypt, unpack. `benchmark/crypto.py` counts masks apart. The work
is serial: its time is that of one core, without the time that the core worked for others.
"""

import time

from benchmarking import Row, Timed, Work
import crypto_work as work
from fdrl_ros.crypto.he.schemes import choose_scheme
import numpy as np

PARAMETERS = 1_000_000
SECONDS = Row('he_1m_s', 'million', None, '', 3.0, False)
"""Of all parties together, on one core."""
BYTES = Row('he_1m_bytes', '', None, '', 10e6, False)
"""Ciphertexts that one hospital sends."""


def upload(n_parameters: int = PARAMETERS, hospitals: int = work.HOSPITALS) -> int:
    """Return the bytes of the ciphertexts of one update."""
    scheme = choose_scheme(n_parameters, hospitals, work.SETTINGS.bits)
    return scheme.ciphertexts * scheme.ciphertext_bytes


def exact_rounds(n_parameters: int = PARAMETERS, hospitals: int = work.HOSPITALS) -> Work:
    """
    Return work that times one round, s of one core, and checks that its sums are exact.

    The check is not timed.

    :raises RuntimeError: in the work, if a sum is off or an upload has not the stated bytes.
    """
    round = work.Round(work.Updates.draw(n_parameters, hospitals))

    def rounds() -> float:
        begun = time.process_time()
        slots = [round.slots(number) for number in range(hospitals)]
        sent = [round.encrypt(each) for each in slots]
        sums, again = round.add(sent), round.add(sent)
        found = round.scheme.unpack(round.decrypt(sums))
        seconds = time.process_time() - begun
        expected = sum(round.scheme.unpack(each, count=1) for each in slots)
        if sums != again or not np.array_equal(found, expected):
            raise RuntimeError('the decrypted sum is not the sum')
        bytes_sent = {sum(map(len, each)) for each in sent}
        if bytes_sent != {upload(n_parameters, hospitals)}:
            raise RuntimeError(f'{bytes_sent} bytes of an update')
        return seconds

    return rounds


def measurement() -> Timed:
    """Return what `he_1m_s` measures."""
    return Timed(exact_rounds, 's')
