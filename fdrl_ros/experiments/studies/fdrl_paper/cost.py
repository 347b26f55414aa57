# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""
What training and encryption cost (FDRL section II-B), on this machine, in processor seconds.

Local training is that of one epoch by the compiled arithmetic of the hospital's learner. Adding is
the aggregator's work for N updates, decrypting the key authority's for their sum, both under the
one scheme of the largest N. A round is the work of all parties for the least N: hospitals
quantise, mask and encrypt, the aggregator adds, the key authority decrypts. Signatures, shares and
disks are in neither.
"""

from collections.abc import Callable
from functools import partial
import math
from pathlib import Path
import statistics
import time

from fdrl_ros.crypto.he.encryption import SecretContext
from fdrl_ros.crypto.masking.masks import mask
from fdrl_ros.experiments.json_file import Json
from fdrl_ros.experiments.studies.fdrl_paper.settings import FdrlSettings
from fdrl_ros.experiments.studies.leakage.simulation import SHAPE, Simulation
from fdrl_ros.experiments.study import Part, Study, Work
from fdrl_ros.federation.protocol.update_codec import UpdateCodec
from fdrl_ros.leakage.shadow import Draws
from fdrl_ros.runtime.progress import Caller, NOBODY
import numpy as np
from numpy.typing import NDArray

RECORDS = (100, 200, 400, 800, 1600)
HOSPITALS = (3, 6, 12, 24, 48)
REPEATS = 5

_BITS, _LIMIT = 16, 1.0
_BATCH = 25


def run_cost(directory: Path, settings: FdrlSettings, caller: Caller = NOBODY) -> Json:
    """
    Measure once; a finished measurement is kept.

    :raises StoreError: if it is damaged, or of another form.
    """
    form = {'records': RECORDS, 'hospitals': HOSPITALS, 'repeats': REPEATS}
    part = Part('cost', form, (settings,), 'cost')
    return Study('costs', directory, measure_cost, _check).run([part], caller)[0]


def measure_cost(settings: FdrlSettings, work: Work) -> Json:
    """Return the seconds of every size, the least and the median of some repeats."""
    found: Json = {'local': {}, 'adding': {}, 'decrypting': {}}
    for records in RECORDS:
        work.check()
        found['local'][str(records)] = _timed(_epoch(records))
    exchange = Exchange(HOSPITALS[-1])
    for hospitals in HOSPITALS:
        work.check()
        sums = exchange.added(hospitals)
        found['adding'][str(hospitals)] = _timed(partial(exchange.added, hospitals))
        found['decrypting'][str(hospitals)] = _timed(partial(exchange.released, sums))
    powers = {
        name: _power({int(size): each['least'] for size, each in rows.items()})
        for name, rows in found.items()
    }
    least = Exchange(HOSPITALS[0])
    return {**found, 'powers': powers, 'round': _timed(least.round)}


def _epoch(records: int) -> Callable[[], object]:
    """Return the work of one local epoch of a hospital, with noise."""
    regime = FdrlSettings().of_records(4 * -(-records // 4), private=False)
    world = Simulation(regime, 1, 3, 0.5, 1)
    steps, own = math.ceil(records / _BATCH), np.arange(records)
    stepper = Simulation.stepper(regime, 0.1)
    rng = np.random.default_rng(1)
    lines = np.append(np.arange(0, records, _BATCH), records)
    noise = rng.standard_normal((steps, stepper.noise_size))

    def epoch() -> object:
        return stepper.train(world.start, world.table, own, Draws(own, lines, noise))

    return epoch


class Exchange:
    """Encrypted updates of hospitals, each under a mask of its own."""

    def __init__(self, hospitals: int) -> None:
        """Draw updates and masks, choose the scheme, and encrypt."""
        size, self.hospitals = SHAPE.n_parameters, hospitals
        self.codec = UpdateCodec.agree(size, hospitals, _BITS, _LIMIT)
        self.secret = SecretContext.generate(self.codec.scheme)
        rng = np.random.default_rng(1)
        self.base, self.updates = np.zeros(size), 0.1 * rng.standard_normal((hospitals, size))
        self._uniforms = rng.random(size)
        modulus, slots = self.codec.scheme.plain_modulus, self.codec.slots
        self.masks = [mask(rng.bytes(32), slots, modulus) for _ in range(hospitals)]
        self.sent = list(map(self._encrypted, range(hospitals)))

    def _encrypted(self, hospital: int) -> list[bytes]:
        codec = self.codec
        packed = codec.encode(self.updates[hospital], self.base, 1.0, self._uniforms)
        return list(codec.encrypt(packed, self.masks[hospital], self.secret.public))

    def added(self, hospitals: int) -> list[bytes]:
        """Return the sum of some updates, as ciphertexts."""
        rows = zip(*self.sent[:hospitals], strict=True)
        return [self.secret.public.add(each) for each in rows]

    def released(self, sums: list[bytes]) -> NDArray[np.int64]:
        """Return a decrypted sum, its masks still in it."""
        return np.array([self.secret.decrypt(each) for each in sums])

    def round(self) -> NDArray[np.float64]:
        """Do the work of all parties; return the mean update, shape (n_parameters,)."""
        self.sent = list(map(self._encrypted, range(self.hospitals)))
        rows = self.released(self.added(self.hospitals))
        left = np.sum(self.masks, axis=0) % self.codec.scheme.plain_modulus
        return self.codec.average(self.codec.unmask(rows, left), [1] * self.hospitals, n_max=1)


def _timed(work: Callable[[], object]) -> Json:
    """Return the processor seconds of some work, done several times."""
    work()
    seconds = []
    for _ in range(REPEATS):
        before = time.process_time()
        work()
        seconds.append(time.process_time() - before)
    return {'least': min(seconds), 'median': statistics.median(seconds)}


def _power(least: dict[int, float]) -> float:
    """Return b of seconds ~ size^b, by least squares of the logarithms."""
    sizes, seconds = np.log(list(least)), np.log(list(least.values()))
    return float(np.polyfit(sizes, seconds, 1)[0])


def _check(part: Json) -> None:
    """
    Refuse a part in which a number that is told is missing.

    :raises KeyError: if so.
    """
    for name, sizes in (('local', RECORDS), ('adding', HOSPITALS), ('decrypting', HOSPITALS)):
        for size in sizes:
            part[name][str(size)]['least']
        part['powers'][name]
    part['round']['median']
