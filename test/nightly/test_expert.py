# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""
The expert's success in every procedure at every H, on 1000 patients, without and with motors.

Takes about ten minutes on one core, so it is not part of `make test`: run `make nightly`, with
`ARGS='--save docs/results/expert.json'` to keep the figures.
"""

from collections import Counter

from fdrl_ros.surgery.gym.episode import run_episode
from fdrl_ros.surgery.gym.state import PROCEDURE_NAMES
from fdrl_ros.surgery.gym.surgery_env import SurgeryEnv
from fdrl_ros.surgery.patient.cohort import mixture
from fdrl_ros.surgery.settings import WorldSettings
from fdrl_ros.surgery.tasks.expert import expert
import numpy as np
import pytest

SETTINGS = {'seed': 2026, 'hospitals': 3, 'patients': 1000}
LEVELS = (0.0, 0.25, 0.5, 0.75, 1.0)

pytestmark = pytest.mark.slow


@pytest.mark.parametrize('heterogeneity', LEVELS)
@pytest.mark.parametrize('procedure', PROCEDURE_NAMES)
@pytest.mark.parametrize('mode', ['kinematic', 'dynamic'])
def test_the_expert_succeeds_on_99_of_100_patients(mode, procedure, heterogeneity, figures):
    settings, count = WorldSettings(mode=mode), SETTINGS['patients']
    env = SurgeryEnv(settings=settings)
    patients = mixture(SETTINGS['hospitals'], heterogeneity, SETTINGS['seed'], (procedure,))
    ends, lengths, peaks = Counter(), [], []
    for index in range(count):
        patient = patients.patient(index)
        choose = lambda state, who=patient: expert(state, who, settings)[0]  # noqa: E731
        episode = run_episode(env, choose, patient)
        ends[episode.failure] += 1
        lengths.append(episode.length)
        peaks.append(episode.forces.max())
    env.close()
    won = ends.pop('', 0)
    figures.append(
        {
            'mode': mode,
            'procedure': procedure,
            'heterogeneity': heterogeneity,
            'successes': won,
            'failures': dict(ends),
            'mean_ticks': round(float(np.mean(lengths)), 2),
            'most_ticks': max(lengths),
            'peak_force': round(float(max(peaks)), 3),
        }
    )
    assert won >= 0.99 * count
