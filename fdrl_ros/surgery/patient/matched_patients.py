# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""
Public patients who cannot be told from a given one by the first state of the operation.

What the state shows is kept, the rest is drawn from its public distribution given that: the
average of their returns is E[J given s] at the start, as exactly as they are many.
"""

from dataclasses import replace
import math

from fdrl_ros.errors import RecordsError
from fdrl_ros.surgery.constants import Group
from fdrl_ros.surgery.patient.cohort import Cohort
from fdrl_ros.surgery.patient.patient import Patient
from fdrl_ros.surgery.tasks.registry import task_of
from fdrl_ros.surgery.tissue.contact import tissue_of
import numpy as np

_BODY, _SPACE = Group('patient'), Group('workspace')
_LOG_RATIO = math.log(Group('hospital').respiratory_ratio)

MOST_TRIES = 400
"""Patients drawn for each one wanted before the first state counts as impossible."""


def matched_patients(
    patient: Patient,
    cohort: Cohort,
    count: int,
    rng: np.random.Generator,
    first: int,
) -> list[Patient]:
    """
    Draw patients with the first state of a given one, and nothing else in common.

    Of what a state shows, only two things depend on what it hides. The rate of breathing goes
    with its depth: a patient is accepted as likely as this rate is for somebody of that kind. And
    where the waypoint lies depends on the cut's direction, or on the breathing, in some
    procedures: the start is moved with it, and accepted if patients start there, which they do
    evenly. Vital signs and the start beside the waypoint are otherwise independent of the rest.

    :param cohort: public patients, among whom the others are sought.
    :param count: how many.
    :param rng: of accepting them.
    :param first: number of the first public patient that is tried; the others follow.
    :raises RecordsError: if nobody public would be seen like this.
    """
    seen = _waypoint(patient)
    aside = [own - there for own, there in zip(patient.start, seen, strict=True)]
    rate = math.log(patient.respiratory_rate / _BODY.respiratory_rate)
    nearest = rate - min(max(rate, 0.0), _LOG_RATIO * cohort.strength)
    found: list[Patient] = []
    for number in range(first, first + MOST_TRIES * count):
        off = rate - cohort.breathing_lean(number) * _LOG_RATIO
        if rng.random() >= math.exp((nearest**2 - off**2) / (2.0 * _BODY.respiratory_spread**2)):
            continue
        drawn = replace(
            cohort.patient(number, procedure=patient.procedure.name),
            respiratory_rate=patient.respiratory_rate,
            mean_arterial_pressure=patient.mean_arterial_pressure,
            heart_rate=patient.heart_rate,
            oxygen_saturation=patient.oxygen_saturation,
        )
        there = _waypoint(drawn)
        start = there[0] + aside[0], there[1] + aside[1], there[2] + aside[2]
        x, y, z = (own - goal for own, goal in zip(start, drawn.goal, strict=True))
        side = max(abs(x), abs(y))
        if side <= _SPACE.start_lateral and _SPACE.start_low <= z <= _SPACE.start_high:
            found.append(replace(drawn, start=start))
            if len(found) == count:
                return found
    raise RecordsError(
        f'{patient.name}: {len(found)} of {MOST_TRIES * count} public patients would be seen so'
    )


def _waypoint(patient: Patient) -> tuple[float, float, float]:
    """Return where the plan has the tip go at first, m."""
    tissue = tissue_of(patient)
    x, y, z = task_of(patient, tissue).waypoint(0.0, 0.0, 0.0, tissue.breath(0.0)[0])
    return float(x), float(y), float(z)
