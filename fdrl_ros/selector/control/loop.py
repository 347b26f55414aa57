# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""
The robot's control loop: states in, selections at 20 Hz and set-points at 100 Hz out.

It moves with the state's own beat, so that a move of one tick is over when the next state is
judged, and holds on the steady clock when the beat stops. When a state is judged, and what is
decided in it, depends on the stamps of states: the same states give the same decisions, however
fast they come.
"""

from collections import deque
from collections.abc import Iterable
from dataclasses import replace
import math
from typing import NamedTuple

from fdrl_ros.selector.candidates.candidate import Selection
from fdrl_ros.selector.control.limiter import Limiter, SetPoint
from fdrl_ros.selector.control.plausibility import (
    FrozenSensors,
    Newest,
    PlausibilitySettings,
    StampOrder,
    Tip,
)
from fdrl_ros.selector.control.selector import Selector
from fdrl_ros.shield.case import Case
from fdrl_ros.shield.observation import Observation, Reason
from fdrl_ros.shield.retreat import Vector
from fdrl_ros.surgery.arm.jaw import JAW_OPEN
from fdrl_ros.surgery.arm.operating_state import State as ArmState
from fdrl_ros.surgery.gym.actions import ACTIONS, TICK
from fdrl_ros.surgery.tasks.registry import TASKS

PERIOD = 0.01
"""Time between two set-points, second; a set-point is where the tip shall be one period on."""

IDLE = 0.4
"""Time without a state of the operation after which the arm is commanded no more, second."""


class Cycle(NamedTuple):
    """
    What one beat brought.

    :param selection: a new one, if it was time.
    :param setpoint: where the tip shall be; None where nothing may move it.
    """

    selection: Selection | None
    setpoint: SetPoint | None


class ControlLoop:
    """
    Joins the selector and the limiter of one robot.

    `now` is of one steady clock; stamps are of the clock that stamps states.
    """

    def __init__(
        self,
        selector: Selector,
        limiter: Limiter,
        plausibility: PlausibilitySettings | None = None,
    ) -> None:
        self.selector = selector
        self.limiter = limiter
        self._timeout = selector.settings.state_timeout
        plausibility = plausibility or PlausibilitySettings()
        self._tolerance = plausibility.clock_tolerance
        self._order = StampOrder(plausibility)
        self._frozen = FrozenSensors(plausibility)
        self._operation: Observation | None = None
        self._patients: deque[Observation] = deque(maxlen=4)
        self._waiting: Observation | None = None
        self._paired = True
        self._tips: deque[Tip] = deque(maxlen=4)
        self._jaw: float | None = None
        self._case = Case()
        self._ready = True
        self._arm = Newest()
        self._rest()
        self._selected = -math.inf
        self._held = -math.inf
        self._refused: tuple[Reason, float] | None = None
        self._stepped = -math.inf
        self._watched: float | None = None
        self._stalled = self._resumed = self._heard = -math.inf

    def take_over(self) -> None:
        """Leave the arm to the surgeon: no set-point from the next beat on."""
        self.selector.surgeon = True
        self._rest()

    def hand_back(self) -> None:
        """Take the arm back, from where the tip is then."""
        self.selector.surgeon = False
        self._rest()
        self._selected = -math.inf

    def take_patient(self, observation: Observation, now: float) -> Cycle | None:
        """Take in the vital signs; go on by one beat if a state waits for them."""
        observation = self._arrived(observation, now)
        self._patients.append(observation)
        newest = self._waiting or self._operation
        if newest is not None and newest.time == observation.time:
            self._paired = True
            return self.proceed(now)
        return None

    def proceed(self, now: float) -> Cycle | None:
        """
        Go on by one beat with the state that waits for vital signs, if one does.

        To be called before the next state is taken in.
        """
        waiting = self._waiting
        return None if waiting is None else self._beat(waiting, now)

    def take_tip(self, position: Iterable[float], time: float) -> None:
        """
        Take in where the set-point of the tip is; one that is no position is dropped.

        :param position: metre, three numbers.
        :param time: its stamp, second.
        """
        tip = tuple(map(float, position))
        if len(tip) == 3 and math.isfinite(math.hypot(*tip)):
            self._tips.append((tip, time))

    def take_jaw(self, opening: float) -> None:
        """
        Take in which opening the jaw was told; one that is no number is dropped.

        :param opening: rad.
        """
        if math.isfinite(opening):
            self._jaw = opening

    def take_arm(
        self, state: str, is_homed: bool, time: float = 0.0, clock: float | None = None
    ) -> bool:
        """
        Take in whether the arm obeys; once it does again, it starts from where it is.

        A stamp that is ahead of the clock counts as none: it would silence what comes after it.

        :param time: stamp of that, second; 0 without one.
        :param clock: what the node's clock said when it came, s; None where there is none.
        :returns: whether it counts: not if something newer is known.
        """
        ahead = clock is not None and self._tolerance and time > clock + self._tolerance
        if not self._arm.believes(0.0 if ahead else time):
            return False
        self._ready = state == ArmState.ENABLED and is_homed
        if not self._ready:
            self._rest()
        return True

    def take_operation(
        self, observation: Observation, now: float, clock: float | None = None
    ) -> Cycle | None:
        """
        Take in a state of the operation, and go on by one beat.

        Vital signs of the same stamp may still be on their way: then it waits for them, half a
        beat or until the next state.

        :param clock: what the node's clock said when it came, s; None where there is none.
        :returns: None where it waits.
        """
        observation = self._arrived(observation, now)
        self._heard = observation.received
        if not self._case.is_of(observation):
            self._begin(observation, same_time=True)
        fault, restarted = self._order.step(observation.time, clock)
        if restarted:
            self._begin(observation, same_time=False)
            self._arm = Newest()
        if fault is None:
            self._case.take(observation)
        if fault is None and now - observation.received > self._timeout:
            fault = Reason.LATE
        if fault is Reason.FROZEN:  # nothing new: the watchdog holds if it goes on like that
            self._refused = fault, now
            return self._go(now, None)
        if fault is not None:
            return self._refuse(fault, now, observation)
        if self._paired and self._vitals(observation) is None:
            self._waiting = observation
            return None
        return self._beat(observation, now)

    def watchdog(self, now: float) -> Cycle | None:
        """
        Hold if no state that counts has come for too long; call it at 100 Hz.

        If it is called later than that, states have been waiting to be taken in.

        :returns: None while all is well.
        """
        if self._watched is not None and now - self._watched > self._timeout:
            self._stalled, self._resumed = self._watched, now
        self._watched = now
        if self._waiting is not None and now - self._waiting.received >= PERIOD / 2:
            return self.proceed(now)
        newest = [each.received for each in (self._operation, self._newest_patient) if each]
        if len(newest) == 2 and now - min(newest) <= self._timeout:
            return None
        if self._begun and self.deserted(now):
            self._rest()
        reason = Reason.STALE if len(newest) == 2 else Reason.MISSING
        if self._refused is not None and now - self._refused[1] <= self._timeout:
            reason = self._refused[0]
        if now - self._held < TICK - PERIOD / 2:
            return self._go(now, None)
        self._held = now
        return self._go(now, self._keep_tip(reason, now, self._operation))

    def deserted(self, now: float) -> bool:
        """
        Tell whether the last state of the operation is too old for any command to the arm.

        Vital signs alone do not count. With a fresh state and no vital signs the arm is still
        commanded: it holds, or retracts from too much force.
        """
        return now - self._heard > IDLE

    def _arrived(self, observation: Observation, now: float) -> Observation:
        """Date what comes after a pause of the caller back: nobody knows how long it waited."""
        came = observation.received
        if self._watched is not None and now - self._watched > self._timeout:
            came = self._watched
        elif now - self._resumed < 2 * PERIOD:
            came = self._stalled
        return observation if came >= observation.received else replace(observation, received=came)

    @property
    def _newest_patient(self) -> Observation | None:
        return self._patients[-1] if self._patients else None

    def _vitals(self, operation: Observation) -> Observation | None:
        """Return the vital signs of the very stamp of a state, if they have come."""
        for each in reversed(self._patients):
            if each.time == operation.time:
                return each
        return None

    def _begin(self, operation: Observation, same_time: bool) -> None:
        """Begin another case, or the same one in another time."""
        self.selector.reset(same_time)
        self._case = Case()
        self._case.take(operation)
        self._rest()
        self._selected = -math.inf
        self._waiting, self._paired = None, True
        if same_time:
            self._order.restart()
        self._frozen.restart()

    def _beat(self, operation: Observation, now: float) -> Cycle:
        """Go on with a state that is in order."""
        self._waiting = None
        same = self._vitals(operation)
        self._paired = same is not None  # or else those vital signs have stamps of their own
        vitals = same or self._newest_patient
        fault = self._frozen.step(operation, vitals, self._tip_before(operation.time))
        if fault is not None:
            return self._refuse(fault, now, operation)
        self._operation, self._refused = operation, None
        if not self._begun and self._ready and not self.selector.surgeon:
            self._start(operation, now)
        if not self.due(operation):
            return self._go(now, None)
        hold = None if self._ready else Reason.PAUSED
        selection = self.selector.select(operation, vitals, now, hold=hold, away=self._away())
        if selection.risk is not None:
            # Without a usable state there was no tick: the next one counts, whenever it comes.
            self._selected = operation.time
            self._held = -math.inf
        return self._go(now, selection)

    def due(self, operation: Observation) -> bool:
        """Tell whether it is time for a decision, in this state."""
        # A beat may come a little early: half of one is enough to tell the fifth from the fourth.
        return not operation.time - self._selected < TICK - PERIOD / 2

    def _tip_before(self, time: float) -> Tip | None:
        """Return the last set-point that the arm told before a time."""
        for each in reversed(self._tips):
            if each[1] < time:
                return each
        return None

    def _refuse(self, reason: Reason, now: float, operation: Observation) -> Cycle:
        """Hold because of a state that must not be acted on, and say so once a tick."""
        self._refused = reason, now
        held = self._keep_tip(reason, now, operation, operation.stamp)
        if now - self._held < TICK - PERIOD / 2:
            return self._go(now, None)
        self._held = now
        return self._go(now, held)

    def _keep_tip(
        self, reason: Reason, now: float, operation: Observation | None, stamp: int | None = None
    ) -> Selection:
        return self.selector.keep_tip(reason, now, operation, stamp, self._away())

    def _rest(self) -> None:
        """Command no more set-points, until there is a state to start anew in."""
        self._begun = False
        self._frozen.set_out()
        self._asked: float | None = None

    def _start(self, operation: Observation, now: float) -> None:
        """
        Start from where the tip is now.

        A tip is waited for that is not older than the first state to start in; in which beat the
        arm tells its own, between two states, does not matter.
        """
        if self._asked is None:
            self._asked = operation.time
        if not self._tips:
            return
        tip, time = self._tips[-1]
        if time >= self._asked - PERIOD / 2 and abs(time - operation.time) <= TICK:
            self.limiter.reset(tip, max(now, self._stepped), self._jaw)
            self._begun = True

    def _away(self) -> Vector | None:
        """Return the direction out of the patient: along the shaft to the trocar, the origin."""
        if not self._tips:
            return None
        x, y, z = self._tips[-1][0]
        length = math.hypot(x, y, z)
        return (-x / length, -y / length, -z / length) if length else None

    def _go(self, now: float, selection: Selection | None) -> Cycle:
        begin = max(now, self._stepped)
        if selection is not None:
            self.limiter.accept(selection, begin, self._away() if selection.holds else None)
            self._turn_jaw(selection, begin)
        if len(self.selector.candidates) < 2:
            self._rest()  # others may move the arm until there is a policy
        if not self._begun:
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
