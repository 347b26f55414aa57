# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""
The meta-surgical selector: the right policy for this patient, now (FDRL Eq. 7).

pi*(s) = argmax_i of a lower confidence bound on E[J(pi_i) given s], with hysteresis, and holding
still whenever the state or the policies cannot be trusted.
"""

from collections.abc import Callable, Sequence
import logging
import math

from fdrl_ros.metrics.adaptation import Adaptation
from fdrl_ros.metrics.risk import DEFAULT_WEIGHTS, RiskWeights
from fdrl_ros.selector.candidates.candidate import Candidate, HOLD, LineUp, Selection
from fdrl_ros.selector.control.monitor import OperationMonitor
from fdrl_ros.selector.control.ranking import Ranking
from fdrl_ros.selector.control.risk_gate import GateSettings, RiskGate
from fdrl_ros.selector.settings import SelectorSettings
from fdrl_ros.shield.case import Case
from fdrl_ros.shield.observation import Observation, readable, Reason, State, StateReader
from fdrl_ros.shield.retreat import Vector
from fdrl_ros.shield.settings import ShieldSettings
from fdrl_ros.shield.shield import Shield, Verdict, Veto
from fdrl_ros.surgery.gym.actions import ACTION_COUNT, STAY
import numpy as np

logger = logging.getLogger(__name__)


class Selector:
    """
    The party that runs in the operating room: state in, action, risk and adaptation out.

    `now` and the times of arrival are seconds of one steady clock: they tell whether a state may
    be acted on. What is then decided depends on the stamps of states alone.
    """

    def __init__(
        self,
        settings: SelectorSettings | None = None,
        weights: RiskWeights = DEFAULT_WEIGHTS,
        gate: GateSettings | None = None,
        clock: Callable[[], float] | None = None,
        shield: ShieldSettings | None = None,
    ) -> None:
        """
        Begin without a candidate.

        :param gate: when to stop for risk.
        :param clock: the steady clock, by which a choice may be late; None where none is, as
            where a recording is gone through again.
        :param shield: which limits no action may lead beyond.
        """
        self.settings = settings or SelectorSettings()
        self.gate = RiskGate(gate)
        self._clock = clock
        self._shield = Shield(shield)
        self._slow = ''
        self._reader = StateReader(self.settings.state_bound)
        self._monitor = OperationMonitor(
            weights, self.settings.change_threshold, self.settings.window
        )
        self._ranking = Ranking(self.settings)
        self._line_up = LineUp(())
        self._failed_until: dict[str, float] = {}
        self._inputs: tuple[Observation | None, Observation | None] = (None, None)
        self._case = Case()
        self._now = -math.inf
        self._locked: str | None = None
        self.surgeon = False
        """Whether the surgeon drives: nothing is chosen then, but all is watched."""

    @property
    def candidates(self) -> tuple[Candidate, ...]:
        """Those to choose from, hold last."""
        return self._line_up.candidates

    def set_candidates(self, candidates: Sequence[Candidate]) -> None:
        """
        Replace the candidates, all or none; the next selection uses the new ones.

        :raises PolicyError: if they contradict each other; the old ones stay.
        """
        line_up = LineUp(candidates, self.settings.risk_weight)
        replaced = {each.name: each for each in self._line_up.candidates}
        for each in line_up.candidates:
            if replaced.get(each.name) is None or replaced[each.name].policy is not each.policy:
                self._failed_until.pop(each.name, None)
        self._line_up = line_up

    def lock(self, name: str | None) -> None:
        """
        Let one candidate alone act; without it, and when it fails, the robot holds.

        :param name: None lets all of them act again.
        """
        if name != self._locked:
            self._ranking.reset()
        self._locked = name

    def reset(self, same_time: bool = False) -> None:
        """
        End the case: meters, hysteresis and the standing state start anew.

        Damage, the time of low pressure and the gate go on until states are sure of another case:
        see :class:`CaseDamage`.

        :param same_time: whether the next state is stamped in the same time.
        """
        self._monitor.end_case(same_time)
        self._shield.reset()
        self._failed_until.clear()
        self._case = Case()
        self._ranking.reset()
        self._inputs = (None, None)

    def select(
        self,
        operation: Observation | None,
        patient: Observation | None,
        now: float,
        hold: Reason | None = None,
        away: Vector | None = None,
    ) -> Selection:
        """
        Choose a policy for this state and let it act.

        Whatever is wrong with state or policy, the answer is to hold, in this very call. Steps
        without a usable state count neither in risk nor in adaptation, but the force that was
        felt in them counts in the damage of the case.

        :param now: seconds of the steady clock.
        :param hold: why to hold whatever the policies say, if that is so.
        :param away: along the shaft away from the tissue, where a robot that holds is drawn back.
        """
        self._inputs = (operation, patient)
        fault = self._time_fault(now)
        if operation is None or patient is None or fault is not None:
            self._monitor.feel(operation)
            return self.keep_tip(fault or Reason.MISSING, now, operation, away=away)
        state = self._reader.read(operation, patient)
        if isinstance(state, Reason):
            self._monitor.feel(operation)
            return self.keep_tip(state, now, operation, operation.stamp, away)
        if not self._case.is_of(operation):
            inputs = self._inputs
            self.reset(same_time=True)
            self._inputs = inputs
        self._case.take(operation)
        time = operation.time
        risk = self._monitor.judge(state, operation)
        if self._monitor.begins:
            self.gate.reset()
        if self.gate.step(risk, time):
            hold = Reason.RISK_GATE
        if self.surgeon:
            hold = Reason.SURGEON
        if hold is None:
            selection = self._choose_in_time(state, operation.procedure, time)
        else:
            selection = self.hold(hold, now)
        try:
            verdict = self._shield.review(
                state.values,
                operation.procedure,
                selection.action,
                time,
                selection.holds,
                away,
                self._monitor.damage.total,
            )
        except Exception:  # without a review nothing moves, and the robot keeps its control loop
            logger.exception('the shield failed; the robot holds')
            self._shield.reset()
            selection = self.hold(Reason.SHIELD_FAILED, now)
            verdict = Verdict(STAY, STAY, Veto.NONE, math.nan, math.nan)
        self._monitor.answer(state, verdict.action)
        return Selection(
            selection.policy,
            verdict.action,
            selection.value,
            selection.uncertainty,
            selection.reason,
            now,
            operation.patient,
            risk,
            operation.stamp,
            selection.expected_risk,
            verdict.asked,
            verdict.veto,
            verdict.force,
        )

    def adaptation(self) -> Adaptation | None:
        """
        Return adaptation up to the selection made last; None if that had no usable state.

        Apart from :meth:`select`, so that it is worked out when the action is already out.
        """
        return self._monitor.adaptation()

    def hold(self, reason: Reason, now: float, stamp: int | None = None) -> Selection:
        """Return the selection that keeps the tip where it is, for a reason."""
        nothing, patient = math.nan, self._case.patient or ''
        return Selection(HOLD, STAY, nothing, nothing, reason, now, patient, stamp=stamp)

    def keep_tip(
        self,
        reason: Reason,
        now: float,
        operation: Observation | None = None,
        stamp: int | None = None,
        away: Vector | None = None,
    ) -> Selection:
        """
        Hold without a state to act on.

        A state of the operation that is fresh and whole is enough to draw the tip back, where to
        stay could lead beyond a limit. It leaves no trace in what the shield knows: how often it
        is asked, and when, changes no later decision.

        :param stamp: of the state because of which it holds, if that is so.
        :param away: along the shaft away from the tissue, where it is drawn back.
        """
        self._monitor.settle()
        held = self.hold(reason, now, stamp)
        if operation is None or not 0.0 <= now - operation.received <= self.settings.state_timeout:
            return held
        values = readable(operation)
        if values is None:
            return held
        try:
            known = self._monitor.damage.knows(operation)
            damage = self._monitor.damage.total if known else 0.0
            verdict = self._shield.aside().keep(
                values, operation.procedure, operation.time, away, damage
            )
        except Exception:  # who holds anyway goes on holding
            logger.exception('the shield failed; the robot holds')
            self._shield.reset()
            return held
        return held._replace(
            action=verdict.action, veto=verdict.veto, predicted_force=verdict.force
        )

    def _time_fault(self, now: float) -> Reason | None:
        """Check the times of both inputs against the clock, and the clock against itself."""
        backwards = not now >= self._now
        if not math.isnan(now):
            self._now = now
        operation, patient = self._inputs
        if operation is None or patient is None:
            return Reason.MISSING
        age, other_age = now - operation.received, now - patient.received
        if backwards or not (age >= 0.0 and other_age >= 0.0):
            return Reason.CLOCK
        apart, timeout = operation.time - patient.time, self.settings.state_timeout
        if age > timeout or other_age > timeout or apart > timeout:
            return Reason.STALE
        return Reason.CLOCK if apart < -timeout else None

    def _choose_in_time(self, state: State, procedure: str, now: float) -> Selection:
        """Choose; what comes too late is not done, and a policy late twice is left out."""
        if self._clock is None:
            return self._choose(state, procedure, now)
        began = self._clock()
        selection = self._choose(state, procedure, now)
        if self._clock() - began <= self.settings.answer_timeout:
            self._slow = ''
            return selection
        if selection.policy == self._slow and not selection.holds:
            logger.error('policy %s is late; it is left out for a while', self._slow)
            self._failed_until[self._slow] = now + self.settings.failure_pause
        self._slow = selection.policy
        return self.hold(Reason.LATE, now)

    def _choose(self, state: State, procedure: str, now: float) -> Selection:
        """Rank the candidates, then ask the chosen one."""
        line_up = self._line_up
        estimates = line_up.bank.estimate(procedure, state.wide)
        free = line_up.free
        if self._failed_until:
            free = [not self._failed_until.get(name, -math.inf) > now for name in line_up.names]
        if self._locked is None:
            names, valued = line_up.names, line_up.valued
            place, reason = self._ranking.choose(names, estimates, free, valued, now)
        else:
            place, reason = self._locked_place(self._locked, free)
        candidate = line_up.candidates[place]
        action = STAY
        if candidate.policy is not None:
            answer = self._ask(candidate.name, candidate.policy, state)
            if answer is None:
                self._failed_until[candidate.name] = now + self.settings.failure_pause
                return self.hold(Reason.POLICY_FAILED, now)
            action = answer
        mean, std, risk = self._ranking.worth(place, estimates)
        return Selection(candidate.name, action, mean, std, reason, now, expected_risk=risk)

    def _locked_place(self, name: str, free: list[bool]) -> tuple[int, Reason]:
        """Return the place of what is locked, or that of hold where it cannot act."""
        names, hold = self._line_up.names, len(free) - 1
        if name not in names:
            return hold, Reason.NO_POLICY
        place = names.index(name)
        return (place, Reason.LOCKED) if free[place] else (hold, Reason.POLICY_FAILED)

    @staticmethod
    def _ask(name: str, policy: Callable[[np.ndarray], int], state: State) -> int | None:
        """Return the policy's action, or None if it has none to give."""
        try:
            action = policy(state.scaled)
        except Exception:  # a policy is foreign code: whatever it raises, the robot holds
            logger.exception('policy %s failed; it is left out for a while', name)
            return None
        if isinstance(action, bool) or not isinstance(action, int | np.integer):
            logger.error('policy %s answered %r, which is no action', name, action)
            return None
        if not 0 <= action < ACTION_COUNT:
            logger.error('policy %s answered action %d, which there is not', name, action)
            return None
        return int(action)
