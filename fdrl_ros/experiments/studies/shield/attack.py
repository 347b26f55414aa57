# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""
Adversaries against the shield: how often force passes the limits with it, and without.

Operations go on above the procedure's force limit, which ends them otherwise, so that the hard
stop can be reached at all. Adversaries attack many patients at once, arms with motors, and a
robot's own control loop (:mod:`fdrl_ros.experiments.studies.shield.robot_attack`).
"""

from collections.abc import Callable
from dataclasses import asdict, replace

from fdrl_ros.errors import SettingError
from fdrl_ros.experiments.json_file import Json
from fdrl_ros.experiments.studies.shield.adversary import (
    Assault,
    attack_each,
    Attacker,
    ATTACKERS,
    Tally,
)
from fdrl_ros.experiments.studies.shield.robot_attack import attack_loop
from fdrl_ros.experiments.study import Part, Study, Work
from fdrl_ros.shield.damage import DamageMeter
from fdrl_ros.shield.settings import ShieldSettings
from fdrl_ros.shield.shield import BatchShield, Shield
from fdrl_ros.surgery.arm.kinematics import UnreachableError
from fdrl_ros.surgery.gym.actions import ACTIONS, SUBSTEPS, TICK
from fdrl_ros.surgery.gym.operation import Operation
from fdrl_ros.surgery.gym.state import (
    INDEX,
    PROCEDURE_NAMES,
)
from fdrl_ros.surgery.gym.vector_operation import VectorOperation
from fdrl_ros.surgery.tasks.outcome import FAILURES
import numpy as np
from numpy.typing import NDArray

_LIMIT = INDEX['force_limit']
_WORKSPACE = FAILURES.index('workspace')
_ROWS = 64

TICKS = 60
"""Steps of an operation in a batch: long enough to reach tissue and to press it."""

_MOTORS, _LOOP = 20, 5
"""One step in so many is done with motors besides, and one through the robot's control loop."""


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
        patients = assault.patients(_ROWS * round_number, count)
        batch = VectorOperation(patients)
        states = batch.reset()
        shield, meter = BatchShield(assault.watch, procedure, count), DamageMeter(np.zeros(count))
        attacker.begin()
        peak = 0.0
        predicted: NDArray[np.float64] | None = None
        for tick in range(TICKS):
            asked = attacker.request(states, predicted)
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


def attack_motors(assault: Assault) -> Tally:
    """Attack one operation after the other on an arm with motors."""

    def begin(operation: Operation, attacker: Attacker, meter: DamageMeter) -> Callable[[], bool]:
        shield = Shield(assault.shield)

        def tick() -> bool:
            values = np.array(operation.values())
            values[_LIMIT] = assault.limit
            action = attacker.request_one(operation.state(), values)
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
    return attack_each(assault, assault.tally('dynamic'), rng, begin)


def attack_study(
    steps: int,
    seed: int,
    keep_limit: bool,
    latency: int = 0,
    force_noise: float = 0.0,
) -> tuple[Study, list[Part]]:
    """
    Return a study that keeps nothing, and its parts: every adversary in every procedure.

    :param steps: with the shield on, over all adversaries.
    :param keep_limit: whether the shield keeps the procedure's own force limit too.
    :param latency: of the arms, ticks.
    :param force_noise: standard deviation of the measured force, N.
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
    asked: Json = {'steps': steps, 'seed': seed, 'keep_limit': keep_limit}
    asked |= {'latency': latency, 'force_noise': force_noise}
    assaults = [
        Assault(name, kind, share, shield, seed, latency, force_noise) for name, kind in kinds
    ]
    parts = [Part(f'{each.procedure}_{each.attacker}', asked, (each,)) for each in assaults]
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
