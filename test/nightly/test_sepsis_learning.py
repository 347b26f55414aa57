# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""
What binds a learner of sepsis: how many patients there are, and how they are weighed.

Takes some minutes on one core: `make nightly`, or this file alone with
`--save docs/results/sepsis_binding.json` to keep the figures, which docs/sepsis.md tells.
"""

from fdrl_ros.experiments.studies.sepsis import learning
from fdrl_ros.experiments.studies.sepsis.learning import learn, planned
from fdrl_ros.experiments.studies.sepsis.settings import Arm, SepsisSettings, Start
from fdrl_ros.experiments.study import Work
from fdrl_ros.runtime.progress import NOBODY
from fdrl_ros.worlds.icu_sepsis.assets import icu_sepsis
from fdrl_ros.worlds.icu_sepsis.episodes import clinician_records
from fdrl_ros.worlds.icu_sepsis.values import survival
import numpy as np
import pytest

SETTINGS = {'seeds': 10}
SEEDS = range(1, 1 + SETTINGS['seeds'])

pytestmark = pytest.mark.slow


@pytest.mark.parametrize('patients', [500, 5000, 20000, 50000, 200000])
def test_no_plan_from_5000_patients_of_the_clinicians_reaches_085(patients, figures):
    found = [
        survival(icu_sepsis(), planned(clinician_records(patients, seed), Start(), seed))
        for seed in SEEDS
    ]
    note(figures, 'planning', patients, found)
    if patients <= 5000:
        assert max(found) < 0.83
    if patients >= 50000:
        assert min(found) > 0.84


def test_it_hardly_matters_whether_patients_or_transitions_weigh_alike(
    tmp_path, monkeypatch, figures
):
    """A mean over each stay is a biased sample of steps, but few large steps do not show it."""
    arm, means = Arm('online', Start(10.0)), {}
    for typical in (10.0, 0.0):
        monkeypatch.setattr(learning, 'TYPICAL_STAY', typical)
        gains = []
        for seed in SEEDS:
            directory = tmp_path / f'{typical:g}_{seed}'
            directory.mkdir()
            work = Work(directory, ('sepsis', 'one'), NOBODY)
            got = learn(SepsisSettings(), arm, seed, work)
            gains.append(got.survival[-1] - got.survival[0])
        means[typical] = float(np.mean(gains))
        note(figures, 'transitions alike' if typical else 'patients alike', 20000, gains)
    assert min(means.values()) > 0.01 and abs(means[10.0] - means[0.0]) < 0.005


def note(figures, what, patients, found):
    """Keep a figure."""
    figures.append(
        {
            'what': what,
            'patients': patients,
            'values': [round(float(each), 6) for each in found],
            'mean': round(float(np.mean(found)), 4),
            'deviation': round(float(np.std(found, ddof=1)), 4),
        }
    )
