# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""
How often the hand-written controller and surgeons of each skill succeed, in all procedures.

Takes about a minute: `make nightly ARGS='-k surgeons_in_full --save docs/results/surgeons.json'`.
"""

from dataclasses import replace

from fdrl_ros.surgery.gym.episode import roll_out
from fdrl_ros.surgery.patient.cohort import Cohort, public_cohort
from fdrl_ros.surgery.patient.conditions import Conditions
from fdrl_ros.surgery.tasks.controller import controller, Experience
from fdrl_ros.surgery.tasks.procedures import PROCEDURE_NAMES
from fdrl_ros.surgery.tasks.surgeon import Habits, habits_of, Surgeons
import numpy as np
import pytest

SETTINGS = {'seed': 911, 'patients': 1000, 'hospitals': 4, 'heterogeneity': 1.0}
COUNT = SETTINGS['patients']

pytestmark = pytest.mark.slow

WORLDS = {
    'as drawn': lambda patient: patient,
    'latency 2 ticks': lambda patient: replace(patient, latency=2),
    'force noise 0.05 N': lambda patient: replace(patient, force_noise=0.05),
    'force noise 0.15 N': lambda patient: replace(patient, force_noise=0.15),
    'stiffness x 1.5': lambda patient: replace(patient, young_modulus=1.5 * patient.young_modulus),
    'lag + 20 ms': lambda patient: replace(patient, servo_lag=patient.servo_lag + 0.02),
}


def public(procedure):
    names, conditions = (procedure,), Conditions(disturbances=True)
    cohort = public_cohort(SETTINGS['seed'], SETTINGS['heterogeneity'], names, conditions)
    return [cohort.patient(each) for each in range(COUNT)]


def controlled(patients, experience=Experience()):  # noqa: B008  # frozen
    chosen = roll_out(patients, lambda states, rows, tick: controller(states, experience))
    return round(float(chosen.success.mean()), 4)


def operated(habits, patients, skill=None):
    rngs = [np.random.default_rng([SETTINGS['seed'], each]) for each in range(COUNT)]
    team = Surgeons(habits, rngs, max(each.procedure.horizon for each in patients), skill)
    return round(float(roll_out(patients, team.act).success.mean()), 4)


@pytest.mark.parametrize('world', WORLDS)
def test_the_controller_succeeds(world, figures):
    changed = WORLDS[world]
    found = {
        name: controlled([changed(each) for each in public(name)]) for name in PROCEDURE_NAMES
    }
    figures.append({'who': 'controller', 'world': world, **found})
    assert world == 'force noise 0.15 N' or min(found.values()) > 0.95


def test_surgeons_succeed_by_their_skill(figures):
    means = []
    for skill in (0.0, 0.25, 0.5, 0.75, 1.0):
        found = {name: operated(Habits(), public(name), skill) for name in PROCEDURE_NAMES}
        means.append(float(np.mean(list(found.values()))))
        figures.append({'who': 'surgeon', 'skill': skill, **found, 'mean': round(means[-1], 4)})
    assert means == sorted(means)
    assert 0.55 < means[0] < 0.7 < 0.85 < means[-1] < 0.95


@pytest.mark.parametrize('gap', [0.0, 1.0, 2.0, 4.0])
def test_surgeons_of_hospitals_succeed(gap, figures):
    conditions = Conditions(gap, disturbances=True)
    for hospital in range(SETTINGS['hospitals']):
        numbers = SETTINGS['hospitals'], SETTINGS['heterogeneity'], SETTINGS['seed']
        cohort = Cohort(hospital, *numbers, procedures=PROCEDURE_NAMES, conditions=conditions)
        patients, habits = [cohort.patient(each) for each in range(COUNT)], habits_of(cohort)
        figure = {
            'hospital': cohort.name,
            'gap': gap,
            'speciality': cohort.speciality,
            'skill': round(habits.skill, 3),
            'controller': controlled(patients),
            'experienced': controlled(patients, replace(habits.experience, caution=1.0)),
            'surgeons': operated(habits, patients),
        }
        figures.append(figure)
        assert figure['experienced'] > 0.95
        assert 0.5 < figure['surgeons'] < 0.95
