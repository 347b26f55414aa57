# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""
Sum up heterogeneity over seeds: curves over H with intervals, and whether they rise.

One seed is one unit: intervals are Student's, and those of rises are of paired differences.
"""

from collections.abc import Sequence
import csv
import io
import math
from typing import Any

from fdrl_ros.experiments.intervals import interval, sign_of
from fdrl_ros.experiments.json_file import Json
from fdrl_ros.experiments.studies.distance import LEANING
import numpy as np

LEVELS = (0.0, 0.25, 0.5, 0.75, 1.0)
"""The H that are compared."""

CURVES = {
    'distance': 'mean Wasserstein-1 distance of what hospitals differ in, spreads at H = 1',
    'mix': 'total variation of what is done, of all procedures',
    'loss': 'success at home minus success elsewhere',
    'home': 'success at home',
    'elsewhere': 'success elsewhere',
}
"""What has a curve over H, and what it is."""

BOUNDS = {
    'distance': (0.0, math.inf),
    'mix': (0.0, 1.0),
    'loss': (-1.0, 1.0),
    'home': (0.0, 1.0),
    'elsewhere': (0.0, 1.0),
}
"""What each can be at all; intervals are cut to it."""


def curve_of(part: Json) -> dict[str, float]:
    """Return the numbers of one seed at one H, named as CURVES."""
    success = np.array(part['success'], np.float64)
    home = float(np.diag(success).mean())
    elsewhere = float(success[~np.eye(len(success), dtype=bool)].mean())
    return {
        'distance': float(np.mean([part['quantities'][each] for each in LEANING])),
        'mix': float(part['mix_of_all_procedures']),
        'loss': home - elsewhere,
        'home': home,
        'elsewhere': elsewhere,
    }


def summarise(rows: Sequence[Sequence[Json]]) -> Json:
    """
    Sum up over seeds.

    :param rows: the part of each seed (first) at each H (second).
    """
    curves = [[curve_of(part) for part in row] for row in rows]

    def mean(name: str) -> list[Any]:
        found: list[Any] = np.mean([[part[name] for part in row] for row in rows], 0).tolist()
        return found

    return {
        'levels': list(LEVELS),
        'curves': {
            name: {
                'what': what,
                **over_seeds([[each[name] for each in row] for row in curves], BOUNDS[name]),
            }
            for name, what in CURVES.items()
        },
        'mix_of_own_procedures': over_seeds(
            [[part['mix_of_own_procedures'] for part in row] for row in rows], BOUNDS['mix']
        ),
        'quantities': {
            name: over_seeds(
                [[part['quantities'][name] for part in row] for row in rows], BOUNDS['distance']
            )
            for name in rows[0][0]['quantities']
        },
        'least_p': [[part['least_p'] for part in row] for row in rows],
        'success': mean('success'),
        'failed_by_force': mean('failed_by_force'),
    }


def over_seeds(
    table: Sequence[Sequence[float]], bounds: tuple[float, float] = (-math.inf, math.inf)
) -> Json:
    """
    Return means and intervals at each H and of each rise from one H to the next.

    :param table: shape (seeds, levels).
    :param bounds: least and greatest value that there can be; intervals at an H are cut to it.
    """
    values = np.array(table, np.float64)
    rises = [interval(each.tolist()) for each in np.diff(values, axis=1).T]
    return {
        'at': [interval(each.tolist(), bounds) for each in values.T],
        'rises': rises,
        'means_rise': bool(np.all(np.diff(values.mean(axis=0)) > 0.0)),
        'every_rise_resolved': all(sign_of(each) > 0 for each in rises),
    }


def verdict(summary: Json, name: str) -> str:
    """Return in a sentence whether a curve grows with H, and where that is uncertain."""
    curve, levels = summary['curves'][name], summary['levels']
    between = list(zip(levels, levels[1:], curve['rises'], strict=False))
    falls = [f'{low:g} to {high:g}' for low, high, rise in between if rise['mean'] <= 0.0]
    unsure = [
        f'{low:g} to {high:g}'
        for low, high, rise in between
        if rise['mean'] > 0.0 and sign_of(rise) <= 0
    ]
    words = 'does not grow from H = ' + ', '.join(falls) if falls else 'grows with H'
    if unsure:
        words += '; the interval of the rise holds 0 from H = ' + ', '.join(unsure)
    return f'{name} {words}'


def table_of(summary: Json) -> str:
    """Return every curve and quantity as CSV: name, H, mean, low, high."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator='\n')
    writer.writerow(['name', 'H', 'mean', 'low', 'high'])
    named = {**summary['curves'], 'mix of own procedures': summary['mix_of_own_procedures']}
    named |= {f'distance of {name}': each for name, each in summary['quantities'].items()}
    for name, curve in named.items():
        for level, at in zip(summary['levels'], curve['at'], strict=True):
            writer.writerow([name, level, at['mean'], at['low'], at['high']])
    return out.getvalue()
