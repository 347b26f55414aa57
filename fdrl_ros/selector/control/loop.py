# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""
The robot's control loop: states in, selections at 20 Hz and set-points at 100 Hz out.

A state goes through these steps, in this order: observe (:meth:`ControlLoop.receive_operation`),
plausible? (stamps, age, sensors that are stuck), which case, and where a decision is due, the
selector's own: monitor risk, gate, rank candidates, shield (:meth:`Selector.select`). The limiter
then turns the selection into a set-point, which the node publishes.

The loop runs at the rate of the states, so that a move of one tick is over when the next state is
judged; a watchdog on the steady clock holds when states stop. Which state is judged, and how,
depends on the stamps of states alone: the same states give the same decisions at any speed.
"""

from collections import deque
from collections.abc import Iterable
from dataclasses import replace
import math
from typing import NamedTuple

from fdrl_ros.errors import SettingError
from fdrl_ros.selector.candidates.candidate import Selection
from fdrl_ros.selector.control.limiter import Limiter, LimiterSettings, SetPoint
from fdrl_ros.selector.control.observation import Observation, Reason
from fdrl_ros.selector.control.plausibility import (
    NewestMessage,
    PlausibilitySettings,
    StampCheck,
    StuckSensors,
    Tip,
)
from fdrl_ros.selector.control.selector import Selector
from fdrl_ros.selector.control.visibility import View, VisibilityCheck
from fdrl_ros.selector.settings import SelectorSettings
from fdrl_ros.shield.retreat import Vector
from fdrl_ros.shield.settings import ShieldSettings, USUAL
from fdrl_ros.surgery.arm.kinematic_arm import JAW_OPEN
from fdrl_ros.surgery.arm.operating_state import State as ArmState
from fdrl_ros.surgery.gym.actions import ACTIONS, FINE_STEP, MAXIMUM_SPEED, TICK
from fdrl_ros.surgery.tasks.registry import TASKS

PERIOD = 0.01
"""Time between two set-points, second; a set-point is where the tip shall be one period on."""

IDLE = 0.4
"""Time without a state of the operation after which the arm is commanded no more, second."""


class Cycle(NamedTuple):
    """
    Output of one control cycle.

    :param selection: a new one, if a decision was due.
    :param setpoint: where the tip shall be; None where nothing may move it.
    """

    selection: Selection | None
    setpoint: SetPoint | None


class ControlLoop:
    """
    The selector and the limiter of one robot, driven by its messages.

    `now` is of one clock: the steady one, or a simulated one, which may stand and be set back;
    stamps are of the clock that stamps states.
    """

    def __init__(
        self,
        selector: Selector,
        limiter: Limiter,
        plausibility: PlausibilitySettings | None = None,
        *,
        arm_ready: bool = True,
        visibility: VisibilityCheck | None = None,
    ) -> None:
        """
        Begin.

        :param arm_ready: whether the arm is enabled and homed before it says so.
        :param visibility: judges what is seen; None where nothing has to be seen.
        """
        self.selector = selector
        self.limiter = limiter
        self._timeout = selector.settings.state_timeout
        plausibility = plausibility or PlausibilitySettings()
        self._tolerance = plausibility.clock_tolerance
        self._stamps = StampCheck(plausibility)
        self._sensors = StuckSensors(plausibility)
        self._operation: Observation | None = None
        self._patients: deque[Observation] = deque(maxlen=4)
        self._waiting: Observation | None = None
        self._paired = True
        self._tips: deque[Tip] = deque(maxlen=4)
        self._jaw: float | None = None
        self._arm_ready = arm_ready
        self._arm = NewestMessage()
        self.visibility = visibility
        self._saw_nothing = False
        self._last_decision = self._newest = -math.inf
        self._refused: tuple[Reason, float] | None = None
        self._last_watch: float | None = None
        self._last_hold = self._setpoint_time = -math.inf
        self._stalled = self._resumed = self._last_operation = -math.inf
        self._release_arm()

    # Observe: messages of the robot.

    def receive_operation(
        self, observation: Observation, now: float, clock: float | None = None
    ) -> Cycle | None:
        """
        Check a state of the operation, and run one control cycle with it.

        Vital signs of the same stamp may still be on their way: then the state waits for them,
        half a period or until the next state.

        :param clock: the node's clock at its arrival, s; None where there is none.
        :returns: None where the state waits.
        """
        self._follow_clock_back(now)
        observation = self._back_dated(observation, now)
        self._last_operation = observation.received
        case = self.selector.case
        if not case.is_of(observation):
            self._begin_case(observation, same_time=True)
        fault, restarted = self._stamps.check(observation.time, clock)
        if restarted:
            self._begin_case(observation, same_time=False)
            self._arm = NewestMessage()
            if self.visibility is not None:
                self.visibility.restart()
        if fault is None:
            self.selector.case.include(observation)
        if fault is None and now - observation.received > self._timeout:
            fault = Reason.LATE
        if fault is Reason.FROZEN:  # nothing new: the watchdog holds if that goes on
            self._refused = fault, now
            return self._command(now, None)
        if fault is not None:
            return self._refuse(fault, now, observation)
        if self._paired and self._vitals_stamped_like(observation) is None:
            self._waiting = observation
            return None
        return self._run_cycle(observation, now)

    def receive_patient(self, observation: Observation, now: float) -> Cycle | None:
        """Take in vital signs; run the control cycle of the state that waits for them, if any."""
        self._follow_clock_back(now)
        observation = self._back_dated(observation, now)
        self._patients.append(observation)
        newest = self._waiting or self._operation
        if newest is not None and newest.time == observation.time:
            self._paired = True
            return self.run_waiting(now)
        return None

    def run_waiting(self, now: float) -> Cycle | None:
        """Run the control cycle of a state that waits for vital signs, before the next state."""
        waiting = self._waiting
        return None if waiting is None else self._run_cycle(waiting, now)

    def receive_tip(self, position: Iterable[float], time: float) -> None:
        """
        Take in the set-point of the tip as the arm reports it; drop one that is not finite.

        :param position: metre, three numbers.
        :param time: its stamp, second.
        """
        tip = tuple(map(float, position))
        if len(tip) == 3 and math.isfinite(math.hypot(*tip)):
            self._tips.append((tip, time))

    def receive_jaw(self, opening: float) -> None:
        """
        Take in the set-point of the jaw as the arm reports it; drop one that is not finite.

        :param opening: rad.
        """
        if math.isfinite(opening):
            self._jaw = opening

    def receive_arm_state(
        self, state: str, is_homed: bool, time: float = 0.0, clock: float | None = None
    ) -> bool:
        """
        Take in the arm's operating state; when it is enabled again, it starts from where it is.

        A stamp ahead of the clock counts as none: it would silence the messages after it.

        :param time: stamp of the message, second; 0 without one.
        :param clock: the node's clock at its arrival, s; None where there is none.
        :returns: False for a message older than one received before.
        """
        ahead = clock is not None and self._tolerance and time > clock + self._tolerance
        if not self._arm.accepts(0.0 if ahead else time):
            return False
        self._arm_ready = state == ArmState.ENABLED and is_homed
        if not self._arm_ready:
            self._release_arm()
        return True

    def take_over(self) -> None:
        """Leave the arm to the surgeon: no set-point from the next cycle on."""
        self.selector.surgeon = True
        self._release_arm()

    def hand_back(self) -> None:
        """Take the arm back, from where the tip is then."""
        self.selector.surgeon = False
        self._release_arm()
        self._last_decision = -math.inf

    def watchdog(self, now: float) -> Cycle | None:
        """
        Hold if no usable state has come for too long; call it at 100 Hz.

        If this call is late, the process was paused: messages in the queue are older than they
        look.

        :returns: None while all is well.
        """
        self._follow_clock_back(now)
        if self._last_watch is not None and now - self._last_watch > self._timeout:
            self._stalled, self._resumed = self._last_watch, now
        self._last_watch = now
        if self._waiting is not None and now - self._waiting.received >= PERIOD / 2:
            return self.run_waiting(now)
        newest = [each.received for each in (self._operation, self._newest_patient) if each]
        if len(newest) == 2 and now - min(newest) <= self._timeout:
            return None
        if self.commanding and self.is_idle(now):
            self._release_arm()
        reason = Reason.STALE if len(newest) == 2 else Reason.MISSING
        if self._refused is not None and now - self._refused[1] <= self._timeout:
            reason = self._refused[0]
        return self._hold(reason, now, self._operation)

    def is_idle(self, now: float) -> bool:
        """
        Tell whether the last state of the operation is too old for any command to the arm.

        Vital signs alone do not count. With a fresh state and no vital signs the arm is still
        commanded: it holds, or retracts from too much force.
        """
        return now - self._last_operation > IDLE

    def is_due(self, operation: Observation) -> bool:
        """Tell whether a decision is due in this state."""
        # A state may come a little early: half a period is enough to tell the fifth from the
        # fourth. A robot that sees nothing any more does not wait for the fifth.
        due = not operation.time - self._last_decision < TICK - PERIOD / 2
        return due or (not self._saw_nothing and self._view(operation) is View.NOTHING)

    def _view(self, operation: Observation) -> View:
        """Return what is seen in a state; all is seen where nothing has to be."""
        return View.CLEAR if self.visibility is None else self.visibility.at(operation.time)

    # One cycle: sensors, decision, command.

    def _run_cycle(self, operation: Observation, now: float) -> Cycle:
        """Run the control cycle of a state whose stamp is in order."""
        self._waiting = None
        same = self._vitals_stamped_like(operation)
        self._paired = same is not None  # or else those vital signs have stamps of their own
        vitals = same or self._newest_patient
        fault = self._sensors.check(operation, vitals, self._tip_before(operation.time))
        if fault is not None:
            return self._refuse(fault, now, operation)
        self._operation, self._refused = operation, None
        if not self.commanding and self._arm_ready and not self.selector.surgeon:
            self._start_setpoint(operation, now)
        if not self.is_due(operation):
            return self._command(now, None)
        view = self._view(operation)
        hold = Reason.NO_VISIBILITY if view is View.NOTHING else None
        if not self._arm_ready:
            hold = Reason.PAUSED
        selection = self.selector.select(
            operation,
            vitals,
            now,
            hold=hold,
            away=self._direction_out(),
            finely=view is View.NO_JAW,
        )
        if selection.risk is not None:
            # Without a usable state there was no tick: the next one counts, whenever it comes.
            self._last_decision = operation.time
            self._last_hold = -math.inf
            self._saw_nothing = view is View.NOTHING
        return self._command(now, selection)

    def _command(self, now: float, selection: Selection | None) -> Cycle:
        """Limit a selection to the set-point of this cycle."""
        begin = max(now, self._setpoint_time)
        if selection is not None:
            self.limiter.accept(
                selection, begin, self._direction_out() if selection.holds else None
            )
            self._turn_jaw(selection, begin)
        if len(self.selector.candidates) < 2:
            self._release_arm()  # others may move the arm until there is a policy
        if not self.commanding:
            return Cycle(selection, None)
        self._setpoint_time = max(now + PERIOD, self._setpoint_time)
        return Cycle(selection, self.limiter.setpoint(self._setpoint_time))

    def _refuse(self, reason: Reason, now: float, operation: Observation) -> Cycle:
        """Hold because of a state that must not be acted on."""
        self._refused = reason, now
        return self._hold(reason, now, operation, operation.stamp)

    def _hold(
        self, reason: Reason, now: float, operation: Observation | None, stamp: int | None = None
    ) -> Cycle:
        """Hold, and publish the reason once a tick."""
        if now - self._last_hold < TICK - PERIOD / 2:
            return self._command(now, None)
        self._last_hold = now
        held = self.selector.keep_tip(reason, now, operation, stamp, self._direction_out())
        return self._command(now, held)

    def _begin_case(self, operation: Observation, same_time: bool) -> None:
        """
        Begin another case, or the same one in another time.

        :param same_time: whether its states are stamped in the same time as those before.
        """
        self.selector.reset(same_time)
        self.selector.case.include(operation)
        self._release_arm()
        self._last_decision = -math.inf
        self._waiting, self._paired = None, True
        if same_time:
            self._stamps.restart()
        self._sensors.restart()

    def _follow_clock_back(self, now: float) -> None:
        """Forget what was received later than now: the clock was set back."""
        if now < self._newest:
            self._operation = self._waiting = None
            self._patients.clear()
            self._tips.clear()
            self._arm = NewestMessage()
            if self.visibility is not None:
                self.visibility.restart()
            self._refused = self._last_watch = None
            self._last_hold = self._setpoint_time = -math.inf
            self._stalled = self._resumed = self._last_operation = -math.inf
            self._release_arm()
        self._newest = now

    # Vital signs, tip and jaw that belong to a state.

    def _back_dated(self, observation: Observation, now: float) -> Observation:
        """Back-date a message after a pause of the caller: its time in the queue is unknown."""
        came = observation.received
        if self._last_watch is not None and now - self._last_watch > self._timeout:
            came = self._last_watch
        elif now - self._resumed < 2 * PERIOD:
            came = self._stalled
        return observation if came >= observation.received else replace(observation, received=came)

    @property
    def _newest_patient(self) -> Observation | None:
        return self._patients[-1] if self._patients else None

    def _vitals_stamped_like(self, operation: Observation) -> Observation | None:
        """Return the vital signs with the stamp of a state, if they have come."""
        same = (each for each in reversed(self._patients) if each.time == operation.time)
        return next(same, None)

    def _tip_before(self, time: float) -> Tip | None:
        """Return the last set-point that the arm reported before a time."""
        return next((tip for tip in reversed(self._tips) if tip[1] < time), None)

    def _direction_out(self) -> Vector | None:
        """Return the direction out of the patient: along the shaft to the trocar, the origin."""
        if not self._tips:
            return None
        x, y, z = self._tips[-1][0]
        length = math.hypot(x, y, z)
        return (-x / length, -y / length, -z / length) if length else None

    def _release_arm(self) -> None:
        """Command no more set-points until there is a state to start from."""
        self.commanding = False
        """Whether set-points are commanded."""
        self._sensors.restart_travel()
        self._wanted_since: float | None = None

    def _start_setpoint(self, operation: Observation, now: float) -> None:
        """
        Start from where the tip is now.

        The tip must be no older than the first state to start in; in which cycle the arm reports
        it, between two states, does not matter.
        """
        if self._wanted_since is None:
            self._wanted_since = operation.time
        if not self._tips:
            return
        tip, time = self._tips[-1]
        if time >= self._wanted_since - PERIOD / 2 and abs(time - operation.time) <= TICK:
            self.limiter.reset(tip, max(now, self._setpoint_time), self._jaw)
            self.commanding = True

    def _turn_jaw(self, selection: Selection, now: float) -> None:
        """Open or close the jaw if that was selected, in procedures that use it."""
        if selection.holds or self._operation is None:
            return
        order, task = ACTIONS[selection.action].jaw, TASKS.get(self._operation.procedure)
        if order is not None and task is not None and task.uses_jaw:
            self.limiter.turn_jaw(JAW_OPEN if order else 0.0, now)


SHORTEST_TIMEOUT = 1.5 * PERIOD
"""Age of a state below which the least delay of the next one would hold the robot, s."""

SLOWEST = FINE_STEP / TICK
"""Speed below which no action can be carried out in its tick, m/s."""


def check_limits(
    selector: SelectorSettings, limiter: LimiterSettings, shield: ShieldSettings
) -> None:
    """
    Refuse settings that are fine each by itself, and cannot hold together.

    :raises SettingError: naming one of them, and what it contradicts.
    """
    dwell, patience, timeout = selector.dwell, selector.patience, selector.state_timeout
    latest = f'at most selector.patience, {patience:g} s: no switch can be due before'
    often = f'at least {SHORTEST_TIMEOUT:g} s: they come every {PERIOD:g} s, more or less'
    speed, fine = limiter.speed_limit, f'at least {SLOWEST:g} m/s: not even a fine move could be'
    limits = [
        (dwell <= patience, 'selector.dwell', dwell, latest),
        (timeout >= SHORTEST_TIMEOUT, 'selector.state_timeout', timeout, often),
        (speed >= SLOWEST, 'limiter.speed_limit', speed, f'{fine} carried out'),
    ]
    if shield.active:
        back = f'at least {MAXIMUM_SPEED:g} m/s, at which the shield counts on drawing back'
        limits.append((speed >= MAXIMUM_SPEED, 'limiter.speed_limit', speed, back))
        for name in USUAL:
            usual, most = getattr(shield, f'usual_{name}'), getattr(shield, name)
            beyond = f'at most shield.{name}, {most:g}: nothing goes beyond that'
            limits.append((usual <= most, f'shield.usual_{name}', usual, beyond))
    for holds, name, value, expected in limits:
        if not holds:
            raise SettingError(name, value, expected)
