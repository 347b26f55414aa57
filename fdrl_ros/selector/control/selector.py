# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""
The meta-surgical selector: choose the policy that acts in this patient's state (FDRL Eq. 7).

pi*(s) = argmax_i of a lower confidence bound on E[J(pi_i) given s], with hysteresis; it holds
whenever the state or the policies cannot be trusted.
"""

from collections.abc import Callable, Sequence
import logging
import math
from statistics import NormalDist

from fdrl_ros.metrics.adaptation import Adaptation
from fdrl_ros.metrics.following import Following
from fdrl_ros.policy.policy import Action
from fdrl_ros.selector.candidates.candidate import (
    Candidate,
    CandidateSet,
    GLOBAL,
    HOLD,
    HOME,
    Selection,
)
from fdrl_ros.selector.control.current_case import CurrentCase
from fdrl_ros.selector.control.monitor import GateSettings, OperationMonitor, RiskGate
from fdrl_ros.selector.control.observation import (
    Observation,
    operation_values,
    Reason,
    StateReader,
    UsableState,
)
from fdrl_ros.selector.settings import SelectorSettings
from fdrl_ros.selector.value.bank import Estimates
from fdrl_ros.shield.retreat import Vector
from fdrl_ros.shield.settings import ShieldSettings
from fdrl_ros.shield.shield import Shield, ShieldDecision, Veto
from fdrl_ros.surgery.gym.actions import action_numbered, finest, STAY
import numpy as np

logger = logging.getLogger(__name__)


class Selector:
    """
    The party in the operating room: state in, action, risk and adaptation out.

    `now` and the times of arrival are seconds of one steady clock: they tell whether a state may
    be acted on. The decision itself depends on the stamps of states alone.
    """

    def __init__(
        self,
        settings: SelectorSettings | None = None,
        gate: GateSettings | None = None,
        clock: Callable[[], float] | None = None,
        shield: ShieldSettings | None = None,
    ) -> None:
        """
        Begin without a candidate.

        :param gate: when to stop for risk.
        :param clock: the steady clock, by which a choice may be late; None where there is none,
            as in the replay of a recording.
        :param shield: which limits no action may lead beyond.
        """
        self.settings = settings or SelectorSettings()
        self.gate = RiskGate(gate)
        self.case = CurrentCase()
        """The case under way; the control loop decides which state begins another one."""
        self._clock = clock
        self._shield = Shield(shield)
        self._late_policy = ''
        self._reader = StateReader(self.settings.state_bound)
        self._monitor = OperationMonitor(self.settings.change_threshold, self.settings.window)
        self._ranking = Ranking(self.settings)
        self._candidates = CandidateSet(())
        self._failed_until: dict[str, float] = {}
        self._now = -math.inf
        self._locked: str | None = None
        self.surgeon = False
        """Whether the surgeon drives: nothing is chosen then, but risk is still monitored."""

    @property
    def candidates(self) -> tuple[Candidate, ...]:
        """Candidates to choose from, hold last."""
        return self._candidates.candidates

    def set_candidates(self, candidates: Sequence[Candidate]) -> None:
        """
        Replace the candidates, all or none; the next selection uses the new ones.

        :raises PolicyError: if they contradict each other; the old ones stay.
        """
        wanted = CandidateSet(candidates, self.settings.risk_weight)
        replaced = {each.name: each for each in self.candidates}
        for each in wanted.candidates:
            if replaced.get(each.name) is None or replaced[each.name].policy is not each.policy:
                self._failed_until.pop(each.name, None)
        self._candidates = wanted

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
        End the case: meters, hysteresis and the acting candidate start anew.

        Damage, the time of low pressure and the gate go on until two states confirm another case:
        see :class:`CaseDamage`.

        :param same_time: whether the next state is stamped in the same time.
        """
        self.case = CurrentCase()
        self._monitor.end_case(same_time)
        self._shield.reset()
        self._failed_until.clear()
        self._ranking.reset()

    def select(
        self,
        operation: Observation | None,
        patient: Observation | None,
        now: float,
        hold: Reason | None = None,
        away: Vector | None = None,
        *,
        finely: bool = False,
    ) -> Selection:
        """
        Choose a policy for this state of the case under way, and ask it for an action.

        Whatever is wrong with the state or the policy, this very call returns a hold. A state
        that is not usable counts neither in risk nor in adaptation, but its force counts in the
        damage of the case.

        :param now: seconds of the steady clock.
        :param hold: why to hold whatever the policies answer, if that is so.
        :param away: along the shaft away from the tissue, where a robot that holds is drawn back.
        :param finely: whether a coarse move of the policy becomes the fine one of its direction.
        """
        state = self._usable_state(operation, patient, now)
        if isinstance(state, Reason):
            self._monitor.add_force(operation)
            # Give the stamp only if the state itself is bad, not if it is merely late.
            stamp = operation.stamp if operation and state not in _BY_TIME else None
            return self.keep_tip(state, now, operation, stamp, away)
        assert operation is not None
        risk = self._monitor.assess(state, operation)
        if self._monitor.case_confirmed:
            self.gate.reset()
        if self.gate.update(risk, operation.time):
            hold = Reason.RISK_GATE
        if self.surgeon:
            hold = Reason.SURGEON
        if hold is None:
            proposal = self._propose_in_time(state, operation.procedure, operation.time)
        else:
            proposal = self.hold(hold, now)
        if finely:
            proposal = proposal._replace(action=finest(proposal.action))
        damage = self._monitor.damage.total
        decision = self._shield_decision(state.values, operation, damage, proposal, away)
        if decision is None:
            proposal, decision = self.hold(Reason.SHIELD_FAILED, self._now), _STILL
        self._monitor.record_action(state, decision.action)
        return Selection(  # faster than to replace fields of the proposal
            policy=proposal.policy,
            action=decision.action,
            value=proposal.value,
            uncertainty=proposal.uncertainty,
            reason=proposal.reason,
            time=now,
            patient=operation.patient,
            risk=risk,
            stamp=operation.stamp,
            expected_risk=proposal.expected_risk,
            proposed=decision.asked,
            veto=decision.veto,
            predicted_force=decision.usual_force,
        )

    def adaptation(self) -> Adaptation | None:
        """
        Return adaptation up to the newest selection; None if that had no usable state.

        Apart from :meth:`select`, so that it is computed after the action is published.
        """
        return self._monitor.adaptation()

    @property
    def following(self) -> Following:
        """How the robot followed the organ, over all cases."""
        return self._monitor.following

    def hold(self, reason: Reason, now: float, stamp: int | None = None) -> Selection:
        """Return the selection that keeps the tip where it is, for a reason."""
        patient = self.case.patient or ''
        return Selection(HOLD, STAY, math.nan, math.nan, reason, now, patient, stamp=stamp)

    def keep_tip(
        self,
        reason: Reason,
        now: float,
        operation: Observation | None = None,
        stamp: int | None = None,
        away: Vector | None = None,
    ) -> Selection:
        """
        Hold without a usable state.

        A state of the operation that is fresh and whole is enough to draw the tip back where
        staying could lead beyond a limit. The call leaves no trace in the shield: how often and
        when it is made changes no later decision.

        :param stamp: of the state because of which it holds, if that is so.
        :param away: along the shaft away from the tissue, where it is drawn back.
        """
        self._monitor.settle()
        held = self.hold(reason, now, stamp)
        if operation is None or not 0.0 <= now - operation.received <= self.settings.state_timeout:
            return held
        values = operation_values(operation)
        if values is None:
            return held
        damage = self._monitor.damage
        so_far = damage.total if damage.matches(operation) else 0.0
        decision = self._shield_decision(values, operation, so_far, held, away, branch=True)
        if decision is None:
            return held
        veto, force = decision.veto, decision.usual_force
        return held._replace(action=decision.action, veto=veto, predicted_force=force)

    def _usable_state(
        self, operation: Observation | None, patient: Observation | None, now: float
    ) -> UsableState | Reason:
        """Return the state of both halves, or why there is none to act on."""
        backwards = not now >= self._now
        if not math.isnan(now):
            self._now = now
        if operation is None or patient is None:
            return Reason.MISSING
        age, other_age = now - operation.received, now - patient.received
        if backwards or not (age >= 0.0 and other_age >= 0.0):
            return Reason.CLOCK
        apart, timeout = operation.time - patient.time, self.settings.state_timeout
        if age > timeout or other_age > timeout or apart > timeout:
            return Reason.STALE
        if apart < -timeout:
            return Reason.CLOCK
        return self._reader.read(operation, patient)

    def _propose_in_time(self, state: UsableState, procedure: str, now: float) -> Selection:
        """Propose; discard an answer that comes too late, and leave out a policy late twice."""
        if self._clock is None:
            return self._propose(state, procedure, now)
        began = self._clock()
        proposal = self._propose(state, procedure, now)
        if self._clock() - began <= self.settings.answer_timeout:
            self._late_policy = ''
            return proposal
        if proposal.policy == self._late_policy and not proposal.holds:
            logger.error('policy %s is late; it is left out for a while', self._late_policy)
            self._failed_until[self._late_policy] = now + self.settings.failure_pause
        self._late_policy = proposal.policy
        return self.hold(Reason.LATE, now)

    def _propose(self, state: UsableState, procedure: str, now: float) -> Selection:
        """Rank the candidates, then ask the chosen one for its action."""
        chosen = self._candidates
        estimates = chosen.bank.estimate(procedure, state.wide)
        available = chosen.all_available
        if self._failed_until:
            paused = self._failed_until
            available = [not paused.get(name, -math.inf) > now for name in chosen.names]
        if self._locked is None:
            place, reason = self._ranking.choose(chosen, estimates, available, now)
        else:
            place, reason = self._locked_place(self._locked, available)
        candidate = chosen.candidates[place]
        action = STAY
        if candidate.policy is not None:
            answer = self._ask_policy(candidate.name, candidate.policy, state)
            if answer is None:
                self._failed_until[candidate.name] = now + self.settings.failure_pause
                return self.hold(Reason.POLICY_FAILED, now)
            action = answer
        mean, std, risk = self._ranking.estimate_of(place, estimates)
        return Selection(candidate.name, action, mean, std, reason, now, expected_risk=risk)

    def _locked_place(self, name: str, available: list[bool]) -> tuple[int, Reason]:
        """Return the place of the locked candidate, or of hold where that one cannot act."""
        names, hold = self._candidates.names, len(available) - 1
        if name not in names:
            return hold, Reason.NO_POLICY
        place = names.index(name)
        return (place, Reason.LOCKED) if available[place] else (hold, Reason.POLICY_FAILED)

    @staticmethod
    def _ask_policy(
        name: str, policy: Callable[[np.ndarray], Action], state: UsableState
    ) -> int | None:
        """Return the policy's action, or None if it answers with none."""
        try:
            action = policy(state.scaled)
            action_numbered(action)
        except Exception:  # a policy is foreign code: whatever it raises, the robot holds
            logger.exception('policy %s failed; it is left out for a while', name)
            return None
        return int(action)

    def _shield_decision(
        self,
        values: np.ndarray,
        operation: Observation,
        damage: float,
        proposal: Selection,
        away: Vector | None,
        *,
        branch: bool = False,
    ) -> ShieldDecision | None:
        """Return what the shield, or a branch of it, decides on a proposal; None if it fails."""
        try:
            shield = self._shield.branch() if branch else self._shield
            shield.update(values, operation.procedure, operation.time, damage)
            return shield.decide(proposal.action, proposal.holds, away)
        except Exception:  # without a decision nothing moves, and the control loop goes on
            logger.exception('the shield failed; the robot holds')
            self._shield.reset()
            return None


_STILL = ShieldDecision(STAY, STAY, Veto.NONE, math.nan, math.nan)


_BY_TIME = frozenset({Reason.MISSING, Reason.CLOCK, Reason.STALE})
"""Reasons that concern when a state came, not its content."""


class Ranking:
    """
    Order of the candidates in a state: argmax of a lower confidence bound, without chatter.

    Another policy takes over from the acting one when the lower bound of its *advantage* over
    that one exceeds the margin (FDRL Eq. 7 with caution). Holding takes over when the lower bound
    of the acting policy's return falls below the return of holding. The home policy of the
    robot's hospital begins, or the global one where there is none. Another one may act only while
    the lower bound of its advantage over that one exceeds `home_margin`; once it acts, half of
    that is enough.
    """

    def __init__(self, settings: SelectorSettings) -> None:
        self._settings = settings
        self._factor = NormalDist().inv_cdf(settings.confidence)
        self._sure = NormalDist().inv_cdf(settings.advantage_confidence)
        self._current: str | None = None
        self._since = -math.inf

    def reset(self, acting: str | None = None) -> None:
        """
        Begin anew.

        :param acting: name of the candidate that acts at first, until another is surely better;
            None is the home policy of the robot's hospital, without one the global policy, and
            without that the candidate with the highest lower bound.
        """
        self._current, self._since = acting, -math.inf

    def choose(
        self, chosen: CandidateSet, estimates: Estimates, available: Sequence[bool], now: float
    ) -> tuple[int, Reason]:
        """
        Choose a candidate.

        :param chosen: the C candidates, hold last.
        :param available: whether each may be chosen, shape (C,).
        :param now: seconds of the steady clock.
        :returns: its number, and why it was chosen.
        """
        place, reason = self._best(chosen, estimates, available, now)
        if chosen.names[place] != self._current:
            self._current, self._since = chosen.names[place], now
        return place, reason

    def estimate_of(self, place: int, estimates: Estimates) -> tuple[float, float, float]:
        """Return mean, standard deviation and risk to go of a candidate; NaN if unknown."""
        mean = estimates.means.item(place)
        if place == len(estimates.means) - 1 and math.isnan(mean):
            return self._settings.hold_return, 0.0, math.nan
        return mean, estimates.stds.item(place), estimates.risks.item(place)

    def _best(
        self, chosen: CandidateSet, estimates: Estimates, available: Sequence[bool], now: float
    ) -> tuple[int, Reason]:
        names = chosen.names
        hold = len(names) - 1
        if hold == 0:
            return hold, Reason.NO_POLICY
        if not any(available[:hold]):
            return hold, Reason.POLICY_FAILED
        if not chosen.valued:
            return available.index(True), Reason.UNVALUED
        bounds = self._bounds(estimates, available)
        if max(bounds[:hold]) == -math.inf:
            known = np.isfinite(estimates.means[:hold]).any()
            return hold, Reason.POLICY_FAILED if known else Reason.PROCEDURE
        usual = HOME if HOME in names else GLOBAL
        home = names.index(usual) if usual in names else -1
        if home >= 0 and bounds[home] == -math.inf:
            home = -1
        acting = usual if self._current is None else self._current
        current = names.index(acting) if acting in names else -1
        if current < 0 or bounds[current] == -math.inf:
            begins = home if home >= 0 else bounds.index(max(bounds[:hold]))
            cautious = bounds[hold] > bounds[begins]
            return (hold, Reason.CAUTION) if cautious else (begins, Reason.BEST)
        allowed = self._allowed(estimates, bounds[:hold], home, current)
        if current == hold:
            best = max(allowed, key=bounds.__getitem__)
            returns = self._may_switch(bounds[best] - bounds[hold], now)
            return (best, Reason.BEST) if returns else (hold, Reason.CAUTION)
        safer = bounds[hold] - bounds[current]
        if safer > self._settings.margin or self._may_switch(safer, now):
            return hold, Reason.CAUTION
        if current not in allowed:
            waits = now - self._since < self._settings.dwell
            return (current, Reason.KEPT) if waits else (home, Reason.BEST)
        gains: list[float] = estimates.advantages(current, self._sure).tolist()
        best = max(allowed, key=gains.__getitem__)
        if best != current and self._may_switch(gains[best], now):
            return best, Reason.BEST
        return current, Reason.KEPT if max(safer, gains[best]) > 0.0 else Reason.BEST

    def _allowed(
        self, estimates: Estimates, bounds: Sequence[float], home: int, current: int
    ) -> list[int]:
        """
        Return the policies that may act now, in their order.

        :param bounds: of the policies' returns; -inf for those that cannot act.
        :param home: number of the home policy, or the global one in its place; -1 without one.
        """
        able = [place for place, bound in enumerate(bounds) if bound > -math.inf]
        if home < 0:
            return able
        leads: list[float] = estimates.advantages(home, self._sure).tolist()
        enough = self._settings.home_margin
        return [
            place
            for place in able
            if place == home or leads[place] > (enough / 2.0 if place == current else enough)
        ]

    def _bounds(self, estimates: Estimates, available: Sequence[bool]) -> list[float]:
        """Return the lower bound of each candidate's return; -inf where it may not act."""
        lower = estimates.stds * -self._factor
        lower += estimates.means
        bounds: list[float] = lower.tolist()
        if not (all(available) and math.isfinite(sum(bounds))):
            bounds = [
                bound if each and math.isfinite(bound) else -math.inf
                for bound, each in zip(bounds, available, strict=True)
            ]
        if math.isnan(estimates.means[-1]):
            bounds[-1] = self._settings.hold_return
        else:
            bounds[-1] -= self._settings.hold_handicap
        return bounds

    def _may_switch(self, gain: float, now: float) -> bool:
        """Tell whether a gain and the time since the last switch are enough for the next one."""
        stayed, settings = now - self._since, self._settings
        enough = gain > settings.margin or (gain > 0.0 and stayed >= settings.patience)
        return enough and stayed >= settings.dwell
