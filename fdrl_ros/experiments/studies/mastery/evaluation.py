# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""Who operates on unseen patients, and how each patient fared; the same patients for everybody."""

from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from dataclasses import replace
from itertools import count

from fdrl_ros.experiments.json_file import Json
from fdrl_ros.experiments.studies.mastery.settings import UNSEEN_H
from fdrl_ros.metrics.risk import case_risk, procedure_scale, risk_terms
from fdrl_ros.runtime.random_streams import Stream
from fdrl_ros.surgery.gym.actions import TICK
from fdrl_ros.surgery.gym.episode import Choice, roll_out, Rollouts, run_episode
from fdrl_ros.surgery.gym.episode_metrics import operation_measures
from fdrl_ros.surgery.gym.surgery_env import SurgeryEnv
from fdrl_ros.surgery.patient.cohort import Cohort
from fdrl_ros.surgery.patient.patient import Patient
from fdrl_ros.surgery.settings import horizon_of, WorldSettings
from fdrl_ros.surgery.tasks.controller import controller, Experience, NO_EXPERIENCE
from fdrl_ros.surgery.tasks.expert import expert
from fdrl_ros.surgery.tasks.outcome import FAILURES, NO_FAILURE
from fdrl_ros.surgery.tasks.surgeon import habits_of, Surgeons
from fdrl_ros.tasks.task import Chooser
import numpy as np
from numpy.typing import NDArray

MEASURES = ('success', 'r_mit', 'risk_adjusted_success', 'time', 'peak_force')
"""
Of each patient: success, 1 - mean D_t by the paper and by the procedure's own scale (0 without
success), seconds, newtons.
"""

Table = NDArray[np.float64]
"""Measures of patients, shape (patients, measures)."""


def unseen(cohort: Cohort, count: int) -> list[Patient]:
    """Return the first unseen patients of a hospital, who are everybody's."""
    return [cohort.patient(index, 'test') for index in range(count)]


def controller_acts(experience: Experience = NO_EXPERIENCE) -> Chooser:
    """Return the hand-written controller, with the experience of a hospital or without."""
    return lambda states, rows, tick: controller(states, experience)


def expert_acts(patients: Sequence[Patient], world: WorldSettings) -> Chooser:
    """Return the expert, which knows what no policy sees."""

    def choose(
        states: NDArray[np.float32], rows: NDArray[np.int64], tick: int
    ) -> NDArray[np.int64]:
        both = zip(states, rows.tolist(), strict=True)
        return np.array([expert(state, patients[row], world)[0] for state, row in both])

    return choose


def tried(patients: Sequence[Patient], choose: Chooser, world: WorldSettings) -> Table:
    """Operate on patients with kinematic arms, and measure each."""
    return measured(roll_out(patients, choose, world), world)


def measured(made: Rollouts, world: WorldSettings) -> Table:
    """Measure each patient of many operations."""
    ends = np.searchsorted(made.cases, np.arange(len(made.patients) + 1))
    found = np.empty((len(made.patients), len(MEASURES)))
    errors = ~np.isin(made.failure, (NO_FAILURE, FAILURES.index('time')))
    for case, patient in enumerate(made.patients):
        rows = slice(ends[case], ends[case + 1])
        forces, damages = made.forces[rows], made.damages[rows]
        procedure, success = patient.procedure, bool(made.success[case])
        limit, seconds = procedure.force_limit, horizon_of(patient, world) * TICK
        paper = risk_terms(forces, damages, made.critical[rows], limit)
        last = np.zeros(len(forces), np.bool_)
        last[-1] = errors[case]
        scale = procedure_scale(procedure.warn_force, limit, seconds)
        own = risk_terms(forces, damages, last, limit, scale)
        risks = 1.0 - float(paper.total.mean()), 1.0 - case_risk(own.total, success)
        found[case] = success, *risks, len(forces) * TICK, forces.max()
    return found


def tried_with_motors(patients: Sequence[Patient], choose: Chooser, world: WorldSettings) -> Table:
    """Operate on patients one after the other, with motors, and measure each."""
    world, rows = replace(world, mode='dynamic'), []
    with closing(SurgeryEnv(settings=world)) as env:
        for case, patient in enumerate(patients):
            episode = run_episode(env, _one_by_one(choose, case), patient)
            risk = operation_measures(episode, world)
            risks = 1.0 - risk.risk, 1.0 - risk.case_risk
            seconds = episode.length * TICK
            rows.append((episode.success, *risks, seconds, episode.forces.max()))
    return np.array(rows, np.float64)


def _one_by_one(choose: Chooser, case: int) -> Choice:
    """Return who operates on many patients as somebody who answers one state of one of them."""
    own, ticks = np.array([case]), count()
    return lambda state: int(choose(state[None], own, next(ticks))[0])


def surgeons_act(
    cohorts: Sequence[Cohort], patients: Mapping[str, Sequence[Patient]]
) -> dict[str, Chooser]:
    """Return the surgeons of each hospital, one for each patient, by the hospital."""
    found: dict[str, Chooser] = {}
    for cohort in cohorts:
        own, key = patients[cohort.name], [Stream.EVALUATION, cohort.seed, cohort.hospital]
        rngs = [np.random.default_rng([*key, number]) for number in range(len(own))]
        longest = max(patient.procedure.horizon for patient in own)
        found[cohort.name] = Surgeons(habits_of(cohort), rngs, longest).act
    return found


def summed(patients: Sequence[Patient], table: Table) -> Json:
    """Return the mean of each measure, and of each procedure its patients and successes."""
    done = np.array([patient.procedure.name for patient in patients])
    return {
        **dict(zip(MEASURES, table.mean(axis=0).tolist(), strict=True)),
        'procedures': {
            name: [int((done == name).sum()), float(table[done == name, 0].sum())]
            for name in sorted(set(done.tolist()))
        },
    }


Vary = Callable[[Cohort, int], list[Patient]]


def _each(change: Callable[[Patient], Patient]) -> Vary:
    """Return the unseen patients of a hospital, each changed."""
    return lambda cohort, count: [change(patient) for patient in unseen(cohort, count)]


def _undisturbed(cohort: Cohort, count: int) -> list[Patient]:
    calm = replace(cohort.conditions, disturbances=False)
    return unseen(replace(cohort, conditions=calm), count)


def _of_unseen_h(cohort: Cohort, count: int) -> list[Patient]:
    return unseen(replace(cohort, heterogeneity=UNSEEN_H), count)


VARIATIONS: dict[str, Vary] = {
    'as_usual': unseen,
    'undisturbed': _undisturbed,
    'latency_1': _each(lambda patient: replace(patient, latency=1)),
    'latency_2': _each(lambda patient: replace(patient, latency=2)),
    'noise_0.05_N': _each(lambda patient: replace(patient, force_noise=0.05)),
    'noise_0.15_N': _each(lambda patient: replace(patient, force_noise=0.15)),
    'stiffness_x1.5': _each(
        lambda patient: replace(patient, young_modulus=1.5 * patient.young_modulus)
    ),
    'lag_plus_20_ms': _each(lambda patient: replace(patient, servo_lag=patient.servo_lag + 0.02)),
    'unseen_h': _of_unseen_h,
}
"""What robustness is measured under: the same unseen patients, but for what the name says."""
