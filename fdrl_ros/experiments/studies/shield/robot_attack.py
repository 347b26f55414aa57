# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""
Attack a robot's own control loop: its selector, shield and limiter at 100 Hz.

What is said and done there is as imperfect as the shield's bounds allow: forces and positions that
are off, states that come early or late, set-points that the arm gets almost a tick late. Beyond
them, some states are lost, also many in a row, some vital signs do not come, and some are no
numbers.
"""

from collections import deque

from fdrl_ros.experiments.studies.shield.adversary import Assault, attack_each, Attacker, Tally
from fdrl_ros.experiments.surgery_evaluation import observe
from fdrl_ros.selector.candidates.candidate import Candidate
from fdrl_ros.selector.control.limiter import Limiter
from fdrl_ros.selector.control.loop import ControlLoop, Cycle
from fdrl_ros.selector.control.monitor import GateSettings
from fdrl_ros.selector.control.selector import Selector
from fdrl_ros.surgery.gym.actions import SUBSTEP
from fdrl_ros.surgery.gym.operation import Operation
from fdrl_ros.surgery.gym.state import (
    INDEX,
    OPERATION_LAYOUT,
    OPERATION_SIZE,
    PATIENT_LAYOUT,
)
from fdrl_ros.surgery.patient.patient import Point
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
    :param rng: source of chance.
    """

    def __init__(
        self,
        assault: Assault,
        operation: Operation,
        attacker: Attacker,
        rng: np.random.Generator,
    ) -> None:
        self._operation, self._settings, self._limit = operation, assault.watch, assault.limit
        selector = Selector(gate=_OPEN, shield=self._settings)
        selector.set_candidates(
            [Candidate('attacker', lambda s: attacker.request_one(s, self._values))]
        )
        self._loop = ControlLoop(selector, Limiter())
        self._late, self._rng = int(rng.integers(0, _LATE + 1)), rng
        self._under_way: deque[tuple[int, Point]] = deque()
        self._count, self._silent, self._bare = 0, 0, 0
        self._values: NDArray[np.float64] = np.array(operation.values())

    def tick(self) -> bool:
        """Let one tick pass; return whether the operation can go on."""
        for beat in self._rng.permutation(_BEATS).tolist():
            self._send_state()
            for _ in range(beat):
                while self._under_way and self._under_way[0][0] <= self._count:
                    self._operation.set_target(self._under_way.popleft()[1])
                self._operation.advance(1)
                self._count += 1
        return True

    def _send_state(self) -> None:
        """Send the state unless it is lost, and take the resulting set-points."""
        loop, now = self._loop, 100.0 + self._count * SUBSTEP
        self._queue_setpoint(loop.run_waiting(now))
        values, chance = np.array(self._operation.values()), self._rng.random()
        force, height = self._rng.uniform(-1.0, 1.0, 2)
        values[INDEX['force']] += force * self._settings.force_error
        values[INDEX['lag']] += height * self._settings.position_error
        values[INDEX['force_limit']] = self._limit
        if chance < BROKEN:
            values[INDEX['force']] = np.nan
        self._silent, self._bare = (self._states_left(each) for each in (self._silent, self._bare))
        if not self._silent and not chance > 1.0 - LOST:
            self._values = values
            loop.receive_tip(self._operation.target, now)
            patient = self._operation.patient
            if not self._bare:
                vitals = observe(PATIENT_LAYOUT, values[OPERATION_SIZE:], now, patient)
                loop.receive_patient(vitals, now)
            seen = observe(OPERATION_LAYOUT, values[:OPERATION_SIZE], now, patient)
            self._queue_setpoint(loop.receive_operation(seen, now))
        self._queue_setpoint(loop.watchdog(now))

    def _states_left(self, left: int) -> int:
        """Return the states left in a burst of losses; a burst may begin."""
        if left:
            return left - 1
        return int(self._rng.integers(*BURST, endpoint=True)) * (self._rng.random() < SILENT)

    def _queue_setpoint(self, cycle: Cycle | None) -> None:
        if cycle is not None and cycle.setpoint is not None:
            x, y, z = cycle.setpoint.position.tolist()
            self._under_way.append((self._count + self._late, (x, y, z)))


def attack_loop(assault: Assault) -> Tally:
    """Attack one operation after the other through a robot's control loop."""
    rng = np.random.default_rng(assault.seed)
    return attack_each(
        assault,
        assault.tally('loop'),
        rng,
        lambda operation, attacker, meter: _Robot(assault, operation, attacker, rng).tick,
    )
