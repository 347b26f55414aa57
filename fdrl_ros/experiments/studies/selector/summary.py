# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""
Sum up what the selector is worth over seeds, at each H.

One seed is one unit: intervals are Student's over seeds, and those of differences are of paired
ones.
"""

from collections.abc import Sequence

from fdrl_ros.experiments.intervals import interval, paired
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


def _mean(part: Json, name: str, key: str) -> float:
    return float(np.mean(part['contenders'][name][key]))


def _at(parts: Sequence[Json]) -> Json:
    """Sum up the seeds of one H."""
    names = list(parts[0]['contenders'])
    rows = {
        name: {
            **{
                key: interval([_mean(part, name, column) for part in parts])
                for key, column in (
                    ('return', 'returns'),
                    ('success', 'success'),
                    ('risk', 'risk'),
                )
            },
            'lead': paired(
                [_mean(part, SELECTOR, 'returns') for part in parts],
                [_mean(part, name, 'returns') for part in parts],
            ),
        }
        for name in names
    }
    return {
        'contenders': rows,
        'share_of_hindsight': interval(
            [
                share(*(_mean(part, each, 'returns') for each in (SELECTOR, HOLD, ORACLE)))
                for part in parts
            ]
        ),
        'share_of_oracle': interval(
            [
                share(
                    *(float(np.mean(part['oracle'][each])) for each in (SELECTOR, HOLD, 'oracle'))
                )
                for part in parts
            ]
        ),
        'risk_saved': interval(
            [_saved(_mean(part, SELECTOR, 'risk'), _mean(part, ALWAYS, 'risk')) for part in parts]
        ),
        'switching': _switching(parts),
        'alpha_adapt': {
            name: interval([_defined(part['contenders'][name]['adaptation']) for part in parts])
            for name in (SELECTOR, ALWAYS)
        },
    }


def share(own: float, nothing: float, best: float) -> float | None:
    """Return (J - J_hold) / (J_oracle - J_hold), or None where there is nothing to be gained."""
    return (own - nothing) / (best - nothing) if best > nothing else None


def _saved(own: float, before: float) -> float | None:
    """Return which share of a risk is saved, or None where there was none."""
    return 1.0 - own / before if before > 0.0 else None


def _defined(values: Sequence[float | None]) -> float | None:
    known = [each for each in values if each is not None]
    return float(np.mean(known)) if known else None


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
