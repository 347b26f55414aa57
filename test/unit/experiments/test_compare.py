# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""Who else could choose, the oracle, and the command that compares them all."""

import json
import os

from click.testing import CliRunner
from fdrl_ros.cli.commands import main
from fdrl_ros.deployment.plan import Plan
from fdrl_ros.deployment.robot.public_value import PublicValuation
from fdrl_ros.errors import StoreBusyError
from fdrl_ros.experiments.run_directory import RunDirectory
from fdrl_ros.experiments.studies.selector.baselines import (
    bandit,
    best_cumulative,
    best_single,
    CandidateReturns,
    EXPLORATION,
    hindsight,
    true_returns,
)
from fdrl_ros.experiments.studies.selector.study import switching_of
from fdrl_ros.experiments.studies.selector.summary import summarise
from fdrl_ros.experiments.studies.selector.value_models import value_models
from fdrl_ros.selector.value.monte_carlo_reference import chooser_of
from fdrl_ros.surgery.gym.episode import roll_out
from fdrl_ros.surgery.gym.vector_operation import VectorOperation
from fdrl_ros.surgery.patient.cohort import mixture
from fdrl_ros.surgery.settings import WorldSettings
from hypothesis import given
from hypothesis import strategies as st
from matplotlib.figure import Figure
import numpy as np
import pytest

TINY = (
    *('--hospitals', '3', '--noise', 'seeded', '--rounds', '1', '--learner-hidden', '8'),
    *('--procedures', 'reach', '--world-mode', 'kinematic', '--world-horizon', '6'),
    *('--learner-epochs', '1', '--privacy-batch', '4', '--collection-patients', '4'),
    *('--pretraining-patients', '4', '--pretraining-steps', '4', '--validation-patients', '2'),
    *('--validation-margin', '1', '--value-features', '8', '--value-groups', '4'),
    *('--value-patients', '8', '--value-checked', '2', '--value-redraws', '16'),
    *('--evaluation-patients', '3', '--evaluation-workers', '1', '--home-epochs', '0'),
)


def outcomes(returns, procedures=None, seed=0):
    count = len(returns[0])
    return CandidateReturns(
        tuple('abcdefgh'[: len(returns)]),
        np.random.default_rng(seed).normal(size=(count, 3)),
        np.zeros(count, int) if procedures is None else np.array(procedures),
        np.array(returns, float),
    )


def test_rules_for_whole_operations_choose_what_they_say():
    public = outcomes([[1, 1, 0, 0], [0, 0, 3, 0.5]], [0, 0, 1, 1])
    unseen = outcomes([[5, 0, 5], [0, 5, 6]], [0, 1, 1])
    assert list(best_single(public, unseen)) == [1, 1, 1]
    assert list(best_cumulative(public, unseen)) == [0, 1, 1]
    assert list(hindsight(unseen)) == [0, 1, 1]
    # The paper's rule changes when its choice disappoints; what others earn it never knows.
    public = outcomes([[1.0], [0.9]])
    assert list(best_cumulative(public, outcomes([[-9, 9, 9], [9, 1, 1]]))) == [0, 1, 1]


def slow_bandit(public, unseen):
    """Run LinUCB as it was published: ridge regressions solved anew for every patient."""
    rows, earned, chosen = {}, {}, []
    for part in (public, unseen):
        chosen = []
        for case, state in enumerate(part.states):
            context, scores = np.r_[1.0, state], []
            for arm in range(len(part.names)):
                known = np.array(rows.get(arm, [])).reshape(-1, len(context))
                matrix = np.eye(len(context)) + known.T @ known
                weights = np.linalg.solve(matrix, known.T @ np.array(earned.get(arm, [])))
                width = np.sqrt(context @ np.linalg.solve(matrix, context))
                scores.append(context @ weights + EXPLORATION * width)
            best = int(np.argmax(scores))
            rows.setdefault(best, []).append(context)
            earned.setdefault(best, []).append(part.returns[best, case])
            chosen.append(best)
    return chosen


@given(st.integers(0, 2**32 - 1))
def test_the_bandit_is_linucb(seed):
    rng = np.random.default_rng(seed)
    public, unseen = (outcomes(rng.normal(size=(3, n)), seed=seed + n) for n in (12, 7))
    assert list(bandit(public, unseen)) == slow_bandit(public, unseen)


def test_a_switch_soon_after_a_change_of_state_is_told_from_others():
    class Episode:
        states = np.zeros((12, 2))

    Episode.states[4:, 0] = 3.0  # changes at tick 4
    names = ['a'] * 5 + ['b'] * 5 + ['a']
    found = switching_of([Episode], [names], 0.5)
    assert (found['steps'], found['switches'], found['switches_after']) == (10, 2, 1)
    assert found['steps_after'] == 4 and found['dwells'] == [5, 5]


@pytest.fixture(scope='module')
def candidates():
    shape = Plan().network
    policies = [shape.policy(shape.draw(np.random.default_rng(each))) for each in range(2)]
    return [chooser_of(each) for each in (*policies, None)]


def test_the_oracle_s_true_returns_are_what_the_policies_then_earn(candidates):
    world = WorldSettings(mode='kinematic', horizon=25)
    patients = [mixture(3, 1.0, 2).patient(each) for each in range(8)]
    batch = VectorOperation(patients, world)
    states = batch.reset()
    every = true_returns(batch, candidates, 0.97, states)
    for each, worth in zip(candidates, every, strict=True):
        rolled = roll_out(patients, each, world)
        earned = np.zeros(len(patients))
        np.add.at(earned, rolled.cases, 0.97**rolled.ticks * rolled.rewards)
        np.testing.assert_allclose(worth, earned, atol=1e-9)
    np.testing.assert_array_equal(batch.states(), states)


@pytest.fixture(scope='module')
def compared(tmp_path_factory):
    folder = tmp_path_factory.mktemp('compare')
    words = ('selector', 'compare', '--directory', folder, '--seeds', 2, '--levels', '0.5', *TINY)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr('fdrl_ros.experiments.studies.selector.study.TRIED', 4)
        patch.setattr(Figure, 'savefig', lambda figure, path, **_: path.touch())
        done = CliRunner().invoke(main, [str(each) for each in words], catch_exceptions=False)
    assert done.exit_code == 0, done.output
    return folder, words, done.output


def test_the_command_compares_everyone_on_the_same_patients(compared):
    folder, _, said = compared
    parts = [json.loads(each.read_text()) for each in sorted((folder / 'parts').iterdir())]
    assert len(parts) == 2
    for part in parts:
        rows = part['contenders']
        for name in 'global hospital_1 hold global_or_hold selector bandit hindsight'.split():
            assert len(rows[name]['returns']) == 3
        best = np.max([rows[each]['returns'] for each in part['names']], axis=0)
        np.testing.assert_array_equal(best, rows['hindsight']['returns'])
    summary = json.loads((folder / 'selector.json').read_text())
    assert summary == json.loads(json.dumps(summarise(parts)))
    at = summary['levels'][0]
    gap = [
        np.mean(part['contenders']['selector']['returns'])
        - np.mean(part['contenders']['global']['returns'])
        for part in parts
    ]
    assert at['contenders']['global']['lead']['mean'] == pytest.approx(np.mean(gap))
    assert '2 parts (1 H, 2 seeds), 0 of them done' in said
    assert 'hindsight' in said and 'selector ahead by' in said
    assert (folder / 'selector.png').exists()
    assert list((folder / 'runs').glob('*/pictures/*.png'))
    hospitals = {'hospital_1', 'hospital_2', 'hospital_3'}
    for policies in (folder / 'runs').glob('*/policies'):  # the only round is the last one
        assert {each.stem for each in policies.iterdir()} == {'global_0', 'global_1', *hospitals}


def test_what_is_finished_is_not_measured_again(compared):
    folder, words, _ = compared
    before = {each: each.stat().st_mtime_ns for each in (folder / 'parts').iterdir()}
    done = CliRunner().invoke(main, [str(each) for each in words])
    assert done.exit_code == 0
    assert '2 parts (1 H, 2 seeds), 2 of them done' in done.output
    assert before == {each: each.stat().st_mtime_ns for each in (folder / 'parts').iterdir()}
    other = CliRunner().invoke(main, [*map(str, words), '--selector-margin', '0.3'])
    assert other.exit_code == 1 and 'other settings' in other.output


def test_two_on_one_directory_are_refused(compared):
    folder, words, _ = compared
    run = next(each for each in (folder / 'runs').iterdir() if not each.is_symlink())
    for path, call in ((folder, words), (run, ('selector', 'coverage', run))):
        with RunDirectory(path).lock(), pytest.raises(StoreBusyError):
            RunDirectory(path).lock()
        with RunDirectory(path).lock():
            done = CliRunner().invoke(main, [*map(str, call)])
        assert done.exit_code == 1 and f'is used by process {os.getpid()} (' in done.output


def test_value_models_are_kept_and_a_damaged_one_is_fitted_anew(tmp_path, monkeypatch):
    plan = Plan().changed(
        {
            'value': {'patients': 8, 'groups': 4, 'features': 8, 'checked': 2, 'redraws': 16},
            'world': {'mode': 'kinematic', 'horizon': 8},
            'federation': {'procedures': 'reach'},
        }
    )
    policy = plan.network.policy(plan.network.draw(np.random.default_rng(1)))
    both, fitted, fit = {'global': policy, 'hold': None}, [], PublicValuation.value_model
    monkeypatch.setattr(
        PublicValuation, 'value_model', lambda own, each: fitted.append(each) or fit(own, each)
    )
    first = value_models(tmp_path, both, plan, policy)
    assert list(first) == ['global', 'hold'] and fitted == [policy, None]
    again = value_models(tmp_path, both, plan, policy)
    assert len(fitted) == 2
    assert again['global'].to_bytes() == first['global'].to_bytes()
    kept = next(tmp_path.glob('global*'))
    kept.write_bytes(kept.read_bytes()[:-100])
    value_models(tmp_path, both, plan, policy)
    assert fitted[2:] == [policy]
    other = plan.changed({'value': {'trace': 0.5}})
    value_models(tmp_path, both, other, policy)
    assert fitted[3:] == [policy, None]


@pytest.mark.parametrize('levels', ['', '0.5, 1.5', 'nan'])
def test_levels_that_are_none_are_refused(tmp_path, levels):
    done = CliRunner().invoke(
        main, ['selector', 'compare', '--directory', str(tmp_path / 'x'), '--levels', levels]
    )
    assert done.exit_code == 1 and 'levels' in done.output
