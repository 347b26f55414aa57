# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""The sepsis experiments: public starts, noise for an epsilon, parts that last, honest sums."""

from dataclasses import replace
import json
import math

from click.testing import CliRunner
from fdrl_ros.cli.commands import main
from fdrl_ros.errors import TrainingStopped
from fdrl_ros.experiments.studies.sepsis.fitting import fitted
from fdrl_ros.experiments.studies.sepsis.learning import (
    actions_of,
    admitted_by,
    inputs_of,
    learner_settings,
    network_of,
    noise_multiplier,
    phases_of,
    public_values,
    public_weights,
    SepsisCollector,
    SHAPE,
    start_weights,
    survival_of,
)
from fdrl_ros.experiments.studies.sepsis.settings import (
    Arm,
    EPSILONS,
    MINIBATCH,
    moderate_arms,
    NETWORKS,
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
from fdrl_ros.experiments.studies.sepsis.summary import (
    fae,
    fae_summary,
    overall_changes,
    summarise,
)
from fdrl_ros.experiments.study import Work
from fdrl_ros.policy import NetworkShape
from fdrl_ros.privacy.accountant.accountant import epsilon_pld
from fdrl_ros.runtime.progress import Caller, NOBODY
from fdrl_ros.worlds.icu_sepsis.assets import icu_sepsis
from fdrl_ros.worlds.icu_sepsis.perturbed import perturbed
from fdrl_ros.worlds.icu_sepsis.values import optimum
from matplotlib.figure import Figure
import numpy as np
import pytest

SMALL = SepsisSettings(
    runs=1,
    seeds=0,
    patients=60,
    new_patients=20,
    batch=30,
    learning_rate=0.1,
    scale=2.0,
    clinician_patients=50,
    minibatch_steps=20,
    minibatch_batch=10,
    network_hidden=6,
    network_fit_steps=30,
    network_batch=10,
    network_steps=3,
)
GUESS = Start(10.0)
ONE = Arm('online', GUESS, 8.0)
ARMS = [ONE, Arm('online', GUESS)]
MODERATE = replace(ONE, admitted='medium')


def work_in(directory):
    directory.mkdir(exist_ok=True)
    return Work(directory, ('sepsis', 'one'), NOBODY)


@pytest.fixture(scope='module')
def whole(tmp_path_factory):
    """Run three arms once: where the parts are, and the parts."""
    directory = tmp_path_factory.mktemp('sepsis')
    with pytest.MonkeyPatch.context() as patch:
        few_arms(patch, 'study')
        return directory, run_sepsis(directory, SMALL)


def few_arms(patch, place):
    for name, arms in (('paper_arms', ARMS), ('moderate_arms', [MODERATE])):
        patch.setattr(
            f'fdrl_ros.experiments.studies.sepsis.{place}.{name}', lambda settings, arms=arms: arms
        )


@pytest.fixture
def three_arms(monkeypatch):
    """Let the experiments consist of two arms of the paper's, and one of moderate SOFA."""
    for place in ('study', 'summary'):
        few_arms(monkeypatch, place)


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
    ('--patients 100', '--patients 100: expected at least new_patients = 1000, one round'),
    ('--batch 30000', '--batch 30000: expected at most the 20000 patients of all rounds'),
    ('--delta 0.01', '--delta 0.01: expected below 1 / 100000, the patients of the largest run'),
    ('--delta 1e-4 --seeds 0', '--delta 0.0001: expected below 1 / 20000'),
    ('--minibatch-steps 30', '--minibatch-steps 30: expected a multiple of 20, the rounds'),
    ('--minibatch-batch 6000', '--minibatch-batch 6000: expected at most clinician_patients'),
    ('--network-batch 9000', '--network-batch 9000: expected at most batch = 8000'),
    ('--plain-patients 2 --plain-rounds 3', '--plain-batch 200: expected at most the 6 patients'),
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
    directory, (part, plain, moderate) = whole
    assert 7.9 <= part['epsilon'] <= 8.0 and plain['epsilon'] is None
    assert part['patients'] == [0, 20, 40, 60]
    # Below 30 patients nothing is learned.
    assert part['survival'][0] == part['survival'][1] == pytest.approx(0.8245, abs=0.01)
    assert part['final']['survival'] == part['survival'][-1]
    assert sum(part['final']['actions']['low']) == pytest.approx(1.0)
    for each in (part, plain, moderate):
        assert each['moderate'][-1] == pytest.approx(each['final']['by_band']['medium'], abs=1e-12)
        assert len(each['moderate']) == len(each['patients'])
    assert 7.9 <= moderate['epsilon'] <= 8.0 and moderate['survival'] != part['survival']


def test_an_offline_run_says_what_it_promises(tmp_path):
    work = Work(tmp_path, ('sepsis', 'one'), NOBODY)
    part = measure(SMALL, Arm('offline', GUESS, 8.0), 1, work)
    assert 7.9 <= part['epsilon'] <= 8.0 and part['patients'] == [0, 50]


@pytest.mark.parametrize('network', NETWORKS)
@pytest.mark.parametrize('kind', ['online', *MINIBATCH])
def test_networks_and_minibatches_keep_their_epsilon(kind, network, tmp_path):
    arm = Arm(kind, GUESS, 8.0, network=network)
    part = measure(SMALL, arm, 1, work_in(tmp_path / 'private'))
    sigma = part['noise_multiplier']
    steps = 3 if network == 'features' else 1
    batch = 10 if network == 'features' else 30
    phases = [(10 / 50, 20)] if kind in MINIBATCH else [(batch / n, steps) for n in (40, 60)]
    spent = epsilon_pld([(sigma, rate, count) for rate, count in phases], SMALL.delta)
    assert 7.9 <= spent <= 8.0 and part['epsilon'] == pytest.approx(spent, abs=0.01)
    assert len(part['survival']) == (21 if kind in MINIBATCH else 4)
    assert part['survival'][-1] == pytest.approx(part['final']['survival'], abs=1e-12)
    free = measure(SMALL, replace(arm, epsilon=math.inf), 1, work_in(tmp_path / 'free'))
    assert free['epsilon'] is None and free['noise_multiplier'] == 0.0
    assert free['survival'][0] == part['survival'][0] and free['survival'] != part['survival']


def test_minibatches_without_privacy_take_adam_and_only_cql_is_conservative():
    plain, private, cql = (
        learner_settings(SMALL, arm)
        for arm in (
            Arm('minibatch', GUESS),
            Arm('minibatch', GUESS, 8.0),
            Arm('conservative', GUESS, 8.0),
        )
    )
    assert (plain.optimizer, private.optimizer, cql.optimizer) == ('adam', 'sgd', 'sgd')
    assert plain.conservative == private.conservative == 0.0 < cql.conservative
    assert SepsisSettings().minibatch_steps >= 2000


def test_settings_of_one_kind_of_learning_do_not_touch_the_parts_of_another():
    other = replace(SMALL, minibatch_rate=0.5, network_rate=0.5, plain_rate=0.5, offline_rate=0.5)
    minibatch = Arm('minibatch', GUESS, 8.0)
    for arm, same in (
        (ONE, True),
        (Arm('plan', GUESS), True),
        (minibatch, False),
        (replace(minibatch, kind='conservative'), False),
        (replace(ONE, network='features'), False),
        (Arm('plain', GUESS), False),
        (Arm('offline', GUESS), False),
    ):
        one, two = (part_of(settings, arm, 1).settings for settings in (SMALL, other))
        assert (one == two) == same, arm.name


def test_a_stopped_experiment_goes_on_and_ends_with_the_same_numbers(tmp_path, three_arms, whole):
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
    assert len(run_sepsis(tmp_path, replace(SMALL, workers=2, phi=0.9))) == 3


def test_every_arm_has_a_file_of_its_own():
    settings = SepsisSettings()
    names = [part_of(settings, arm, seed).name for arm, seed in all_runs(settings)]
    assert len(set(names)) == len(names)
    assert (
        len(paper_arms(settings)) == len(moderate_arms(settings)) == len(EPSILONS) * len(REPLAYS)
    )
    assert {each.admitted for each in moderate_arms(settings)} == {'medium'}
    both = {each.network for each in target_arms(settings) if each.kind == 'minibatch'}
    assert both == set(NETWORKS)
    assert not {each.name for each in paper_arms(settings)} & {
        each.name for each in target_arms(settings)
    }


# Sums.


def test_fae_is_the_first_time_and_infinity_if_there_is_none():
    part = {'patients': [0, 10, 20, 30], 'survival': [0.7, 0.9, 0.8, 0.95]}
    assert fae(part, 0.7) == 0.0 and fae(part, 0.85) == 10.0
    assert fae(part, 0.93) == 30.0 and fae(part, 0.96) == math.inf


def test_fae_of_moderate_sofa_waits_for_their_survival():
    def part(seed, moderate):
        return {'patients': [0, 10, 20], 'survival': [0.9, 0.9, 0.9], 'moderate': moderate}

    parts = [part(1, [0.1, 0.6, 0.6]), part(2, [0.7, 0.1, 0.1]), part(3, [0.1, 0.2, 0.3])]
    assert [fae(each, 0.5, 'moderate') for each in parts] == [10.0, 0.0, math.inf]
    assert [fae(each, 0.5) for each in parts] == [0.0, 0.0, 0.0]
    found = fae_summary(parts, 0.5, 'moderate')
    assert found['median'] == 10.0 and found['reached'] == 2
    assert found['values'] == [10.0, 0.0, None]


def test_survival_of_moderate_sofa_is_that_of_a_slow_version():
    """Let patients go on step by step, weighed as the clinicians meet them at SOFA 5 to 15."""
    model = icu_sepsis()
    actions = np.random.default_rng(3).integers(25, size=713)
    ahead = np.array([model.rows[model.row_of[s, a]] for s, a in enumerate(actions)])
    survives = np.zeros(713)
    for _ in range(2000):
        survives = ahead[:, 714] + ahead[:, :713] @ survives
    clinicians = np.zeros((713, 713))
    for state in range(713):
        for action in range(25):
            chance = model.clinicians[state, action]
            clinicians[state] += chance * model.rows[model.row_of[state, action], :713]
    now, met = model.start.copy(), np.zeros(713)
    for _ in range(2000):
        met += now
        now = now @ clinicians
    moderate = np.where((model.sofa >= 5.0) & (model.sofa <= 15.0), met, 0.0)
    everyone, found = survival_of(actions)
    assert everyone == pytest.approx(model.start @ survives, abs=1e-9)
    assert found == pytest.approx(moderate @ survives / moderate.sum(), abs=1e-9)


def test_the_data_set_of_moderate_sofa_has_nobody_else():
    policy = SHAPE.policy(public_weights(public_values(Start(), 0), 1.0))
    collector = SepsisCollector(inputs_of(1.0), 5, admitted_by(MODERATE))
    found = collector.collect(policy, 0.1, 0, 300)
    first = found.states[found.starts[:-1], 0].astype(int)
    sofa = icu_sepsis().sofa[first]
    assert sofa.min() >= 5.0 and sofa.max() <= 15.0 and len(np.unique(first)) > 50
    assert admitted_by(ONE) is None


def test_a_network_is_fitted_to_what_is_public():
    # Linear on one-hot states, it can be exact.
    values = np.random.default_rng(1).uniform(-1.0, 1.0, (6, 3))
    usual, shape = np.ones((6, 3), bool), NetworkShape(6, 3, ())
    inputs = np.eye(6, dtype=np.float32)
    exact = shape.policy(fitted(shape, inputs, values, usual, 4000, 1)).q_values(inputs)
    np.testing.assert_allclose(exact, values, atol=1e-3)
    # With hidden layers it is near, and the policy prefers what is usual.
    settings = replace(SepsisSettings(), network_fit_steps=500)
    shape, inputs = network_of(settings, 'features')
    assert (shape.states, shape.actions, shape.hidden) == (47, 25, (64, 64))
    weights = start_weights(settings, GUESS, 'features', 1)
    found = shape.policy(weights).q_values(inputs[:713])
    usual, values = icu_sepsis().admissible, public_values(GUESS, 1)
    assert np.sqrt(np.mean((found - values)[usual] ** 2)) < 0.1
    chosen = actions_of(weights, inputs, shape)
    assert usual[np.arange(713), chosen].mean() > 0.95


def test_the_distance_of_two_policies_is_half_of_what_moved():
    def part(arm, seed, *shares):
        actions = {'all': [*shares, *[0.0] * 23]}
        return {'arm': {'name': arm.name}, 'seed': seed, 'final': {'actions': actions}}

    private, free = ONE, Arm('online', GUESS)
    by_arm = {
        private.name: [part(private, 1, 0.5, 0.5), part(private, 2, 0.2, 0.8)],
        free.name: [part(free, 1, 0.6, 0.4), part(free, 2, 0.5, 0.5), part(free, 3, 1.0, 0.0)],
    }
    found = overall_changes(by_arm, SepsisSettings())
    np.testing.assert_allclose(found['difference']['mean'][:3], [-0.2, 0.2, 0.0], atol=1e-12)
    np.testing.assert_allclose(found['distance']['values'], [0.1, 0.3])
    np.testing.assert_allclose(found['between_seeds']['values'], [0.1])
    assert overall_changes({free.name: by_arm[free.name]}, SepsisSettings()) == {}


def test_the_command_writes_tables_plots_and_json(three_arms, whole, monkeypatch):
    monkeypatch.setattr(Figure, 'savefig', lambda figure, path, **_: path.touch())
    directory, parts = whole
    words = (
        'sepsis --runs 1 --seeds 0 --patients 60 --new-patients 20 --batch 30 --phi 0.5 '
        '--learning-rate 0.1 --scale 2.0 --clinician-patients 50 '
        f'--directory {directory}'
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
    (row,) = found['moderate']['arms']
    assert (row['admitted'], row['runs'], row['fae']['reached']) == ('medium', 1, 1)
    assert set(row['fae_at']) == {'0.83', '0.835', '0.845'} and found['moderate']['phi'] == 0.505
    assert row['curve'] == parts[2]['moderate']
    assert 0.0 < found['overall']['distance']['mean'] < 1.0
    for name in ('fae', 'fae_moderate', 'mortality', 'overall', 'actions'):
        for suffix in ('png', 'svg'):
            assert (directory / f'sepsis_{name}.{suffix}').exists()
    listed = CliRunner().invoke(main, ['reproduce', 'dp-dqn', '--help'])
    assert listed.exit_code == 0 and 'Reproduce the results of the DP-DQN paper' in listed.output


def test_targets_are_paired_with_their_start():
    part = {
        'arm': {'name': Arm('offline', GUESS, 8.0).name},
        'noise_multiplier': 2.0,
        'survival': [0.8, 0.81],
        'final': {'survival': 0.81},
        'averaged': {'survival': 0.83},
    }
    settings = SepsisSettings(seeds=2)
    summary = summarise([{**part, 'seed': 2}, {**part, 'seed': 1}], settings)
    (row,) = summary['targets']
    assert row['runs'] == 2 and row['averaged_gain']['mean'] == pytest.approx(0.03)
