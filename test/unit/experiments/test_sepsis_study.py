# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""The sepsis experiments: public starts, noise for an epsilon, parts that last, honest sums."""

from dataclasses import replace
import json
import math

from click.testing import CliRunner
from fdrl_ros.cli.commands import main
from fdrl_ros.errors import TrainingStopped
from fdrl_ros.experiments.studies.sepsis.learning import (
    actions_of,
    inputs_of,
    noise_multiplier,
    phases_of,
    public_values,
    public_weights,
    SepsisCollector,
    SHAPE,
)
from fdrl_ros.experiments.studies.sepsis.settings import (
    Arm,
    EPSILONS,
    paper_arms,
    REPLAYS,
    SepsisSettings,
    Start,
)
from fdrl_ros.experiments.studies.sepsis.study import (
    all_runs,
    measure,
    part_of,
    run_sepsis,
    target_arms,
)
from fdrl_ros.experiments.studies.sepsis.summary import fae, summarise
from fdrl_ros.experiments.study import Work
from fdrl_ros.privacy.accountant.accountant import epsilon_pld
from fdrl_ros.runtime.progress import Caller, NOBODY
from fdrl_ros.worlds.icu_sepsis.assets import icu_sepsis
from fdrl_ros.worlds.icu_sepsis.perturbed import perturbed
from fdrl_ros.worlds.icu_sepsis.values import optimum
from matplotlib.figure import Figure
import numpy as np
import pytest

SMALL = SepsisSettings(
    runs=1, seeds=0, patients=60, new_patients=20, batch=30, learning_rate=0.1, scale=2.0
)
GUESS = Start(10.0)
ONE = Arm('online', GUESS, 8.0)
ARMS = [ONE, Arm('online', GUESS)]


@pytest.fixture(scope='module')
def whole(tmp_path_factory):
    """Run two arms once: where the parts are, and the parts."""
    directory = tmp_path_factory.mktemp('sepsis')
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(
            'fdrl_ros.experiments.studies.sepsis.study.paper_arms', lambda settings: ARMS
        )
        return directory, run_sepsis(directory, SMALL)


@pytest.fixture
def two_arms(monkeypatch):
    """Let the experiments consist of two arms."""
    for place in ('study', 'summary'):
        monkeypatch.setattr(
            f'fdrl_ros.experiments.studies.sepsis.{place}.paper_arms', lambda settings: ARMS
        )


# What is publicly known.


def test_the_start_is_the_optimum_of_the_public_guess():
    found = actions_of(public_weights(public_values(GUESS, 3), 4.0), inputs_of(4.0))
    guess = perturbed(icu_sepsis(), 10.0, 3)
    best = optimum(guess)
    states = np.arange(713)
    np.testing.assert_allclose(best.action_values[states, found], best.values, atol=1e-4)
    assert icu_sepsis().admissible[states, found].all()
    # Without a guess nothing is known but what is usual.
    values, usual = public_values(Start(), 0), icu_sepsis().admissible
    assert len(np.unique(values)) == 2 and np.all(values[usual] > values[~usual].max())


def test_the_hospital_tries_only_what_is_usual():
    inputs = inputs_of(1.0)
    policy = SHAPE.policy(public_weights(public_values(Start(), 0), 1.0))
    found = SepsisCollector(inputs, 5).collect(policy, 1.0, 0, 200)
    assert icu_sepsis().admissible[found.states[:, 0].astype(int), found.actions].all()
    assert set(np.unique(found.rewards)) <= {-1.0, 0.0, 1.0}
    again = SepsisCollector(inputs, 5).collect(policy, 1.0, 0, 200)
    other = SepsisCollector(inputs, 5).collect(policy, 1.0, 200, 200)
    assert again.digest() == found.digest() != other.digest()
    assert not set(found.patients) & set(other.patients)


# Epsilon.


@pytest.mark.parametrize('replay', ['poisson', 'prioritised_poisson'])
def test_noise_keeps_the_epsilon_that_it_is_for(replay):
    settings = replace(SMALL, patients=200, new_patients=40, batch=50)
    arm = Arm('online', GUESS, 4.0, replay)
    sigma = noise_multiplier(settings, arm)
    rates = [(rate if replay == 'poisson' else 1.0, n) for rate, n in phases_of(settings)]
    spent = epsilon_pld([(sigma, rate, steps) for rate, steps in rates], settings.delta)
    assert 0.99 * 4.0 <= spent <= 4.0
    paper = replace(arm, replay='prioritised')  # has the noise but not the epsilon
    assert not paper.private and not Arm('online', GUESS).private
    without = replace(arm, replay='poisson')
    assert noise_multiplier(settings, paper) == noise_multiplier(settings, without) > 0.0


# Settings.


CONTRADICTIONS = [
    ('--patients 100', 'patients = 100: expected at least new_patients = 1000, one round'),
    ('--batch 30000', 'batch = 30000: expected at most the 20000 patients of all rounds'),
    ('--delta 0.01', 'delta = 0.01: expected below 1 / 100000, the patients of the largest run'),
    ('--delta 1e-4 --seeds 0', 'delta = 0.0001: expected below 1 / 20000'),
    ('--plain-patients 2 --plain-rounds 3', 'plain_batch = 200: expected at most the 6 patients'),
]


@pytest.mark.parametrize(('flags', 'words'), CONTRADICTIONS)
def test_contradictions_are_refused_before_anything_begins(flags, words, tmp_path):
    directory = tmp_path / 'run'
    result = CliRunner().invoke(main, ['sepsis', '--directory', str(directory), *flags.split()])
    assert result.exit_code == 1 and words in result.output
    assert not directory.exists()
    for settings in (SepsisSettings(), SepsisSettings().quick(), SMALL):
        settings.check()


# Runs.


def test_a_private_run_spends_what_it_may(whole):
    directory, (part, plain) = whole
    assert 7.9 <= part['epsilon'] <= 8.0 and plain['epsilon'] is None
    assert part['patients'] == [0, 20, 40, 60]
    # Below 30 patients nothing is learned.
    assert part['survival'][0] == part['survival'][1] == pytest.approx(0.8245, abs=0.01)
    assert part['final']['survival'] == part['survival'][-1]
    assert sum(part['final']['actions']['low']) == pytest.approx(1.0)


def test_an_offline_run_says_what_it_promises(tmp_path):
    settings = replace(SMALL, clinician_patients=50)
    work = Work(tmp_path, ('sepsis', 'one'), NOBODY)
    part = measure(settings, Arm('offline', GUESS, 8.0), 1, work)
    assert 7.9 <= part['epsilon'] <= 8.0 and part['patients'] == [0, 50]


def test_a_stopped_experiment_goes_on_and_ends_with_the_same_numbers(tmp_path, two_arms, whole):
    def numbers(parts):
        return [{k: v for k, v in each.items() if k != 'seconds'} for each in parts]

    asked = iter(range(10**6))
    with pytest.raises(TrainingStopped):
        run_sepsis(tmp_path, SMALL, Caller(stopped=lambda: next(asked) > 5))
    kept = list((tmp_path / 'parts').iterdir())
    assert sorted(each.suffix for each in kept) == ['.json', '.unfinished']
    whole_part = next(each for each in kept if each.suffix == '.json')
    stamp = whole_part.stat().st_mtime_ns
    assert numbers(run_sepsis(tmp_path, SMALL)) == numbers(whole[1])
    assert whole_part.stat().st_mtime_ns == stamp
    assert len(run_sepsis(tmp_path, replace(SMALL, workers=2, phi=0.9))) == 2


def test_every_arm_has_a_file_of_its_own():
    settings = SepsisSettings()
    names = [part_of(settings, arm, seed).name for arm, seed in all_runs(settings)]
    assert len(set(names)) == len(names)
    assert len(paper_arms(settings)) == len(EPSILONS) * len(REPLAYS)
    assert not {each.name for each in paper_arms(settings)} & {
        each.name for each in target_arms(settings)
    }


# Sums.


def test_fae_is_the_first_time_and_infinity_if_there_is_none():
    part = {'patients': [0, 10, 20, 30], 'survival': [0.7, 0.9, 0.8, 0.95]}
    assert fae(part, 0.7) == 0.0 and fae(part, 0.85) == 10.0
    assert fae(part, 0.93) == 30.0 and fae(part, 0.96) == math.inf


def test_the_command_writes_tables_plots_and_json(two_arms, whole, monkeypatch):
    monkeypatch.setattr(Figure, 'savefig', lambda figure, path, **_: path.touch())
    directory, parts = whole
    words = (
        'sepsis --runs 1 --seeds 0 --patients 60 --new-patients 20 --batch 30 --phi 0.5 '
        f'--learning-rate 0.1 --scale 2.0 --directory {directory}'
    )
    result = CliRunner().invoke(main, words.split())
    assert result.exit_code == 0, result.output
    assert 'not a medical device' in result.output and 'NOT PRIVATE' in result.output
    assert 'epsilon is that of one patient, at delta 1e-06' in result.output
    found = json.loads((directory / 'sepsis.json').read_text())
    assert [each['epsilon'] for each in found['arms']] == [8.0, None]
    waits = {'median': 0.0, 'quartiles': [0.0, 0.0], 'reached': 1, 'values': [0.0]}
    assert found['arms'][0]['fae'] == waits
    assert found['arms'][0]['survival']['values'] == [parts[0]['final']['survival']]
    assert set(found['heat_maps']) == {'clinicians', 'DQN', 'DP-DQN, epsilon 8'}
    for bands in found['heat_maps'].values():
        for band in ('all', 'low', 'medium', 'high'):
            assert sum(bands[band]['shares']['mean']) == pytest.approx(1.0)
            assert bands[band]['shares']['low'] is None  # of one run
    assert 'too few to say what depends on epsilon' in result.output
    assert 'rises as epsilon falls' not in result.output.replace('Paper: rises', '')
    assert found['bands']['low']['values'] and found['references']['optimum']['survival'] > 0.875
    for name in ('fae', 'mortality', 'actions'):
        assert (directory / f'sepsis_{name}.png').exists()


def test_targets_are_paired_with_their_start():
    part = {
        'arm': {'name': Arm('offline', GUESS, 8.0).name},
        'survival': [0.8, 0.81],
        'final': {'survival': 0.81},
        'averaged': {'survival': 0.83},
    }
    settings = SepsisSettings(seeds=2)
    summary = summarise([{**part, 'seed': 2}, {**part, 'seed': 1}], settings)
    (row,) = summary['targets']
    assert row['runs'] == 2 and row['averaged_gain']['mean'] == pytest.approx(0.03)
