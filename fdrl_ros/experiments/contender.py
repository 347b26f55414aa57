# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""Contenders of an evaluation: the expert, a policy, and the selector over several policies."""

from dataclasses import dataclass, field
from typing import Protocol

from fdrl_ros.policy import NetworkShape, Policy
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
from fdrl_ros.surgery.gym.state import OPERATION_FIELDS, OPERATION_SIZE, PATIENT_FIELDS, unscale
from fdrl_ros.surgery.patient.patient import Patient
from fdrl_ros.surgery.settings import WorldSettings
from fdrl_ros.surgery.tasks.expert import expert
import numpy as np


class Contender(Protocol):
    """Anything that can operate; it travels to worker processes."""

    @property
    def name(self) -> str:
        """Name of its row in the table."""
        ...

    def begin(self, patient: Patient, world: WorldSettings) -> Choice:
        """Return the function that chooses actions for this patient."""
        ...


@dataclass(frozen=True)
class ExpertContender:
    """The expert, which reads the tissue that no policy sees."""

    name: str = 'expert'

    def begin(self, patient: Patient, world: WorldSettings) -> Choice:
        """Return the expert for this patient."""
        return lambda state: expert(state, patient, world)[0]


@dataclass(frozen=True, eq=False)
class PolicyContender:
    """
    One policy.

    :param weights: flat, shape (n_parameters,).
    """

    name: str
    weights: np.ndarray
    shape: NetworkShape

    def begin(self, patient: Patient, world: WorldSettings) -> Choice:
        """Return the policy; it is the same for every patient."""
        return Policy(self.weights, self.shape)


@dataclass(frozen=True)
class HoldContender:
    """A contender that holds still."""

    name: str = HOLD

    def begin(self, patient: Patient, world: WorldSettings) -> Choice:
        """Return staying."""
        return lambda state: STAY


@dataclass(frozen=True, eq=False)
class SelectorContender:
    """
    The selector over candidates, as the robot runs it (FDRL Eq. 7).

    :param policies: candidate's name to weights.
    :param values: candidate's name to the estimate of its return; that of hold too, if there.
    """

    name: str
    policies: dict[str, np.ndarray]
    values: dict[str, ValueModel]
    shape: NetworkShape
    settings: SelectorSettings
    shield: ShieldSettings = field(default_factory=ShieldSettings)

    def begin(self, patient: Patient, world: WorldSettings) -> Choice:
        """Return a fresh selector for this patient."""
        selector = Selector(self.settings, shield=self.shield)
        candidates = []
        for name, weights in self.policies.items():
            policy = Policy(weights, self.shape)
            candidates.append(Candidate(name, policy, self.values.get(name), policy.digest))
        candidates.append(Candidate(HOLD, None, self.values.get(HOLD)))
        selector.set_candidates(candidates)
        return SelectorSession(selector, patient)


_OPERATION_NAMES = tuple(each.name for each in OPERATION_FIELDS)
_OPERATION_SCALES = np.array([each.scale for each in OPERATION_FIELDS])
_PATIENT_NAMES = tuple(each.name for each in PATIENT_FIELDS)
_PATIENT_SCALES = np.array([each.scale for each in PATIENT_FIELDS])


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
        now = len(self.selections) * TICK
        values = unscale(state)
        name = self._patient.name
        operation = Observation(
            name,
            _OPERATION_NAMES,
            values[:OPERATION_SIZE],
            _OPERATION_SCALES,
            now,
            self._patient.procedure.name,
        )
        vitals = Observation(name, _PATIENT_NAMES, values[OPERATION_SIZE:], _PATIENT_SCALES, now)
        selection = self._selector.select(operation, vitals, now)
        self.selections.append(selection)
        return selection.action
