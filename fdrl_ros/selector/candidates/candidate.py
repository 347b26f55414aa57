# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""The candidates of a selector, and its selections."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
import math
from typing import NamedTuple

from fdrl_ros.errors import PolicyError
from fdrl_ros.metrics.risk import Risk
from fdrl_ros.policy.policy import Action
from fdrl_ros.selector.control.observation import Reason
from fdrl_ros.selector.value.bank import ValueBank
from fdrl_ros.selector.value.model import ValueModel
from fdrl_ros.surgery.gym.actions import STAY
from fdrl_ros.surgery.gym.state import STATE_SIZE
import numpy as np

HOLD = 'hold'
"""Name of the candidate that keeps the tip where it is."""

GLOBAL = 'global'
"""Name of the federated policy among the candidates."""

HOME = 'home'
"""Name of the policy of the hospital that the robot is of."""


@dataclass(frozen=True)
class Candidate:
    """
    A policy to choose from.

    :param name: global, home on a robot of the hospital, the hospital's name, or hold.
    :param policy: from a scaled state (STATE_SIZE,), read-only, to an action number; None only
        for hold, which may be given to bring a value model.
    :param value: the estimate of its return; without one it runs only where nothing has one, and
        where that leaves the present procedure out, it does not run at all.
    :param digest: of the policy; the value model must be of the same one, if both are given.
    :param owner: whose policy it is: a hospital's name or federation; empty for hold.
    """

    name: str
    policy: Callable[[np.ndarray], Action] | None
    value: ValueModel | None = None
    digest: bytes = b''
    owner: str = ''


class Selection(NamedTuple):
    """
    What the robot shall do now, and why.

    :param value: estimated return of the chosen candidate in this state; NaN without an estimate.
    :param uncertainty: standard deviation of that estimate.
    :param time: when it was made, seconds of the steady clock.
    :param stamp: of the state that it was made in, nanoseconds; None where there was none.
    :param risk: None where there was no state to measure.
    :param expected_risk: D_t to go of the chosen candidate, discounted as the return; NaN without
        an estimate.
    :param action: that is carried out; where the tip is kept, up in order to draw it back.
    :param proposed: action that was asked for before the shield reviewed it.
    :param veto: why the shield replaced it, one of Veto; empty where it did not.
    :param predicted_force: greatest force that the action can lead to, N; NaN without a state.
    """

    policy: str
    action: int
    value: float
    uncertainty: float
    reason: Reason
    time: float
    patient: str = ''
    risk: Risk | None = None
    stamp: int | None = None
    expected_risk: float = math.nan
    proposed: int = STAY
    veto: str = ''
    predicted_force: float = math.nan

    @property
    def holds(self) -> bool:
        """Whether the tip shall be kept where it is."""
        return self.policy == HOLD


class CandidateSet:
    """Candidates with their value models stacked; never changes once made."""

    def __init__(self, candidates: Sequence[Candidate], risk_weight: float = 0.0) -> None:
        names = [each.name for each in candidates]
        if len(set(names)) < len(names) or not all(names):
            raise PolicyError(f'candidates {names}: expected different names')
        for each in candidates:
            if (each.policy is None) != (each.name == HOLD):
                raise PolicyError(f'candidate {each.name!r}: only {HOLD!r} goes without a policy')
            if each.value is not None:
                _check_value(each, each.value)
        ordered = [each for each in candidates if each.name != HOLD]
        hold = [each for each in candidates if each.name == HOLD] or [Candidate(HOLD, None)]
        self.candidates = (*ordered, *hold)
        self.names = tuple(each.name for each in self.candidates)
        models = [each.value for each in self.candidates]
        self.bank = ValueBank(models, risk_weight)
        self.valued = any(each is not None for each in models[:-1])
        self.all_available = [True] * len(models)


def _check_value(candidate: Candidate, value: ValueModel) -> None:
    size, _, _ = value.form
    if size != STATE_SIZE:
        raise PolicyError(
            f'value model of {candidate.name!r} takes {size} numbers: expected {STATE_SIZE}'
        )
    if candidate.digest and value.policy and value.policy != candidate.digest.hex():
        raise PolicyError(
            f'value model of {candidate.name!r} values policy {value.policy}: '
            f'expected {candidate.digest.hex()}'
        )
