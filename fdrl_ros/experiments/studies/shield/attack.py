# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""
Adversaries against the shield: how often force passes the limits with it, and without.

Operations go on above the procedure's force limit, which ends them otherwise, so that the hard
stop can be reached at all. Adversaries attack many patients at once, arms with motors, and a
robot's own control loop: its selector, shield and limiter at 100 Hz. What is said and done there
is as imperfect as the shield's bounds allow: forces and positions that are off, states that come
early or late, set-points that the arm gets almost a tick late. Beyond them, some states are lost,
also many in a row, some vital signs do not come, and some are no numbers.
"""

from collections import deque
from collections.abc import Callable
from contextlib import closing
from dataclasses import asdict, dataclass, replace

from fdrl_ros.errors import SettingError
from fdrl_ros.experiments.evaluation import observe
from fdrl_ros.experiments.json_file import Json
from fdrl_ros.experiments.study import Part, Study, Work
from fdrl_ros.selector.candidates.candidate import Candidate
from fdrl_ros.selector.control.limiter import Limiter
from fdrl_ros.selector.control.loop import ControlLoop, Cycle
from fdrl_ros.selector.control.monitor import GateSettings
from fdrl_ros.selector.control.selector import Selector
from fdrl_ros.shield.damage import DamageMeter
from fdrl_ros.shield.settings import ShieldSettings
from fdrl_ros.shield.shield import BatchShield, Shield
from fdrl_ros.surgery.arm.kinematics import UnreachableError
from fdrl_ros.surgery.gym.actions import ACTION_COUNT, ACTIONS, SUBSTEP, SUBSTEPS, TICK
from fdrl_ros.surgery.gym.operation import Operation
from fdrl_ros.surgery.gym.state import (
    INDEX,
    OPERATION_FIELDS,
    OPERATION_SIZE,
    PATIENT_FIELDS,
    PROCEDURE_NAMES,
    STATE_SIZE,
)
from fdrl_ros.surgery.gym.vector_operation import VectorOperation
from fdrl_ros.surgery.patient.cohort import public_cohort
from fdrl_ros.surgery.patient.patient import Patient, Point
from fdrl_ros.surgery.scalar_or_array import Number
from fdrl_ros.surgery.settings import WorldSettings
from fdrl_ros.surgery.tasks.outcome import FAILURES, HARD_STOP
from fdrl_ros.surgery.tasks.procedures import procedure_named
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

LOST, BROKEN = 0.02, 0.02
"""Shares of states that never come, one at a time, and that hold a number which is none."""

SILENT = 0.002
"""Chance that a burst of lost states begins with one, and likewise one of lost vital signs."""

BURST = (4, 20)
"""Fewest and most states in a burst: 40 to 200 ms."""

_BEATS = (2, 2, 2, 3, 3)
"""Sub-steps between the states of a tick, in any order: 8 or 12.5 ms."""

_LATE = 11
"""Sub-steps from a set-point to the arm at most; with states that are late, about a tick."""

_OPEN = GateSettings(close_at=1.0, open_below=1.0, critical=False)

_MOTORS, _LOOP = 20, 5
"""One step in so many is done with motors besides, and one through the robot's control loop."""


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
    """

    procedure: str
    attacker: str
    steps: int
    shield: ShieldSettings | None
    seed: int = 0

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


def attack(assault: Assault) -> Tally:
    """
    Attack in the batch world, in whole operations: few steps are few patients.

    :raises SettingError: if there are fewer steps than one operation has.
    """
    if assault.steps < TICKS:
        raise SettingError('steps', assault.steps, f'at least {TICKS}, which is one operation')
    procedure, tally, round_number = assault.procedure, assault.tally('kinematic'), 0
    attacker = Attacker(assault.attacker, np.random.default_rng(assault.seed))
    while tally.steps < assault.steps:
        count = min(_ROWS, -(-(assault.steps - tally.steps) // TICKS))
        patients = patients_of(procedure, _ROWS * round_number, count)
        batch = VectorOperation(patients)
        states = batch.reset()
        shield, meter = BatchShield(assault.watch, procedure, count), DamageMeter(np.zeros(count))
        attacker.begin()
        peak = 0.0
        predicted: NDArray[np.float64] | None = None
        for tick in range(TICKS):
            asked = attacker.ask(states, predicted)
            actions = asked
            if assault.shield is not None or assault.attacker == 'greedy':
                values = batch.values()
                values[:, _LIMIT] = assault.limit
                actions = np.array([each.action for each in shield.review(values, asked)])
                predicted = shield.wide_forces() if assault.attacker == 'greedy' else None
            states, _, _, _, info = batch.step(actions)
            meter.add(info['force'], procedure, (tick + 1) * TICK)
            outside = int((info['failure'] == _WORKSPACE).sum())
            tally.add(info['peak_force'], assault.limit, outside, meter.total)
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


Begin = Callable[[Operation, Attacker, DamageMeter], Callable[[], bool]]
"""Begins an operation; what it returns lets a tick pass and tells whether it can go on."""


def _attack_each(assault: Assault, tally: Tally, rng: np.random.Generator, begin: Begin) -> Tally:
    """
    Attack one operation after the other, each to its end.

    The last operation that begins is the one in which so many steps are reached.
    """
    attacker, number = Attacker(assault.attacker, rng), 0
    mode = 'dynamic' if tally.arm == 'dynamic' else 'kinematic'
    with closing(Operation(WorldSettings(mode=mode))) as operation:
        while tally.steps < assault.steps:
            operation.reset(patients_of(assault.procedure, number, 1)[0])
            attacker.begin(BatchShield(assault.watch, assault.procedure, 1))
            meter, peak, number = DamageMeter(), 0.0, number + 1
            tick = begin(operation, attacker, meter)
            while not operation.done and tick():
                peak = max(peak, tally.end_tick(operation, meter, assault.limit))
            attacker.learn(peak)
    return tally


def attack_motors(assault: Assault) -> Tally:
    """Attack one operation after the other on an arm with motors."""

    def begin(operation: Operation, attacker: Attacker, meter: DamageMeter) -> Callable[[], bool]:
        shield = Shield(assault.shield)

        def tick() -> bool:
            values = np.array(operation.values())
            values[_LIMIT] = assault.limit
            action = attacker.ask_one(operation.state(), values)
            if assault.shield is not None:
                now = operation.ticks * TICK
                shield.update(values, assault.procedure, now, meter.total)
                action = shield.decide(action).action
            try:
                operation.act(ACTIONS[action])
            except UnreachableError:
                return False  # without a shield a motor that can no more lets the set-point go on
            operation.advance(SUBSTEPS)
            return True

        return tick

    rng = np.random.default_rng(assault.seed)
    return _attack_each(assault, assault.tally('dynamic'), rng, begin)


class _Robot:
    """
    One operation under a control loop, in a time of its own.

    :param operation: that is under way.
    :param rng: source of chance.
    """

    def __init__(
        self,
        assault: 'Assault',
        operation: Operation,
        attacker: Attacker,
        rng: np.random.Generator,
    ) -> None:
        self._operation, self._settings, self._limit = operation, assault.watch, assault.limit
        selector = Selector(gate=_OPEN, shield=self._settings)
        selector.set_candidates(
            [Candidate('attacker', lambda s: attacker.ask_one(s, self._values))]
        )
        self._loop = ControlLoop(selector, Limiter())
        self._late, self._rng = int(rng.integers(0, _LATE + 1)), rng
        self._under_way: deque[tuple[int, Point]] = deque()
        self._count, self._silent, self._bare = 0, 0, 0
        self._values: NDArray[np.float64] = np.array(operation.values())

    def tick(self) -> bool:
        """Let one tick pass; return whether the operation can go on."""
        for beat in self._rng.permutation(_BEATS).tolist():
            self._send_state()
            for _ in range(beat):
                while self._under_way and self._under_way[0][0] <= self._count:
                    self._operation.set_target(self._under_way.popleft()[1])
                self._operation.advance(1)
                self._count += 1
        return True

    def _send_state(self) -> None:
        """Send the state unless it is lost, and take the resulting set-points."""
        loop, now = self._loop, 100.0 + self._count * SUBSTEP
        self._queue_setpoint(loop.run_waiting(now))
        values, chance = np.array(self._operation.values()), self._rng.random()
        force, height = self._rng.uniform(-1.0, 1.0, 2)
        values[INDEX['force']] += force * self._settings.force_error
        values[INDEX['lag']] += height * self._settings.position_error
        values[INDEX['force_limit']] = self._limit
        if chance < BROKEN:
            values[INDEX['force']] = np.nan
        self._silent, self._bare = (self._states_left(each) for each in (self._silent, self._bare))
        if not self._silent and not chance > 1.0 - LOST:
            self._values = values
            loop.receive_tip(self._operation.target, now)
            patient = self._operation.patient
            if not self._bare:
                vitals = observe(PATIENT_FIELDS, values[OPERATION_SIZE:], now, patient)
                loop.receive_patient(vitals, now)
            seen = observe(OPERATION_FIELDS, values[:OPERATION_SIZE], now, patient)
            self._queue_setpoint(loop.receive_operation(seen, now))
        self._queue_setpoint(loop.watchdog(now))

    def _states_left(self, left: int) -> int:
        """Return the states left in a burst of losses; a burst may begin."""
        if left:
            return left - 1
        return int(self._rng.integers(*BURST, endpoint=True)) * (self._rng.random() < SILENT)

    def _queue_setpoint(self, cycle: Cycle | None) -> None:
        if cycle is not None and cycle.setpoint is not None:
            x, y, z = cycle.setpoint.position.tolist()
            self._under_way.append((self._count + self._late, (x, y, z)))


def attack_loop(assault: Assault) -> Tally:
    """Attack one operation after the other through a robot's control loop."""
    rng = np.random.default_rng(assault.seed)
    return _attack_each(
        assault,
        assault.tally('loop'),
        rng,
        lambda operation, attacker, meter: _Robot(assault, operation, attacker, rng).tick,
    )


def attack_study(steps: int, seed: int, keep_limit: bool) -> tuple[Study, list[Part]]:
    """
    Return a study that keeps nothing, and its parts: every adversary in every procedure.

    :param steps: with the shield on, over all adversaries.
    :param keep_limit: whether the shield keeps the procedure's own force limit too.
    :raises SettingError: if they are fewer than one operation for each adversary.
    """
    kinds = [(name, kind) for name in PROCEDURE_NAMES for kind in ATTACKERS]
    if steps < len(kinds) * TICKS:
        raise SettingError(
            'steps',
            steps,
            f'at least {len(kinds) * TICKS}: an operation of {TICKS} for each adversary in each '
            f'procedure',
        )
    share, shield = -(-steps // len(kinds)), ShieldSettings(keep_limit=keep_limit)
    asked = {'steps': steps, 'seed': seed, 'keep_limit': keep_limit}
    parts = [
        Part(f'{name}_{kind}', asked, (Assault(name, kind, share, shield, seed),))
        for name, kind in kinds
    ]
    return Study('attack', None, measure_attack), parts


def measure_attack(assault: Assault, work: Work) -> Json:
    """Let one adversary attack in one procedure, with the shield and without, in three ways."""
    tallies, steps = [], assault.steps
    for shield in (assault.shield, None):
        for way, some in (
            (attack, steps),
            (attack_motors, steps // _MOTORS + 1),
            (attack_loop, steps // _LOOP + 1),
        ):
            work.check()
            tallies.append(asdict(way(replace(assault, steps=some, shield=shield))))
    return {'tallies': tallies}
