# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""
PLR, D_KL and exact A_task round by round (FDRL Fig. 3): the federation and its baseline.

PLR of a policy is measured by the attack that stands for a released policy in the leakage study,
on every policy of some rounds; of the baseline at the same share of its 15 epochs.
"""

from dataclasses import asdict
import math
from pathlib import Path

from fdrl_ros.experiments.json_file import Json
from fdrl_ros.experiments.studies.fdrl_paper.policies import actions_of, mean_of
from fdrl_ros.experiments.studies.fdrl_paper.settings import FdrlSettings, PAPER_NOISE
from fdrl_ros.experiments.studies.leakage.settings import DELTA, Regime
from fdrl_ros.experiments.studies.leakage.simulation import Round, SHAPE, Simulation, Weights
from fdrl_ros.experiments.studies.leakage.study import LARGEST_LOSS, TEMPERATURES, values_in
from fdrl_ros.experiments.study import Part, Study, Work
from fdrl_ros.leakage.attacks import calibrated, loss_scores
from fdrl_ros.leakage.measures import leakage_rate
from fdrl_ros.leakage.shadow import Draws, ShadowTrainer
from fdrl_ros.metrics.divergence import federated_divergence, policy_divergence
from fdrl_ros.privacy.accountant.accountant import Charge, epsilon_pld
from fdrl_ros.runtime.progress import Caller, NOBODY
from fdrl_ros.runtime.random_streams import Stream
from fdrl_ros.worlds.paper.env import PaperHospital
from fdrl_ros.worlds.paper.utility import agreement
import numpy as np

ROUNDS = (1, 5, 10, 15, 20, 25, 30, 35, 40, 45, 50)
"""Rounds that are looked at."""

_VALUED = 8  # models whose D_KL and A_task are measured
_RELEVANT = ('hospitals', 'heterogeneity', 'noise', 'models', 'resamples')


def run_rounds(directory: Path, settings: FdrlSettings, caller: Caller = NOBODY) -> list[Json]:
    """
    Measure every seed.

    :raises TrainingStopped: as soon as the caller says so; call it again to go on.
    :raises StoreError: if a part is damaged, or of other settings.
    """
    parts = [
        Part(
            f'seed{seed}',
            {
                **settings.relevant(_RELEVANT),
                'seed': seed,
                'looked_at': ROUNDS,
                'regime': asdict(settings.regime(settings.noise)),
            },
            (settings, seed),
            f'rounds, seed {seed}',
        )
        for seed in settings.every_seed
    ]
    study = Study('rounds', directory, measure_rounds, _check, settings.workers)
    return study.run(parts, caller)


def measure_rounds(settings: FdrlSettings, seed: int, work: Work) -> Json:
    """Train all models of one seed; return both curves, an entry for each of :data:`ROUNDS`."""
    regime = settings.regime(settings.noise)
    world = Simulation(regime, seed, settings.hospitals, settings.heterogeneity, 1)
    baseline = _Baseline(world, settings.regime(PAPER_NOISE, matched=False))
    members, errors, rows = [], [], []
    for index in range(settings.models):
        work.check()
        part = world.members(index)
        rounds = [
            each for each in world.federate(part, _rng(seed, index, 0)) if each.number in ROUNDS
        ]
        central = baseline.stages(part, _rng(seed, index, 1))
        both = ([each.after for each in rounds], central)
        errors.append([[world.errors(each) for each in side] for side in both])
        if index < _VALUED:
            rows.append([_row(world.homes, *each) for each in zip(rounds, central, strict=True)])
        members.append(part)
        work.tell(index + 1, settings.models + 1, 'trains')
    rng = _rng(seed, 0, 2)
    seen, bits = np.array(errors), np.array(members)  # models, side, round, record
    plr = [
        [
            leakage_rate(
                calibrated(loss_scores(seen[:, side, place], LARGEST_LOSS)),
                bits,
                rng,
                settings.resamples,
            )._asdict()
            for place in range(len(ROUNDS))
        ]
        for side in range(2)
    ]
    charge = regime.charge(False, settings.hospitals)
    steps = world.trainer.round_steps(regime.records)
    spent = [
        epsilon_pld([Charge(charge.noise_multiplier, regime.rate, steps * each)], DELTA)
        if charge.noise_multiplier
        else math.inf
        for each in ROUNDS
    ]
    return {
        'plr': {'federated': plr[0], 'central': plr[1]},
        'epsilon': {'federated': spent, 'central': baseline.spent()},
        'rows': [mean_of([row[place] for row in rows]) for place in range(len(ROUNDS))],
    }


class _Baseline:
    """The paper's centralised baseline, looked at on its way."""

    def __init__(self, world: Simulation, regime: Regime) -> None:
        self.world, self.regime = world, regime
        self.privacy = regime.privacy(True, world.hospitals)
        self.trainer = ShadowTrainer(SHAPE, regime.learner(True), self.privacy)
        steps = regime.steps(True)
        self.steps = [max(1, round(steps * each / ROUNDS[-1])) for each in ROUNDS]

    def stages(self, members: np.ndarray, rng: np.random.Generator) -> list[Weights]:
        """Return the policies after each stage: one run of the optimizer, seen on its way."""
        pooled = np.flatnonzero(members)
        rate, size = self.regime.rate, self.trainer.noise_size
        whole = Draws.seeded(rng, self.steps[-1], len(pooled), rate, size)
        found = []
        for steps in self.steps:
            noise = None if whole.noise is None else whole.noise[:steps]
            starts = whole.starts[: steps + 1]
            some = Draws(whole.joined[: starts[-1]], starts, noise)
            weights = self.trainer.train(self.world.start, self.world.table, pooled, some)
            found.append(weights.astype(np.float32))
        return found

    def spent(self) -> list[float]:
        """Return epsilon after each stage."""
        sigma, rate = self.privacy.noise_multiplier, self.regime.rate
        return [epsilon_pld([Charge(sigma, rate, each)], DELTA) for each in self.steps]


def _row(homes: list[PaperHospital], seen: Round, central: Weights) -> Json:
    """Return D_KL and A_task of one round."""
    own, after = [values_in(each) for each in seen.trained], values_in(seen.after)
    other = values_in(central)
    return {
        'a_task': {
            'federated': agreement(homes, actions_of(seen.after)).a_task,
            'central': agreement(homes, actions_of(central)).a_task,
        },
        'divergence': {
            f'{tau:g}': {
                'federated': federated_divergence(own, after, tau),
                'central': policy_divergence(after, other, tau),
            }
            for tau in TEMPERATURES
        },
    }


def _rng(seed: int, model: int, purpose: int) -> np.random.Generator:
    return np.random.default_rng([Stream.LEAKAGE, seed, 11, purpose, model])


def _check(part: Json) -> None:
    """
    Refuse a part in which a number that is told is missing.

    :raises KeyError: if so.
    """
    for side in ('federated', 'central'):
        part['plr'][side][len(ROUNDS) - 1]['value']
        part['epsilon'][side][len(ROUNDS) - 1]
    part['rows'][len(ROUNDS) - 1]['divergence']
