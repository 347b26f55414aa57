# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""
Public patients who cannot be told from a given one by the first state of the operation.

What the state shows is kept, the rest is drawn from its public distribution given that: the
average of their returns is E[J given s] at the start, as exactly as they are many.
"""

from dataclasses import replace
from functools import lru_cache
import math
from typing import NamedTuple

from fdrl_ros.errors import RecordsError
from fdrl_ros.surgery.constants import Group
from fdrl_ros.surgery.patient.breathing import breathing_rate
from fdrl_ros.surgery.patient.cohort import Cohort
from fdrl_ros.surgery.patient.patient import Patient, Point
from fdrl_ros.surgery.tasks.registry import task_of
from fdrl_ros.surgery.tissue.contact import tissue_of
import numpy as np
from numpy.typing import NDArray

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
    :param first: number of the first public patient that is tried; the others follow. They are
        drawn once for all that begin with the same.
    :raises RecordsError: if nobody public would be seen like this.
    """
    waypoint = _waypoint(patient)
    aside = [own - there for own, there in zip(patient.start, waypoint, strict=True)]
    rate = math.log(patient.respiratory_rate / _BODY.respiratory_rate)
    pool = _pool(cohort, patient.procedure.name, first, TRIES * count)
    amplitudes = np.array([each.breathing_amplitude for each in pool.patients])
    rising = rng.random(len(amplitudes)) < 0.5
    likely, phases, errors = _breaths(patient, amplitudes, rising)
    likely -= 0.5 * ((rate - pool.leans * _LOG_RATIO) / _BODY.respiratory_spread) ** 2
    possible = np.flatnonzero(likely > _IMPOSSIBLE)
    # The greatest of these are a draw by weight without repeats (Gumbel-max).
    drawn = possible[np.argsort(-likely[possible] - rng.gumbel(size=len(possible)))]
    shown = {name: getattr(patient, name) for name in _SHOWN}
    found: list[Patient] = []
    for number in drawn.tolist():
        breath = {'breathing_phase': phases[number], 'registration_error': errors[number]}
        other = replace(pool.patients[number], **breath, **shown)
        there = _waypoint(other)
        start = there[0] + aside[0], there[1] + aside[1], there[2] + aside[2]
        x, y, z = (own - goal for own, goal in zip(start, other.goal, strict=True))
        side = max(abs(x), abs(y))
        if side <= _SPACE.start_lateral and _SPACE.start_low <= z <= _SPACE.start_high:
            found.append(replace(other, start=start))
            if len(found) == count:
                return found
    raise RecordsError(
        f'{patient.name}: {len(found)} of {TRIES * count} public patients would be seen so'
    )


class _Pool(NamedTuple):
    """Public patients of one procedure, and how far each leans to deep and quick breathing."""

    patients: tuple[Patient, ...]
    leans: NDArray[np.float64]


@lru_cache(maxsize=8)
def _pool(cohort: Cohort, procedure: str, first: int, count: int) -> _Pool:
    """Draw the patients that are tried, once for all that are matched with the same ones."""
    numbers = range(first, first + count)
    return _Pool(
        tuple(cohort.patient(each, procedure=procedure) for each in numbers),
        np.array([cohort.breathing_lean(each) for each in numbers]),
    )


_SHOWN = 'respiratory_rate', 'mean_arterial_pressure', 'heart_rate', 'oxygen_saturation'
"""What the first state shows as it is."""

_IMPOSSIBLE = -30.0
"""Logarithm of a weight from which on patients are never seen so."""


def _breaths(
    patient: Patient, amplitudes: NDArray[np.float64], rising: NDArray[np.bool_]
) -> tuple[NDArray[np.float64], list[float], list[float]]:
    """
    Return the phase of breathing and the registration error by which others show one's surface.

    :param patient: whose surface, and rate of breathing.
    :param amplitudes: of the others' breathing, m.
    :param rising: which of the two phases with that speed: the one above rest, or below.
    :returns: logarithm of how likely each is, phases (rad) and errors (m).
    """
    tissue = tissue_of(patient)
    surface, speed = tissue.surface(0.0)
    fastest = amplitudes * breathing_rate(patient)
    share = float(speed) / fastest
    # The phases near the turn have a speed most often: as 1 / |sin|.
    with np.errstate(invalid='ignore', divide='ignore'):
        sine = np.where(rising, 1.0, -1.0) * np.sqrt(1.0 - share * share)
        error = float(surface) - patient.goal[2] - amplitudes * sine
        likely = -0.5 * (error / _BODY.registration) ** 2 - np.log(fastest * np.abs(sine))
    likely[(np.abs(share) >= 1.0) | (error >= _SPACE.start_low)] = -math.inf
    phase = np.arctan2(sine, share) % (2.0 * math.pi)
    return likely, phase.tolist(), error.tolist()


def _waypoint(patient: Patient) -> Point:
    """Return where the plan has the tip go at first, m."""
    tissue = tissue_of(patient)
    x, y, z = task_of(patient, tissue).waypoint(0.0, 0.0, 0.0, tissue.breath(0.0)[0])
    return float(x), float(y), float(z)
