# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""What a log is worth: rewards close to the world's own, and no end lost to a hold."""

from dataclasses import replace
from types import SimpleNamespace

from fdrl_ros.errors import RecordsError
from fdrl_ros.surgery.data.bag import ACTION, OPERATION, OUTCOME, PATIENT
from fdrl_ros.surgery.data.log import LogReader
from fdrl_ros.surgery.data.log_rewards import with_rewards
from fdrl_ros.surgery.gym.actions import STAY, TICK
from fdrl_ros.surgery.gym.episode import mixed_behaviour, run_episode
from fdrl_ros.surgery.gym.state import (
    INDEX,
    OPERATION_LAYOUT,
    OPERATION_SIZE,
    PATIENT_LAYOUT,
    PROCEDURE_NAMES,
    scale,
    unscale,
)
from fdrl_ros.surgery.gym.surgery_env import SurgeryEnv
from fdrl_ros.surgery.patient.cohort import Cohort
from fdrl_ros.surgery.settings import WorldSettings
import numpy as np
import pytest
from support.sample_size import sampled

WORLD = WorldSettings(mode='kinematic')
HOLD = -1


def operated(procedure, share, count=1):
    """Return operations of an expert who tries other moves at the other ticks."""
    env, behave = SurgeryEnv(settings=WORLD), mixed_behaviour(share, WORLD)
    found = []
    for index in range(count):
        cohort = Cohort(index % 4, 4, float(index % 2), 3, procedures=(procedure,))
        patient, rng = cohort.patient(index), np.random.default_rng([7, index])
        found.append(run_episode(env, lambda s, p=patient, r=rng: behave(s, p, r), patient))
    env.close()
    return found


def logged_of(episode):
    """Return what a log would tell of an operation."""
    end = {'success': episode.success, 'failure': episode.failure}
    return read(episode.states, episode.actions.tolist(), **end)


def derived(episode, world=WORLD):
    names = ('force_emphasis', 'time_emphasis')
    weights = {name: getattr(episode.patient, name) for name in names}
    return with_rewards(logged_of(episode), world, **weights).rewards


BOUNDS = {
    'reach': (1.0 - 1e-6, 1e-4),
    'palpation': (0.99, 0.05),
    'retraction': (0.99, 0.05),
    'incision': (0.95, 0.35),
    'needle_pass': (1.0 - 1e-6, 1e-4),
    'peg_transfer': (1.0 - 1e-6, 1e-4),
    'follow': (0.99, 0.05),
}
"""Least correlation and greatest mean absolute difference, as with_rewards promises."""


@pytest.mark.parametrize('share', [1.0, 0.6])
@pytest.mark.parametrize('procedure', PROCEDURE_NAMES)
def test_derived_rewards_are_near_those_of_the_world(procedure, share):
    episodes = operated(procedure, share, sampled(12, 4))
    own = np.concatenate([each.rewards for each in episodes])
    found = np.concatenate([derived(each) for each in episodes])
    correlation, difference = BOUNDS[procedure]
    assert np.corrcoef(own, found)[0, 1] >= correlation
    assert np.abs(own - found).mean() <= difference


def test_a_waypoint_that_leaps_out_of_the_room_is_refused():
    logged = logged_of(operated('needle_pass', 1.0)[0])
    states = logged.next_states.copy()
    states[states[:, INDEX['grasped']] > 0.0, INDEX['goal_error_x']] += 5e3
    with pytest.raises(RecordsError, match='destination'):
        with_rewards(replace(logged, next_states=states), WORLD)


def read(states, actions, *, success=True, failure='', partial=False):
    """Read a log of these states and actions, one a tick, that ends so."""
    reader = LogReader(partial)
    procedure = PROCEDURE_NAMES[int(np.argmax(states[0][: len(PROCEDURE_NAMES)]))]

    def take(topic, tick, **said):
        seconds, nanoseconds = divmod(round((1.0 + tick * TICK) * 1e9), 1_000_000_000)
        header = SimpleNamespace(stamp=SimpleNamespace(sec=seconds, nanosec=nanoseconds))
        who = {'header': header, 'patient': 'p', 'procedure': procedure}
        reader.take(topic, SimpleNamespace(**who, **said))

    for tick, state in enumerate(unscale(np.asarray(states))):
        halves = (
            (PATIENT, PATIENT_LAYOUT, state[OPERATION_SIZE:]),
            (OPERATION, OPERATION_LAYOUT, state[:OPERATION_SIZE]),
        )
        for topic, layout, values in halves:
            take(topic, tick, layout=layout, values=values)
        if tick < len(actions) and actions[tick] is not None:
            take(ACTION, tick, action=actions[tick])
    end = {'success': success, 'failure': failure, 'peak_force': 0.5, 'damage': 0.0}
    take(OUTCOME, len(actions), steps=len(actions), **end)
    (found,) = reader.finish()
    return found


def last_ticks(procedure, count=10):
    episode = operated(procedure, 1.0)[0]
    assert episode.success
    return episode.states[-count - 1 :], episode.actions[-count:].tolist()


def lifted(states, place, way):
    """Return the states with the set-point led upwards from one on."""
    values = unscale(states)
    values[place:, INDEX['goal_error_z']] += way
    return scale(values)


@pytest.mark.parametrize('procedure', ['reach', 'palpation'])
def test_an_end_at_which_the_robot_held_is_an_end(procedure):
    states, actions = last_ticks(procedure)
    stayed = read(states, [*actions[:-1], STAY])
    held = read(states, [*actions[:-1], HOLD])
    assert len(held.actions) == len(stayed.actions) == 10
    assert (stayed.held, held.held) == (0, 1)
    for each in (stayed, held):
        assert each.terminals.tolist() == [False] * 9 + [True]
    first, second = (with_rewards(each, WORLD).rewards for each in (stayed, held))
    assert first.sum() == second.sum() > WORLD.success_reward


@pytest.mark.parametrize('ticks', [1, 3])
def test_an_end_at_which_the_shield_retracted_is_an_end(ticks):
    states, actions = last_ticks('palpation')
    for each in range(ticks):
        states = lifted(states, 10 - each, 0.001)
    log = read(states, [*actions[:-ticks], *[HOLD] * ticks])
    assert log.held == ticks
    assert log.actions.tolist() == actions[:-ticks]
    assert log.terminals.tolist() == [False] * (9 - ticks) + [True]
    assert np.array_equal(log.next_states[-1], states[-1])
    # All of the end is on the last transition: the same return where only that counts.
    world = replace(WORLD, progress_reward=0.0, time_penalty=0.0, force_penalty=0.0)
    whole = read(states, [*actions[:-1], STAY])
    returns = [with_rewards(each, world).rewards.sum() for each in (log, whole)]
    assert returns[0] == pytest.approx(returns[1], abs=1e-5)
    assert returns[0] > world.success_reward


def test_the_end_of_the_time_stays_no_end_where_the_shield_retracted():
    states, actions = last_ticks('palpation')
    log = read(lifted(states, 10, 0.001), [*actions[:-1], HOLD], success=False, failure='time')
    assert len(log.actions) == 9
    assert not log.terminals.any()


def test_a_retraction_on_the_way_is_left_out_and_ends_nothing():
    states, actions = last_ticks('palpation')
    log = read(lifted(states, 5, 0.001), [*actions[:4], HOLD, *actions[5:]])
    assert log.actions.tolist() == actions[:4] + actions[5:]
    assert log.terminals.tolist() == [False] * 8 + [True]


def test_no_transition_leads_over_a_gap_to_the_end():
    states, actions = last_ticks('palpation')
    gap = [*actions[:8], None, HOLD]
    log = read(lifted(states, 10, 0.001), gap, partial=True)
    assert len(log.actions) == 7
    assert not log.terminals.any()


def test_holds_before_the_first_command_are_no_ticks_of_the_operation():
    episode = operated('reach', 1.0)[0]
    states = np.concatenate([np.repeat(episode.states[:1], 5, axis=0), episode.states[1:]])
    log = read(states, [HOLD] * 4 + episode.actions.tolist())
    assert np.array_equal(log.states, episode.states[:-1])
    assert (log.held, log.terminals.sum()) == (4, 1)
