# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""A breach of the workspace as states tell it, beside the world's own."""

from fdrl_ros.shield.workspace import has_left
from fdrl_ros.surgery.constants import constant
from fdrl_ros.surgery.gym.actions import ACTIONS
from fdrl_ros.surgery.gym.episode import run_episode
from fdrl_ros.surgery.gym.state import INDEX, PROCEDURE_NAMES, STATE_SIZE, unscale
from fdrl_ros.surgery.gym.surgery_env import SurgeryEnv
from fdrl_ros.surgery.patient.cohort import mixture
from fdrl_ros.surgery.settings import WorldSettings
from fdrl_ros.surgery.tasks.outcome import ABOVE, LATERAL
from fdrl_ros.surgery.tasks.procedures import TRAITS
import numpy as np
import pytest

WAYS = np.array([each.displacement for each in ACTIONS])
OUT = [int(np.argmax(sign * WAYS[:, axis])) for axis in range(3) for sign in (1, -1)]
"""The coarsest move in each direction along an axis."""


@pytest.fixture(scope='module')
def env():
    made = SurgeryEnv(settings=WorldSettings(mode='kinematic'))
    yield made
    made.close()


@pytest.mark.parametrize('name', PROCEDURE_NAMES)
@pytest.mark.parametrize('action', OUT[:5])
def test_who_always_goes_one_way_is_told_to_have_left_when_it_has(env, name, action):
    """The world may find a breach sooner, as it knows where the goal is; never later."""
    patient = mixture(3, 1.0, 4).patient(7, procedure=name)
    episode = run_episode(env, lambda state: action, patient)
    assert episode.failure == 'workspace'
    told = [has_left(unscale(each), name) for each in episode.states]
    assert not any(told[:-2])  # sideways by the set-point, which is up to a tick ahead
    states = np.array([unscale(each) for each in episode.states])
    axis = int(np.flatnonzero(WAYS[action])[0])
    beyond = np.abs(states[-1, INDEX['goal_error_x'] + axis]) - (LATERAL, LATERAL, ABOVE)[axis]
    sure = (
        max(TRAITS[name].aside) if axis < 2 else 0.011
    )  # heights of waypoints, and the riding one
    assert told[-1] or beyond < sure + 0.004


@pytest.mark.parametrize('name', PROCEDURE_NAMES)
def test_bounds_are_those_of_the_world(name):
    away = TRAITS[name].aside[0]
    for key, least in (
        ('goal_error_x', LATERAL + away),
        ('goal_error_y', LATERAL + away),
    ):
        for sign in (1, -1):
            values = np.zeros(STATE_SIZE)
            values[INDEX[key]] = sign * (least - 1e-4)
            assert not has_left(values, name)
            values[INDEX[key]] = sign * (least + 1e-4)
            assert has_left(values, name)
    values = np.zeros(STATE_SIZE)
    values[INDEX['goal_error_z']] = -constant('patient.thickness_high') - 0.03
    assert has_left(values, name)
    values[INDEX['goal_error_z']], values[INDEX['lag']] = ABOVE, 0.02
    assert has_left(values, name)
