# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""The metrics of an episode, and its own states as what A_task (FDRL Eq. 8) is measured on."""

from fdrl_ros.metrics.episode import EpisodeMetrics, EpisodeTrace, measure_episode
from fdrl_ros.metrics.task import StateSet
from fdrl_ros.surgery.constants import constant
from fdrl_ros.surgery.gym.actions import TICK
from fdrl_ros.surgery.gym.episode import Episode
from fdrl_ros.surgery.gym.operation import FORCE_LEVELS
from fdrl_ros.surgery.settings import WorldSettings
from fdrl_ros.surgery.tasks.expert import expert_costs
import numpy as np


def episode_metrics(
    episode: Episode, state_set: StateSet | None = None, chosen: np.ndarray | None = None
) -> EpisodeMetrics:
    """
    Measure an episode; vitals change once a tick, so that ticks tell their times exactly.

    :param state_set: what A_task is measured on: a frozen set, or :func:`states_met`.
    :param chosen: what the policy does in each of these states, shape (M,); of the states met,
        the episode's actions.
    """
    gentle, firm, severe = FORCE_LEVELS
    trace = EpisodeTrace(
        patient=episode.patient.name,
        procedure=episode.patient.procedure.name,
        success=episode.success,
        failure=episode.failure,
        period=TICK,
        tips=episode.tips,
        peak_forces=episode.forces,
        mean_forces=episode.mean_forces,
        damages=episode.damages,
        pressures=episode.pressures,
        news2=episode.news2,
        sofa=episode.sofa,
        time_above=episode.time_above,
    )
    return measure_episode(
        trace,
        levels=(gentle, firm, severe),
        hypotension=constant('physiology.hypotension'),
        state_set=state_set,
        chosen=chosen,
    )


def states_met(episode: Episode, world: WorldSettings) -> StateSet:
    """
    Return the states in which the episode's actions were chosen, judged by the expert.

    :param world: the settings that it happened under.
    """
    states = episode.states[:-1]
    costs = expert_costs(states, episode.patient, world)
    return StateSet(states, costs, costs.argmin(axis=1), np.zeros(len(states), np.int64))
