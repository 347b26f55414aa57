# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""
Sum up what the selector is worth over seeds, at each H.

One seed is one unit: intervals are Student's over seeds, and those of differences are of paired
ones.
"""

from collections.abc import Callable, Sequence

from fdrl_ros.experiments.intervals import Interval, interval
from fdrl_ros.experiments.json_file import Json
from fdrl_ros.selector import HOLD
from fdrl_ros.surgery.gym.actions import TICK
import numpy as np

SELECTOR, ALWAYS, ORACLE = 'selector', 'global', 'hindsight'

TIMID = 'global_or_hold'
"""A selector, with its shield, that has nothing to choose from but the global policy and hold."""


def summarise(parts: Sequence[Json]) -> Json:
    """
    Sum up.

    :param parts: results of the selector study.
    :returns: seeds, and for each H a mapping of intervals: by contender ``return``, ``success``,
        ``risk`` (1 - R_mit) and ``lead`` (the selector's return minus its own); ``share`` of what
        is to be gained between holding and each of two oracles; ``risk_saved`` against always the
        global policy; how the selector switches.
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


def _mean(part: Json, name: str, key: str = 'returns') -> float:
    return float(np.mean(part['contenders'][name][key]))


def _at(parts: Sequence[Json]) -> Json:
    """Sum up the seeds of one H."""

    def over(number: Callable[[Json], float | None]) -> Interval:
        return interval([number(part) for part in parts])

    def contender(name: str) -> Json:
        return {
            'return': over(lambda part: _mean(part, name)),
            'success': over(lambda part: _mean(part, name, 'success')),
            'risk': over(lambda part: _mean(part, name, 'risk')),
            'lead': over(lambda part: _mean(part, SELECTOR) - _mean(part, name)),
        }

    def of_hindsight(part: Json) -> float | None:
        return share(*(_mean(part, name) for name in (SELECTOR, HOLD, ORACLE)))

    def of_oracle(part: Json) -> float | None:
        return share(*(float(np.mean(part['oracle'][n])) for n in (SELECTOR, HOLD, 'oracle')))

    def risk_saved(part: Json) -> float | None:
        before = _mean(part, ALWAYS, 'risk')
        return 1.0 - _mean(part, SELECTOR, 'risk') / before if before > 0.0 else None

    def adaptation(name: str) -> Interval:
        every = [part['contenders'][name]['adaptation'] for part in parts]
        known = [[value for value in values if value is not None] for values in every]
        return interval([float(np.mean(values)) if values else None for values in known])

    return {
        'contenders': {name: contender(name) for name in parts[0]['contenders']},
        'share_of_hindsight': over(of_hindsight),
        'share_of_oracle': over(of_oracle),
        'risk_saved': over(risk_saved),
        'switching': _switching(parts),
        'alpha_adapt': {name: adaptation(name) for name in (SELECTOR, ALWAYS)},
    }


def share(own: float, nothing: float, best: float) -> float | None:
    """Return (J - J_hold) / (J_oracle - J_hold), or None where there is nothing to be gained."""
    return (own - nothing) / (best - nothing) if best > nothing else None


def _switching(parts: Sequence[Json]) -> Json:
    """Return switching rates soon after a change of state and otherwise, and dwell times."""
    after, rest, dwells = [], [], []
    for part in parts:
        found = part['switching']
        calm = found['steps'] - found['steps_after']
        after.append(found['switches_after'] / max(found['steps_after'], 1))
        rest.append((found['switches'] - found['switches_after']) / max(calm, 1))
        dwells.extend(found['dwells'])
    seconds = TICK * np.array(dwells, np.float64)
    return {
        'per_step_after_a_change': interval(after),
        'per_step_else': interval(rest),
        'dwell_seconds': {
            str(share): float(np.quantile(seconds, share / 100)) if len(seconds) else None
            for share in (5, 25, 50, 75, 95)
        },
    }
