# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""A simulated robot under its control loop, whose states a test may spoil on their way."""

import dataclasses

from fdrl_ros.selector import Candidate, Limiter, Selector
from fdrl_ros.selector.control.loop import ControlLoop, PERIOD
from fdrl_ros.surgery.gym.operation import Operation
from fdrl_ros.surgery.gym.state import INDEX, OPERATION_SIZE
from fdrl_ros.surgery.patient.cohort import public_cohort
from fdrl_ros.surgery.settings import WorldSettings
import numpy as np
from support.choices import observe

KINEMATIC = WorldSettings(mode='kinematic')
PATIENT = public_cohort(3).patient(0)
SECOND = 1_000_000_000
BEAT = SECOND // 100
START = 1_700_000_000 * SECOND


class Robot:
    """
    An operation at 100 Hz under a control loop, with a clock of the test's own.

    Stamps are of another clock than `now`.
    """

    def __init__(self, policy, patient=PATIENT) -> None:
        self.operation = Operation(KINEMATIC)
        self.operation.reset(patient)
        selector = Selector()
        selector.set_candidates([Candidate('global', policy)])
        self.loop = ControlLoop(selector, Limiter())
        self.now, self.stamp = 100.0, START
        self.substeps = 0
        self.runs = True  # the operation's time
        self.outcome = None  # of the newest tick
        self.targets = [np.array(patient.start)]
        self.timed = []  # (now, selection)

    def place(self, patient) -> None:
        """Put somebody on the table, whose time begins with the first motion."""
        self.operation.reset(patient)
        self.runs = False

    def publish(
        self, spoil=None, ahead: float = 0.0, with_patient=True, with_operation=True
    ) -> None:
        """Let a beat pass in which the state says something else, or nothing."""
        operation, vitals = self.halves()
        if spoil is not None:
            operation, vitals = spoil(operation, vitals)
        cycles = []
        self.loop.receive_tip(self.operation.setpoint, self.time)
        self.loop.receive_jaw(self.operation.jaw.target)
        if with_patient:
            cycles.append(self.loop.receive_patient(vitals, self.now))
        if with_operation:
            cycles.append(self.loop.run_waiting(self.now))
            cycles.append(self.loop.receive_operation(operation, self.now, self.time + ahead))
        cycles.append(self.loop.watchdog(self.now))
        for cycle in cycles:
            if cycle is not None and cycle.selection is not None:
                self.timed.append((self.now, cycle.selection))
            if cycle is not None and cycle.setpoint is not None:
                self.obey(cycle.setpoint)
        self.targets.append(np.array(self.operation.target))
        if self.runs:
            self.substeps += 1
            self.advance(2 + (self.substeps % 5 in (0, 2)))
            if self.substeps % 5 == 0:
                self.outcome = self.operation.tick()
        self.pass_period()

    def pass_period(self) -> None:
        """Let the clocks go on."""
        self.now += PERIOD
        self.stamp += BEAT

    @property
    def time(self) -> float:
        """Return the stamp, s."""
        return 1e-9 * self.stamp

    def run(self, periods: int, spoil=None, **spoiled) -> None:
        """Let some beats pass."""
        for _ in range(periods):
            self.publish(spoil, **spoiled)

    def keep_silent(self, periods: int) -> None:
        """Let some beats pass without a state."""
        self.run(periods, with_patient=False, with_operation=False)

    def obey(self, setpoint) -> None:
        self.move(tuple(setpoint.position))

    def move(self, target) -> None:
        """Command the arm."""
        self.operation.set_target(target)
        self.runs = True

    def advance(self, substeps: int) -> None:
        self.operation.advance(substeps)

    def halves(self, values=None):
        """Return the two halves of the state, of other values if so."""
        values = np.array(self.operation.values() if values is None else values)
        patient = self.operation.patient
        halves = observe(values, self.now, patient.name, patient.procedure.name)
        return [dataclasses.replace(each, stamp=self.stamp) for each in halves]

    @property
    def last(self):
        return self.timed[-1][1]

    @property
    def selections(self):
        return [each for _, each in self.timed]


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
