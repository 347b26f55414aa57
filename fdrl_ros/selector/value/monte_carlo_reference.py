# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""
The Monte-Carlo expectation E[J given s].

It has two sources: states a policy reached, and other patients in the same state. The states are
those of operations with what happens in them; the others are many public patients whose first
state is the same. No model has a part in it.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from fdrl_ros.policy import Policy
from fdrl_ros.selector import returns_to_go
from fdrl_ros.surgery.gym.actions import ACTION_COUNT, STAY
from fdrl_ros.surgery.gym.episode import roll_out
from fdrl_ros.surgery.patient.patient import Patient
from fdrl_ros.surgery.settings import WorldSettings
from fdrl_ros.tasks.task import Chooser
import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]

SAME = 1e-4
"""Scaled states no further apart than this in any number are the same one."""

NEAREST = 100
"""Patients that an expectation is averaged over, where not enough are in the very same state."""

_LEAST_WEIGHT = 0.1
"""Least weight of a number of the state in the distance, in that of an average one."""

_RIDGE = 0.01


@dataclass(frozen=True)
class Reference:
    """
    A Monte-Carlo expectation.

    :param mean: of the return.
    :param error: standard error of it.
    :param count: patients that it is of.
    :param exact: whether all of them were in the very same state.
    """

    mean: float
    error: float
    count: int
    exact: bool


def reference(
    state: Array, states: Array, returns: Array, nearest: int = NEAREST
) -> Reference | None:
    """
    Estimate the expectation of what follows from one state.

    Where enough patients came through the very same state, it is their average. Else it is the
    average over the nearest ones after a linear trend was taken off, in a distance in which a
    number of the state counts as much as returns change with it.

    :param state: scaled, shape (S,).
    :param states: of independent patients at the same tick, shape (N, S).
    :param returns: of each from there on, shape (N,).
    :param nearest: patients to average over; fewer are surer of being alike, but noisier.
    :returns: None where fewer than twice as many patients are there, or none near.
    """
    if len(states) < 2 * nearest:
        return None
    apart = np.asarray(states, np.float64) - state
    same = np.abs(apart).max(axis=1) <= SAME
    if same.sum() >= nearest:
        own = returns[same]
        return Reference(float(own.mean()), _error(own), len(own), True)
    spread = apart.std(axis=0)
    moving = spread > SAME
    if not moving.any():  # all others are in one state, which is another
        return None
    scaled = apart[:, moving] / spread[moving]
    centred = scaled - scaled.mean(axis=0)
    matrix = centred.T @ centred + _RIDGE * len(centred) * np.eye(centred.shape[1])
    slope = np.linalg.solve(matrix, centred.T @ (returns - returns.mean()))
    weight = np.abs(slope)
    weight = np.maximum(weight, _LEAST_WEIGHT * max(float(weight.mean()), 1e-12))
    distance = np.square(scaled * weight).sum(axis=1)
    near = np.argpartition(distance, nearest - 1)[:nearest]
    own = returns[near] - scaled[near] @ slope
    return Reference(float(own.mean()), _error(own), nearest, False)


def _error(values: Array) -> float:
    return float(values.std(ddof=1) / len(values) ** 0.5)


LONGEST_LEAD = 40
"""Ticks that somebody else may have operated before the policy takes over."""

EXPLORATION = 0.2
"""Greatest share of random moves of that somebody."""


def chooser_of(policy: Policy | None) -> Chooser:
    """Return a policy, or None for staying, as one that acts for many patients."""
    if policy is None:
        return lambda states, rows, tick: np.full(len(states), STAY)
    return lambda states, rows, tick: policy.q_values(states).argmax(axis=1)


LED = -1
"""In place of a random move: who leads decides."""


def handing_over(
    policy: Policy | None, lead: Policy, handover: NDArray[np.int64], moves: NDArray[np.int64]
) -> Chooser:
    """
    Return who operates: until its tick of handing over the one who leads, then the policy.

    :param handover: tick of each of n patients, shape (n,).
    :param moves: random moves that replace those of who leads, or LED, shape (ticks, n).
    """
    own, first = chooser_of(policy), chooser_of(lead)

    def choose(
        states: NDArray[np.float32], rows: NDArray[np.int64], tick: int
    ) -> NDArray[np.int64]:
        actions = own(states, rows, tick)
        led = tick < handover[rows]
        if led.any():
            wanted = first(states[led], rows[led], tick)
            random = moves[tick, rows[led]]
            actions[led] = np.where(random == LED, wanted, random)
        return actions

    return choose


@dataclass(frozen=True, eq=False)
class Meeting:
    """
    A patient to be operated on, and everybody who looks the same at the start.

    :param patients: the one, then those who were redrawn.
    :param moves: random moves that replace those of who leads, the same on everybody, shape
        (LONGEST_LEAD,).
    :param handover: tick at which the policy takes over from who leads.
    :param places: where in the operation a state is looked at, in [0, 1), beside the first.
    """

    patients: Sequence[Patient]
    moves: NDArray[np.int64]
    handover: int
    places: NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Alike:
    """
    A state that was met, and what followed from those of the others at the same tick.

    :param state: scaled, shape (STATE_SIZE,).
    :param others: scaled, of those whose operation still went on, shape (n, STATE_SIZE).
    :param returns: of each of them from there on, shape (n,).
    """

    tick: int
    state: NDArray[np.float64]
    others: NDArray[np.float64]
    returns: NDArray[np.float64]


def draw_meeting(
    patients: Sequence[Patient], handed_over: bool, states: int, rng: np.random.Generator
) -> Meeting:
    """
    Draw when somebody else operates on patients who look the same at first.

    :param patients: as :class:`Meeting` has them.
    :param handed_over: whether somebody leads before the policy has its turn.
    :param states: to look at, beside the one that the policy begins in.
    """
    handover = int(rng.integers(LONGEST_LEAD)) if handed_over else 0
    often = rng.uniform(0.0, EXPLORATION)
    random = rng.random(LONGEST_LEAD) < often
    moves = np.where(random, rng.integers(ACTION_COUNT, size=LONGEST_LEAD), LED)
    return Meeting(patients, moves, handover, rng.random(states))


def alike_states(
    meetings: Sequence[Meeting],
    policy: Policy | None,
    lead: Policy,
    world: WorldSettings,
    discount: float,
    tick: Callable[[int], None] = lambda left: None,
) -> list[list[Alike]]:
    """
    Operate on everybody with kinematic arms, side by side, and return the states that were met.

    :param policy: None stays where it is.
    :param lead: operates before the policy does.
    :param discount: gamma of the returns.
    :param tick: told before each tick how many operations go on; what it raises ends all.
    :returns: of each meeting, in order of time; nothing where it was over before the policy had
        its turn.
    """
    counts = [len(each.patients) for each in meetings]
    moves = np.stack([each.moves for each in meetings], axis=1)
    rolled = roll_out(
        [patient for each in meetings for patient in each.patients],
        handing_over(
            policy,
            lead,
            np.repeat([each.handover for each in meetings], counts),
            np.repeat(moves, counts, axis=1),
        ),
        world,
        tick=tick,
    )
    begins = np.searchsorted(rolled.cases, np.arange(sum(counts) + 1))
    returns = np.concatenate(
        [
            returns_to_go(rolled.rewards[begin:end], discount)
            for begin, end in zip(begins[:-1], begins[1:], strict=True)
        ]
    )
    firsts = np.cumsum([0, *counts])
    found: list[list[Alike]] = []
    for meeting, first, last in zip(meetings, firsts[:-1], firsts[1:], strict=True):
        begin, behind, end = begins[first], begins[first + 1], begins[last]
        ticks = rolled.ticks[behind:end]
        length, handover = int(behind - begin), meeting.handover
        met: list[Alike] = []
        if length > handover:
            chosen = handover + 1 + meeting.places * (length - handover - 1)
            for now in sorted({handover, *(int(each) for each in chosen if each < length)}):
                here = behind + np.flatnonzero(ticks == now)
                state, others = rolled.states[begin + now], rolled.states[here]
                met.append(
                    Alike(now, state.astype(np.float64), others.astype(np.float64), returns[here])
                )
        found.append(met)
    return found
