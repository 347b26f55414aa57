# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""Contenders of an evaluation: the expert, a policy, and the selector over several policies."""

from collections.abc import Mapping
from dataclasses import dataclass
import functools

from fdrl_ros.policy import Policy
from fdrl_ros.selector import (
    Candidate,
    HOLD,
    Observation,
    Selection,
    Selector,
    SelectorSettings,
    ShieldSettings,
    ValueModel,
)
from fdrl_ros.surgery.gym.actions import STAY, TICK
from fdrl_ros.surgery.gym.episode import Choice
from fdrl_ros.surgery.gym.state import (
    Field,
    OPERATION_FIELDS,
    OPERATION_SIZE,
    PATIENT_FIELDS,
    unscale,
)
from fdrl_ros.surgery.patient.patient import Patient
from fdrl_ros.surgery.settings import WorldSettings
from fdrl_ros.surgery.tasks.expert import expert
import numpy as np


@dataclass(frozen=True, eq=False)
class Contender:
    """
    Anything that can operate; it travels to worker processes. This one holds still.

    :param name: of its row in the table.
    """

    name: str

    def begin(self, patient: Patient, world: WorldSettings) -> Choice:
        """Return the function that chooses actions for this patient."""
        return lambda state: STAY


@dataclass(frozen=True, eq=False)
class ExpertContender(Contender):
    """The expert, which reads the tissue that no policy sees."""

    name: str = 'expert'

    def begin(self, patient: Patient, world: WorldSettings) -> Choice:
        """Return the expert for this patient."""
        return lambda state: expert(state, patient, world)[0]


@dataclass(frozen=True, eq=False)
class PolicyContender(Contender):
    """One policy, the same for every patient."""

    name: str
    policy: Policy

    def begin(self, patient: Patient, world: WorldSettings) -> Choice:
        """Return the policy."""
        return self.policy


@dataclass(frozen=True, eq=False)
class SelectorContender(Contender):
    """
    The selector over candidates, as the robot runs it (FDRL Eq. 7).

    :param policies: by the candidate's name.
    :param values: candidate's name to the estimate of its return; that of hold too, if there.
    """

    name: str
    policies: Mapping[str, Policy]
    values: Mapping[str, ValueModel]
    settings: SelectorSettings
    shield: ShieldSettings = ShieldSettings()

    def begin(self, patient: Patient, world: WorldSettings) -> 'SelectorSession':
        """Return a fresh selector for this patient."""
        selector = Selector(self.settings, shield=self.shield)
        candidates = [
            Candidate(name, policy, self.values.get(name), policy.digest)
            for name, policy in self.policies.items()
        ]
        selector.set_candidates([*candidates, Candidate(HOLD, None, self.values.get(HOLD))])
        return SelectorSession(selector, patient)


class SelectorSession:
    """
    A selector that operates on one patient, with states as the two topics deliver them.

    ``selections`` holds what was chosen at each tick, and why.
    """

    def __init__(self, selector: Selector, patient: Patient) -> None:
        self.selections: list[Selection] = []
        self._selector = selector
        self._patient = patient

    def __call__(self, state: np.ndarray) -> int:
        """Select a policy and return its action; to hold is to stay, if the shield lets it."""
        now, values = len(self.selections) * TICK, unscale(state)
        operation = observe(OPERATION_FIELDS, values[:OPERATION_SIZE], now, self._patient)
        vitals = observe(PATIENT_FIELDS, values[OPERATION_SIZE:], now, self._patient)
        self.selections.append(self._selector.select(operation, vitals, now))
        return self.selections[-1].action


@functools.cache
def _named(fields: tuple[Field, ...]) -> tuple[tuple[str, ...], np.ndarray]:
    """Return names and scales of some fields of the state."""
    return tuple(each.name for each in fields), np.array([each.scale for each in fields])


def observe(
    fields: tuple[Field, ...], values: np.ndarray, now: float, patient: Patient
) -> Observation:
    """Return what one of the two state topics tells of a patient."""
    names, scales = _named(fields)
    return Observation(patient.name, names, values, scales, now, patient.procedure.name)
