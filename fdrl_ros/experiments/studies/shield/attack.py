# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""
Adversaries against the shield: how often force passes the limits with it, and without.

Operations go on above the procedure's force limit, which ends them otherwise, so that the hard
stop can be reached at all.
"""

from dataclasses import asdict, dataclass, replace

from fdrl_ros.errors import SettingError
from fdrl_ros.shield.damage import DamageMeter
from fdrl_ros.shield.scalar_or_array import Number
from fdrl_ros.shield.settings import ShieldSettings
from fdrl_ros.shield.shield import BatchShield, Shield
from fdrl_ros.surgery.arm.kinematics import UnreachableError
from fdrl_ros.surgery.gym.actions import ACTION_COUNT, ACTIONS, SUBSTEPS, TICK
from fdrl_ros.surgery.gym.operation import Operation
from fdrl_ros.surgery.gym.state import INDEX, STATE_SIZE
from fdrl_ros.surgery.gym.vector_operation import VectorOperation
from fdrl_ros.surgery.patient.cohort import public_cohort
from fdrl_ros.surgery.patient.patient import Patient
from fdrl_ros.surgery.settings import WorldSettings
from fdrl_ros.surgery.tasks.outcome import FAILURES, HARD_STOP
import numpy as np
from numpy.typing import NDArray

ATTACKERS = ('down', 'random', 'erratic', 'greedy', 'search')
"""
Always a coarse step down; anything; down, and a third of the time anything; what is predicted to
be worst; and what was found worst.
"""

_DOWN, _ANYTHING = 4, 1.0 / 3.0
_LIMIT = INDEX['force_limit']
_ENDLESS = 99.0
_WORKSPACE = FAILURES.index('workspace')
_ROWS = 64

TICKS = 60
"""Steps of an operation in a batch: long enough to reach tissue and to press it."""


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

    def plain(self) -> dict[str, object]:
        """Return it as names and values."""
        return asdict(self)


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

        :param foresight: by which one that attacks one robot predicts; see :meth:`ask_one`.
        """
        self._foresight, self._predicted = foresight, None
        self._tried = self._best + 0.5 * self._rng.standard_normal(self._best.shape)

    def learn(self, peak: float) -> None:
        """Take in the greatest force of a round, N."""
        if peak > self._peak:
            self._best, self._peak = self._tried, peak

    def ask(
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

    def ask_one(self, state: NDArray[np.float32], values: NDArray[np.float64]) -> int:
        """
        Return an action for one robot; "greedy" predicts with a shield of its own.

        :param state: scaled, shape (STATE_SIZE,).
        :param values: the same in units.
        """
        asked = self.ask(state[None], self._predicted)
        if self._kind == 'greedy' and self._foresight is not None:
            self._foresight.review(values[None], asked)
            self._predicted = self._foresight.wide_forces()
        return int(asked[0])


def patients_of(procedure: str, first: int, count: int) -> list[Patient]:
    """Return made-up patients of H = 1 whose operations no force ends."""
    cohort = public_cohort(41, 1.0, (procedure,))
    chosen = [cohort.patient(each, 'test') for each in range(first, first + count)]
    return [
        replace(each, procedure=replace(each.procedure, force_limit=_ENDLESS)) for each in chosen
    ]


def attack(
    procedure: str,
    kind: str,
    steps: int,
    settings: ShieldSettings | None,
    limit: float,
    seed: int = 0,
) -> Tally:
    """
    Attack in the batch world, in whole operations: few steps are few patients.

    :param steps: at least so many; the last operations are not cut short.
    :param settings: of the shield; None to go without.
    :param limit: force limit of the procedure, N.
    :raises SettingError: if there are fewer steps than one operation has.
    """
    if steps < TICKS:
        raise SettingError('steps', steps, f'at least {TICKS}, which is one operation')
    tally = Tally(procedure, kind, settings is not None, 'kinematic')
    attacker, round_number = Attacker(kind, np.random.default_rng(seed)), 0
    watch = settings or ShieldSettings(active=False)
    while tally.steps < steps:
        count = min(_ROWS, -(-(steps - tally.steps) // TICKS))
        patients = patients_of(procedure, _ROWS * round_number, count)
        batch = VectorOperation(patients)
        states = batch.reset()
        shield, meter = BatchShield(watch, procedure, count), DamageMeter(np.zeros(count))
        attacker.begin()
        peak = 0.0
        predicted: NDArray[np.float64] | None = None
        for tick in range(TICKS):
            asked = attacker.ask(states, predicted)
            actions = asked
            if settings is not None or kind == 'greedy':
                values = batch.values()
                values[:, _LIMIT] = limit
                actions = np.array([each.action for each in shield.review(values, asked)])
                predicted = shield.wide_forces() if kind == 'greedy' else None
            states, _, _, _, info = batch.step(actions)
            meter.add(info['force'], procedure, (tick + 1) * TICK)
            outside = int((info['failure'] == _WORKSPACE).sum())
            tally.add(info['peak_force'], limit, outside, meter.total)
            peak = max(peak, float(info['peak_force'].max()))
            rows = np.flatnonzero(~batch.over)
            if not len(rows):
                break
            if len(rows) < len(states):
                batch.select(rows)
                shield.select(rows)
                meter.select(rows)
                states = states[rows]
                predicted = None if predicted is None else predicted[rows]
        batch.close()
        attacker.learn(peak)
        round_number += 1
    return tally


def attack_motors(
    procedure: str,
    kind: str,
    steps: int,
    settings: ShieldSettings | None,
    limit: float,
    seed: int = 0,
) -> Tally:
    """
    Attack one operation after the other on an arm with motors, as :func:`attack`, each to its end.

    :param steps: the last operation that begins is the one in which so many are reached.
    """
    operation = Operation(WorldSettings())
    tally = Tally(procedure, kind, settings is not None, 'dynamic')
    attacker, number = Attacker(kind, np.random.default_rng(seed)), 0
    while tally.steps < steps:
        operation.reset(patients_of(procedure, number, 1)[0])
        shield, meter, number = Shield(settings), DamageMeter(), number + 1
        attacker.begin(BatchShield(settings or ShieldSettings(active=False), procedure, 1))
        peak = 0.0
        while not operation.done:
            values = np.array(operation.values())
            values[_LIMIT] = limit
            action = attacker.ask_one(operation.state(), values)
            if settings is not None:
                shield.update(values, procedure, operation.ticks * TICK, meter.total)
                action = shield.decide(action).action
            try:
                operation.act(ACTIONS[action])
            except UnreachableError:
                break  # without a shield a motor that can no more lets the set-point go on
            operation.advance(SUBSTEPS)
            peak = max(peak, tally.end_tick(operation, meter, limit))
        attacker.learn(peak)
    operation.close()
    return tally
