# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""Metrics of an episode, and the states it visited, on which A_task (FDRL Eq. 8) is measured."""

from fdrl_ros.errors import StateError
from fdrl_ros.metrics.episode import EpisodeMetrics, log_dimensionless_jerk, path_length
from fdrl_ros.metrics.task import StateSet, task_accuracy
from fdrl_ros.surgery.constants import constant
from fdrl_ros.surgery.gym.actions import TICK
from fdrl_ros.surgery.gym.episode import Episode
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
    :raises StateError: if a number is impossible, or only one of the last two is given.
    """
    if (state_set is None) != (chosen is None):
        raise StateError('A_task needs both the states and what was chosen in them')
    low = episode.pressures < constant('physiology.hypotension')
    gentle, firm, severe = map(_seconds, episode.time_above.values())
    accuracy: dict[str, float] = {}
    if state_set is not None and chosen is not None:
        measured = vars(task_accuracy(state_set, chosen)).items()
        # 'exact' and 'tolerant' are told as task_exact and task_tolerant.
        accuracy = {name if '_' in name else f'task_{name}': value for name, value in measured}
    return EpisodeMetrics(
        patient=episode.patient.name,
        procedure=episode.patient.procedure.name,
        success=bool(episode.success),
        failure=episode.failure,
        time=_seconds(episode.length * TICK),
        path_length=path_length(episode.tips),
        log_dimensionless_jerk=log_dimensionless_jerk(episode.tips, TICK),
        peak_force=float(episode.forces.max()),
        mean_force=float(episode.mean_forces.mean()),
        time_above_gentle=gentle,
        time_above_firm=firm,
        time_above_severe=severe,
        force_time=float(episode.mean_forces.sum()) * TICK,
        damage=float(episode.damages[-1]),
        low_pressure_time=_seconds(int(low.sum()) * TICK),
        worst_news2=float(episode.news2.max()),
        worst_sofa=float(episode.sofa.max()),
        states=state_set.digest if state_set is not None else '',
        **accuracy,
    )


def _seconds(time: float) -> float:
    """Round rounding errors of a sum of periods away, s."""
    return round(float(time), 12)


def states_met(episode: Episode, world: WorldSettings) -> StateSet:
    """
    Return the states in which the episode's actions were chosen, judged by the expert.

    :param world: the settings that it happened under.
    """
    states = episode.states[:-1]
    costs = expert_costs(states, episode.patient, world)
    return StateSet(states, costs, costs.argmin(axis=1), np.zeros(len(states), np.int64))
