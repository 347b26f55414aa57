# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""
Success that a policy loses in other hospitals than the one that it was learned in.

Loss = success at home - success elsewhere, mean over ordered pairs of hospitals. Policies are
learned without privacy, so that heterogeneity alone shows.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace

from fdrl_ros.deployment.plan import Plan
from fdrl_ros.experiments.study import Work
from fdrl_ros.learner.pretraining import pretrain
from fdrl_ros.learner.records.collection import collect_records
from fdrl_ros.policy import Policy
from fdrl_ros.runtime.progress import Stopped
from fdrl_ros.surgery.gym.episode import run_episode
from fdrl_ros.surgery.gym.surgery_env import SurgeryEnv
from fdrl_ros.surgery.patient.cohort import Cohort
import numpy as np

SETTLING = 3
"""One in so many steps of learning, the last ones, is a tenth as long: the policy settles."""

_OTHER = 2**32  # added to a seed, for other minibatches


@dataclass(frozen=True)
class CrossSuccess:
    """
    What became of the policy of each hospital in each hospital.

    :param success: share of operations, shape (hospitals, hospitals), one row a policy.
    :param force: share that failed by force, same shape.
    """

    success: np.ndarray
    force: np.ndarray


def unseen(plan: Plan) -> int:
    """Return how many unseen patients of each hospital a policy operates on."""
    return max(1, plan.evaluation.patients // plan.federation.hospitals)


def work_of(plan: Plan) -> int:
    """Return how much is to do: patients and steps."""
    hospitals, there = plan.federation.hospitals, plan.federation.hospitals * unseen(plan)
    return hospitals * (plan.collection.patients + plan.pretraining.steps + there)


def measure_loss(plan: Plan, work: Work) -> CrossSuccess:
    """
    Let every hospital learn alone, and try each policy on each hospital's unseen patients.

    :raises TrainingStopped: as soon as `stopped` says so.
    """
    cohorts = plan.cohorts
    count, total = unseen(plan), work_of(plan)
    share = total // len(cohorts)
    ends = np.zeros((len(cohorts), len(cohorts), count, 2))
    env = SurgeryEnv(settings=plan.world)
    try:
        for row, home in enumerate(cohorts):

            def tell_own(done: int, what: str, before: int = row * share) -> None:
                work.tell(before + done, total, what)

            policy = learn_alone(home, plan, tell=tell_own, stopped=work.stopped)
            learned = plan.collection.patients + plan.pretraining.steps
            for column, other in enumerate(cohorts):
                for index in range(count):
                    work.check()
                    episode = run_episode(env, policy, other.patient(index, 'test'))
                    ends[row, column, index] = episode.success, episode.failure == 'force'
                tell_own(learned + (column + 1) * count, f'{home.name} in {other.name}')
    finally:
        env.close()
    success, force = np.moveaxis(ends.mean(axis=2), -1, 0)
    return CrossSuccess(success, force)


def learn_alone(
    home: Cohort, plan: Plan, *, tell: Callable[[int, str], None], stopped: Stopped
) -> Policy:
    """Learn from one hospital's records alone, without privacy; the last steps are small ones."""
    settings, seed = plan.pretraining, plan.federation.seed
    records = collect_records(
        home,
        plan.collection,
        plan.world,
        progress=lambda done, _: tell(done, f'{home.name} collects'),
        stopped=stopped,
    )
    before = len(records.patients)
    small = settings.steps // SETTLING
    large = settings.steps - small
    weights = pretrain(
        records,
        plan.shape,
        replace(settings, steps=large),
        seed=seed,
        progress=lambda done, _: tell(before + done, f'{home.name} learns'),
        stopped=stopped,
    )
    weights = pretrain(
        records,
        plan.shape,
        replace(settings, steps=small, learning_rate=0.1 * settings.learning_rate),
        seed=seed + _OTHER,
        weights=weights,
        progress=lambda done, _: tell(before + large + done, f'{home.name} learns'),
        stopped=stopped,
    )
    return Policy(weights, plan.shape)
