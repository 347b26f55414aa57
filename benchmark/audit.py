# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""
How long an audit takes, and how near its estimate of epsilon comes to the claim.

    tools/in_workspace python benchmark/audit.py --json audit.json

The noise, coins and steps are those of DP-DQN: 500 patients, sigma_m 2.6, q 0.256, 288 steps and
7,248 weights, here with records of random numbers. Each repeat is one audit with another seed.
"""

import itertools
import math
from pathlib import Path
import tempfile

from benchmarking import (
    check,
    circumstances,
    measure,
    Measurement,
    options,
    progress,
    Row,
    Table,
    Work,
    write,
)
from fdrl_ros.audit.privacy_audit import Audit, AuditSettings
from fdrl_ros.learner.records.records import Records
from fdrl_ros.learner.settings import LearnerSettings, PrivacySettings
from fdrl_ros.policy import NetworkShape
from fdrl_ros.privacy.noise import NoiseSource
import numpy as np

SEED = 1
PATIENTS, LENGTH, ROUNDS = 500, 60, 6
SHAPE = NetworkShape(states=31, actions=15, hidden=(64, 64))
PRIVACY = PrivacySettings(batch=128, noise_multiplier=2.6, delta=1e-5, budget=math.inf)


def records() -> Records:
    """Return records of random numbers."""
    rng, count = np.random.default_rng(SEED), PATIENTS * LENGTH
    return Records(
        states=rng.normal(size=(count, SHAPE.states)).astype(np.float32),
        actions=rng.integers(SHAPE.actions, size=count),
        rewards=rng.normal(size=count).astype(np.float32),
        next_states=rng.normal(size=(count, SHAPE.states)).astype(np.float32),
        terminals=np.zeros(count, np.bool_),
        starts=np.arange(0, count + 1, LENGTH),
        patients=np.array([f'patient {each}' for each in range(PATIENTS)]),
    )


def audits(folder: Path, shares: list[float]) -> Work:
    """
    Return work that audits once, with another seed each time.

    :param shares: gets the estimate over the claim.
    """
    whole = Audit(records(), SHAPE, LearnerSettings(), PRIVACY, ROUNDS, AuditSettings())
    seeds = itertools.count(SEED)

    def work() -> int:
        seed, own = next(seeds), Path(tempfile.mkdtemp(dir=folder))
        made = whole.run(own, NoiseSource.seeded(seed), np.random.default_rng(seed))
        assert not made.faults, made.faults
        shares.append(made.bounds['estimated'] / made.claimed)
        return 1

    return work


ROWS = (
    Row('audit_s', 'audit', None, '', 10.0, False),
    Row('audit_tightness', 'tightness', None, '', 0.95),
)


def main() -> None:
    """Measure, print, write."""
    parser = options('Measure how long an audit takes, and how tight it is.')
    given = parser.parse_args()
    check(parser, given)
    run, shares = circumstances(given, SEED, ('numpy',), bind=False), list[float]()
    with tempfile.TemporaryDirectory() as folder:
        measurements = {'audit': Measurement(lambda: audits(Path(folder), shares), 's')}
        found = measure(measurements, given.repeats, given.seconds, warm=False)
    progress('')
    tightness = Measurement(lambda: lambda: 0.0, '1', shares)
    made = Table([row.name for row in ROWS], run)
    for row in ROWS:
        made.add(row, {**found, 'tightness': tightness})
    made.end()
    if given.json:
        write(given.json, made.written)


if __name__ == '__main__':
    main()
