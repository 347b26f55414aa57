# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""
How far hospitals are apart, measured on drawn patients: Wasserstein-1 and total variation.

W1(P, Q) is the least mean way that turns one sample into the other; for a quantity it is divided
by that quantity's pooled spread at H = 1, so that all quantities have one scale.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
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

LEANING = {
    'log stiffness': 'young_modulus',
    'log breathing amplitude': 'breathing_amplitude',
    'log breathing rate': 'respiratory_rate',
    'log servo lag': 'servo_lag',
    'log force emphasis': 'force_emphasis',
}
"""
What hospitals differ in: logarithms of these attributes of patients. The emphasis on time is the
inverse of that on force.
"""

_SHARED = (
    *('damping', 'friction', 'thickness', 'registration_error', 'breathing_phase'),
    *('mean_arterial_pressure', 'heart_rate', 'oxygen_saturation'),
)
OTHERS = (
    *(name.replace('_', ' ') for name in (*_SHARED, *Labs.__dataclass_fields__)),
    *('trocar offset x', 'trocar offset y', 'start x', 'start y', 'start z', 'events'),
)
"""What all hospitals share, whatever H is."""


def quantities_of(patient: Patient) -> dict[str, float]:
    """Return every quantity of a patient."""
    found = {name: math.log(getattr(patient, each)) for name, each in LEANING.items()}
    alike = {name: getattr(patient, name) for name in _SHARED} | vars(patient.labs)
    found |= {name.replace('_', ' '): float(value) for name, value in alike.items()}
    for axis, offset in zip('xy', patient.trocar_offset, strict=True):
        found[f'trocar offset {axis}'] = offset
    for axis, start, goal in zip('xyz', patient.start, patient.goal, strict=True):
        found[f'start {axis}'] = start - goal
    return {**found, 'events': float(len(patient.events))}


def sample_of(patients: Sequence[Patient]) -> dict[str, NDArray[np.float64]]:
    """Return every quantity of some patients, shape (patients,) each."""
    rows = [quantities_of(each) for each in patients]
    return {name: np.array([row[name] for row in rows]) for name in rows[0]}


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
