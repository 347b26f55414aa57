# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""
The robot's control loop: states in, selections at 20 Hz and set-points at 100 Hz out.

It moves with the state's own beat, so that a move of one tick is over when the next state is
judged, and holds on the steady clock when the beat stops.
"""

from dataclasses import dataclass
import math

from fdrl_ros.env.actions import ACTIONS, TICK
from fdrl_ros.env.jaw import JAW_OPEN
from fdrl_ros.env.tasks import TASKS
from fdrl_ros.selector.candidate import Selection
from fdrl_ros.selector.limiter import Limiter, SetPoint
from fdrl_ros.selector.observation import Observation
from fdrl_ros.selector.selector import Selector
import numpy as np
from numpy.typing import ArrayLike

PERIOD = 0.01
"""Time between two set-points, second; a set-point is where the tip shall be one period on."""

IDLE = 1.0
"""Silence after which the operation counts as over, second: no more set-points then."""


@dataclass(frozen=True)
class Cycle:
    """
    What one beat brought.

    :param selection: a new one, if it was time.
    :param setpoint: where the tip shall be; None where nothing may move it.
    """

    selection: Selection | None
    setpoint: SetPoint | None


class ControlLoop:
    """Joins the selector and the limiter of one robot; all times are of one steady clock."""

    def __init__(self, selector: Selector, limiter: Limiter) -> None:
        self.selector = selector
        self.limiter = limiter
        self._operation: Observation | None = None
        self._patient: Observation | None = None
        self._tip: tuple[np.ndarray, float] | None = None
        self._jaw: float | None = None
        self._case: str | None = None
        self._selected = -np.inf
        self._held = -np.inf
        self._stepped = -np.inf

    def take_over(self) -> None:
        """Leave the arm to the surgeon: no set-point from the next beat on."""
        self.selector.surgeon = True
        self._case = None

    def hand_back(self) -> None:
        """Take the arm back, from where the tip is then."""
        self.selector.surgeon = False
        self._case = None

    def take_patient(self, observation: Observation) -> None:
        """Take in the vital signs."""
        self._patient = observation

    def take_tip(self, position: ArrayLike, stamp: float) -> None:
        """
        Take in where the set-point of the tip is; one that is no position is dropped.

        :param position: metre, shape (3,).
        :param stamp: when that was, second of the clock that stamps states.
        """
        tip = np.asarray(position, dtype=np.float64)
        if tip.shape == (3,) and math.isfinite(tip.dot(tip)):
            self._tip = (tip, stamp)

    def take_jaw(self, opening: float) -> None:
        """
        Take in which opening the jaw was told; one that is no number is dropped.

        :param opening: rad.
        """
        if math.isfinite(opening):
            self._jaw = opening

    def take_operation(self, observation: Observation, stamp: float, now: float) -> Cycle:
        """
        Take in a state of the operation, and go on by one beat.

        :param stamp: when that state was, second of the clock that stamps states.
        """
        self._operation = observation
        if observation.patient != self._case and not self.selector.surgeon:
            self._begin_case(observation.patient, stamp, now)
        # A beat may come a little early: half of one is enough to tell the fifth from the fourth.
        due = now - self._selected >= TICK - PERIOD / 2
        return self._go(now, self._select(now) if due else None)

    def watchdog(self, now: float) -> Cycle | None:
        """
        Hold if the state has gone stale; call it at 100 Hz.

        :returns: None while all is well.
        """
        newest = [each.received for each in (self._operation, self._patient) if each]
        timeout = self.selector.settings.state_timeout
        if len(newest) == 2 and now - min(newest) <= timeout:
            self._held = -np.inf
            return None
        if self._case is not None and now - max(newest, default=-np.inf) > IDLE:
            self._case = None
        due = now - self._held >= TICK - PERIOD / 2
        if due:
            self._held = now
        return self._go(now, self._select(now) if due else None)

    def _begin_case(self, patient: str, stamp: float, now: float) -> None:
        """Start from where the tip is now; wait for a tip that is not older than the state."""
        self._case = None
        if self._tip is not None and self._tip[1] >= stamp - PERIOD / 2:
            self.limiter.reset(self._tip[0], max(now, self._stepped), self._jaw)
            self._case = patient
            self._selected = -np.inf

    def _select(self, now: float) -> Selection:
        selection = self.selector.select(self._operation, self._patient, now)
        if selection.risk is not None:
            # Without a usable state there was no tick: the next one counts, whenever it comes.
            self._selected = now
        return selection

    def _away(self) -> np.ndarray | None:
        """Return the direction out of the patient: along the shaft to the trocar, the origin."""
        if self._tip is None:
            return None
        length = math.sqrt(self._tip[0].dot(self._tip[0]))
        return -self._tip[0] / length if length else None

    def _go(self, now: float, selection: Selection | None) -> Cycle:
        begin = max(now, self._stepped)
        if selection is not None:
            self.limiter.accept(selection, begin, self._away())
            self._turn_jaw(selection, begin)
        if self._case is None or len(self.selector.candidates) < 2:
            return Cycle(selection, None)
        self._stepped = max(now + PERIOD, self._stepped)
        return Cycle(selection, self.limiter.step(self._stepped))

    def _turn_jaw(self, selection: Selection, now: float) -> None:
        """Open or close the jaw if that was selected, in procedures that use it."""
        if selection.holds or self._operation is None:
            return
        order, task = ACTIONS[selection.action].jaw, TASKS.get(self._operation.procedure)
        if order is not None and task is not None and task.uses_jaw:
            self.limiter.turn_jaw(JAW_OPEN if order else 0.0, now)
