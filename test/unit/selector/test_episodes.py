# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""The value model on real episodes of the simulated world, and the selector that uses it."""

from functools import partial

from fdrl_ros.selector import (
    Candidate,
    Experience,
    fit_value,
    Observation,
    returns_to_go,
    Selector,
    ValueModel,
    ValueSettings,
)
from fdrl_ros.surgery.gym.actions import STAY, TICK
from fdrl_ros.surgery.gym.episode import run_episode
from fdrl_ros.surgery.gym.state import INDEX, OPERATION_FIELDS, PATIENT_FIELDS, SCALES, unscale
from fdrl_ros.surgery.gym.surgery_env import SurgeryEnv
from fdrl_ros.surgery.patient.cohort import mixture, public_cohort
from fdrl_ros.surgery.settings import WorldSettings
from fdrl_ros.surgery.tasks.procedures import PRESSING
import numpy as np
import pytest

DISCOUNT = 0.97
SPLIT = len(OPERATION_FIELDS)
NAMES = [tuple(each.name for each in part) for part in (OPERATION_FIELDS, PATIENT_FIELDS)]


def press(state):
    """Go above the goal, then down in fine steps until the force is right."""
    values = unscale(state)
    for axis, letter in enumerate('xy'):
        error = values[INDEX[f'goal_error_{letter}']]
        if abs(error) > 0.3e-3:
            return 2 * axis + (error < 0) + (0 if abs(error) > 1.3e-3 else 6)
    wanted = values[INDEX['force_error']]
    if abs(wanted) < 0.1:
        return STAY
    far = values[INDEX['goal_error_z']] > 3e-3 and not values[INDEX['contact']]
    return (4 if far else 10) if wanted > 0 else 11


def wander(state):
    return int(abs(float(state.sum())) * 1e4) % 13


@pytest.fixture(scope='module')
def env():
    made = SurgeryEnv(public_cohort(3), WorldSettings(mode='kinematic'))
    yield made
    made.close()


def episodes(env, policy, numbers):
    """Return what happened, and the return from each state."""
    states, rewards, cases, returns = [], [], [], []
    for number in numbers:
        episode = run_episode(env, policy, public_cohort(3).patient(number))
        states.append(episode.states[:-1])
        rewards.append(episode.rewards)
        returns.append(returns_to_go(episode.rewards, DISCOUNT))
        cases.append(np.full(episode.length, number))
    met, earned, names, found = map(np.concatenate, (states, rewards, cases, returns))
    return Experience(met, earned, np.zeros(len(names)), names), found


@pytest.fixture(scope='module')
def models(env):
    settings = ValueSettings(features=64, groups=12, discount=DISCOUNT)
    return {
        policy: fit_value(episodes(env, policy, range(80))[0], settings)
        for policy in (press, wander)
    }


@pytest.mark.parametrize('policy', [press, wander])
def test_returns_of_unseen_patients_are_predicted_better_than_by_their_mean(env, models, policy):
    known, returns = episodes(env, policy, range(500, 540))
    each_case = partial(np.average, weights=1.0 / np.bincount(known.cases)[known.cases])
    mean, _ = models[policy].mean_and_std(known.states)
    error = each_case((returns - mean) ** 2)
    assert error < 0.9**2 * each_case((returns - each_case(returns)) ** 2)


def test_the_selector_mostly_leaves_the_wandering_policy_alone(env, models):
    chosen = []
    for number in range(5):
        patient = mixture(3, 0.5, 1).patient(number)
        selector = Selector()
        selector.set_candidates(
            [
                Candidate(each.__name__, each, ValueModel('', dict.fromkeys(PRESSING, value)))
                for each, value in models.items()
            ]
        )
        ticks = iter(range(1000))

        def choose(state, selector=selector, patient=patient, ticks=ticks):
            now, values = next(ticks) * TICK, unscale(state)
            selection = selector.select(
                Observation(
                    patient.name,
                    NAMES[0],
                    values[:SPLIT],
                    SCALES[:SPLIT],
                    now,
                    patient.procedure.name,
                ),
                Observation(patient.name, NAMES[1], values[SPLIT:], SCALES[SPLIT:], now),
                now,
            )
            chosen.append(selection.policy)
            return selection.action

        run_episode(env, choose, patient)
    assert np.mean([name == 'press' for name in chosen]) > 0.7
