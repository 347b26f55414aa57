# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""The leakage study: attacks from every seat, over regimes and seeds; finished parts are kept."""

from collections.abc import Mapping
from pathlib import Path

from fdrl_ros.experiments.json_file import Json
from fdrl_ros.experiments.studies.leakage.settings import AttackSettings, DELTA, Regime
from fdrl_ros.experiments.studies.leakage.simulation import (
    ERROR,
    Model,
    SHAPE,
    Simulation,
)
from fdrl_ros.experiments.study import Part, Study, Work
from fdrl_ros.leakage.attacks import (
    calibrated,
    likelihood_ratios,
    log_errors,
    loss_scores,
    ranked_candidates,
    recall,
)
from fdrl_ros.leakage.measures import Estimate, leakage_rate, Roc
from fdrl_ros.leakage.records_seen import batch_of, gradients_at
from fdrl_ros.leakage.shadow import Draws, ShadowTrainer
from fdrl_ros.metrics.divergence import federated_divergence, policy_divergence
from fdrl_ros.privacy.accountant.accountant import epsilon_paper, epsilon_pld, PAPER_ORDER
from fdrl_ros.privacy.accountant.leakage_bounds import bounds_of_guarantee, leakage_bounds
from fdrl_ros.runtime.progress import Caller, NOBODY
from fdrl_ros.runtime.random_streams import Stream
from fdrl_ros.worlds.paper.env import PaperHospital, STATES
from fdrl_ros.worlds.paper.law import ACTION_COUNT, ended, GRID, SIZE
import numpy as np
from numpy.typing import NDArray

FPR = 0.01
"""At which the TPR is told."""

TEMPERATURES = (0.01, 0.03, 0.1, 0.3, 1.0)
"""Tau of the policies whose D_KL is told; the paper names none."""

LARGEST_LOSS = 1.0
"""Errors beyond count as that where losses are calibrated; chosen on seed 901."""

RULED = 'calibrated loss'
"""The attack whose PLR stands for a released policy; chosen on seed 901."""

CONTROL = 'shuffled'
"""Name of the attack whose membership bits are of other coins, in every seat."""

_DIVERGENT = 8  # models whose D_KL is measured
_INVERSIONS = 8  # updates of each kind that are inverted
_SMALL_NOISE = 0.001  # s of one noised step in the inversion

PROBES: NDArray[np.float32] = STATES[~ended(GRID)]
"""The states in which policies are compared: all in which an operation goes on."""


def run_leakage(
    directory: Path, settings: AttackSettings, caller: Caller = NOBODY
) -> dict[str, list[Json]]:
    """
    Measure every regime with every seed.

    :param directory: gets ``parts/``, one JSON file a regime and seed, and is gone on from them.
    :returns: by regime, what :func:`measure` returns of each seed.
    :raises TrainingStopped: as soon as the caller says so; call it again to go on.
    :raises StoreError: if a part is damaged, or of other settings.
    """
    seeds = range(settings.seed, settings.seed + settings.seeds)
    parts = [
        Part(
            f'{name}_{seed}',
            {**settings.relevant(name), 'seed': seed},
            (settings, name, seed),
            f'{name}, seed {seed}',
            effort=settings.regime(name).steps(False),
        )
        for name in settings.names
        for seed in seeds
    ]
    study = Study('leakage', directory / 'parts', measure, _check, settings.workers)
    found = iter(study.run(parts, caller))
    return {name: [next(found) for _ in seeds] for name in settings.names}


def measure(settings: AttackSettings, name: str, seed: int, work: Work) -> Json:
    """Measure one regime with one seed: train all models, then attack each by the others."""
    regime = settings.regime(name)
    world = Simulation(regime, seed, settings.hospitals, settings.heterogeneity, settings.observed)
    models = []
    for index in range(settings.models):
        work.check()
        models.append(world.model(index))
        work.tell(index + 1, settings.models + 1, 'trains')
    members = np.array([each.members for each in models])
    seen = {key: np.array([each.seen[key] for each in models]) for key in sorted(models[0].seen)}
    rng = np.random.default_rng([Stream.LEAKAGE, seed, 0, 1])
    return {
        'attacks': attacks(seen, members, rng, settings.resamples, work),
        'bounds': _bounds(regime, settings.hospitals),
        'divergence': _divergence(models[:_DIVERGENT]),
        'inversion': _inversion(world, rng),
        'prior': prior_recall(world),
    }


def attacks(
    seen: Mapping[tuple[str, str], NDArray[np.float64]],
    members: NDArray[np.bool_],
    rng: np.random.Generator,
    resamples: int,
    work: Work | None = None,
) -> Json:
    """
    Attack every seat by everything that it sees.

    :param seen: by seat and kind, shape (models, records).
    :returns: by seat, by attack: AUC, TPR and PLR, each with interval and what it is surely above.
    """
    found: Json = {}
    for (seat, kind), observed in seen.items():
        word, plain, steady, spread = kind, observed, observed, observed
        if kind == ERROR:
            word, plain, spread = 'loss', loss_scores(observed), log_errors(observed)
            steady = loss_scores(observed, LARGEST_LOSS)
        other = rng.random(members.shape) < 0.5
        each = {
            word: (plain, members),
            f'calibrated {word}': (calibrated(steady), members),
            f'lira {word}': (likelihood_ratios(spread, members), members),
            f'{CONTROL} {word}': (likelihood_ratios(spread, other), other),
        }
        for name, (score, bits) in each.items():
            if work is not None:
                work.check()
            auc, tpr = Roc(score, bits).bootstrapped(FPR, rng, resamples)
            told = leakage_rate(score, bits, rng, resamples)
            row = {'auc': _row(auc), 'tpr': _row(tpr), 'plr': _row(told)}
            found.setdefault(seat, {})[name] = row
    return found


def _row(found: Estimate) -> Json:
    return {**found._asdict(), 'surely_above': found.surely_above}


def _bounds(regime: Regime, hospitals: int) -> Json:
    """Return epsilons, and what differential privacy bounds, federated and centralised."""
    found: Json = {}
    for name, central in (('federated', False), ('central', True)):
        charge = regime.charge(central, hospitals)
        epsilon = epsilon_pld([charge], DELTA)
        found[name] = {
            'sigma_m': charge.noise_multiplier,
            's': charge.noise_multiplier
            * regime.clip_norm
            / regime.privacy(central, hospitals).batch,
            'steps': charge.steps,
            'epsilon': epsilon,
            'delta': DELTA,
            'epsilon_paper': epsilon_paper(PAPER_ORDER, charge.noise_multiplier),
            'pair': leakage_bounds([charge], FPR)._asdict(),
            'guarantee': bounds_of_guarantee(epsilon, DELTA, FPR)._asdict(),
        }
    return found


def _divergence(models: list[Model]) -> Json:
    """Return D_KL by temperature, the mean over models (FDRL Eq. 19 and 20)."""
    found: Json = {}
    for temperature in TEMPERATURES:
        rows = []
        for each in models:
            values = [
                values_in(own.values) for own in (*each.hospitals, each.released, each.central)
            ]
            *hospitals, released, central = values
            rows.append(
                (
                    federated_divergence(hospitals, released, temperature),
                    policy_divergence(released, central, temperature),
                )
            )
        federated, central = np.mean(rows, axis=0)
        found[f'{temperature:g}'] = {'federated': float(federated), 'central': float(central)}
    return found


def values_in(
    weights: NDArray[np.float32], states: NDArray[np.float32] = PROBES
) -> NDArray[np.float32]:
    """Return Q in some states, by default all that go on, shape (states, actions)."""
    *hidden, (value, value_bias), (advantage, bias) = SHAPE.split(weights)
    at = states
    for matrix, each in hidden:
        at = np.tanh(at @ matrix.T + each)
    gains = at @ advantage.T + bias
    found: NDArray[np.float32] = (
        gains - gains.mean(axis=1, keepdims=True) + at @ value.T + value_bias
    )
    return found


def _inversion(world: Simulation, rng: np.random.Generator) -> Json:
    """
    Return how many (s, a) of a hospital's records are found in updates from the public start.

    :returns: by kind of update, the mean recall, and that of chance.
    """
    regime, start = world.regime, world.start
    dictionary, atoms = candidates(start)
    plain = Simulation.stepper(regime, 0.0)
    noised = Simulation.stepper(regime, _SMALL_NOISE)
    updates: dict[str, list[NDArray[np.float64]]] = {}
    truths: dict[str, list[NDArray[np.int64]]] = {}
    codes = _codes(world.table, dictionary)
    for _ in range(_INVERSIONS):
        members = rng.random(len(world.table)) < 0.5
        own = world.own(members)
        joined = own[0][rng.random(len(own[0])) < regime.rate]
        if not len(joined):
            continue
        trained = [world.local_round(rng, start, mine) for mine in own]
        changes = [made.astype(np.float64) - start for made in trained]
        for name, change, who in (
            ('one step', _one_step(plain, world, joined, rng), joined),
            ('one step, s = 0.001', _one_step(noised, world, joined, rng), joined),
            ('own round', changes[0], own[0]),
            ('aggregate of a round', np.mean(changes, axis=0), own[0]),
        ):
            updates.setdefault(name, []).append(change)
            truths.setdefault(name, []).append(np.unique(codes[who]))
    found: Json = {}
    for name, rows in updates.items():
        ranked = ranked_candidates(np.array(rows), atoms)
        pairs = list(zip(ranked, truths[name], strict=True))
        found[name] = {
            'recall': float(np.mean([recall(row, true) for row, true in pairs])),
            'chance': float(np.mean([len(true) for _, true in pairs]) / len(atoms)),
        }
    return found


def prior_recall(world: Simulation) -> Json:
    """
    Return the recall of whoever sees no update and names the likeliest (s, a) of a public patient.

    :returns: of the records of one step, and of a round, the means over draws of members.
    """
    law = PaperHospital().law
    going = np.flatnonzero(~ended(GRID))
    ranked = np.argsort(-np.repeat(law.start_chances()[going], ACTION_COUNT), kind='stable')
    dictionary, _ = candidates(world.start)
    codes = _codes(world.table, dictionary)
    rng = np.random.default_rng([Stream.LEAKAGE, world.seed, 0, 3])
    found: dict[str, list[float]] = {'step': [], 'round': []}
    for _ in range(_INVERSIONS):
        own = world.own(rng.random(len(world.table)) < 0.5)[0]
        joined = own[rng.random(len(own)) < world.regime.rate]
        for name, who in (('step', joined), ('round', own)):
            if len(who):
                found[name].append(recall(ranked, np.unique(codes[who])))
    return {name: float(np.mean(each)) for name, each in found.items()}


def _one_step(
    trainer: ShadowTrainer, world: Simulation, joined: NDArray[np.int64], rng: np.random.Generator
) -> NDArray[np.float64]:
    """Return the update of a single step of plain descent by those who joined."""
    size = trainer.noise_size
    noise = rng.standard_normal((1, size)) if size else None
    draws = Draws(np.arange(len(joined)), np.array([0, len(joined)]), noise)
    return trainer.train(world.start, world.table, joined, draws) - world.start


def candidates(
    weights: NDArray[np.float32],
) -> tuple[NDArray[np.float32], NDArray[np.float64]]:
    """
    Return every state that goes on with every action, and the gradient of its Q value.

    :returns: lines of a table without what follows, shape (1728, 13), and gradients, shape
        (1728, n_parameters).
    """
    values = values_in(weights)
    lines = np.zeros((len(PROBES), ACTION_COUNT, 2 * SIZE + 3), np.float32)
    lines[..., :SIZE] = PROBES[:, None, :]
    lines[..., -1] = np.arange(ACTION_COUNT)
    lines[..., -3] = values - 0.5  # an error of 1 / 2, with a discount of 0
    table = lines.reshape(-1, lines.shape[-1])
    trainer = Simulation.stepper(Regime('gradients'), 0.0)
    found = gradients_at(trainer, weights, batch_of(table, SIZE))
    return table, found.formed() / found.errors[:, None]


def _codes(table: NDArray[np.float32], dictionary: NDArray[np.float32]) -> NDArray[np.int64]:
    """Return which candidate each line of a table is."""
    known = {(*line[:SIZE].tolist(), line[-1]): place for place, line in enumerate(dictionary)}
    return np.array([known[(*line[:SIZE].tolist(), line[-1])] for line in table], np.int64)


def _check(part: Json) -> None:
    """
    Refuse a part in which a number that is told is missing, or cannot be.

    :raises KeyError: if one is missing.
    :raises ValueError: if one is out of its range.
    """
    for seat in ('central', 'released', 'aggregate', 'own', 'aggregator', 'coalition'):
        for attack in part['attacks'][seat].values():
            for name, least in (('auc', 0.0), ('tpr', 0.0), ('plr', -1.0)):
                if not least <= attack[name]['value'] <= 1.0:
                    raise ValueError(f'{name} of {seat} is {attack[name]["value"]}')
    for side in ('federated', 'central'):
        part['bounds'][side]['pair']['auc']
    for temperature in TEMPERATURES:
        part['divergence'][f'{temperature:g}']['federated']
    part['inversion']['one step']['recall']
    part['prior']['round']
