# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""Limits that contradict each other: a selector that was given some must not begin."""

from fdrl_ros.errors import SettingError
from fdrl_ros.selector.control.limiter import LimiterSettings
from fdrl_ros.selector.control.loop import PERIOD
from fdrl_ros.selector.settings import SelectorSettings
from fdrl_ros.shield.settings import ShieldSettings
from fdrl_ros.surgery.gym.actions import FINE_STEP, MAXIMUM_SPEED, TICK

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
    for wrong, name, value, expected in (
        (
            selector.dwell > selector.patience,
            'selector.dwell',
            selector.dwell,
            f'at most selector.patience, {selector.patience:g} s: no switch can be due before',
        ),
        (
            selector.state_timeout < SHORTEST_TIMEOUT,
            'selector.state_timeout',
            selector.state_timeout,
            f'at least {SHORTEST_TIMEOUT:g} s: they come every {PERIOD:g} s, more or less',
        ),
        (
            limiter.speed_limit < SLOWEST,
            'limiter.speed_limit',
            limiter.speed_limit,
            f'at least {SLOWEST:g} m/s: not even a fine move could be carried out',
        ),
        (
            shield.active and limiter.speed_limit < MAXIMUM_SPEED,
            'limiter.speed_limit',
            limiter.speed_limit,
            f'at least {MAXIMUM_SPEED:g} m/s, at which the shield counts on drawing back',
        ),
        *(
            (
                shield.active and getattr(shield, f'usual_{name}') > getattr(shield, name),
                f'shield.usual_{name}',
                getattr(shield, f'usual_{name}'),
                f'at most shield.{name}, {getattr(shield, name):g}: nothing goes beyond that',
            )
            for name in ('swing', 'stiffest', 'speed', 'acceleration')
        ),
    ):
        if wrong:
            raise SettingError(name, value, expected)
