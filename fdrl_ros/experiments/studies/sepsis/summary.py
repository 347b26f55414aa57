# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""
Sum up sepsis runs: FAE (DP-DQN Eq. 9), mortality and actions, with their spread over seeds.

One run is one unit: means have Student's 95 % intervals, medians their quartiles.
"""

from collections.abc import Iterable, Sequence
from itertools import pairwise
import math

from fdrl_ros.experiments.intervals import Interval, interval, paired, quartiles, SHARE
from fdrl_ros.experiments.json_file import Json
from fdrl_ros.experiments.studies.sepsis.settings import (
    Arm,
    EPSILONS,
    moderate_arms,
    paper_arms,
    REPLAYS,
    SepsisSettings,
    Start,
)
from fdrl_ros.experiments.studies.sepsis.study import (
    arm_mapping,
    exact_values,
    finite,
    target_arms,
)
from fdrl_ros.worlds.icu_sepsis.assets import icu_sepsis
from fdrl_ros.worlds.icu_sepsis.model import LEVELS, uniform_policy
from fdrl_ros.worlds.icu_sepsis.values import BANDS, optimum
import numpy as np
from numpy.typing import NDArray

PAPER: Json = {
    'fae': 'longer as epsilon falls',
    'per': 'faster with PER at epsilon 12, no change at 8, slower at 4 and 2',
    'bands': {'low': 0.6, 'medium': 4.6, 'high': -4.0},
    'mortality': 'rises as epsilon falls, ever more steeply',
    'actions': 'hardly any vasopressors, but for high SOFA under DP-DQN and the clinicians',
    'peaks': {
        'clinicians': {'high': [4, 4]},
        'DQN': {'low': [0, 4], 'medium': [0, 4], 'high': [0, 4]},
        'DP-DQN, epsilon 8': {'low': [0, 4], 'medium': [0, 4], 'high': [3, 3]},
    },
    'numbers': 'by SOFA band at epsilon 8, and the most frequent actions; the rest are curves',
}
"""
Trends in words; `bands` in points of mortality, epsilon 8 against no privacy (Figure 6); `peaks`
the most frequent pair by policy and band (Figure 4), read as (vasopressor, fluid).
"""

CURVES = {
    'fae_moderate': 'Paper, Figure 5, of patients of moderate SOFA (a curve without numbers): '
    f'{PAPER["fae"]}; {PAPER["per"]}.',
    'fae': 'As Figure 5 of the paper, but of all patients.',
    'overall': 'Shares of all steps under each policy. Paper, Figure 3 (without numbers): DQN and '
    'DP-DQN at epsilon 8 act alike but not the same, and both give few vasopressors. The paper '
    'shows no clinicians there.',
    'mortality': f'Paper, Figure 7 (a curve without numbers): {PAPER["mortality"]}.',
    'learning': 'The paper has no such figure.',
    'information': 'The paper has no such figure.',
    'actions': 'Red: where most actions are in the paper (Figure 4, which gives no shares), its '
    'pairs read as (vasopressor, fluid); no red, no word of it.',
}
"""What stands below our plots, by plot."""


def heat_map(runs: Sequence[dict[str, list[float]]]) -> Json:
    """
    Return the share of each action by band, and of each level of either drug.

    :param runs: of one policy: shares of the 25 actions by band, as
        :func:`fdrl_ros.experiments.studies.sepsis.study.exact_values` returns them.
    :returns: by band ``shares`` (25), ``vasopressor`` and ``fluid`` (5 each): mean, and where
        there are several runs low and high, the ends of the 95 % interval over them.
    """
    return {band: _of_band([run[band] for run in runs]) for band in ('all', *BANDS)}


def spread(found: Json) -> NDArray[np.float64] | None:
    """Return how far the interval reaches from the mean at most; None of a single run."""
    if found['low'] is None:
        return None
    mean, low, high = (np.array(found[each]) for each in ('mean', 'low', 'high'))
    further: NDArray[np.float64] = np.maximum(high - mean, mean - low)
    return further


def most_frequent(found: Json) -> tuple[int, int]:
    """Return the levels (vasopressor, fluid) of the most frequent action, as the paper does."""
    fluid, vasopressor = divmod(int(np.argmax(found['shares']['mean'])), LEVELS)
    return vasopressor, fluid


def _of_band(shares: Sequence[list[float]]) -> Json:
    grids = np.reshape(shares, (len(shares), LEVELS, LEVELS))
    return {
        'shares': _intervals(grids.reshape(len(shares), -1)),
        'vasopressor': _intervals(grids.sum(axis=1)),
        'fluid': _intervals(grids.sum(axis=2)),
    }


def _intervals(values: NDArray[np.float64]) -> Json:
    """Return mean and interval of each column; shares are from 0 to 1."""
    every = [interval(column.tolist(), SHARE) for column in values.T]
    found: Json = {'mean': [each['mean'] for each in every], 'low': None, 'high': None}
    if len(values) > 1:
        found |= {'low': [e['low'] for e in every], 'high': [e['high'] for e in every]}
    return found


ByArm = dict[str, list[Json]]
"""Runs by the name of their arm, in the order of seeds."""

OTHER_PHI = (0.825, 0.83, 0.84)
"""Other survivals that FAE is told for."""

MODERATE_HIGHER = 0.005
"""By how much more of moderate SOFA survive at the public start: FAE waits for as much more."""


def summarise(parts: Iterable[Json], settings: SepsisSettings) -> Json:
    """
    Sum up what is there; arms without a run are left out.

    :param parts: as :func:`fdrl_ros.experiments.studies.sepsis.study.measure` makes them.
    """
    by_arm: ByArm = {}
    for part in sorted(parts, key=lambda part: int(part['seed'])):
        by_arm.setdefault(part['arm']['name'], []).append(part)
    model, arms = icu_sepsis(), paper_arms(settings)
    first = range(settings.seed, settings.seed + settings.seeds)
    own = {name: [each for each in of if each['seed'] in first] for name, of in by_arm.items()}
    targets = [*target_arms(settings), *(each for each in arms if each.replay == 'poisson')]
    moderate = [arm for arm in moderate_arms(settings) if arm.name in by_arm]
    higher, *others = (round(phi + MODERATE_HIGHER, 6) for phi in (settings.phi, *OTHER_PHI))
    return {
        'unit': 'patient',
        'delta': settings.delta,
        'phi': settings.phi,
        'private': False,
        'paper': PAPER,
        'references': {
            'uniform': exact_values(uniform_policy()),
            'clinicians': exact_values(model.clinicians),
            'optimum': exact_values(optimum(model).actions),
        },
        'arms': [
            paper_row(arm, by_arm[arm.name], settings.phi) for arm in arms if arm.name in by_arm
        ],
        'moderate': {
            'phi': higher,
            'arms': [fae_row(a, by_arm[a.name], higher, others, 'moderate') for a in moderate],
        },
        'bands': band_changes(by_arm, settings),
        'per': per_changes(by_arm, settings),
        'heat_maps': heat_maps(by_arm, settings),
        'overall': overall_changes(by_arm, settings),
        'targets': [target_row(arm, own[arm.name]) for arm in targets if own.get(arm.name)],
    }


def fae_row(
    arm: Arm, parts: Sequence[Json], phi: float, others: Sequence[float], whose: str
) -> Json:
    """
    Return FAE and learning curve of one arm.

    :param phi: survival that FAE waits for.
    :param others: further ones.
    :param whose: survival, 'survival' for everyone's, 'moderate' for that of moderate SOFA.
    """
    spent = [part['epsilon'] or math.inf for part in parts]
    return {
        **arm_mapping(arm),
        'epsilon_spent': max(spent) if arm.private else None,
        'noise_multiplier': parts[0]['noise_multiplier'],
        'runs': len(parts),
        'seeds': [part['seed'] for part in parts],
        'fae': fae_summary(parts, phi, whose),
        'fae_at': {f'{each:g}': fae_summary(parts, each, whose) for each in others},
        'patients': parts[0]['patients'],
        'highest': [max(part[whose]) for part in parts],
        'curve': np.mean([part[whose] for part in parts], axis=0).tolist(),
    }


def paper_row(arm: Arm, parts: Sequence[Json], phi: float) -> Json:
    """Return FAE, mortality and learning curve of one arm."""
    final = [part['final'] for part in parts]
    deaths = {band: [1.0 - each['by_band'][band] for each in final] for band in BANDS}
    return {
        **fae_row(arm, parts, phi, OTHER_PHI, 'survival'),
        'survival': interval([each['survival'] for each in final]),
        'mortality': interval([1.0 - each['survival'] for each in final]),
        'mortality_by_band': {band: interval(shares) for band, shares in deaths.items()},
    }


def fae_summary(parts: Sequence[Json], phi: float, whose: str = 'survival') -> Json:
    """Return median, quartiles and values of FAE; null where phi was not reached."""
    waits = [fae(part, phi, whose) for part in parts]
    low, median, high = quartiles(waits)
    return {
        'median': finite(median),
        'quartiles': [finite(low), finite(high)],
        'reached': sum(math.isfinite(each) for each in waits),
        'values': [finite(each) for each in waits],
    }


def fae(part: Json, phi: float, whose: str = 'survival') -> float:
    """
    Return how many patients it took until the exact survival first reached phi, or infinity.

    :param whose: 'survival' for everyone's, 'moderate' for that of moderate SOFA.
    """
    pairs = zip(part['patients'], part[whose], strict=True)
    return next((float(patients) for patients, value in pairs if value >= phi), math.inf)


def target_row(arm: Arm, parts: Sequence[Json]) -> Json:
    """Return what an arm reaches, and what it adds to its public start, paired by seed."""
    begun = [part['survival'][0] for part in parts]
    found: Json = {
        **arm_mapping(arm),
        'noise_multiplier': parts[0]['noise_multiplier'],
        'runs': len(parts),
        'start': interval(begun),
    }
    for kind in ('final', 'averaged'):
        values = [part[kind]['survival'] for part in parts]
        found[kind] = interval(values)
        found[f'{kind}_gain'] = paired(values, begun)
    return found


def band_changes(by_arm: ByArm, settings: SepsisSettings) -> Json:
    """Return mortality at epsilon 8 minus mortality without privacy, in points, paired by seed."""
    own, free = (_runs_of(by_arm, settings, epsilon) for epsilon in (8.0, math.inf))
    changes = {band: _points_gained(own, free, band) for band in BANDS}
    return {} if None in changes.values() else changes


def per_changes(by_arm: ByArm, settings: SepsisSettings) -> list[Json]:
    """Return what PER adds to the survival in the end, by epsilon, paired by seed, in points."""
    found = []
    for replay in list(REPLAYS)[1:]:
        for epsilon in EPSILONS:
            without = _runs_of(by_arm, settings, epsilon)
            gain = _points_gained(without, _runs_of(by_arm, settings, epsilon, replay))
            if gain:
                found.append({'replay': replay, 'epsilon': finite(epsilon), 'gain': gain})
    return found


def _points_gained(
    one: Sequence[Json], two: Sequence[Json], band: str | None = None
) -> Interval | None:
    """Return how much more survive in the second runs, in a SOFA band or in all, by seed."""

    def survival(part: Json) -> float:
        value: float = part['final']['by_band'][band] if band else part['final']['survival']
        return value

    before, after = ({part['seed']: survival(part) for part in parts} for parts in (one, two))
    gains = [100.0 * (after[seed] - before[seed]) for seed in before if seed in after]
    return interval(gains) if gains else None


def heat_maps(by_arm: ByArm, settings: SepsisSettings) -> Json:
    """Return the share of each action by policy and band; see :func:`heat_map`."""
    found = {'clinicians': heat_map([exact_values(icu_sepsis().clinicians)['actions']])}
    for title, epsilon in (('DQN', math.inf), ('DP-DQN, epsilon 8', 8.0)):
        parts = _runs_of(by_arm, settings, epsilon)
        if parts:
            found[title] = heat_map([part['final']['actions'] for part in parts])
    return found


def overall_changes(by_arm: ByArm, settings: SepsisSettings) -> Json:
    """
    Return how far the actions of DP-DQN are from those of DQN (Figure 3), paired by seed.

    :returns: ``difference``: of the share of each action, (25), from DQN to DP-DQN at epsilon 8;
        ``distance``: half the sum of its sizes; ``between_seeds``: the same distance from each run
        of DQN to the next one, of other patients and another public guess; {} without runs.
    """
    own, free = (
        {part['seed']: np.array(part['final']['actions']['all']) for part in parts}
        for parts in (_runs_of(by_arm, settings, epsilon) for epsilon in (8.0, math.inf))
    )
    both = [seed for seed in own if seed in free]
    if not both:
        return {}
    changes = np.array([own[seed] - free[seed] for seed in both])
    pairs = [free[one] - free[two] for one, two in pairwise(both)]
    turned = np.reshape(pairs, (len(pairs), changes.shape[1]))
    every = [interval(column.tolist()) for column in changes.T]
    sizes, turns = (0.5 * np.abs(each).sum(axis=-1) for each in (changes, turned))
    return {
        'difference': {name: [e[name] for e in every] for name in ('mean', 'low', 'high')},
        'distance': interval(sizes.tolist()),
        'between_seeds': interval(turns.tolist()) if len(turns) else None,
    }


def _runs_of(
    by_arm: ByArm, settings: SepsisSettings, epsilon: float, replay: str = 'poisson'
) -> list[Json]:
    """Return the runs of one of the paper's arms."""
    start = Start(settings.concentration, settings.blend)
    return by_arm.get(Arm('online', start, epsilon, replay).name, [])
