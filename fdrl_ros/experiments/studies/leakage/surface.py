# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""
PLR and exact A_task of the released policy over heterogeneity H and noise s (FDRL Fig. 4 to 6).

A cell is the paper's regime at one H and one s. All models of a cell have the same candidates and
public start, so that each is attacked with all others as its shadows.
"""

from collections.abc import Sequence
from dataclasses import replace
import itertools
from pathlib import Path

from fdrl_ros.experiments.json_file import Json
from fdrl_ros.experiments.studies.leakage.settings import AttackSettings, PAPER
from fdrl_ros.experiments.studies.leakage.simulation import ERROR, Simulation
from fdrl_ros.experiments.studies.leakage.study import attacks, RULED, values_in
from fdrl_ros.experiments.studies.leakage.utility import Utility, utility
from fdrl_ros.experiments.study import Part, Study, Work
from fdrl_ros.privacy.accountant.leakage_bounds import leakage_bounds
from fdrl_ros.runtime.progress import Caller, NOBODY
from fdrl_ros.runtime.random_streams import Stream
from fdrl_ros.worlds.paper.env import STATES
import numpy as np

HETEROGENEITIES = (0.0, 0.2, 0.4, 0.6, 0.8, 1.0)
NOISES = (0.01, 0.025, 0.063, 0.16, 0.4, 1.0)
"""Standard deviations s on the averaged gradient, over the paper's range."""

_VALUED = 16  # models whose utility is measured


def run_surface(
    directory: Path,
    settings: AttackSettings,
    levels: Sequence[float],
    noises: Sequence[float],
    caller: Caller = NOBODY,
) -> Json:
    """
    Measure every cell; settings' noise, heterogeneity, regimes and seeds do not count.

    :param directory: gets ``cells/``, one JSON file each, and is gone on from them.
    :param levels: of H.
    :param noises: s.
    :returns: levels, and the cells in rows of one H.
    :raises TrainingStopped: as soon as the caller says so; call it again to go on.
    :raises StoreError: if a part is damaged, or of other settings.
    """
    parts = [
        Part(f'H{level:g}_s{noise:g}', {**own.relevant(PAPER), 'seed': own.seed}, (own,))
        for level, noise in itertools.product(levels, noises)
        for own in [replace(settings, heterogeneity=level, noise=noise)]
    ]
    study = Study('surface', directory / 'cells', measure_cell, _check, settings.workers)
    cells = study.run(parts, caller)
    width = len(noises)
    return {
        'heterogeneities': list(levels),
        'noises': list(noises),
        'models': settings.models,
        'rows': [cells[start : start + width] for start in range(0, len(cells), width)],
    }


def measure_cell(settings: AttackSettings, work: Work) -> Json:
    """Measure one cell: train all models, and attack each by the others."""
    regime = settings.regime(PAPER)
    world = Simulation(
        regime, settings.seed, settings.hospitals, settings.heterogeneity, settings.observed
    )
    errors, members, useful = [], [], []
    for index in range(settings.models):
        work.check()
        weights = world.train(index).values
        errors.append(world.errors(weights))
        if index < _VALUED:
            useful.append(utility(world.homes, np.argmax(values_in(weights, STATES), axis=1)))
        members.append(world.members(index))
        work.tell(index + 1, settings.models + 1, 'trains')
    rng = np.random.default_rng([Stream.LEAKAGE, settings.seed, 0, 2])
    seen = {('released', ERROR): np.array(errors)}
    found = attacks(seen, np.array(members), rng, settings.resamples, work)
    bounds = leakage_bounds([regime.charge(False, settings.hospitals)])
    return {
        'found': found['released'][RULED],
        'bounds': bounds._asdict(),
        'utility': Utility(*map(float, np.mean(useful, axis=0)))._asdict(),
    }


def surface_rows(summary: Json, metric: str = 'plr', form: str = '.4f') -> list[tuple[str, ...]]:
    """Return rows of cells as text: H, then the metric with its interval at each s."""
    rows: list[tuple[str, ...]] = []
    for level, cells in zip(summary['heterogeneities'], summary['rows'], strict=True):
        found = [each['found'][metric] for each in cells]
        words = (
            f'{each["value"]:{form}} [{each["low"]:{form}}, {each["high"]:{form}}]'
            for each in found
        )
        rows.append((f'{level:g}', *words))
    return rows


def utility_rows(summary: Json) -> list[tuple[str, ...]]:
    """Return rows of text: H, the exact A_task at each s, its ceiling; and the same of return."""
    rows = []
    for name, most in (('a_task', 'ceiling'), ('value', 'expert')):
        for level, cells in zip(summary['heterogeneities'], summary['rows'], strict=True):
            found = [each['utility'] for each in cells]
            words = (f'{each[name]:.3f}' for each in found)
            rows.append((name, f'{level:g}', *words, f'{found[0][most]:.3f}'))
    return rows


def _check(part: Json) -> None:
    """
    Refuse a cell without its number.

    :raises KeyError: if so.
    """
    part['found']['plr']['value']
    part['bounds']['information']
    part['utility']['a_task']
