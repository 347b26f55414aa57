# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""How long a policy takes to choose an action on this machine, beside the time that it has."""

from collections.abc import Collection
from time import perf_counter
from typing import NamedTuple, Self

from fdrl_ros.errors import PolicyError
from fdrl_ros.policy import Policy
from fdrl_ros.surgery.gym.actions import action_numbered
from fdrl_ros.surgery.gym.state import STATE_SIZE
import numpy as np

ACTIONS = 200
"""Actions that a policy is asked for, unless that takes longer than :data:`LONGEST`."""

LONGEST = 0.2
"""Time of a measurement, s; a policy that is slower is asked :data:`FEWEST` times."""

FEWEST = 5

SHARE = 0.5
"""Part of `selector.answer_timeout` for the policy; the rest is for state, values and shield."""


class DecisionTime(NamedTuple):
    """Median and 99th percentile of times, s."""

    median: float
    p99: float

    @classmethod
    def of(cls, times: Collection[float]) -> Self:
        """Return those of some times, s."""
        return cls(*map(float, np.percentile(list(times), (50, 99))))

    def words(self, limit: float) -> str:
        """
        Say how it compares with the time that there is.

        :param limit: that time, s.
        """
        return f'{1e3 * self.p99:.3g} ms of {1e3 * limit:.3g} ms'

    def check(self, answer_timeout: float) -> None:
        """
        Refuse a policy that is too slow.

        :param answer_timeout: time after which a choice is late, s.
        :raises PolicyError: if the median leaves too little of it for the rest of a decision.
        """
        limit = SHARE * answer_timeout
        if self.median > limit:
            raise PolicyError(
                f'an action takes {1e3 * self.median:.3g} ms here: expected at most '
                f'{1e3 * limit:.3g} ms, {SHARE:.0%} of selector.answer_timeout'
            )


def decision_time(policy: Policy) -> DecisionTime:
    """
    Ask a policy for actions and time it; whatever it loads at first is loaded then.

    :raises PolicyError: if it does not answer a state of the robot by the number of an action.
    """
    states = np.random.default_rng(0).normal(size=(ACTIONS, STATE_SIZE)).astype(np.float32)
    times: list[float] = []
    try:
        action_numbered(policy(states[0]))
        began = perf_counter()
        for state in states:
            if len(times) >= FEWEST and perf_counter() - began > LONGEST:
                break
            asked = perf_counter()
            action = policy(state)
            times.append(perf_counter() - asked)
            action_numbered(action)
    except PolicyError:
        raise
    except Exception as error:  # a policy is foreign code, whatever it raises
        raise PolicyError(f'it gives no action: {error}') from error
    return DecisionTime.of(times)
