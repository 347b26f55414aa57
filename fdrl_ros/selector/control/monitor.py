# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""
Risk of the operation under way, from the states alone, and the gate that stops the robot for it.

The monitor measures risk and adaptation (FDRL Eq. 4, 9-11), and whether the robot follows the
organ. Too much risk (D_t, Eq. 10) closes the
gate, which holds the robot and pauses a CRTK arm.
"""

from collections import deque
from dataclasses import dataclass
import math

from fdrl_ros.errors import SettingError
from fdrl_ros.metrics.adaptation import Adaptation, AdaptationMeter
from fdrl_ros.metrics.following import Following, FollowingMeter
from fdrl_ros.metrics.means import WINDOW
from fdrl_ros.metrics.risk import Risk, RiskMeter
from fdrl_ros.selector.control.current_case import CaseDamage
from fdrl_ros.selector.control.observation import Observation, operation_values, UsableState
from fdrl_ros.settings import setting, Settings
from fdrl_ros.shield.damage import elapsed
from fdrl_ros.shield.workspace import has_left
from fdrl_ros.surgery.arm.operating_state import State
from fdrl_ros.surgery.constants import constant
from fdrl_ros.surgery.gym.actions import DISPLACEMENTS
from fdrl_ros.surgery.gym.state import INDEX
from fdrl_ros.surgery.tasks.outcome import HARD_STOP

_HYPOTENSION = constant('physiology.hypotension')
_HYPOTENSION_TIME = constant('physiology.hypotension_time')
_FORCE, _LIMIT, _PRESSURE, _SURFACE = (
    INDEX[name] for name in ('force', 'force_limit', 'mean_arterial_pressure', 'surface')
)
_RISES: list[float] = DISPLACEMENTS[:, 2].tolist()
"""What each action tells the set-point to rise, m."""


class OperationMonitor:
    """
    Risk and adaptation of one robot.

    Damage and the time of low pressure are not in the state: they are integrated here, so that a
    real patient monitor and a real arm need not report them.
    """

    def __init__(self, threshold: float, window: int = WINDOW) -> None:
        """
        Begin.

        :param threshold: change of state that counts, in scales.
        :param window: newest steps that the sliding window holds.
        """
        self._risk = RiskMeter(window=window)
        self._adaptation = AdaptationMeter(threshold, window)
        self._following = FollowingMeter()
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
        self._following.end_case()
        self._assessed = None
        if not same_time:
            self.damage.restart()

    def add_force(self, operation: Observation | None) -> None:
        """Take in the force of a state that cannot be judged, if it is of the case under way."""
        if operation is None or not self.damage.matches(operation):
            return
        values = operation_values(operation)
        if values is not None:
            self.damage.add(operation, max(values.item(_FORCE), 0.0))

    def assess(self, state: UsableState, operation: Observation) -> Risk:
        """
        Return the risk of one state.

        :param operation: that it was read from.
        """
        self.settle()
        read = state.values.item
        force = max(read(_FORCE), 0.0)
        self.damage.add(operation, force)
        self.case_confirmed = self.damage.case_confirmed()
        if self.case_confirmed:
            self._low_pressure = 0.0
        low = read(_PRESSURE) < _HYPOTENSION
        lasted = elapsed(self._assessed, operation.time)
        self._assessed = operation.time
        self._low_pressure = self._low_pressure + lasted if low else 0.0
        critical = (
            force > HARD_STOP
            or self._low_pressure >= _HYPOTENSION_TIME
            or has_left(state.values, operation.procedure)
        )
        return self._risk.add(force, self.damage.case, critical, read(_LIMIT))

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
            self._following.add(state.values.item(_SURFACE), _RISES[action])
        return self._latest

    @property
    def following(self) -> Following:
        """How the robot followed the organ, over all cases."""
        return self._following.overall

    def settle(self) -> None:
        """Count an action whose adaptation was not asked for, before the next state."""
        self.adaptation()
        self._latest = None


REPEAT = 0.5
"""Between two equal commands to an arm that does not follow, s."""


@dataclass(frozen=True)
class GateSettings(Settings):
    """When the robot stops for risk."""

    close_at: float = setting(0.7, 'mean D_t at which the gate closes', limits=(0.0, 1.0))
    open_below: float = setting(0.5, 'mean D_t below which it may open again', limits=(0.0, 1.0))
    open_after: float = setting(
        1.0, 'how long risk has to be that low', limits=(0.1, 60.0), unit='s'
    )
    span: int = setting(5, 'states over which D_t is averaged', limits=(1, 1000), unit='ticks')
    critical: bool = setting(True, 'a critical error closes it, whatever D_t')

    def __post_init__(self) -> None:
        """Check ranges, then that there is something between closing and opening."""
        super().__post_init__()
        if self.open_below > self.close_at:
            raise SettingError('open_below', self.open_below, f'at most close_at {self.close_at}')


class RiskGate:
    """
    Closes on risk at once; opens when risk has been low for a time, so that it cannot chatter.

    In T seconds it closes at most 1 + T / open_after times.
    """

    def __init__(self, settings: GateSettings | None = None) -> None:
        self.settings = settings or GateSettings()
        self.reset()

    def reset(self) -> None:
        """Begin a case, open."""
        self.closed = False
        self._newest: deque[float] = deque(maxlen=self.settings.span)
        self._low_since = math.inf

    def update(self, risk: Risk, now: float) -> bool:
        """
        Take in the risk of a state, and return whether the gate is closed in it.

        :param now: seconds of the clock that stamps states; one that went back begins the
            waiting anew.
        """
        self._newest.append(risk.total)
        mean = math.fsum(self._newest) / len(self._newest)
        error = self.settings.critical and risk.critical > 0.0
        if error or mean >= self.settings.close_at:
            self.closed = True
        if error or mean >= self.settings.open_below:
            self._low_since = math.inf
        else:
            if not self._low_since <= now:
                self._low_since = now
            if now - self._low_since >= self.settings.open_after:
                self.closed = False
        return self.closed


class PauseCommands:
    """
    Commands of the gate to a CRTK arm: pause when it closes, resume when it opens.

    It ends only a pause of its own: whoever else commanded the arm meanwhile keeps it.
    """

    def __init__(self) -> None:
        self._ours = False
        self._command = ''
        self._sent = -math.inf

    def yield_arm(self) -> None:
        """Take in that somebody else commanded the arm's state, or has taken over."""
        self._ours = False

    def next_command(self, closed: bool, arm: str, now: float) -> str | None:
        """
        Return the command to send now, if any.

        :param closed: whether the gate is closed, and the tip has come to rest.
        :param arm: operating state as the arm told it last; empty if it told none.
        :param now: seconds of the steady clock.
        """
        if closed:
            if arm not in ('', State.ENABLED) or not self._due('pause', now):
                return None
            self._ours = True
            return 'pause'
        if not self._ours:
            return None
        if arm in ('', State.PAUSED):
            self._ours = arm != ''  # one that tells nothing is told once
            return 'resume' if self._due('resume', now) else None
        # It goes on already, or somebody disabled it; but a pause may still be on its way to it.
        if arm != State.ENABLED or self._command == 'resume' or now - self._sent >= REPEAT:
            self._ours = False
        return None

    def _due(self, command: str, now: float) -> bool:
        if command == self._command and now - self._sent < REPEAT:
            return False
        self._command, self._sent = command, now
        return True
