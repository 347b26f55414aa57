# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""
PLR and exact A_task of the released policy over heterogeneity H and noise s (FDRL Fig. 4 to 6).

A cell is the paper's regime at one H and one s, with several seeds. All models of a cell and seed
have the same candidates and public start, so that each is attacked with all others as its shadows.
The seed, not the model, is the unit of intervals. The membership coins of a seed are the same in
every cell, so differences between cells are paired by seed.
"""

from collections.abc import Sequence
from dataclasses import replace
import itertools
import math
from pathlib import Path

from fdrl_ros.experiments.intervals import interval_words, over_seeds
from fdrl_ros.experiments.json_file import Json
from fdrl_ros.experiments.studies.leakage.settings import AttackSettings, PAPER
from fdrl_ros.experiments.studies.leakage.simulation import ERROR, Simulation
from fdrl_ros.experiments.studies.leakage.study import attacks, RULED, values_in
from fdrl_ros.experiments.study import Part, Study, Work
from fdrl_ros.privacy.accountant.leakage_bounds import leakage_bounds
from fdrl_ros.runtime.progress import Caller, NOBODY
from fdrl_ros.runtime.random_streams import Stream
from fdrl_ros.worlds.paper.env import STATES
from fdrl_ros.worlds.paper.utility import Utility, utility
import numpy as np

HETEROGENEITIES = (0.0, 0.2, 0.4, 0.6, 0.8, 1.0)
NOISES = (0.01, 0.025, 0.063, 0.16, 0.4, 1.0)
"""Standard deviations s on the averaged gradient, over the paper's range."""

SHARE = 4
"""A cell has that many times fewer models of a seed than the attacks from every seat."""

_VALUED = 4  # models whose utility is measured


def run_surface(
    directory: Path,
    settings: AttackSettings,
    levels: Sequence[float],
    noises: Sequence[float],
    caller: Caller = NOBODY,
) -> Json:
    """
    Measure every cell with every seed; settings' noise, heterogeneity and regimes do not count.

    :param directory: gets ``cells/``, one JSON file a cell and seed, and is gone on from them.
    :param levels: of H.
    :param noises: s.
    :returns: levels, and the cells in rows of one H, every number as its interval over seeds.
    :raises TrainingStopped: as soon as the caller says so; call it again to go on.
    :raises StoreError: if a part is damaged, or of other settings.
    """
    seeds = range(settings.seed, settings.seed + settings.seeds)
    parts = [
        Part(
            f'H{level:g}_s{noise:g}_seed{seed}', {**own.relevant(PAPER), 'seed': seed}, (own, seed)
        )
        for level, noise in itertools.product(levels, noises)
        for own in [replace(fewer(settings), heterogeneity=level, noise=noise)]
        for seed in seeds
    ]
    study = Study('surface', directory / 'cells', measure_cell, _check, settings.workers)
    found = iter(study.run(parts, caller))
    rows = [[over_seeds([next(found)['cell'] for _ in seeds]) for _ in noises] for _ in levels]
    return {
        'heterogeneities': list(levels),
        'noises': list(noises),
        'models': fewer(settings).models,
        'seeds': list(seeds),
        'rows': rows,
    }


def fewer(settings: AttackSettings) -> AttackSettings:
    """Return settings with the models of one cell and seed."""
    return replace(settings, models=max(4, math.ceil(settings.models / SHARE)))


def measure_cell(settings: AttackSettings, seed: int, work: Work) -> Json:
    """Measure one cell with one seed: train all models, and attack each by the others."""
    regime = settings.regime(PAPER)
    world = Simulation(regime, seed, settings.hospitals, settings.heterogeneity, settings.observed)
    errors, members, useful = [], [], []
    for index in range(settings.models):
        work.check()
        weights = world.train(index).values
        errors.append(world.errors(weights))
        if index < _VALUED:
            useful.append(utility(world.homes, np.argmax(values_in(weights, STATES), axis=1)))
        members.append(world.members(index))
        work.tell(index + 1, settings.models + 1, 'trains')
    rng = np.random.default_rng([Stream.LEAKAGE, seed, 0, 2])
    seen = {('released', ERROR): np.array(errors)}
    found = attacks(seen, np.array(members), rng, settings.resamples, work)['released'][RULED]
    bounds = leakage_bounds([regime.charge(False, settings.hospitals)])
    return {
        'cell': {
            **{name: each['value'] for name, each in found.items()},
            'bound': bounds.information,
            **Utility(*map(float, np.mean(useful, axis=0)))._asdict(),
        }
    }


def surface_rows(summary: Json, metric: str = 'plr', form: str = '.4f') -> list[tuple[str, ...]]:
    """Return rows of cells as text: H, then the metric with its interval at each s."""
    rows: list[tuple[str, ...]] = []
    for level, cells in zip(summary['heterogeneities'], summary['rows'], strict=True):
        words = (interval_words(each[metric], form) for each in cells)
        rows.append((f'{level:g}', *words))
    return rows


def utility_rows(summary: Json) -> list[tuple[str, ...]]:
    """Return rows of text: H, the exact A_task at each s, its ceiling; and the same of return."""
    rows = []
    for name, most in (('a_task', 'ceiling'), ('value', 'expert')):
        for level, cells in zip(summary['heterogeneities'], summary['rows'], strict=True):
            words = (f'{each[name]["mean"]:.3f}' for each in cells)
            rows.append((name, f'{level:g}', *words, f'{cells[0][most]["mean"]:.3f}'))
    return rows


def _check(part: Json) -> None:
    """
    Refuse a cell without its number.

    :raises KeyError: if so.
    """
    part['cell']['plr'], part['cell']['bound'], part['cell']['a_task']
