# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""
Adversaries in a robot's own control loop: its selector, shield and limiter at 100 Hz.

What is said and done is as imperfect as the shield's bounds allow: forces and positions that are
off, states that come early or late, set-points that the arm gets almost a tick late. Beyond them,
some states are lost, also many in a row, some vital signs do not come, and some are no numbers.
"""

from collections import deque

from fdrl_ros.experiments.contender import observe
from fdrl_ros.experiments.studies.shield.attack import Attacker, patients_of, Tally
from fdrl_ros.selector.candidates.candidate import Candidate
from fdrl_ros.selector.control.limiter import Limiter
from fdrl_ros.selector.control.loop import ControlLoop, Cycle
from fdrl_ros.selector.control.monitor import GateSettings
from fdrl_ros.selector.control.selector import Selector
from fdrl_ros.shield.damage import DamageMeter
from fdrl_ros.shield.settings import ShieldSettings
from fdrl_ros.shield.shield import BatchShield
from fdrl_ros.surgery.gym.actions import SUBSTEP
from fdrl_ros.surgery.gym.operation import Operation
from fdrl_ros.surgery.gym.state import (
    INDEX,
    OPERATION_FIELDS,
    OPERATION_SIZE,
    PATIENT_FIELDS,
)
from fdrl_ros.surgery.patient.patient import Point
from fdrl_ros.surgery.settings import WorldSettings
import numpy as np
from numpy.typing import NDArray

LOST, BROKEN = 0.02, 0.02
"""Shares of states that never come, one at a time, and that hold a number which is none."""

SILENT = 0.002
"""Chance that a burst of lost states begins with one, and likewise one of lost vital signs."""

BURST = (4, 20)
"""Fewest and most states in a burst: 40 to 200 ms."""

_BEATS = (2, 2, 2, 3, 3)
"""Sub-steps between the states of a tick, in any order: 8 or 12.5 ms."""

_LATE = 11
"""Sub-steps from a set-point to the arm at most; with states that are late, about a tick."""

_OPEN = GateSettings(close_at=1.0, open_below=1.0, critical=False)


class _Robot:
    """
    One operation under a control loop, in a time of its own.

    :param operation: that is under way.
    :param limit: force limit of the procedure, N.
    :param late: sub-steps from a set-point to the arm.
    :param rng: source of chance.
    """

    def __init__(
        self,
        operation: Operation,
        attacker: Attacker,
        settings: ShieldSettings,
        limit: float,
        late: int,
        rng: np.random.Generator,
    ) -> None:
        self._operation, self._settings, self._limit = operation, settings, limit
        selector = Selector(gate=_OPEN, shield=settings)
        selector.set_candidates(
            [Candidate('attacker', lambda s: attacker.ask_one(s, self._values))]
        )
        self._loop = ControlLoop(selector, Limiter())
        self._late, self._rng = late, rng
        self._under_way: deque[tuple[int, Point]] = deque()
        self._count, self._silent, self._bare = 0, 0, 0
        self._values: NDArray[np.float64] = np.array(operation.values())

    def tick(self) -> None:
        """Let one tick pass."""
        for beat in self._rng.permutation(_BEATS).tolist():
            self._speak()
            for _ in range(beat):
                while self._under_way and self._under_way[0][0] <= self._count:
                    self._operation.set_target(self._under_way.popleft()[1])
                self._operation.advance(1)
                self._count += 1

    def _speak(self) -> None:
        """Send the state unless it is lost, and take the resulting set-points."""
        loop, now = self._loop, 100.0 + self._count * SUBSTEP
        self._take(loop.run_waiting(now))
        values, chance = np.array(self._operation.values()), self._rng.random()
        force, height = self._rng.uniform(-1.0, 1.0, 2)
        values[INDEX['force']] += force * self._settings.force_error
        values[INDEX['lag']] += height * self._settings.position_error
        values[INDEX['force_limit']] = self._limit
        if chance < BROKEN:
            values[INDEX['force']] = np.nan
        self._silent, self._bare = (self._goes_on(each) for each in (self._silent, self._bare))
        if not self._silent and not chance > 1.0 - LOST:
            self._values = values
            loop.receive_tip(self._operation.target, now)
            patient = self._operation.patient
            if not self._bare:
                vitals = observe(PATIENT_FIELDS, values[OPERATION_SIZE:], now, patient)
                loop.receive_patient(vitals, now)
            seen = observe(OPERATION_FIELDS, values[:OPERATION_SIZE], now, patient)
            self._take(loop.receive_operation(seen, now))
        self._take(loop.watchdog(now))

    def _goes_on(self, left: int) -> int:
        """Return the states left in a burst of losses; a burst may begin."""
        if left:
            return left - 1
        return int(self._rng.integers(*BURST, endpoint=True)) * (self._rng.random() < SILENT)

    def _take(self, cycle: Cycle | None) -> None:
        if cycle is not None and cycle.setpoint is not None:
            x, y, z = cycle.setpoint.position.tolist()
            self._under_way.append((self._count + self._late, (x, y, z)))


def attack_loop(
    procedure: str,
    kind: str,
    steps: int,
    settings: ShieldSettings | None,
    limit: float,
    seed: int = 0,
) -> Tally:
    """
    Attack one operation after the other through the control loop, each to its end.

    :param steps: the last operation that begins is the one in which so many are reached.
    :param limit: force limit of the procedure, N.
    """
    operation = Operation(WorldSettings(mode='kinematic'))
    tally = Tally(procedure, kind, settings is not None, 'loop')
    rng = np.random.default_rng(seed)
    watch = settings or ShieldSettings(active=False)
    attacker, number = Attacker(kind, rng), 0
    while tally.steps < steps:
        operation.reset(patients_of(procedure, number, 1)[0])
        attacker.begin(BatchShield(watch, procedure, 1))
        late = int(rng.integers(0, _LATE + 1))
        robot, meter, number = (
            _Robot(operation, attacker, watch, limit, late, rng),
            DamageMeter(),
            number + 1,
        )
        peak = 0.0
        while not operation.done:
            robot.tick()
            peak = max(peak, tally.end_tick(operation, meter, limit))
        attacker.learn(peak)
    operation.close()
    return tally
