# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""Risk and adaptation of the operation under way, from the states alone (FDRL Eq. 4, 9-11)."""

from fdrl_ros.metrics.adaptation import Adaptation, AdaptationMeter
from fdrl_ros.metrics.means import WINDOW
from fdrl_ros.metrics.risk import Risk, RiskMeter, RiskWeights
from fdrl_ros.shield.damage import CaseDamage, elapsed
from fdrl_ros.shield.observation import Observation, readable, State
from fdrl_ros.shield.workspace import has_left
from fdrl_ros.surgery.constants import constant
from fdrl_ros.surgery.gym.state import INDEX


class OperationMonitor:
    """
    Keeps the meters of one robot.

    Damage and the time of low pressure are not in the state: they are integrated here, so that a
    real patient monitor and a real arm need not know them.
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
        self._judged: float | None = None
        self._answered: tuple[State, int] | None = None
        self._told: Adaptation | None = None
        self.damage = CaseDamage()
        self.begins = False
        """Whether it is sure since the state judged last that another case is under way."""

    def end_case(self, same_time: bool) -> None:
        """
        Close the case in both meters.

        Its damage and how long the pressure has been low stay until states are sure of another.

        :param same_time: whether the next state is stamped in the same time.
        """
        self.settle()
        self._risk.end_case()
        self._adaptation.end_case()
        self._judged = None
        if not same_time:
            self.damage.restart()

    def feel(self, operation: Observation | None) -> None:
        """Take in the force of a state that cannot be judged, if it is of the case under way."""
        if operation is None or not self.damage.knows(operation):
            return
        values = readable(operation)
        if values is not None:
            self.damage.add(operation, max(values.item(self._force), 0.0))

    def judge(self, state: State, operation: Observation) -> Risk:
        """
        Take in the risk of one state.

        :param operation: that it was read from.
        """
        self.settle()
        read = state.values.item
        force = max(read(self._force), 0.0)
        self.damage.add(operation, force)
        self.begins = self.damage.begins()
        if self.begins:
            self._low_pressure = 0.0
        low = read(self._pressure) < self._hypotension
        lasted = elapsed(self._judged, operation.time)
        self._judged = operation.time
        self._low_pressure = self._low_pressure + lasted if low else 0.0
        critical = (
            force > self._hard_stop
            or self._low_pressure >= self._hypotension_time
            or has_left(state.values, operation.procedure)
        )
        return self._risk.add(force, self.damage.case, critical, read(self._limit))

    def answer(self, state: State, action: int) -> None:
        """
        Take in how that state was answered.

        :param action: the action executed in it, after the shield.
        """
        self._answered = state, action

    def adaptation(self) -> Adaptation | None:
        """Return adaptation up to the newest answer; None where nothing was answered since."""
        if self._answered is not None:
            state, action = self._answered
            self._answered, self._told = None, self._adaptation.add(state.wide, action)
        return self._told

    def settle(self) -> None:
        """Count an answer of which nobody asked, before whatever comes next."""
        self.adaptation()
        self._told = None
