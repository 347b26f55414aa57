# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""
Needle pass and peg transfer where only the end is rewarded: success, or failure.

Learning from such records needs credit over a hundred ticks. Who looks one tick ahead, even with
the true world to look with, sees no reward and moves at random.
"""

from collections.abc import Sequence
from dataclasses import replace

from fdrl_ros.deployment.plan import Plan
from fdrl_ros.deployment.prepare import learn_public_start
from fdrl_ros.experiments.json_file import Json
from fdrl_ros.experiments.studies.mastery.learning import (
    clone_pooled,
    collect,
    learn_pooled,
    Learned,
)
from fdrl_ros.experiments.studies.mastery.settings import (
    GAMMA,
    Recipe,
    Sizes,
    SPARSE_POOLED,
    SPARSE_ROWS,
    STARTS,
)
from fdrl_ros.experiments.study import Work
from fdrl_ros.runtime.random_streams import Stream
from fdrl_ros.selector.value.monte_carlo_reference import chooser_of
from fdrl_ros.surgery.gym.actions import ACTION_COUNT
from fdrl_ros.surgery.gym.episode import roll_out
from fdrl_ros.surgery.gym.vector_operation import VectorOperation
from fdrl_ros.surgery.patient.patient import Patient
from fdrl_ros.surgery.settings import sparse, WorldSettings
from fdrl_ros.tasks.task import Chooser
import numpy as np
from numpy.typing import NDArray

PROCEDURES = ('needle_pass', 'peg_transfer')

GREEDY = 25
"""Patients of each hospital and procedure that greedy control is tried on."""


def sparse_plan(plan: Plan, sizes: Sizes) -> Plan:
    """Return a plan of the two procedures where only the end is rewarded, at gamma 0.98."""
    return plan.changed(
        {
            'federation': {'procedures': ', '.join(PROCEDURES)},
            'world': vars(sparse(plan.world)),
            'learner': {'discount': GAMMA},
            'pretraining': {'discount': GAMMA, 'patients': sizes.public, 'steps': sizes.steps},
        }
    )


def measure_sparse(plan: Plan, sizes: Sizes, work: Work) -> Json:
    """
    Measure one default cell with one seed.

    :returns: share of success by row and procedure, over hospitals.
    """
    plan = sparse_plan(plan, sizes)
    patients = {
        name: [
            cohort.patient(index, 'test', name)
            for cohort in plan.cohorts
            for index in range(sizes.default // len(PROCEDURES) // len(plan.cohorts))
        ]
        for name in PROCEDURES
    }
    records, found = collect(plan, work.caller.stopped), {}
    rows = [each for each in SPARSE_ROWS if sizes.implicit or each != 'implicit_q']
    for done, algorithm in enumerate(rows):
        work.check()
        work.tell(done, len(rows) + 1, algorithm)
        own = plan.changed(STARTS[algorithm]).changed({'learner': {'discount': GAMMA}})
        public = own.changed({'federation': {'heterogeneity': 0.0, 'gap': 0.0}})
        start = learn_public_start(public, stopped=work.caller.stopped)
        found[f'{algorithm}_public_start'] = _tried(
            plan, chooser_of(own.network.policy(start)), patients
        )
        recipe, steps = Recipe(SPARSE_ROWS[algorithm]), {'steps': sizes.open_steps}
        own = own.changed({'pretraining': steps})
        learned = clone_pooled(own, recipe, records, start, f'{algorithm}_without_privacy')
        found[f'{algorithm}_without_privacy'] = _tried(plan, _acting(learned), patients)
        if own.learner.kind == 'dqn':  # the torch learner would take half an hour
            private = learn_pooled(own, SPARSE_POOLED, records, start, algorithm)
            found[algorithm] = _tried(plan, _acting(private), patients)
    rng = np.random.default_rng([Stream.EVALUATION, plan.federation.seed])
    few = {name: own[:: max(1, len(own) // (4 * GREEDY))] for name, own in patients.items()}
    found['greedy'] = {
        name: float(greedy(own, plan.world, rng).mean()) for name, own in few.items()
    }
    return {'found': found}


def _tried(plan: Plan, acting: Chooser, patients: dict[str, list[Patient]]) -> Json:
    return {
        name: float(roll_out(own, acting, plan.world).success.mean())
        for name, own in patients.items()
    }


def _acting(learned: Learned) -> Chooser:
    """Return who acts by the one policy that was learned of pooled records."""
    return chooser_of(learned.network.policy(next(iter(learned.weights.values()))))


def greedy(
    patients: Sequence[Patient], world: WorldSettings, rng: np.random.Generator
) -> NDArray[np.bool_]:
    """
    Operate by the best reward of the next tick, all actions tried on copies of the true world.

    :param rng: decides between actions of equal reward.
    :returns: successes, shape (patients,).
    """
    batch = VectorOperation(list(patients), replace(world, mode='kinematic'))
    batch.reset()
    rows, success = np.arange(len(patients)), np.zeros(len(patients), np.bool_)
    while len(rows):
        ahead = batch.copies(ACTION_COUNT)
        rewards = ahead.step(np.repeat(np.arange(ACTION_COUNT), len(rows)))[1]
        ahead.close()
        table = rewards.reshape(ACTION_COUNT, len(rows))
        best = table >= table.max(axis=0)
        actions = (rng.random(table.shape) * best).argmax(axis=0)
        _, _, terminated, truncated, info = batch.step(actions)
        over = terminated | truncated
        success[rows[over]] = info['success'][over]
        going = np.flatnonzero(~over)
        if 0 < len(going) < len(rows):
            batch.select(going)
        rows = rows[going]
    batch.close()
    return success
