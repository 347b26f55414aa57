# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""A robot tests a policy on states with known consequences, and refuses what presses or strays."""

from dataclasses import replace
import functools
import math

from fdrl_ros.deployment.plan import Plan
from fdrl_ros.deployment.robot.safety_test import (
    basis,
    FIRST,
    frozen_set,
    make_frozen_set,
    run_trial,
    safety_report,
)
from fdrl_ros.errors import RecordsError
from fdrl_ros.policy import NetworkShape, Policy
from fdrl_ros.selector.candidates.safety_limits import (
    FrozenSet,
    SafetyReport,
    SafetySettings,
    shares_on,
)
from fdrl_ros.surgery.gym.actions import ACTION_COUNT, ACTIONS, STAY
from fdrl_ros.surgery.gym.episode import run_episode
from fdrl_ros.surgery.gym.state import INDEX, STATE_SIZE
from fdrl_ros.surgery.gym.surgery_env import SurgeryEnv
import numpy as np
import pytest

PLAN = Plan().changed(
    {
        'federation': {'procedures': 'palpation, retraction'},
        'safety': {'patients': 16, 'snapshots': 12},
        'world': {'mode': 'kinematic', 'horizon': 60},
    }
)
SMALL = PLAN.changed({'safety': {'snapshots': 1}})
LINEAR = NetworkShape(STATE_SIZE, ACTION_COUNT, ())
COARSE_DOWN = [each.name for each in ACTIONS].index('coarse -z')
COARSE_UP = [each.name for each in ACTIONS].index('coarse +z')


def linear(bias: dict[int, float], slope: dict[tuple[str, int], float] | None = None) -> Policy:
    """Return a policy that adds up numbers of the state for each action."""
    weights = np.zeros(LINEAR.n_parameters, dtype=np.float32)
    advantage = list(LINEAR.layers())[-1]
    for action, value in bias.items():
        weights[advantage.bias_start + action] = value
    for (field, action), value in (slope or {}).items():
        weights[advantage.start + action * STATE_SIZE + INDEX[field]] = value
    return LINEAR.policy(weights)


@functools.cache
def frozen() -> FrozenSet:
    return make_frozen_set(PLAN)


def report_of(policy: Policy) -> SafetyReport:
    return safety_report(policy, PLAN, frozen())


def test_set_holds_states_in_which_pressing_is_dangerous_and_going_up_is_not():
    hard = frozen().forces > 1.0
    decisive = hard.any(axis=1) & ~hard.all(axis=1)
    assert decisive.sum() >= 5
    assert hard[decisive, COARSE_DOWN].mean() > 0.9
    assert hard[decisive, COARSE_UP].mean() < 0.1
    assert frozen().states.dtype == np.float32 and not frozen().states.flags.writeable


def test_policy_that_presses_on_is_refused():
    presses = linear({COARSE_DOWN: 1.0}, {('retraction', STAY): 2.0})
    finite, force, _, commonest = shares_on(presses, frozen())
    assert finite and force > 0.2 and commonest < 1.0
    assert 'force above the limit' in report_of(presses).refusal(SafetySettings())


@pytest.mark.parametrize('action', [STAY, COARSE_UP])
def test_constant_policy_is_refused(action):
    report = report_of(linear({action: 1.0}))
    assert report.one_action_share == 1.0
    assert report.refusal(SafetySettings()) != ''


def test_values_that_are_not_finite_are_refused():
    huge = linear({}, {('time_left', STAY): 3e38, ('mean_arterial_pressure', STAY): 3e38})
    report = report_of(huge)
    assert not report.finite and 'not finite' in report.refusal(SafetySettings())


def test_refusals_name_the_number_and_the_limit():
    good = replace(
        report_of(linear({STAY: 1.0})),
        force_share=0.0,
        workspace_share=0.0,
        one_action_share=0.5,
        force_failures=0.0,
        mean_return=1.0,
    )
    assert good.refusal(SafetySettings()) == ''
    for changes, words in (
        ({'force_share': 0.3}, 'force above the limit in 30.0%'),
        ({'workspace_share': 0.6}, 'leaves the workspace in 60.0%'),
        ({'one_action_share': 0.99}, 'one action in 99.0%'),
        ({'force_failures': 0.5}, '50.0% of its operations end by force'),
        ({'mean_return': good.hold_return - 1.0}, 'that of holding'),
        ({'mean_return': math.nan}, 'that of holding'),
    ):
        assert words in replace(good, **changes).refusal(SafetySettings())


def test_trial_is_that_of_single_operations():
    policy = linear({COARSE_DOWN: 1.0}, {('contact', COARSE_UP): 2.0})
    mean, success, forced = run_trial(policy, PLAN)
    env = SurgeryEnv(settings=PLAN.world)
    cohort = PLAN.public_cohort(1.0)
    episodes = [run_episode(env, policy, cohort.patient(FIRST + each)) for each in range(16)]
    env.close()
    discounts = [PLAN.value.discount ** np.arange(each.length) for each in episodes]
    single = [float(d @ each.rewards) for d, each in zip(discounts, episodes, strict=True)]
    assert mean == pytest.approx(np.mean(single), abs=1e-3)
    assert success == np.mean([each.success for each in episodes])
    assert 0.0 <= forced <= 1.0 - success


def test_set_is_made_once_for_each_plan_and_a_damaged_one_again(tmp_path):
    first = frozen_set(SMALL, tmp_path)
    (path,) = tmp_path.iterdir()
    written = path.stat().st_mtime_ns
    assert frozen_set(SMALL, tmp_path).digest == first.digest
    assert path.stat().st_mtime_ns == written
    path.write_bytes(path.read_bytes()[:-40])
    with pytest.raises(RecordsError, match='no frozen set'):
        FrozenSet.load(path)
    assert frozen_set(SMALL, tmp_path).digest == first.digest == FrozenSet.load(path).digest
    other = SMALL.changed({'federation': {'seed': 2}})
    assert make_frozen_set(other).digest != first.digest
    assert basis(other) != basis(SMALL) == basis(SMALL.changed({'safety': {'force_share': 1.0}}))


def test_set_that_was_changed_is_not_loaded(tmp_path):
    path = tmp_path / 'set.npz'
    frozen().save(path)
    with np.load(path) as file:
        arrays = dict(file)
    arrays['forces'] = arrays['forces'] * 0.1
    np.savez(path, **arrays)
    with pytest.raises(RecordsError, match='expected digest'):
        FrozenSet.load(path)
