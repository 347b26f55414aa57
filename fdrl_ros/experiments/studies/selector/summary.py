# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""
Sum up what the selector is worth over seeds, at each H.

One seed is one unit: intervals are Student's over seeds, and those of differences are of paired
ones.
"""

from collections.abc import Sequence

from fdrl_ros.experiments.intervals import over_seeds
from fdrl_ros.experiments.json_file import Json
from fdrl_ros.metrics.following import informedness
from fdrl_ros.selector import HOLD
from fdrl_ros.surgery.gym.actions import TICK
import numpy as np

SELECTOR, GLOBAL, ORACLE = 'selector', 'global', 'hindsight'

METRICS = {
    'return': 'returns',
    'success': 'success',
    'risk': 'risk',
    'case_risk': 'case_risk',
    'damage_share': 'damage_share',
    'critical_errors': 'critical_error',
}
"""What is told of a contender, and the column that it is the mean of."""

COLUMNS = (*METRICS.values(), 'adaptation', 'after_rise', 'after_fall')
"""What is kept of each patient."""

GLOBAL_OR_HOLD = 'global_or_hold'
"""A selector, with its shield, that has nothing to choose from but the global policy and hold."""


def summarise(parts: Sequence[Json]) -> Json:
    """
    Sum up.

    :param parts: results of the selector study.
    :returns: seeds, and for each H a mapping of intervals: by contender ``return``, ``success``,
        ``risk`` (1 - R_mit), ``case_risk`` (1 - risk-adjusted success) and others, and ``lead``
        (the selector's return minus its own); ``share`` of what is to be gained between holding
        and each of two oracles; ``risk_saved`` and ``case_risk_saved`` against always the global
        policy; alpha_adapt and informedness; how the selector switches.
    """
    levels = sorted({_level(each) for each in parts})
    return {
        'seeds': sorted({each['plan']['federation']['seed'] for each in parts}),
        'levels': [
            {'level': level, **_at([each for each in parts if _level(each) == level])}
            for level in levels
        ],
    }


def _level(part: Json) -> float:
    return float(part['plan']['federation']['heterogeneity'])


def _at(parts: Sequence[Json]) -> Json:
    """Sum up the seeds of one H."""
    found = over_seeds([_numbers_of(part, list(parts[0]['contenders'])) for part in parts])
    dwells = TICK * np.concatenate([part['switching']['dwells'] for part in parts])
    found['switching']['dwell_seconds'] = {
        str(share): float(np.quantile(dwells, share / 100)) if len(dwells) else None
        for share in (5, 25, 50, 75, 95)
    }
    return found


def _numbers_of(part: Json, names: Sequence[str]) -> Json:
    """Return the numbers of one seed."""

    def mean(name: str, key: str) -> float | None:
        known = [value for value in part['contenders'][name][key] if value is not None]
        return float(np.mean(known)) if known else None

    contenders: Json = {
        name: {key: mean(name, of) for key, of in METRICS.items()} for name in names
    }
    own = contenders[SELECTOR]
    for each in contenders.values():
        each['lead'] = own['return'] - each['return']
    returns = {name: each['return'] for name, each in contenders.items()}
    true = {name: float(np.mean(values)) for name, values in part['oracle'].items()}

    def saved(name: str) -> float | None:
        before = contenders[GLOBAL][name]
        return 1.0 - own[name] / before if before > 0.0 else None

    def followed(name: str) -> float | None:
        after_rise, after_fall = mean(name, 'after_rise'), mean(name, 'after_fall')
        if after_rise is None or after_fall is None:
            return None
        return informedness(after_rise, after_fall)

    switching = part['switching']
    calm = switching['steps'] - switching['steps_after']
    after = switching['switches_after']
    return {
        'contenders': contenders,
        'share_of_hindsight': share(*(returns[name] for name in (SELECTOR, HOLD, ORACLE))),
        'share_of_oracle': share(*(true[name] for name in (SELECTOR, HOLD, 'oracle'))),
        'risk_saved': saved('risk'),
        'case_risk_saved': saved('case_risk'),
        'switching': {
            'per_step_after_a_change': after / max(switching['steps_after'], 1),
            'per_step_else': (switching['switches'] - after) / max(calm, 1),
        },
        'alpha_adapt': {name: mean(name, 'adaptation') for name in (SELECTOR, GLOBAL)},
        'informedness': {name: followed(name) for name in (SELECTOR, GLOBAL)},
    }


def share(own: float, nothing: float, best: float) -> float | None:
    """Return (J - J_hold) / (J_oracle - J_hold), or None where there is nothing to be gained."""
    return (own - nothing) / (best - nothing) if best > nothing else None
