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
from fdrl_ros.surgery.patient.breathing import breathing_rate
from fdrl_ros.surgery.patient.cohort import Cohort
from fdrl_ros.surgery.patient.patient import Patient
from fdrl_ros.surgery.tasks.registry import task_of
from fdrl_ros.surgery.tissue.contact import tissue_of
import numpy as np

_BODY, _SPACE = Group('patient'), Group('workspace')
_LOG_RATIO = math.log(Group('hospital').respiratory_ratio)

TRIES = 60
"""Public patients among whom each wanted one is chosen."""


def matched_patients(
    patient: Patient,
    cohort: Cohort,
    count: int,
    rng: np.random.Generator,
    first: int,
) -> list[Patient]:
    """
    Draw patients with the first state of a given one, and nothing else in common.

    Of what a state shows, three things depend on what it hides. The rate of breathing goes with
    its depth: a patient is as likely as this rate is for somebody of that kind. The surface's
    height and speed hang on the depth and phase of breathing and on the registration error: the
    phase is turned to the speed and the error takes the rest of the height; the patient is as
    likely as both are. And where the waypoint lies depends on the cut's direction, or on the
    breathing, in some procedures: the start is moved with it, and nobody starts where patients do
    not. Vital signs and the start beside the waypoint are otherwise independent of the rest.
    Patients are drawn by these weights out of TRIES times as many, each at most once.

    :param cohort: public patients, among whom the others are sought.
    :param count: how many.
    :param rng: of the choice.
    :param first: number of the first public patient that is tried; the others follow.
    :raises RecordsError: if nobody public would be seen like this.
    """
    waypoint, surface = _waypoint(patient), _surface(patient)
    aside = [own - there for own, there in zip(patient.start, waypoint, strict=True)]
    rate = math.log(patient.respiratory_rate / _BODY.respiratory_rate)
    found: list[tuple[float, Patient]] = []
    for number in range(first, first + TRIES * count):
        off = rate - cohort.breathing_lean(number) * _LOG_RATIO
        drawn = replace(
            cohort.patient(number, procedure=patient.procedure.name),
            respiratory_rate=patient.respiratory_rate,
            mean_arterial_pressure=patient.mean_arterial_pressure,
            heart_rate=patient.heart_rate,
            oxygen_saturation=patient.oxygen_saturation,
        )
        likely, drawn = _with_surface(drawn, surface, rng.random() < 0.5)
        there = _waypoint(drawn)
        start = there[0] + aside[0], there[1] + aside[1], there[2] + aside[2]
        x, y, z = (own - goal for own, goal in zip(start, drawn.goal, strict=True))
        side = max(abs(x), abs(y))
        inside = side <= _SPACE.start_lateral and _SPACE.start_low <= z <= _SPACE.start_high
        likely -= 0.5 * (off / _BODY.respiratory_spread) ** 2
        if inside and likely > _IMPOSSIBLE:
            # The greatest of these are a draw by weight without repeats (Gumbel-max).
            found.append((likely + rng.gumbel(), replace(drawn, start=start)))
    if len(found) < count:
        raise RecordsError(
            f'{patient.name}: {len(found)} of {TRIES * count} public patients would be seen so'
        )
    found.sort(key=lambda each: each[0], reverse=True)
    return [chosen for _, chosen in found[:count]]


_IMPOSSIBLE = -30.0
"""Logarithm of a weight from which on patients are never seen so."""


def _surface(patient: Patient) -> tuple[float, float]:
    """Return how far the surface is above the planned one at first (m), and its speed (m/s)."""
    tissue = tissue_of(patient)
    height, speed = tissue.surface(0.0)
    return float(height) - patient.goal[2], float(speed)


def _with_surface(
    patient: Patient, surface: tuple[float, float], rising: bool
) -> tuple[float, Patient]:
    """
    Give a patient the phase of breathing and the registration error that a surface shows.

    :param surface: height above the planned one (m) and upward speed (m/s).
    :param rising: which of the two phases with this speed: the one above rest, or below.
    :returns: logarithm of how likely the patient is, and the patient.
    """
    height, speed = surface
    fastest = patient.breathing_amplitude * breathing_rate(patient)
    share = speed / fastest
    if abs(share) >= 1.0:
        return -math.inf, patient
    # The phases near the turn have a speed most often: as 1 / |sin|.
    sine = math.copysign(math.sqrt(1.0 - share * share), 1.0 if rising else -1.0)
    error = height - patient.breathing_amplitude * sine
    if error >= _SPACE.start_low:
        return -math.inf, patient
    phase = math.atan2(sine, share) % (2.0 * math.pi)
    likely = -0.5 * (error / _BODY.registration) ** 2 - math.log(fastest * abs(sine))
    return likely, replace(patient, breathing_phase=phase, registration_error=error)


def _waypoint(patient: Patient) -> tuple[float, float, float]:
    """Return where the plan has the tip go at first, m."""
    tissue = tissue_of(patient)
    x, y, z = task_of(patient, tissue).waypoint(0.0, 0.0, 0.0, tissue.breath(0.0)[0])
    return float(x), float(y), float(z)
