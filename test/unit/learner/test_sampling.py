# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""Who joins a step, by each scheme, and what the accountant is told of it."""

from dataclasses import replace
import math

from click.testing import CliRunner
from fdrl_ros.cli import main
from fdrl_ros.errors import PrivacyError
from fdrl_ros.learner.privacy_cost import calibrated, ChargedMechanism, RecordCounts
from fdrl_ros.learner.records.sampling import Replay
from fdrl_ros.learner.settings import LearnerSettings, PrivacySettings
from fdrl_ros.privacy.accountant.accountant import epsilon_pld
from fdrl_ros.privacy.noise import NoiseSource
import numpy as np
import pytest
from scipy import stats
from support.small_hospital import records_of

SOURCE = NoiseSource.seeded(5)
RECORDS = records_of([3] * 40)
PRIVACY = PrivacySettings(batch=8, noise_multiplier=2.0, delta=1e-3, budget=20.0)


def scheme(name, n_units=40, batch=8, priorities=None, **settings):
    learner = LearnerSettings(replay=name, **settings)
    made = charged(learner, records_of([1] * n_units), batch=batch, budget=math.inf)
    return Replay(made, learner, SOURCE, priorities)


def shares(replay, steps=3000, n_units=40):
    joins = np.zeros(n_units)
    for step in range(steps):
        np.add.at(joins, replay.draw(1, step).units, 1)
    return joins / steps


@pytest.mark.parametrize(
    'name, variance', [('poisson', 0.2 * 0.8), ('uniform', 8 * (1 / 40) * (39 / 40))]
)
def test_poisson_and_uniform_replay_let_everybody_join_alike(name, variance):
    # Chi-square; false alarm under another seed: 1e-6 each.
    deviation = (shares(scheme(name)) - 0.2) * math.sqrt(3000 / variance)
    assert (deviation**2).sum() < stats.chi2.isf(1e-6, 40)


@pytest.mark.parametrize('name, fixed', [('poisson', 0), ('uniform', 1), ('prioritised', 1)])
def test_all_batches_but_those_of_poisson_replay_are_equally_large(name, fixed):
    sizes = {len(scheme(name).draw(1, step).units) for step in range(50)}
    assert sizes == {8} if fixed else len(sizes) > 5


def test_published_replay_joins_in_proportion_to_priority_and_weighs_it_away():
    priorities = np.linspace(0.1, 1.0, 40)
    replay = scheme('prioritised', priorities=priorities, importance_exponent=1.0)
    wanted = 8 * priorities / priorities.sum()
    # One from each equal share of the sum: variance is below that of independent draws.
    assert np.abs(shares(replay) - wanted).max() < 5.0 * math.sqrt(0.4 / 3000)
    draw = replay.draw(1, 0)
    products = draw.weights * priorities[draw.units]
    assert products == pytest.approx(np.full(8, products[0]))
    assert draw.weights.max() == 1.0


def test_private_replay_lets_each_unit_join_by_its_own_priority_alone():
    priorities = np.linspace(0.05, 1.0, 40)
    replay = scheme('prioritised_poisson', priorities=priorities, expected_priority=0.5)
    wanted = np.minimum(1.0, (8 / 40 / 0.5) * priorities)
    limit = 5.0 * np.sqrt(wanted * (1.0 - wanted) / 3000) + 1e-12
    assert (np.abs(shares(replay) - wanted) <= limit).all()
    others = priorities.copy()
    others[1:] = 1.0  # nobody's priority moves the coin of unit 0
    moved = scheme('prioritised_poisson', priorities=others, expected_priority=0.5)
    for step in range(300):
        assert (0 in replay.draw(1, step).units) == (0 in moved.draw(1, step).units)


@pytest.mark.parametrize('name', ['prioritised', 'prioritised_poisson'])
def test_priorities_follow_the_errors_and_go_on_from_a_checkpoint(name):
    replay = scheme(name, priority_exponent=0.5)
    assert (replay.priorities == 1.0).all()
    replay.update_priorities(np.array([3, 7]), np.array([[0.25, -0.25], [-9.0, 0.0]], np.float32))
    assert replay.priorities[3] == pytest.approx(0.5)
    assert replay.priorities[7] == 1.0 and replay.priorities[0] == 1.0
    again = scheme(name, priorities=replay.priorities, priority_exponent=0.5)
    assert np.array_equal(again.draw(1, 5).units, replay.draw(1, 5).units)
    replay.update_priorities(np.array([0]), np.zeros((1, 1), np.float32))
    assert replay.priorities[0] > 0.0  # everybody can still join
    assert again.priorities[0] == 1.0  # and no two share a state


def charged(learner=None, data=None, **privacy):
    return ChargedMechanism.from_settings(
        data or RECORDS, learner or LearnerSettings(), replace(PRIVACY, **privacy)
    )


def test_poisson_is_charged_at_its_rate_and_private_replay_without_amplification():
    assert charged().charge(7) == (2.0, 0.2, 7, 1)
    private = LearnerSettings(replay='prioritised_poisson')
    assert charged(private).charge(7) == (2.0, 1.0, 7, 1)


@pytest.mark.parametrize(
    'learner, privacy, words',
    [
        ({'replay': 'uniform'}, {}, 'uniform sampling has no finite .*depends on who else'),
        ({'replay': 'prioritised'}, {}, 'prioritised .* no finite .*through the sum of prior'),
        ({}, {'noise_multiplier': 0.0}, 'without noise there is no privacy'),
    ],
)
def test_a_mechanism_without_a_finite_epsilon_is_refused_under_a_budget(learner, privacy, words):
    learner = LearnerSettings(**learner)
    with pytest.raises(PrivacyError, match=words):
        charged(learner, **privacy)
    assert charged(learner, **privacy | {'budget': math.inf}).charge(3).noise_multiplier == 0.0


def test_clipping_transitions_protects_a_patient_as_a_group_of_a_public_size():
    with pytest.raises(PrivacyError, match='most_transitions') as refused:
        charged(clipped='transition', most_transitions=2)
    assert ' 3' not in str(refused.value), 'how long the longest is, is private'
    made = charged(clipped='transition', most_transitions=5)
    assert (made.n_units, made.n_records, made.group) == (40, 120, 5)
    assert made.charge(1).sampling_probability == pytest.approx(8 / (40 * 5))  # public numbers
    assert made.charge(1).noise_multiplier == 2.0


def test_returns_of_n_steps_make_a_transition_unit_a_group_of_n():
    made = charged(LearnerSettings(n_step=4), unit='transition')
    assert (made.n_units, made.group) == (120, 4)
    assert made.charge(1).noise_multiplier == 1.0, 'records that change move a sum by 2 C'
    assert charged(unit='transition').charge(1).noise_multiplier == 2.0
    assert charged(LearnerSettings(n_step=4)).group == 1  # all of a patient is clipped as one
    for n_step, frames, group in ((3, 1, 3), (1, 4, 4), (3, 4, 6)):
        learner = LearnerSettings(n_step=n_step, frame_stack=frames)
        assert charged(learner, unit='transition').group == group


def test_delta_and_batch_are_held_against_whom_epsilon_protects():
    with pytest.raises(PrivacyError, match='40, all patients'):
        charged(batch=41)
    with pytest.raises(PrivacyError, match='120 units'):
        charged(unit='transition', delta=1.0 / 120.0)
    charged(clipped='transition', most_transitions=5, delta=1.0 / 120.0)


WIDE = PrivacySettings(batch=50, delta=1e-4)


COUNTS = RecordCounts(500, 9000)


@pytest.mark.parametrize(
    'learner, privacy, size, charge',
    [
        ({}, {}, COUNTS, (0.1, 60, 1)),
        ({}, {'batch': 300}, COUNTS, (0.6, 12, 1)),
        (
            {'n_step': 3},
            {'unit': 'transition', 'delta': 1e-5},
            RecordCounts(50, 1000),
            (0.05, 120, 3),
        ),
        # of public numbers: how many transitions there are is private
        (
            {},
            {'clipped': 'transition', 'most_transitions': 20},
            RecordCounts(500, 1000, 20),
            (0.005, 1200, 20),
        ),
        ({'replay': 'prioritised_poisson'}, {}, COUNTS, (1.0, 60, 1)),
    ],
)
def test_all_rounds_cost_the_epsilon_that_was_asked_for(learner, privacy, size, charge):
    """Two rounds of three epochs."""
    learner, wanted = LearnerSettings(epochs=3, **learner), replace(WIDE, **privacy)
    made = calibrated(learner, wanted, size, epsilon=6.0, rounds=2)
    sigma = made.privacy.noise_multiplier
    if privacy.get('unit') == 'transition':
        sigma /= 2.0  # records of several steps are replaced, not gone
    assert made.charge == (sigma, *charge)
    spent = epsilon_pld([made.charge], made.privacy.delta)
    assert 0.99 * 6.0 <= spent <= 6.0 == made.privacy.budget


@pytest.mark.parametrize(
    'replay, size, epsilon, rounds',
    [
        ('uniform', COUNTS, 6.0, 2),
        ('poisson', RecordCounts(49, 900), 6.0, 2),
        ('poisson', COUNTS, 0.0, 2),
        ('poisson', COUNTS, math.nan, 2),
        ('poisson', COUNTS, 6.0, 0),
    ],
)
def test_what_no_noise_can_keep_is_refused(replay, size, epsilon, rounds):
    learner = LearnerSettings(epochs=3, replay=replay)
    with pytest.raises(PrivacyError):
        calibrated(learner, WIDE, size, epsilon=epsilon, rounds=rounds)


def test_the_command_prints_flags_to_train_with():
    words = '--epsilon 8 --collection-patients 500 --privacy-batch 128 --learner-epochs 12'
    done = CliRunner().invoke(main, ['privacy', 'calibrate', *words.split(), '--rounds', '6'])
    assert done.exit_code == 0, done.output
    assert '288 steps, q = 0.256' in done.output
    assert '--privacy-noise-multiplier 2.48' in done.output and '--privacy-budget 8' in done.output
    asked = ['privacy', 'calibrate', '--epsilon', '8', '--privacy-unit', 'transition']
    assert CliRunner().invoke(main, asked).exit_code == 2
