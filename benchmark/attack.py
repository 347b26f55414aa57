# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""
How fast shadow models are trained, and what one model of the leakage study takes.

    tools/in_workspace python benchmark/attack.py --json attack.json

A shadow is a whole federation of the paper's size: 3 hospitals of 100 records, 50 rounds of 5
local epochs, with its noise. 128 of them in two processes, their start included, are
`shadows_128_s`. The peer is one such federation by the hospitals' own trainers, with ledgers and
checkpoints, times 128 over two. `surface_cell_s` is a cell of the surface over H and s, in one
process; 36 of them in two processes are at most 30 minutes if it is below 100 s.
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
from fdrl_ros.experiments.studies.leakage.settings import AttackSettings, REGIMES
from fdrl_ros.experiments.studies.leakage.simulation import SHAPE, Simulation, train_some
from fdrl_ros.experiments.studies.leakage.surface import measure_cell
from fdrl_ros.experiments.study import Work as PartWork
from fdrl_ros.learner.trainer import Trainer, TrainingSetup
from fdrl_ros.privacy.ledger.chain import Owner
from fdrl_ros.privacy.ledger.ledger import Ledger
from fdrl_ros.privacy.noise import NoiseSource
from fdrl_ros.runtime.progress import NOBODY
from fdrl_ros.runtime.worker_processes import run_tasks
from fdrl_ros.worlds.paper.env import PaperHospital
import numpy as np

SEED = 0
SHADOWS, WORKERS, HOSPITALS = 128, 2, 3
PAPER = REGIMES['paper']
"""With its noise, s = 0.1."""


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


def cell(folder: Path) -> Work:
    """Return work that measures one cell of the surface in this process."""
    settings = replace(AttackSettings(), noise=0.1)

    def work() -> int:
        measure_cell(settings, 1, work=PartWork(folder, ('surface part', 'one'), NOBODY))
        return 1

    return work


ROWS = (
    Row('shadows_128_s', 'shadows', None, '', 20.0, False),
    Row('shadow_s', 'shadow', 'federation', 'with ledgers and checkpoints', None, False),
    Row('surface_cell_s', 'cell', None, '', 100.0, False),
)


def main() -> None:
    """Measure, print, write."""
    parser = options('Measure how fast shadow models are trained.')
    given = parser.parse_args()
    check(parser, given)
    run = circumstances(given, SEED, ('numpy',), bind=False)
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        measurements = {
            'shadows': Measurement(shadows, 's'),
            'shadow': Measurement(shadow, 's'),
            'federation': Measurement(lambda: federation(folder), 's'),
            'cell': Measurement(lambda: cell(folder), 's'),
        }
        found = measure(measurements, given.repeats, given.seconds, warm=False)
    progress('')
    made = Table([row.name for row in ROWS], run)
    for row in ROWS:
        made.add(row, found)
    made.end()
    if given.json:
        write(given.json, made.written)


if __name__ == '__main__':
    main()
