# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""
A robot's own test of a policy, before it may be chosen: public patients only, so no epsilon.

The frozen set is made once from the plan. Everything is simulated in step on the kinematic arm:
a few seconds for the set, less than one for a policy.
"""

from dataclasses import replace
import hashlib
import logging
from pathlib import Path

from fdrl_ros.deployment.plan import Plan
from fdrl_ros.errors import RecordsError
from fdrl_ros.policy import Policy
from fdrl_ros.runtime.random_streams import Stream
from fdrl_ros.selector.candidates.safety_limits import FrozenSet, SafetyReport, shares_on
from fdrl_ros.selector.value.monte_carlo_reference import chooser_of
from fdrl_ros.surgery.gym.actions import ACTION_COUNT, ACTIONS, STAY
from fdrl_ros.surgery.gym.episode import roll_out
from fdrl_ros.surgery.gym.vector_operation import VectorOperation
from fdrl_ros.surgery.patient.patient import Patient
from fdrl_ros.surgery.tasks.expert import vector_expert_costs
from fdrl_ros.surgery.tasks.outcome import FAILURES
import numpy as np

logger = logging.getLogger(__name__)

FIRST = 2 * 10**6
"""Number of the first of these patients: no other training patient of the public has it."""

AHEAD = 3
"""Ticks over which an action's consequences are looked for beside latency: the arm lags behind."""

_PACE = 2  # ticks between two states of one patient
_HABITS = (('any', 0.1), ('any', 0.5), ('press', 0.4), ('wander', 0.9))
"""What surgeons do beside what the expert would, and how often; patient by patient in turn."""

_NAMES = [each.name for each in ACTIONS]
_PRESS = _NAMES.index('coarse -z')
_WANDER = [_NAMES.index(f'coarse {way}') for way in ('-x', '+x', '-y', '+y', '+z')]
_FORCE, _WORKSPACE = FAILURES.index('force'), FAILURES.index('workspace')


def _patients(plan: Plan) -> list[Patient]:
    cohort = plan.public_cohort(1.0)
    return [cohort.patient(FIRST + number) for number in range(plan.safety.patients)]


def make_frozen_set(plan: Plan) -> FrozenSet:
    """Operate as surgeons of all skills, and try every action in some states on the way."""
    batch = VectorOperation(_patients(plan), replace(plan.world, mode='kinematic'))
    batch.reset()
    rng = np.random.default_rng([Stream.SAFETY_TEST, plan.federation.seed])
    rows = np.arange(len(batch.patients))
    habits = np.array([each for each, _ in _HABITS])[rows % len(_HABITS)]
    often = np.array([each for _, each in _HABITS])[rows % len(_HABITS)]
    ways = rng.choice(_WANDER, size=len(rows))
    ways[habits == 'press'] = _PRESS
    states, forces, breaches = [], [], []
    for tick in range(_PACE * plan.safety.snapshots):
        if tick % _PACE == _PACE - 1:
            states.append(batch.states())
            force, breach = _consequences(batch)
            forces.append(force)
            breaches.append(breach)
        wanted = vector_expert_costs(batch).argmin(axis=1)
        drawn = rng.integers(ACTION_COUNT, size=len(rows))
        habit = np.where(habits[rows] == 'any', drawn, ways[rows])
        batch.step(np.where(rng.random(len(rows)) < often[rows], habit, wanted))
        left = np.flatnonzero(~batch.over)
        if not len(left):
            break
        rows = rows[left]
        batch.select(left)
    hold, _, _ = run_trial(None, plan)
    return FrozenSet(
        np.concatenate(states), np.concatenate(forces), np.concatenate(breaches), hold
    )


def _consequences(batch: VectorOperation) -> tuple[np.ndarray, np.ndarray]:
    """
    Try each action in each of n operations, then stay, all side by side.

    :returns: greatest force in limits of the procedure, and whether the workspace was left, both
        of shape (n, actions).
    """
    trial, count = batch.copies(ACTION_COUNT), len(batch.over)
    rows = np.arange(ACTION_COUNT * count)
    first = np.repeat(np.arange(ACTION_COUNT), count)
    greatest, breached = np.zeros(len(rows)), np.zeros(len(rows), dtype=bool)
    limits = np.tile(batch.rules.force_limit, ACTION_COUNT)
    for tick in range(AHEAD + max(each.latency for each in batch.patients)):
        *_, said = trial.step(np.full(len(rows), STAY) if tick else first)
        greatest[rows] = np.maximum(greatest[rows], said['peak_force'] / limits[rows])
        breached[rows] |= said['failure'] == _WORKSPACE
        left = np.flatnonzero(~trial.over)
        if not len(left):
            break
        rows = rows[left]
        trial.select(left)
    table = ACTION_COUNT, count
    return greatest.reshape(table).T, breached.reshape(table).T


def run_trial(policy: Policy | None, plan: Plan) -> tuple[float, float, float]:
    """
    Operate on all public patients of the trial.

    :param policy: None holds.
    :returns: mean discounted return, share of successes, share that ended by force.
    """
    rolled = roll_out(_patients(plan), chooser_of(policy), plan.world)
    count, ticks = len(rolled.patients), rolled.ticks
    discounts = np.cumprod(np.r_[1.0, np.full(ticks.max(), plan.value.discount)])
    returns = np.zeros(count)
    np.add.at(returns, rolled.cases, discounts[ticks] * rolled.rewards)
    forced = int((rolled.failure == _FORCE).sum())
    return float(returns.mean()), int(rolled.success.sum()) / count, forced / count


def frozen_set(plan: Plan, folder: Path) -> FrozenSet:
    """
    Return the frozen set of a plan, made now if the folder has none.

    :raises OSError: if it cannot be written.
    """
    path = folder / f'frozen_{basis(plan)[:16]}.npz'
    if path.exists():
        try:
            return FrozenSet.load(path)
        except RecordsError as error:
            logger.warning('%s; it is made again', error)
    made = make_frozen_set(plan)
    made.save(path)
    return made


def basis(plan: Plan) -> str:
    """Return a hash over all settings that the set and the trial depend on, hexadecimal."""
    chosen = plan.federation
    parts = (
        1,
        chosen.seed,
        chosen.names,
        chosen.disturbances,
        plan.world,
        plan.value.discount,
        plan.safety.patients,
        plan.safety.snapshots,
    )
    return hashlib.sha256(repr(parts).encode()).hexdigest()


def safety_report(policy: Policy, plan: Plan, frozen: FrozenSet) -> SafetyReport:
    """Test one policy on the frozen set and on the public patients."""
    finite, force, workspace, commonest = shares_on(policy, frozen)
    mean, success, forced = run_trial(policy, plan) if finite else (0.0, 0.0, 0.0)
    return SafetyReport(
        policy=policy.digest.hex(),
        basis=basis(plan),
        frozen=frozen.digest,
        states=len(frozen.states),
        finite=finite,
        force_share=force,
        workspace_share=workspace,
        one_action_share=commonest,
        patients=plan.safety.patients,
        mean_return=mean,
        hold_return=frozen.hold_return,
        success_share=success,
        force_failures=forced,
    )
