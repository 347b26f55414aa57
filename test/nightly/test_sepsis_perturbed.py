# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""
How well one treats sepsis who believes a public guess at its dynamics, by how good the guess is.

Takes a minute on one core: `make nightly`, or this file alone with
`--save docs/results/sepsis_perturbed.json` to keep the figures, which docs/sepsis.md shows.
"""

from fdrl_ros.worlds.icu_sepsis.assets import icu_sepsis
from fdrl_ros.worlds.icu_sepsis.perturbed import perturbed
from fdrl_ros.worlds.icu_sepsis.values import optimum, survival
import numpy as np
import pytest

SETTINGS = {'seeds': 10}
CONCENTRATIONS = (1, 3, 10, 30, 100, 300, 1000, 3000)
BLENDS = (0.0, 0.25, 0.5, 0.75, 1.0)

pytestmark = pytest.mark.slow


@pytest.mark.parametrize('blend', BLENDS)
def test_a_better_guess_treats_better_unless_it_knows_no_actions(blend, figures):
    truth = icu_sepsis()
    means = []
    for concentration in CONCENTRATIONS:
        found = []
        for seed in range(SETTINGS['seeds']):
            guess = perturbed(truth, concentration, seed, blend)
            found.append(survival(truth, optimum(guess).actions))
        means.append(float(np.mean(found)))
        figures.append(
            {
                'concentration': concentration,
                'blend': blend,
                'survival': [round(each, 6) for each in found],
                'mean': round(means[-1], 4),
                'deviation': round(float(np.std(found, ddof=1)), 4),
            }
        )
    if blend < 1.0:
        assert means[-1] > means[0] + 0.05
        assert np.all(np.diff(means) > -0.005)
    else:
        assert np.ptp(means) < 0.01
