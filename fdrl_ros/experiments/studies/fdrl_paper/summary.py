# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""The FDRL paper's experiments over seeds: every number with its interval."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict

from fdrl_ros.experiments.intervals import holm, over_seeds, p_value
from fdrl_ros.experiments.json_file import Json
from fdrl_ros.experiments.studies.fdrl_paper.claims import claims
from fdrl_ros.experiments.studies.fdrl_paper.rounds import ROUNDS
from fdrl_ros.experiments.studies.fdrl_paper.settings import FdrlSettings, TEMPERATURE
from fdrl_ros.experiments.studies.fdrl_paper.study import Measured
from fdrl_ros.experiments.studies.leakage.settings import DELTA
from fdrl_ros.experiments.studies.leakage.summary import summarise as summarise_leakage
from fdrl_ros.metrics.divergence import overall_effectiveness
from fdrl_ros.privacy.accountant.accountant import epsilon_paper, epsilon_pld, PAPER_ORDER

SIDES = ('federated', 'central')


def summarise(found: Measured, settings: FdrlSettings) -> Json:
    """
    Sum up over seeds.

    :returns: ``grid`` by H, s and policy; ``rounds`` by round; ``curves`` by records, way and
        policy; ``leakage`` and ``surface`` as their studies have them; ``cost``; ``spent``:
        epsilon by s; ``claims``: a row for each reading of a claim of the paper.
    """
    summary: Json = {
        'settings': asdict(settings),
        'seeds': list(settings.every_seed),
        'leakage': summarise_leakage(found.leakage, settings.attack()),
        'rounds': _rounds(found.rounds),
        'grid': {level: _grid(parts) for level, parts in found.grid.items()},
        'surface': found.surface,
        'spent': {f'{each:g}': _spent(each, settings) for each in found.surface['noises']},
        'curves': _curves(found.curves),
        'cost': found.cost,
    }
    return {**summary, 'claims': [each._asdict() for each in claims(summary, settings)]}


def _spent(noise: float, settings: FdrlSettings) -> Json:
    """Return the true epsilon of a hospital at some s, and that of the paper's formula."""
    charge = settings.regime(noise).charge(False, settings.hospitals)
    return {
        'epsilon': epsilon_pld([charge], DELTA),
        'epsilon_paper': epsilon_paper(PAPER_ORDER, charge.noise_multiplier),
        'epsilon_s': epsilon_paper(PAPER_ORDER, noise),
    }


def _grid(parts: Sequence[Json]) -> Json:
    """Return worth and D_KL at every s; policies that know no s stand at each of them."""
    rows = [
        {
            noise: {
                'worth': {
                    **each['worth'],
                    **part['any_noise'],
                    'federated_minus_alone': _lead(each['worth']),
                },
                'divergence': each['divergence'],
            }
            for noise, each in part['at'].items()
        }
        for part in parts
    ]
    return over_seeds(rows)


def _curves(found: Mapping[str, Sequence[Json]]) -> Json:
    """Return worth by records, and Holm's p of what federating adds to A_task, of all sizes."""
    curves = {size: _curve(parts) for size, parts in found.items()}
    leads = [each[way]['federated_minus_alone'] for each in curves.values() for way in each]
    corrected = holm([p_value(each['a_task']) for each in leads])
    for lead, p in zip(leads, corrected, strict=True):
        lead['p'] = p
    return curves


def _curve(parts: Sequence[Json]) -> Json:
    rows = [
        {
            way: {**worth, **part['any_size'], 'federated_minus_alone': _lead(worth)}
            for way, worth in part['worth'].items()
        }
        for part in parts
    ]
    return over_seeds(rows)


def _lead(worth: Json) -> Json:
    """Return what the federated policy is worth more than each hospital's own at home."""
    federated, alone = worth['federated'], worth['alone']
    names = ('a_task', 'value', 'success', 'r_mit')
    return {name: federated[name] - alone[name] for name in names}


def _rounds(parts: Sequence[Json]) -> Json:
    """Return PLR, D_KL, A_task and OPE (FDRL Eq. 24) of both sides, round by round."""
    return over_seeds([_by_round(part) for part in parts])


def _by_round(part: Json) -> Json:
    found: Json = {}
    tau = f'{TEMPERATURE:g}'
    for place, number in enumerate(ROUNDS):
        row: Mapping[str, Json] = part['rows'][place]
        both: Json = {}
        for side in SIDES:
            plr = part['plr'][side][place]['value']
            epsilon = part['epsilon'][side][place]
            divergence = row['divergence'][tau][side]
            both[side] = {
                'plr': plr,
                'divergence': divergence,
                'a_task': row['a_task'][side],
                'epsilon': epsilon,
                'ope': overall_effectiveness(min(1.0, max(0.0, plr)), divergence, epsilon),
            }
        found[str(number)] = both
    return found
