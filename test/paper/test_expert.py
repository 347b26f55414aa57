# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""
The expert's success in every procedure at every H, on 1000 patients, and 200 with motors.

Takes about six minutes on one core, so it is not part of `make test`: run `make paper`.
"""

from collections import Counter

from fdrl_ros.env.episode import run_episode
from fdrl_ros.env.expert import expert
from fdrl_ros.env.patient import mixture
from fdrl_ros.env.settings import WorldSettings
from fdrl_ros.env.state import PROCEDURE_NAMES
from fdrl_ros.env.surgery import SurgeryEnv
import numpy as np
import pytest

SEED = 2026
COUNTS = {'kinematic': 1000, 'dynamic': 200}
LEVELS = (0.0, 0.25, 0.5, 0.75, 1.0)

pytestmark = pytest.mark.slow


@pytest.mark.parametrize('mode', COUNTS)
@pytest.mark.parametrize('heterogeneity', LEVELS)
@pytest.mark.parametrize('procedure', PROCEDURE_NAMES)
def test_the_expert_succeeds_on_99_of_100_patients(mode, heterogeneity, procedure, capfd):
    settings, count = WorldSettings(mode=mode), COUNTS[mode]
    env = SurgeryEnv(settings=settings)
    patients = mixture(3, heterogeneity, SEED, (procedure,))
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
    with capfd.disabled():
        print(
            f'\n{mode:9s} {procedure:12s} H {heterogeneity:4.2f}: {won} of {count}, '
            f'{np.mean(lengths):.1f} ticks, at most {max(lengths)}, '
            f'peak force {max(peaks):.2f} N, failures {dict(ends) or "none"}',
            end='',
        )
    assert won >= 0.99 * count
