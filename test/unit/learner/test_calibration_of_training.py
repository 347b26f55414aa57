# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""Give epsilon, get sigma: a training with that noise spends the budget and not more."""

from dataclasses import replace
import math

from click.testing import CliRunner
from fdrl_ros.cli import main
from fdrl_ros.errors import PrivacyError
from fdrl_ros.learner.guarantee import calibrated, Size
from fdrl_ros.learner.settings import LearnerSettings, PrivacySettings
from fdrl_ros.privacy.accountant.accountant import Charge, epsilon_pld
import pytest

LEARNER = LearnerSettings(epochs=3)
PRIVACY = PrivacySettings(batch=50, delta=1e-4)


@pytest.mark.parametrize(
    'learner, privacy, size, q, steps, group',
    [
        ({}, {}, Size(500, 9000), 0.1, 2 * 3 * 10, 1),
        ({}, {'batch': 300}, Size(500, 9000), 0.6, 2 * 3 * 2, 1),
        ({'n_step': 3}, {'unit': 'transition', 'delta': 1e-5}, Size(50, 1000), 0.05, 120, 3),
        (
            {},
            {'clipped': 'transition', 'most_transitions': 20},
            Size(500, 1000, 20),
            50 / (500 * 20),  # of public numbers: how many transitions there are is private
            2 * 3 * 200,
            20,
        ),
        ({'replay': 'prioritised_poisson'}, {}, Size(500, 9000), 1.0, 60, 1),
    ],
)
def test_all_rounds_cost_the_epsilon_that_was_asked_for(learner, privacy, size, q, steps, group):
    made = calibrated(
        replace(LEARNER, **learner), replace(PRIVACY, **privacy), size, epsilon=6.0, rounds=2
    )
    assert (made.rate, made.steps, made.group) == (q, steps, group)
    sigma = made.privacy.noise_multiplier
    if privacy.get('unit') == 'transition':
        sigma /= 2.0  # records of several steps are replaced, not gone
    spent = epsilon_pld([Charge(sigma, q, steps, group)], made.privacy.delta)
    assert 0.99 * 6.0 <= spent <= 6.0 == made.privacy.budget


@pytest.mark.parametrize(
    'learner, size, epsilon, rounds',
    [
        ({'replay': 'uniform'}, Size(500, 9000), 6.0, 2),
        ({}, Size(49, 900), 6.0, 2),
        ({}, Size(500, 9000), 0.0, 2),
        ({}, Size(500, 9000), math.nan, 2),
        ({}, Size(500, 9000), 6.0, 0),
    ],
)
def test_what_no_noise_can_keep_is_refused(learner, size, epsilon, rounds):
    with pytest.raises(PrivacyError):
        calibrated(replace(LEARNER, **learner), PRIVACY, size, epsilon=epsilon, rounds=rounds)


def test_the_command_prints_flags_to_train_with():
    words = '--epsilon 8 --collection-patients 500 --privacy-batch 128 --learner-epochs 12'
    done = CliRunner().invoke(main, ['privacy', 'calibrate', *words.split(), '--rounds', '6'])
    assert done.exit_code == 0, done.output
    assert '288 steps, q = 0.256' in done.output
    assert '--privacy-noise-multiplier 2.48' in done.output and '--privacy-budget 8' in done.output
    asked = ['privacy', 'calibrate', '--epsilon', '8', '--privacy-unit', 'transition']
    assert CliRunner().invoke(main, asked).exit_code == 2
