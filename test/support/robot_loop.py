# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""A simulated robot under its control loop, whose states a test may spoil on their way."""

import dataclasses

from fdrl_ros.selector import Candidate, Limiter, Observation, Selector
from fdrl_ros.selector.control.loop import ControlLoop, PERIOD
from fdrl_ros.surgery.gym.operation import Operation
from fdrl_ros.surgery.gym.state import INDEX, OPERATION_FIELDS, OPERATION_SIZE, PATIENT_FIELDS
from fdrl_ros.surgery.patient.cohort import public_cohort
from fdrl_ros.surgery.settings import WorldSettings
import numpy as np

KINEMATIC = WorldSettings(mode='kinematic')
PATIENT = public_cohort(3).patient(0)
SECOND = 1_000_000_000
BEAT = SECOND // 100
START = 1_700_000_000 * SECOND


class Robot:
    """An operation at 100 Hz under a control loop, with a clock of the test's own."""

    def __init__(self, policy) -> None:
        self.operation = Operation(KINEMATIC)
        self.operation.reset(PATIENT)
        selector = Selector()
        selector.set_candidates([Candidate('global', policy)])
        self.loop = ControlLoop(selector, Limiter())
        self.now = 100.0
        self.substeps = 0
        self.targets = [np.array(PATIENT.start)]
        self.selections = []

    def run_period(self, vitals: float = 1.0, publish: bool = True) -> None:
        """Let one period pass: say the state, obey the set-point."""
        if publish:
            values = self.operation.values()
            self.loop.receive_tip(self.operation.target, self.now)
            self.loop.receive_patient(
                self.half(PATIENT_FIELDS, values[OPERATION_SIZE:], vitals), self.now
            )
            cycle = self.loop.receive_operation(
                self.half(OPERATION_FIELDS, values[:OPERATION_SIZE]), self.now
            )
        else:
            cycle = self.loop.watchdog(self.now)
        if cycle is not None and cycle.selection is not None:
            self.selections.append(cycle.selection)
        if cycle is not None and cycle.setpoint is not None:
            self.operation.set_target(tuple(cycle.setpoint.position))
        self.targets.append(np.array(self.operation.target))
        self.pass_time()
        self.now += PERIOD

    def pass_time(self) -> None:
        """Let the operation go on by a beat."""
        self.substeps += 1
        self.operation.advance(2 + (self.substeps % 5 in (0, 2)))
        if self.substeps % 5 == 0:
            self.operation.tick()

    def run(self, periods: int, **spoiled) -> None:
        """Let some periods pass."""
        for _ in range(periods):
            self.run_period(**spoiled)

    def half(self, fields, values, factor: float = 1.0) -> Observation:
        return Observation(
            patient=PATIENT.name,
            names=tuple(each.name for each in fields),
            values=np.array(values) * factor,
            scales=np.array([each.scale for each in fields]),
            received=self.now,
            procedure=PATIENT.procedure.name,
        )


class StateStream(Robot):
    """A robot whose states may be spoiled on their way; stamps are of another clock than `now`."""

    def __init__(self, policy, patient=None) -> None:
        super().__init__(policy)
        if patient is not None:
            self.operation.reset(patient)
        self.stamp = START
        self.runs = True  # the operation's time
        self.timed = []  # (now, selection)

    def place(self, patient) -> None:
        """Put somebody on the table, whose time begins with the first motion."""
        self.operation.reset(patient)
        self.runs = False

    def publish(
        self, spoil=None, ahead: float = 0.0, with_patient=True, with_operation=True
    ) -> None:
        """Let a beat pass in which the state says something else, or nothing."""
        values = np.array(self.operation.values())
        operation = self.half(OPERATION_FIELDS, values[:OPERATION_SIZE])
        vitals = self.half(PATIENT_FIELDS, values[OPERATION_SIZE:])
        if spoil is not None:
            operation, vitals = spoil(operation, vitals)
        cycles = []
        self.loop.receive_tip(self.operation.target, 1e-9 * self.stamp)
        if with_patient:
            cycles.append(self.loop.receive_patient(vitals, self.now))
        if with_operation:
            cycles.append(self.loop.run_waiting(self.now))
            clock = 1e-9 * self.stamp + ahead
            cycles.append(self.loop.receive_operation(operation, self.now, clock))
        cycles.append(self.loop.watchdog(self.now))
        for cycle in cycles:
            if cycle is not None and cycle.selection is not None:
                self.timed.append((self.now, cycle.selection))
            if cycle is not None and cycle.setpoint is not None:
                self.move(tuple(cycle.setpoint.position))
        self.targets.append(np.array(self.operation.target))
        self.pass_time()
        self.now += PERIOD
        self.stamp += BEAT

    def run(self, periods: int, spoil=None, **spoiled) -> None:
        for _ in range(periods):
            self.publish(spoil, **spoiled)

    def move(self, target) -> None:
        """Command the arm."""
        self.operation.set_target(target)
        self.runs = True

    def pass_time(self) -> None:
        if self.runs:
            super().pass_time()

    def half(self, fields, values, factor: float = 1.0):
        patient = self.operation.patient
        return dataclasses.replace(
            super().half(fields, values, factor),
            patient=patient.name,
            procedure=patient.procedure.name,
            stamp=self.stamp,
        )

    @property
    def last(self):
        return self.timed[-1][1]


def up(state) -> int:
    """Go up and down, which no operation minds."""
    return 11 if state[INDEX['goal_error_z']] < 2.0 else 10


def number(name, value):
    """Return what spoils one number of the state."""

    def spoil(operation, vitals):
        place = INDEX[name]
        part = operation if place < OPERATION_SIZE else vitals
        values = np.array(part.values)
        values[place if part is operation else place - OPERATION_SIZE] = value
        changed = dataclasses.replace(part, values=values)
        return (changed, vitals) if part is operation else (operation, changed)

    return spoil


def freeze(*names):
    """Return what makes some numbers of the operation say what they said first."""
    kept = {}

    def spoil(operation, vitals):
        values = np.array(operation.values)
        for each in names:
            values[INDEX[each]] = kept.setdefault(each, values[INDEX[each]])
        return dataclasses.replace(operation, values=values), vitals

    return spoil
