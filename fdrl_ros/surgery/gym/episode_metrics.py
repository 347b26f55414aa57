# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""
Metrics of an episode, its risk and adaptation, and the states it visited.

The paper's measures (FDRL Eq. 8 to 11) stand beside ours, which staying still, ramming and
alternating moves cannot win.
"""

from typing import NamedTuple

from fdrl_ros.errors import StateError
from fdrl_ros.metrics.adaptation import alpha_adapt
from fdrl_ros.metrics.episode import EpisodeMetrics, log_dimensionless_jerk, path_length
from fdrl_ros.metrics.following import following
from fdrl_ros.metrics.risk import case_risk, procedure_scale, risk_terms
from fdrl_ros.metrics.task import StateSet, task_accuracy
from fdrl_ros.surgery.constants import constant
from fdrl_ros.surgery.gym.actions import DISPLACEMENTS, TICK
from fdrl_ros.surgery.gym.episode import Episode
from fdrl_ros.surgery.gym.state import INDEX, unscale
from fdrl_ros.surgery.settings import horizon_of, WorldSettings
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


class OperationMeasures(NamedTuple):
    """
    Risk and adaptation of one operation.

    :param risk: mean of D_t over the ticks (FDRL Eq. 10), in [0, 1].
    :param adaptation: alpha_adapt (FDRL Eq. 11); NaN where no state changed.
    :param case_risk: mean of D_t by the procedure's own scale, 1 without success, in [0, 1].
    :param damage_share: of the most that forces within the limit can do, in [0, 1].
    :param critical_error: 1 if it failed otherwise than by time, else 0.
    :param after_rise: mean sign of the moves after the organ rose, in [-1, 1]; NaN if it did not.
    :param after_fall: the same after it fell.
    """

    risk: float
    adaptation: float
    case_risk: float
    damage_share: float
    critical_error: float
    after_rise: float
    after_fall: float


def operation_measures(episode: Episode, world: WorldSettings) -> OperationMeasures:
    """
    Measure risk and adaptation of an episode.

    :param world: the settings that it happened under.
    """
    patient = episode.patient
    procedure = patient.procedure
    limit, error = procedure.force_limit, episode.failure not in ('', 'time')
    risk = risk_terms(episode.forces, episode.damages, episode.critical, limit)
    adaptation, _ = alpha_adapt([(episode.states[:-1], episode.actions)])
    scale = procedure_scale(procedure.warn_force, limit, horizon_of(patient, world) * TICK)
    ticks = np.arange(episode.length)
    errors = error & (ticks == ticks[-1])
    own = risk_terms(episode.forces, episode.damages, errors, limit, scale)
    surfaces = unscale(episode.states[:-1])[:, INDEX['surface']]
    followed = following([(surfaces, DISPLACEMENTS[episode.actions, 2])])
    return OperationMeasures(
        risk=float(risk.total.mean()),
        adaptation=adaptation,
        case_risk=case_risk(own.total, episode.success),
        damage_share=float(own.damage[-1]),
        critical_error=float(error),
        after_rise=followed.after_rise,
        after_fall=followed.after_fall,
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
