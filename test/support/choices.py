# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""Candidates of known worth, and states for a selector to choose in."""

from collections.abc import Iterator
from contextlib import contextmanager

from fdrl_ros.selector import (
    Candidate,
    Observation,
    Selector,
    SelectorSettings,
    StateValue,
    ValueModel,
)
from fdrl_ros.shield.shield import Shield
from fdrl_ros.surgery.gym.state import (
    INDEX,
    OPERATION_LAYOUT,
    OPERATION_SIZE,
    PATIENT_LAYOUT,
    STATE_SIZE,
)
import numpy as np
import pytest

SPLIT = OPERATION_SIZE


def values_of(**changes):
    """Return a plausible state in units: palpation, light contact."""
    values = np.zeros(STATE_SIZE)
    plain = {
        'palpation': 1.0,
        'goal_error_z': -0.004,
        'force': 0.6,
        'force_limit': 3.4,
        'time_left': 0.7,
        'mean_arterial_pressure': 85.0,
        'heart_rate': 75.0,
        'oxygen_saturation': 98.0,
        'respiratory_rate': 14.0,
    }
    for name, value in {**plain, **changes}.items():
        values[INDEX[name]] = value
    return values


def observe(values, received=0.0, patient='case_1', procedure='palpation'):
    return (
        Observation(patient, OPERATION_LAYOUT, values[:SPLIT].tolist(), received, procedure),
        Observation(patient, PATIENT_LAYOUT, values[SPLIT:].tolist(), received),
    )


def constant_value(
    mean, std=0.0, slope=0.0, policy='', procedures=('palpation',), size=STATE_SIZE
):
    """Return a model that says mean + slope * force (scaled) with this deviation everywhere."""
    weights = np.zeros((2, 1 + size))
    weights[0, 0] = mean
    if slope:
        weights[0, 1 + INDEX['force']] = slope
    wide = np.full(size, 1e3)
    one = StateValue(
        weights=weights,
        deviations=np.zeros((2, 2, 1 + size)),
        low=-wide,
        high=wide,
        spread=np.ones(size),
        conformal_error=std,
        noise=0.0,
        caution=1.0,
    )
    return ValueModel(policy, dict.fromkeys(procedures, one))


def candidate(name, mean=None, std=0.0, slope=0.0, action=0):
    value = None if mean is None else constant_value(mean, std, slope)
    return Candidate(name, lambda state: action, value)


def selector_with(*candidates, **settings):
    selector = Selector(SelectorSettings(**{'confidence': 0.9} | settings))
    selector.set_candidates(candidates)
    return selector


def select(selector, operation, patient, now, **others):
    """Select in a state as the control loop does, which decides the case of the state first."""
    if operation is not None:
        if not selector.case.is_of(operation):
            selector.reset(same_time=True)
        selector.case.include(operation)
    return selector.select(operation, patient, now, **others)


@contextmanager
def recorded_damage() -> Iterator[list[float]]:
    """Record the damage of the case so far that the shield is given with each state, N s."""
    given, update = [], Shield.update

    def recorded(self, values, procedure, now, damage=0.0):
        given.append(damage)
        update(self, values, procedure, now, damage)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Shield, 'update', recorded)
        yield given
