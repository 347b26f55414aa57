# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""The leakage study over seeds: intervals, what beats what, bounds, D_KL and OPE, in sentences."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict
import math

from fdrl_ros.experiments.intervals import (
    Interval,
    interval_words,
    over_seeds,
    paired,
    percent_change,
    sign_of,
)
from fdrl_ros.experiments.json_file import Json
from fdrl_ros.experiments.studies.leakage.settings import AttackSettings
from fdrl_ros.experiments.studies.leakage.study import CONTROL, RULED, TEMPERATURES
from fdrl_ros.metrics.divergence import overall_effectiveness
from fdrl_ros.privacy.accountant.accountant import epsilon_paper, PAPER_ORDER

METRICS = ('auc', 'tpr', 'plr')

EPSILONS = {
    'epsilon': 'true epsilon',
    'epsilon_paper': 'epsilon by the formula, sigma = sigma_m',
    'epsilon_s': 'epsilon by the formula, sigma = s',
}
"""Readings of epsilon in OPE; the paper's formula is alpha / (2 sigma^2)."""

SEATS = {
    'central': 'released centralised policy',
    'released': 'released federated policy',
    'aggregate': "every round's aggregate",
    'own': "a hospital's own update, masks off",
    'coalition': 't - 1 hospitals',
    'aggregator': 'aggregator: masked integers',
}
"""Who attacks, in the order of tables."""

MEMORISED = 0.8
"""AUC on the released centralised policy that the attacks are to reach in that regime."""

_SIDES = {'central': 'central'}


def summarise(found: Mapping[str, Sequence[Json]], settings: AttackSettings) -> Json:
    """
    Sum up over seeds.

    :param found: by regime, what :func:`~fdrl_ros.experiments.studies.leakage.study.measure`
        returns of each seed.
    """
    seeds = list(range(settings.seed, settings.seed + settings.seeds))
    return {
        'settings': asdict(settings),
        'seeds': seeds,
        'regimes': {
            name: {'what': settings.regime(name).what, **_regime(parts)}
            for name, parts in found.items()
        },
    }


def _regime(parts: Sequence[Json]) -> Json:
    rows = [
        {
            seat: {
                attack: {metric: each[metric]['value'] for metric in METRICS}
                for attack, each in attacks.items()
            }
            for seat, attacks in part['attacks'].items()
        }
        for part in parts
    ]
    seats = over_seeds(rows)
    if len(parts) == 1:  # the chance of models then, since there is none of seeds
        for seat, attacks in parts[0]['attacks'].items():
            for attack, each in attacks.items():
                for metric in METRICS:
                    ends = {name: each[metric][name] for name in ('low', 'high')}
                    seats[seat][attack][metric].update(ends)
    best = {seat: strongest(attacks) for seat, attacks in seats.items()}
    bounds = parts[0]['bounds']
    return {
        'seats': seats,
        'strongest': best,
        'own_minus_aggregate': paired(
            *([row[seat][best[seat]]['auc'] for row in rows] for seat in ('own', 'aggregate'))
        ),
        'plr': _comparison(
            [row['released'][RULED]['plr'] for row in rows],
            [row['central'][RULED]['plr'] for row in rows],
        ),
        'bounds': bounds,
        'broken': _broken(parts),
        'control': _control(seats),
        'divergence': over_seeds([part['divergence'] for part in parts]),
        'effectiveness': _effectiveness(parts),
        'inversion': over_seeds([part['inversion'] for part in parts]),
        'prior': over_seeds([part['prior'] for part in parts]),
    }


def strongest(attacks: Json) -> str:
    """Return the attack of a seat whose mean AUC is the highest; the control is none."""
    real = [name for name in attacks if not name.startswith(CONTROL)]
    return max(real, key=lambda name: attacks[name]['auc']['mean'])


def _comparison(federated: list[float], central: list[float]) -> Json:
    """
    Compare the PLR of both released policies, paired by seed.

    A change in percent is told only where the interval of the centralised PLR excludes 0.
    """
    change = percent_change(federated, central)
    return {'difference': paired(federated, central), 'change_percent': change}


def _broken(parts: Sequence[Json]) -> list[str]:
    """Name every number that is surely (99.9 %) above its bound; there should be none."""
    found = []
    for part in parts:
        for seat, attacks in part['attacks'].items():
            limits = part['bounds'][_SIDES.get(seat, 'federated')]['pair']
            for attack, each in attacks.items():
                for metric, bound in zip(METRICS, ('auc', 'tpr', 'information'), strict=True):
                    if each[metric]['surely_above'] > limits[bound]:
                        found.append(f'seed {part["seed"]}: {metric} of {attack}, {seat}')
    return found


def _control(seats: Json) -> Json:
    """Count the intervals of shuffled labels, and those that exclude chance (5 % should)."""
    every = [
        each['auc']
        for attacks in seats.values()
        for name, each in attacks.items()
        if name.startswith(CONTROL)
    ]
    outside = [each for each in every if not _holds(each, 0.5)]
    worst = max((abs(each['mean'] - 0.5) for each in every), default=0.0)
    return {'intervals': len(every), 'outside': len(outside), 'farthest': worst}


def _holds(found: Interval, value: float) -> bool:
    if found['low'] is None or found['high'] is None:
        return True
    return found['low'] <= value <= found['high']


def _effectiveness(parts: Sequence[Json]) -> Json:
    """Return OPE by temperature and epsilon (FDRL Eq. 24), and its change in percent."""
    rows = []
    for part in parts:
        row: Json = {}
        for tau in (f'{each:g}' for each in TEMPERATURES):
            row[tau] = {}
            for which in EPSILONS:
                both = {}
                for side, seat in (('federated', 'released'), ('central', 'central')):
                    told = part['attacks'][seat][RULED]['plr']['value']
                    both[side] = overall_effectiveness(
                        min(1.0, max(0.0, told)),
                        part['divergence'][tau][side],
                        _epsilon(part['bounds'][side], which),
                    )
                both['change_percent'] = 100.0 * (both['federated'] / both['central'] - 1.0)
                row[tau][which] = both
        rows.append(row)
    return over_seeds(rows)


def _epsilon(spent: Json, which: str) -> float:
    """Return one reading of epsilon."""
    if which != 'epsilon_s':
        return float(spent[which])
    return epsilon_paper(PAPER_ORDER, spent['s']) if spent['s'] else math.inf


def verdicts(summary: Json) -> list[str]:
    """Return what the study shows, and what it does not, a sentence each."""
    found = []
    for name, each in summary['regimes'].items():
        found += [f'{name}: {sentence}' for sentence in _sentences(name, each)]
    return found


def _sentences(name: str, each: Json) -> list[str]:
    said = []
    central = each['seats']['central'][each['strongest']['central']]['auc']
    if name == 'memorising':
        reached = central['mean'] >= MEMORISED
        said.append(
            f'AUC on the released centralised policy {interval_words(central, ".3f")}, '
            f'{"at least" if reached else "below"} the {MEMORISED:g} that was aimed at'
        )
    difference = each['own_minus_aggregate']
    words = {
        1: 'leaks more than the aggregate',
        0: 'cannot be told from the aggregate',
        -1: 'leaks less than the aggregate',
    }[sign_of(difference)]
    said.append(
        f"a hospital's own update {words}: AUC higher by {interval_words(difference, '.3f')}"
    )
    plr = each['plr']
    difference = interval_words(plr['difference'], '.4f')
    if plr['change_percent'] is None:
        said.append(
            'change of PLR by federation in percent: not measurable, since the centralised PLR '
            f'cannot be told from 0; difference {difference} bits'
        )
    else:
        change = interval_words(plr['change_percent'], '.0f')
        said.append(f'federation changes PLR by {change} % (paper: -60 %), {difference} bits')
    if math.isfinite(each['bounds']['federated']['epsilon']):
        said.append(
            f'above their bounds with 99.9 % confidence: {", ".join(each["broken"])}'
            if each['broken']
            else 'no attack is above its bound with 99.9 % confidence'
        )
    control = each['control']
    said.append(
        f'shuffled labels: {control["outside"]} of {control["intervals"]} intervals exclude 0.5 '
        f'(5 % should), the farthest mean by {control["farthest"]:.4f}'
    )
    return said
