# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""All experiments of the FDRL paper, one after another; what is finished is not run again."""

from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

from fdrl_ros.deployment.plan import Plan
from fdrl_ros.experiments.json_file import Json
from fdrl_ros.experiments.studies.experiment import run_seeds
from fdrl_ros.experiments.studies.fdrl_paper.cost import run_cost
from fdrl_ros.experiments.studies.fdrl_paper.grid import run_grid
from fdrl_ros.experiments.studies.fdrl_paper.learning_curves import run_curves
from fdrl_ros.experiments.studies.fdrl_paper.rounds import run_rounds
from fdrl_ros.experiments.studies.fdrl_paper.settings import FdrlSettings
from fdrl_ros.experiments.studies.leakage.settings import PAPER, REGIMES
from fdrl_ros.experiments.studies.leakage.study import run_leakage
from fdrl_ros.experiments.studies.leakage.surface import run_surface
from fdrl_ros.resources import resource
from fdrl_ros.runtime.progress import Caller, NOBODY

SURGERY_PLAN = 'config/paper/fdrl.yaml'
"""The paper's setting in the surgical world."""


class Measured(NamedTuple):
    """
    What came out of every part.

    ``leakage``: by regime, of each seed; ``rounds``: of each seed; ``grid``: by H, of each seed;
    ``surface``: PLR over H and s; ``curves``: by records, of each
    seed; ``cost``: seconds.
    """

    leakage: dict[str, list[Json]]
    rounds: list[Json]
    grid: dict[str, list[Json]]
    surface: Json
    curves: dict[str, list[Json]]
    cost: Json


def run_surgery(directory: Path, settings: FdrlSettings, caller: Caller = NOBODY) -> Json:
    """
    Repeat the paper's setting in the surgical world: encrypted, with seeded noise.

    :returns: what :func:`~fdrl_ros.experiments.studies.experiment.run_seeds` returns.
    :raises TrainingStopped: as soon as the caller says so; call it again to go on.
    """
    changes: dict[str, dict[str, object]] = {
        'federation': {'noise': 'seeded'},
        'evaluation': {'round_patients': 1},
    }
    plan = Plan.read(resource(SURGERY_PLAN)).changed(changes)
    return run_seeds(directory / 'surgery', plan, settings.every_seed, caller)


def run_fdrl(directory: Path, settings: FdrlSettings, caller: Caller = NOBODY) -> Measured:
    """
    Run every experiment.

    :param directory: gets a folder of parts for each experiment, and is gone on from them.
    :raises TrainingStopped: as soon as the caller says so; call it again to go on.
    :raises StoreError: if a part is damaged, or of other settings.
    """
    attack = settings.attack()
    own = replace(attack, regimes=PAPER, noise=settings.noise)
    others = replace(attack, regimes=', '.join(each for each in REGIMES if each != PAPER))
    noisy = [each for each in settings.all_noises if each]
    return Measured(
        {
            **run_leakage(directory / 'leakage', own, caller),
            **run_leakage(directory / 'leakage', others, caller),
        },
        run_rounds(directory / 'rounds', settings, caller),
        run_grid(directory / 'policies', settings, caller),
        run_surface(directory / 'surface', attack, settings.all_levels, noisy, caller=caller),
        run_curves(directory / 'records', settings, caller),
        run_cost(directory / 'cost', settings, caller),
    )
