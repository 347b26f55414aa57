# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""
How far hospitals are apart, measured on drawn patients: Wasserstein-1 and total variation.

W1(P, Q) is the least mean way that turns one sample into the other; for a quantity it is divided
by that quantity's pooled spread at H = 1, so that all quantities have one scale.
"""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields
from itertools import combinations
import math

from fdrl_ros.experiments.intervals import holm
from fdrl_ros.surgery.patient.labs import Labs
from fdrl_ros.surgery.patient.patient import Patient
import numpy as np
from numpy.typing import NDArray
from scipy import stats

Sample = Mapping[str, NDArray[np.float64]]
"""Values of each quantity, shape (patients,)."""

Quantity = Callable[[Patient], float]


def _lab(name: str) -> Quantity:
    return lambda each: float(getattr(each.labs, name))


LEANING: dict[str, Quantity] = {
    'log stiffness': lambda each: math.log(each.young_modulus),
    'log breathing amplitude': lambda each: math.log(each.breathing_amplitude),
    'log breathing rate': lambda each: math.log(each.respiratory_rate),
    'log servo lag': lambda each: math.log(each.servo_lag),
    'log force emphasis': lambda each: math.log(each.force_emphasis),
}
"""What hospitals differ in; the emphasis on time is the inverse of that on force."""

OTHERS: dict[str, Quantity] = {
    'damping': lambda each: each.damping,
    'friction': lambda each: each.friction,
    'thickness': lambda each: each.thickness,
    'registration error': lambda each: each.registration_error,
    'trocar offset x': lambda each: each.trocar_offset[0],
    'trocar offset y': lambda each: each.trocar_offset[1],
    'breathing phase': lambda each: each.breathing_phase,
    'start x': lambda each: each.start[0] - each.goal[0],
    'start y': lambda each: each.start[1] - each.goal[1],
    'start z': lambda each: each.start[2] - each.goal[2],
    'mean arterial pressure': lambda each: each.mean_arterial_pressure,
    'heart rate': lambda each: each.heart_rate,
    'oxygen saturation': lambda each: each.oxygen_saturation,
    'events': lambda each: float(len(each.events)),
    **{each.name.replace('_', ' '): _lab(each.name) for each in fields(Labs)},
}
"""What all hospitals share, whatever H is."""

QUANTITIES = {**LEANING, **OTHERS}


def sample_of(patients: Sequence[Patient]) -> dict[str, NDArray[np.float64]]:
    """Return every quantity of some patients, shape (patients,) each."""
    return {name: np.array([of(each) for each in patients]) for name, of in QUANTITIES.items()}


def pooled_spread(hospitals: Sequence[Sample]) -> dict[str, float]:
    """Return the standard deviation of each quantity over the patients of all hospitals."""
    return {
        name: float(np.concatenate([each[name] for each in hospitals]).std())
        for name in hospitals[0]
    }


def distances(hospitals: Sequence[Sample], spread: Mapping[str, float]) -> dict[str, float]:
    """
    Return the mean over pairs of hospitals of W1 of each quantity, in units of its spread.

    :param hospitals: at least two.
    :param spread: of each quantity; where it is 0, so is the distance.
    """
    found = {}
    for name, unit in spread.items():
        pairs = [
            float(stats.wasserstein_distance(one[name], other[name]))
            for one, other in combinations(hospitals, 2)
        ]
        found[name] = float(np.mean(pairs)) / unit if unit > 0.0 else 0.0
    return found


def total_variation(hospitals: Sequence[Sequence[str]]) -> float:
    """
    Return the mean over pairs of half the summed differences of shares, from 0 to 1.

    :param hospitals: what was done with each patient of each of at least two hospitals.
    """
    shares = []
    for each in hospitals:
        counted = Counter(each)
        shares.append({name: count / len(each) for name, count in counted.items()})
    pairs = [
        0.5 * sum(abs(one.get(name, 0.0) - other.get(name, 0.0)) for name in one | other)
        for one, other in combinations(shares, 2)
    ]
    return float(np.mean(pairs))


def two_sample_tests(
    hospitals: Sequence[Sample], done: Sequence[Sequence[str]]
) -> dict[str, float]:
    """
    Test that hospitals draw from one law: Kolmogorov-Smirnov, chi-squared, corrected by Holm.

    The chance that any p of one law falls below a bound is at most that bound.

    :param hospitals: at least two.
    :param done: what was done with each of their patients.
    :returns: the least corrected p of any pair, for each quantity and for 'procedure'.
    """
    raw: list[tuple[str, float]] = []
    for (one, its), (other, theirs) in combinations(zip(hospitals, done, strict=True), 2):
        raw += [(name, float(stats.ks_2samp(one[name], other[name]).pvalue)) for name in one]
        names = sorted({*its, *theirs})
        table = [[list(each).count(name) for name in names] for each in (its, theirs)]
        p = float(stats.chi2_contingency(table).pvalue) if len(names) > 1 else 1.0
        raw.append(('procedure', p))
    least: dict[str, float] = {}
    for (name, _), p in zip(raw, holm([p for _, p in raw]), strict=True):
        least[name] = min(least.get(name, 1.0), p)
    return least
