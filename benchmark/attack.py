# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""
How fast shadow models are trained, and what leakage study and audit take.

    tools/in_workspace python benchmark/attack.py --json attack.json

A shadow is a whole federation of the paper's size: 3 hospitals of 100 records, 50 rounds of 5
local epochs, with its noise. 128 of them in two processes, their start included, are
`shadows_128_s`. The peer of one shadow is one such federation by the hospitals' own trainers, with
ledgers and checkpoints. `surface_min` is the surface over H and s, 36 cells of 10 seeds of 33
models, in two processes: by default two opposite cells are measured with one seed, and the others
taken to last as long; with --whole all are, once.

An audit has noise, coins and steps of DP-DQN: 500 patients, sigma_m 2.6, q 0.256, 288 steps and
7,248 weights, here with records of random numbers. Each repeat is one audit with another seed;
`audit_tightness` is its estimate of epsilon over the claim.
"""

from dataclasses import replace
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
from fdrl_ros.experiments.studies.leakage.settings import AttackSettings, REGIMES
from fdrl_ros.experiments.studies.leakage.simulation import SHAPE, Simulation, train_some
from fdrl_ros.experiments.studies.leakage.surface import (
    fewer,
    HETEROGENEITIES,
    measure_cell,
    NOISES,
    run_surface,
)
from fdrl_ros.experiments.study import Part, Study
from fdrl_ros.learner.records.records import Records
from fdrl_ros.learner.settings import LearnerSettings, PrivacySettings
from fdrl_ros.learner.trainer import Trainer, TrainingSetup
from fdrl_ros.policy import NetworkShape
from fdrl_ros.privacy.ledger.chain import Owner
from fdrl_ros.privacy.ledger.ledger import Ledger
from fdrl_ros.privacy.noise import NoiseSource
from fdrl_ros.runtime.progress import NOBODY
from fdrl_ros.runtime.worker_processes import run_tasks
from fdrl_ros.worlds.paper.env import PaperHospital
import numpy as np

SEED = 1
SHADOWS, WORKERS, HOSPITALS = 128, 2, 3
PAPER = REGIMES['paper']
"""With its noise, s = 0.1."""

SURFACE = AttackSettings(workers=WORKERS)
CORNERS = ((HETEROGENEITIES[0], NOISES[0]), (HETEROGENEITIES[-1], NOISES[-1]))
"""H and s of the cells that are measured."""

PATIENTS, LENGTH, ROUNDS = 500, 60, 6
AUDITED = NetworkShape(states=31, actions=15, hidden=(64, 64))
PRIVACY = PrivacySettings(batch=128, noise_multiplier=2.6, delta=1e-5, budget=math.inf)


def shadows() -> Work:
    """Return work that trains 128 shadow federations in two processes."""
    seeds = itertools.count(SEED)

    def work() -> int:
        each, seed = SHADOWS // WORKERS, next(seeds)
        tasks = [('paper', seed, first, each) for first in range(0, SHADOWS, each)]
        run_tasks(train_some, tasks, workers=WORKERS, caller=NOBODY)
        return 1

    return work


def shadow() -> Work:
    """Return work that trains one shadow federation."""
    world = Simulation(PAPER, SEED, HOSPITALS, 0.5, 1)
    indices = itertools.count()

    def work() -> int:
        world.train(next(indices))
        return 1

    return work


def federation(folder: Path) -> Work:
    """Return work that trains one such federation by the hospitals' own trainers."""
    start = SHAPE.draw(np.random.default_rng(SEED))
    privacy = PAPER.privacy(False, HOSPITALS)

    def work() -> int:
        home = Path(tempfile.mkdtemp(dir=folder))
        trainers = []
        for each in range(HOSPITALS):
            own = home / str(each)
            own.mkdir()
            owner = Owner(
                hospital=f'h{each}', unit=privacy.unit, delta=privacy.delta, budget=math.inf
            )
            ledger = Ledger(own / 'ledger.sqlite', owner)
            setup = TrainingSetup(
                SHAPE, PAPER.learner(False), privacy, ledger, NoiseSource.seeded(each)
            )
            records = PaperHospital(each, HOSPITALS, 0.5, SEED).records(PAPER.records, SEED)
            trainers.append(Trainer(setup, records, own / 'checkpoint'))
        weights = start
        for round in range(1, PAPER.rounds + 1):
            made = [
                each.train(weights, round, report=lambda told: None, stopped=lambda: False).weights
                for each in trainers
            ]
            weights = np.mean(made, axis=0, dtype=np.float64).astype(np.float32)
        for each in trainers:
            each.ledger.close()
        return 1

    return work


def surface(folder: Path, whole: bool) -> Work:
    """
    Return work that measures cells of the surface, side by side, and returns their share of it.

    :param whole: whether to measure all of them.
    """

    def work() -> float:
        if whole:
            run_surface(Path(tempfile.mkdtemp(dir=folder)), SURFACE, HETEROGENEITIES, NOISES)
            return 1.0
        parts = [
            Part(f'{level}_{noise}', {}, (own, SURFACE.seed))
            for level, noise in CORNERS
            for own in [replace(fewer(SURFACE), heterogeneity=level, noise=noise)]
        ]
        Study('surface', None, measure_cell, workers=SURFACE.workers).run(parts)
        return len(parts) / (len(HETEROGENEITIES) * len(NOISES) * SURFACE.seeds)

    return work


def records() -> Records:
    """Return records of random numbers."""
    rng, count = np.random.default_rng(SEED), PATIENTS * LENGTH
    return Records(
        states=rng.normal(size=(count, AUDITED.states)).astype(np.float32),
        actions=rng.integers(AUDITED.actions, size=count),
        rewards=rng.normal(size=count).astype(np.float32),
        next_states=rng.normal(size=(count, AUDITED.states)).astype(np.float32),
        terminals=np.zeros(count, np.bool_),
        starts=np.arange(0, count + 1, LENGTH),
        patients=np.array([f'patient {each}' for each in range(PATIENTS)]),
    )


def audits(folder: Path, shares: list[float]) -> Work:
    """
    Return work that audits once, with another seed each time.

    :param shares: gets the estimate over the claim.
    """
    whole = Audit(records(), AUDITED, LearnerSettings(), PRIVACY, ROUNDS, AuditSettings())
    seeds = itertools.count(SEED)

    def work() -> int:
        seed, own = next(seeds), Path(tempfile.mkdtemp(dir=folder))
        made = whole.run(own, NoiseSource.seeded(seed), np.random.default_rng(seed))
        assert not made.faults, made.faults
        shares.append(made.bounds['estimated'] / made.claimed)
        return 1

    return work


ROWS = (
    Row('shadows_128_s', 'shadows', None, '', 20.0, False),
    Row('shadow_s', 'shadow', 'federation', 'with ledgers and checkpoints', None, False),
    Row('surface_min', 'surface', None, '', 30.0, False),
    Row('audit_s', 'audit', None, '', 10.0, False),
    Row('audit_tightness', 'tightness', None, '', 0.95),
)


def main() -> None:
    """Measure, print, write."""
    parser = options('Measure how fast leakage is attacked and noise audited, and how tightly.')
    parser.add_argument(
        '--whole', action='store_true', help='measure all cells of the surface, in many minutes'
    )
    given = parser.parse_args()
    check(parser, given)
    run, shares = circumstances(given, SEED, ('numpy',), bind=False), list[float]()
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        minutes = {'surface': Measurement(lambda: surface(folder, given.whole), 'min')}
        found = {
            'shadows': Measurement(shadows, 's'),
            'shadow': Measurement(shadow, 's'),
            'federation': Measurement(lambda: federation(folder), 's'),
            'audit': Measurement(lambda: audits(folder, shares), 's'),
        }
        if given.whole:
            measure(found, given.repeats, given.seconds, warm=False)
            measure(minutes, 1, given.seconds, warm=False)
        else:
            measure(found | minutes, given.repeats, given.seconds, warm=False)
    progress('')
    tightness = Measurement(lambda: lambda: 0.0, '1', shares)
    made = Table([row.name for row in ROWS], run)
    for row in ROWS:
        made.add(row, {**found, **minutes, 'tightness': tightness})
    made.end()
    cells = len(HETEROGENEITIES) * len(NOISES) * SURFACE.seeds
    made.written['surface_min']['cells_measured'] = cells if given.whole else len(CORNERS)
    if not given.whole:
        times = cells / len(CORNERS)
        print(f'surface_min is {times:g} times what {len(CORNERS)} cells of one seed take.')
    if given.json:
        write(given.json, made.written)


if __name__ == '__main__':
    main()
