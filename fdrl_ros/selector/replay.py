# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""What the selector decides on a recorded robot: on the same states, the same as it did live."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from fdrl_ros.env.bag_reading import recorded
from fdrl_ros.env.bag_types import ARM_STATE, ARM_STATE_KINDS, OPERATION, PATIENT, TOPICS
from fdrl_ros.selector.candidate import Candidate, Selection
from fdrl_ros.selector.control import ControlLoop, Cycle
from fdrl_ros.selector.gate import GateSettings
from fdrl_ros.selector.limiter import Limiter
from fdrl_ros.selector.observation import nanoseconds, observation
from fdrl_ros.selector.plausibility import PlausibilitySettings
from fdrl_ros.selector.selector import Selector
from fdrl_ros.selector.settings import SelectorSettings

_TIP = 'setpoint_cp'
_KINDS = {
    OPERATION: (TOPICS[OPERATION],),
    PATIENT: (TOPICS[PATIENT],),
    _TIP: (TOPICS[_TIP],),
    ARM_STATE: ARM_STATE_KINDS,
}


def replay(
    path: Path,
    candidates: Sequence[Candidate],
    *,
    robot: str | None = None,
    settings: SelectorSettings | None = None,
    gate: GateSettings | None = None,
    plausibility: PlausibilitySettings | None = None,
) -> list[Selection]:
    """
    Choose in every recorded state as the robot would.

    Nothing is ever late here, and silence is no reason to hold: those are of the steady clock.
    Selections with a `risk` are decisions, made in a usable state of that stamp; the others hold
    because of what is wrong with a state.

    :param path: of a bag with `operation_state` and `patient_state`; `setpoint_cp` and
        `operating_state` count where they were recorded.
    :param robot: namespace of its topics; needed where the bag is of several robots.
    :raises RecordsError: if it is no such bag.
    :raises PolicyError: if the candidates contradict each other.
    """
    selector = Selector(settings, gate=gate)
    selector.set_candidates(candidates)
    player = _Player(ControlLoop(selector, Limiter(), plausibility))
    for recorded_at, topic, message in recorded(path, robot, _KINDS, (OPERATION, PATIENT)):
        player.take(topic, message, 1e-9 * recorded_at)
    return player.finish()


class _Player:
    """Gives recorded messages to a control loop."""

    def __init__(self, loop: ControlLoop) -> None:
        self._loop = loop
        self._now = 0.0
        self._chosen: list[Selection] = []

    def take(self, topic: str, message: Any, now: float) -> None:
        """Take the next message."""
        self._now = now
        if topic == _TIP:
            at, tip = 1e-9 * nanoseconds(message.header.stamp), message.pose.position
            self._loop.take_tip((tip.x, tip.y, tip.z), at)
        elif topic == ARM_STATE:
            self._loop.take_arm(message.state, bool(message.is_homed))
        elif topic == PATIENT:
            self._keep(self._loop.take_patient(observation(message, now), now))
        else:
            self._keep(self._loop.proceed(now))
            self._keep(self._loop.take_operation(observation(message, now), now))

    def finish(self) -> list[Selection]:
        """Return all that was selected."""
        self._keep(self._loop.proceed(self._now))
        return self._chosen

    def _keep(self, cycle: Cycle | None) -> None:
        if cycle is not None and cycle.selection is not None:
            self._chosen.append(cycle.selection)
