# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""
What training and encryption cost (FDRL section II-B), on this machine, in processor seconds.

Local training is that of one epoch by the compiled arithmetic of the hospital's learner. A round
of encryption is the work of all parties: N hospitals quantise, mask and encrypt an update, the
aggregator adds, the key authority decrypts. Signatures, shares and disks are in neither.
"""

from collections.abc import Callable
import math
from pathlib import Path
import statistics
import time

from fdrl_ros.crypto.he.encryption import SecretContext
from fdrl_ros.experiments.json_file import Json
from fdrl_ros.experiments.studies.fdrl_paper.settings import FdrlSettings
from fdrl_ros.experiments.studies.leakage.simulation import SHAPE, Simulation
from fdrl_ros.experiments.study import Part, Study, Work
from fdrl_ros.federation.protocol.update_codec import UpdateCodec
from fdrl_ros.leakage.shadow import Draws
from fdrl_ros.runtime.progress import Caller, NOBODY
import numpy as np

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
    found: Json = {'local': {}, 'round': {}}
    for records in RECORDS:
        work.check()
        found['local'][str(records)] = _timed(_epoch(records))
    for hospitals in HOSPITALS:
        work.check()
        found['round'][str(hospitals)] = _timed(_round(hospitals))
    for name in ('local', 'round'):
        found[f'{name}_power'] = _power({int(k): v['least'] for k, v in found[name].items()})
    return found


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


def _round(hospitals: int) -> Callable[[], object]:
    """Return the work of all parties in one encrypted round of so many hospitals."""
    size = SHAPE.n_parameters
    codec = UpdateCodec.agree(size, hospitals, _BITS, _LIMIT)
    secret = SecretContext.generate(codec.scheme)
    public = secret.public
    rng = np.random.default_rng(1)
    base, weights = np.zeros(size), 0.1 * rng.standard_normal(size)
    uniforms, mask = rng.random(size), np.zeros(codec.slots, np.int64)

    def whole_round() -> object:
        sent = [
            list(codec.encrypt(codec.encode(weights, base, 1.0, uniforms), mask, public))
            for _ in range(hospitals)
        ]
        sums = [public.add(each) for each in zip(*sent, strict=True)]
        rows = np.array([secret.decrypt(each) for each in sums])
        return codec.average(codec.unmask(rows, mask), [1] * hospitals, 1)

    return whole_round


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
    for name, sizes in (('local', RECORDS), ('round', HOSPITALS)):
        for size in sizes:
            part[name][str(size)]['least']
    part['local_power'] + part['round_power']
