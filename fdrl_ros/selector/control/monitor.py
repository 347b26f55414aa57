# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""Risk and adaptation of the operation under way, from the states alone (FDRL Eq. 4, 9-11)."""

from fdrl_ros.metrics.adaptation import Adaptation, AdaptationMeter
from fdrl_ros.metrics.means import WINDOW
from fdrl_ros.metrics.risk import Risk, RiskMeter, RiskWeights
from fdrl_ros.selector.control.case import CaseDamage
from fdrl_ros.selector.control.observation import Observation, readable, UsableState
from fdrl_ros.shield.damage import elapsed
from fdrl_ros.shield.workspace import has_left
from fdrl_ros.surgery.constants import constant
from fdrl_ros.surgery.gym.state import INDEX


class OperationMonitor:
    """
    Risk and adaptation of one robot.

    Damage and the time of low pressure are not in the state: they are integrated here, so that a
    real patient monitor and a real arm need not report them.
    """

    def __init__(self, weights: RiskWeights, threshold: float, window: int = WINDOW) -> None:
        """
        Begin.

        :param threshold: change of state that counts, in scales.
        :param window: newest steps that the sliding window holds.
        """
        self._risk = RiskMeter(weights, window)
        self._adaptation = AdaptationMeter(1.0, threshold, window)
        self._hard_stop = constant('tissue.hard_stop')
        self._hypotension = constant('physiology.hypotension')
        self._hypotension_time = constant('physiology.hypotension_time')
        self._force = INDEX['force']
        self._limit = INDEX['force_limit']
        self._pressure = INDEX['mean_arterial_pressure']
        self._low_pressure = 0.0
        self._assessed: float | None = None
        self._unreported: tuple[UsableState, int] | None = None
        self._latest: Adaptation | None = None
        self.damage = CaseDamage()
        self.case_confirmed = False
        """Whether the newest state assessed has confirmed another case."""

    def end_case(self, same_time: bool) -> None:
        """
        Close the case in both meters.

        Its damage and the time of low pressure stay until two states confirm another case.

        :param same_time: whether the next state is stamped in the same time.
        """
        self.settle()
        self._risk.end_case()
        self._adaptation.end_case()
        self._assessed = None
        if not same_time:
            self.damage.restart()

    def add_force(self, operation: Observation | None) -> None:
        """Take in the force of a state that cannot be judged, if it is of the case under way."""
        if operation is None or not self.damage.knows(operation):
            return
        values = readable(operation)
        if values is not None:
            self.damage.add(operation, max(values.item(self._force), 0.0))

    def assess(self, state: UsableState, operation: Observation) -> Risk:
        """
        Return the risk of one state.

        :param operation: that it was read from.
        """
        self.settle()
        read = state.values.item
        force = max(read(self._force), 0.0)
        self.damage.add(operation, force)
        self.case_confirmed = self.damage.case_confirmed()
        if self.case_confirmed:
            self._low_pressure = 0.0
        low = read(self._pressure) < self._hypotension
        lasted = elapsed(self._assessed, operation.time)
        self._assessed = operation.time
        self._low_pressure = self._low_pressure + lasted if low else 0.0
        critical = (
            force > self._hard_stop
            or self._low_pressure >= self._hypotension_time
            or has_left(state.values, operation.procedure)
        )
        return self._risk.add(force, self.damage.case, critical, read(self._limit))

    def record_action(self, state: UsableState, action: int) -> None:
        """
        Take in the action in that state.

        :param action: the action executed in it, after the shield.
        """
        self._unreported = state, action

    def adaptation(self) -> Adaptation | None:
        """Return adaptation up to the newest action; None where there was none since."""
        if self._unreported is not None:
            state, action = self._unreported
            self._unreported, self._latest = None, self._adaptation.add(state.wide, action)
        return self._latest

    def settle(self) -> None:
        """Count an action whose adaptation was not asked for, before the next state."""
        self.adaptation()
        self._latest = None
