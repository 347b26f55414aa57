# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""
Encrypt, sum and decrypt a million weights of ten hospitals, and check that the sum is exact.

All parties' work is added up: quantise, pack and encrypt at ten hospitals, inspect each update
alone, add at the aggregator and again at the key authority, decrypt, unpack; with bounds on the
updates also project all masks and updates. `benchmark/crypto.py` counts masks apart. The work is
serial: its time is that of one core, without the time that the core worked for others.
"""

import time

from benchmarking import Row, Timed, Work
import crypto_work as work
from fdrl_ros.crypto.he.schemes import choose_scheme
import numpy as np

PARAMETERS = 1_000_000
SECONDS = Row('he_1m_s', 'million', None, '', 3.0, False)
"""Of all parties together, on one core."""
UNBOUNDED = Row('he_1m_without_bounds_s', 'unbounded million', None, '', 3.0, False)
"""The same if no update is bounded."""
BYTES = Row('he_1m_bytes', '', None, '', 10e6, False)
"""Ciphertexts that one hospital sends."""
UNBOUNDED_BYTES = Row('he_1m_without_bounds_bytes', '', None, '', 10e6, False)
"""The same if no update is bounded."""


def upload(*, bounded: bool = True) -> int:
    """Return the bytes of the ciphertexts of one update."""
    sizes = PARAMETERS, work.HOSPITALS, work.SETTINGS.bits
    scheme = choose_scheme(*sizes, projected=bounded)
    return scheme.ciphertexts * scheme.ciphertext_bytes


def exact_rounds(
    n_parameters: int = PARAMETERS, hospitals: int = work.HOSPITALS, *, bounded: bool = True
) -> Work:
    """
    Return work that times one round, s of one core, and checks that its sums are exact.

    The check is not timed.

    :raises RuntimeError: in the work, if a sum is off or an upload has not the stated bytes.
    """
    round = work.Round(work.Updates.draw(n_parameters, hospitals), bounded=bounded)
    masks, scheme, _ = round.masks, round.scheme, round.leftover

    def rounds() -> float:
        begun = time.process_time()
        slots = [round.slots(number) for number in range(hospitals)]
        sent = [round.encrypt(*each) for each in zip(slots, masks, strict=True)]
        found = scheme.unpack(round.slots_of_sum(sent))
        seconds = time.process_time() - begun
        if not np.array_equal(found, sum(scheme.unpack(each, count=1) for each in slots)):
            raise RuntimeError('the decrypted sum is not the sum')
        if {sum(map(len, each)) for each in sent} != {
            scheme.ciphertexts * scheme.ciphertext_bytes
        }:
            raise RuntimeError('an update has other bytes than stated')
        return seconds

    return rounds


def measurement(*, bounded: bool = True) -> Timed:
    """Return what `he_1m_s` measures, or the same without bounds."""
    return Timed(lambda: exact_rounds(bounded=bounded), 's')
