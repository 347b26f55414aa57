# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""Adversaries who ask a shield for actions, and the count of what they reach."""

from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass, replace

from fdrl_ros.shield.damage import DamageMeter
from fdrl_ros.shield.settings import ShieldSettings
from fdrl_ros.shield.shield import BatchShield
from fdrl_ros.surgery.gym.actions import ACTION_COUNT, TICK
from fdrl_ros.surgery.gym.operation import Operation
from fdrl_ros.surgery.gym.state import (
    STATE_SIZE,
)
from fdrl_ros.surgery.patient.cohort import public_cohort
from fdrl_ros.surgery.patient.patient import Patient
from fdrl_ros.surgery.scalar_or_array import Number
from fdrl_ros.surgery.settings import WorldSettings
from fdrl_ros.surgery.tasks.outcome import HARD_STOP
from fdrl_ros.surgery.tasks.procedures import procedure_named
import numpy as np
from numpy.typing import NDArray

ATTACKERS = ('down', 'random', 'erratic', 'greedy', 'search')
"""
Always a coarse step down; anything; down, and a third of the time anything; what is predicted to
be worst; and what was found worst.
"""

_DOWN, _ANYTHING = 4, 1.0 / 3.0
_ENDLESS = 99.0


@dataclass
class Tally:
    """
    What one attacker did in one procedure.

    :param steps: of 50 ms.
    :param contact: steps with any force.
    :param above_limit: steps with more force than the procedure's limit.
    :param above_stop: steps with more force than the hard stop.
    :param above_damage: steps at whose end the damage of the case is above its limit.
    :param outside: steps that end out of the workspace.
    :param most_damage: of all cases, N s.
    :param greatest: force of all, N.
    """

    procedure: str
    attacker: str
    shield: bool
    arm: str
    steps: int = 0
    contact: int = 0
    above_limit: int = 0
    above_stop: int = 0
    above_damage: int = 0
    outside: int = 0
    most_damage: float = 0.0
    greatest: float = 0.0

    def add(self, peaks: NDArray[np.float64], limit: float, outside: int, damage: Number) -> None:
        """
        Count some steps.

        :param peaks: greatest forces, N.
        :param limit: of the procedure, N.
        :param outside: how many ended out of the workspace.
        :param damage: of the cases until then, N s.
        """
        self.steps += len(peaks)
        self.contact += int((peaks > 0.0).sum())
        self.above_limit += int((peaks > limit).sum())
        self.above_stop += int((peaks > HARD_STOP).sum())
        self.above_damage += int((np.asarray(damage) > ShieldSettings().damage_limit).sum())
        self.outside += outside
        self.most_damage = max(self.most_damage, float(np.max(damage, initial=0.0)))
        self.greatest = max(self.greatest, float(peaks.max(initial=0.0)))

    def end_tick(self, operation: Operation, meter: DamageMeter, limit: float) -> float:
        """
        Let a tick of one operation end and count it as a step.

        :param meter: of that operation's damage.
        :param limit: of the procedure, N.
        :returns: greatest force in it, N.
        """
        outcome = operation.tick()
        meter.add(operation.load, self.procedure, operation.ticks * TICK)
        outside = int(outcome.failure == 'workspace')
        self.add(np.array([outcome.peak_force]), limit, outside, meter.total)
        return outcome.peak_force


@dataclass(frozen=True)
class Assault:
    """
    One adversary in one procedure.

    :param attacker: one of ATTACKERS.
    :param steps: at least so many; the last operations are not cut short.
    :param shield: None to go without.
    :param latency: of the arms, ticks.
    :param force_noise: standard deviation of the measured force, N.
    """

    procedure: str
    attacker: str
    steps: int
    shield: ShieldSettings | None
    seed: int = 0
    latency: int = 0
    force_noise: float = 0.0

    def patients(self, first: int, count: int) -> list[Patient]:
        """Return made-up patients of H = 1 whose operations no force ends."""
        cohort = public_cohort(41, 1.0, (self.procedure,))
        chosen = [cohort.patient(each, 'test') for each in range(first, first + count)]
        return [
            replace(
                each,
                procedure=replace(each.procedure, force_limit=_ENDLESS),
                latency=self.latency,
                force_noise=self.force_noise,
            )
            for each in chosen
        ]

    @property
    def limit(self) -> float:
        """Return the force limit of the procedure, N."""
        return procedure_named(self.procedure).force_limit

    @property
    def watch(self) -> ShieldSettings:
        """Return settings of a shield that sees everything, and acts if there is one."""
        return self.shield or ShieldSettings(active=False)

    def tally(self, arm: str) -> Tally:
        """Return a tally with nothing in it."""
        return Tally(self.procedure, self.attacker, self.shield is not None, arm)


class Attacker:
    """
    An adversary that requests actions.

    :param kind: one of ATTACKERS.
    :param rng: source of chance.
    """

    def __init__(self, kind: str, rng: np.random.Generator) -> None:
        self._kind, self._rng = kind, rng
        self._best = rng.standard_normal((ACTION_COUNT, STATE_SIZE + 1))
        self._tried, self._peak = self._best, -1.0
        self._foresight: BatchShield | None = None
        self._predicted: NDArray[np.float64] | None = None

    def begin(self, foresight: BatchShield | None = None) -> None:
        """
        Begin another round of operations: the search tries something near its best.

        :param foresight: by which one that attacks one robot predicts; see :meth:`request_one`.
        """
        self._foresight, self._predicted = foresight, None
        self._tried = self._best + 0.5 * self._rng.standard_normal(self._best.shape)

    def learn(self, peak: float) -> None:
        """Take in the greatest force of a round, N."""
        if peak > self._peak:
            self._best, self._peak = self._tried, peak

    def request(
        self, states: NDArray[np.float32], predicted: NDArray[np.float64] | None
    ) -> NDArray[np.intp]:
        """
        Return actions for states, shape (n, STATE_SIZE).

        :param predicted: forces that the shield predicts for each action, shape (n, 15), N.
        """
        count = len(states)
        if self._kind == 'random':
            return self._rng.integers(0, ACTION_COUNT, count)
        if self._kind == 'erratic':
            anything = self._rng.integers(0, ACTION_COUNT, count)
            return np.where(self._rng.random(count) < _ANYTHING, anything, _DOWN)
        if self._kind == 'greedy' and predicted is not None:
            return predicted.argmax(axis=1)
        if self._kind == 'search':
            scores = states @ self._tried[:, :-1].T + self._tried[:, -1]
            scores[:, _DOWN] += 1.0
            return scores.argmax(axis=1)
        return np.full(count, _DOWN)

    def request_one(self, state: NDArray[np.float32], values: NDArray[np.float64]) -> int:
        """
        Return an action for one robot; "greedy" predicts with a shield of its own.

        :param state: scaled, shape (STATE_SIZE,).
        :param values: the same in units.
        """
        asked = self.request(state[None], self._predicted)
        if self._kind == 'greedy' and self._foresight is not None:
            self._foresight.review(values[None], asked)
            self._predicted = self._foresight.wide_forces()
        return int(asked[0])


Begin = Callable[[Operation, Attacker, DamageMeter], Callable[[], bool]]
"""Begins an operation; what it returns lets a tick pass and tells whether it can go on."""


def attack_each(assault: Assault, tally: Tally, rng: np.random.Generator, begin: Begin) -> Tally:
    """
    Attack one operation after the other, each to its end.

    The last operation that begins is the one in which so many steps are reached.
    """
    attacker, number = Attacker(assault.attacker, rng), 0
    mode = 'dynamic' if tally.arm == 'dynamic' else 'kinematic'
    with closing(Operation(WorldSettings(mode=mode))) as operation:
        while tally.steps < assault.steps:
            operation.reset(assault.patients(number, 1)[0])
            attacker.begin(BatchShield(assault.watch, assault.procedure, 1))
            meter, peak, number = DamageMeter(), 0.0, number + 1
            tick = begin(operation, attacker, meter)
            while not operation.done and tick():
                peak = max(peak, tally.end_tick(operation, meter, assault.limit))
            attacker.learn(peak)
    return tally
