# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""What the shield costs: success of the expert and of policies with it, and without."""

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from itertools import product
from pathlib import Path

from fdrl_ros.deployment.plan import Plan
from fdrl_ros.deployment.policy_file import load_policy
from fdrl_ros.errors import SettingError
from fdrl_ros.experiments.json_file import Json
from fdrl_ros.experiments.reports.assessment import released_globals
from fdrl_ros.experiments.study import Part, Study, Work
from fdrl_ros.policy import Policy
from fdrl_ros.shield.settings import ShieldSettings
from fdrl_ros.shield.shield import BatchShield
from fdrl_ros.surgery.gym.vector_operation import VectorOperation
from fdrl_ros.surgery.patient.cohort import public_cohort
from fdrl_ros.surgery.tasks.expert import vector_expert_costs
from fdrl_ros.surgery.tasks.outcome import FAILURES
import numpy as np
from numpy.typing import NDArray

_FORCE = FAILURES.index('force')

Chooser = Callable[[VectorOperation, NDArray[np.float32]], NDArray[np.intp]]
"""Who acts: the operations that go on and their states give an action for each."""

SHIELDS = {
    'off': ShieldSettings(active=False),
    'on': ShieldSettings(),
    'keep_limit': ShieldSettings(keep_limit=True),
}
"""Shields whose cost is compared."""


@dataclass(frozen=True)
class Cost:
    """
    Outcomes of some operations of one procedure under one shield.

    :param patients: how many were operated on.
    :param successes: how many operations succeeded.
    :param forced: how many were ended by force.
    :param steps: of 50 ms, in all.
    :param vetoes: steps in which something else was done than was asked for.
    """

    procedure: str
    patients: int
    successes: int
    forced: int
    steps: int
    vetoes: int


def newest_policies(path: Path) -> list[Path]:
    """
    Return the policy file that a path is, or those of a run: newest global, every hospital's.

    :raises PolicyError: if a directory holds neither.
    """
    if path.is_file():
        return [path]
    policies = path / 'policies'
    own = sorted(policies.glob('hospital_*.npz'))
    if own and not any(policies.glob('global_*.npz')):
        return own
    return [released_globals(policies)[-1][1], *own]


def by_expert(batch: VectorOperation, states: NDArray[np.float32]) -> NDArray[np.intp]:
    """Choose as the expert does."""
    chosen: NDArray[np.intp] = vector_expert_costs(batch).argmin(axis=1)
    return chosen


def by_policy(policy: Policy) -> Chooser:
    """Return a function that chooses a policy's greedy actions."""

    def choose(batch: VectorOperation, states: NDArray[np.float32]) -> NDArray[np.intp]:
        chosen: NDArray[np.intp] = policy.q_values(states).argmax(axis=1)
        return chosen

    return choose


def cost(
    procedure: str,
    choose: Chooser,
    settings: ShieldSettings,
    patients: int,
    heterogeneity: float,
    seed: int = 5,
) -> Cost:
    """
    Operate on made-up patients, with kinematic arms.

    :param choose: who acts.
    :param settings: of the shield; not active to go without.
    :param patients: how many.
    :param heterogeneity: H, of the patients.
    :param seed: of the patients.
    """
    cohort = public_cohort(seed, heterogeneity, (procedure,))
    batch = VectorOperation([cohort.patient(each, 'test') for each in range(patients)])
    states = batch.reset()
    shield = BatchShield(settings, procedure, patients)
    successes = forced = steps = vetoes = 0
    while True:
        actions = asked = choose(batch, states)
        if settings.active:
            decisions = shield.review(batch.values(), asked)
            actions = np.array([each.action for each in decisions])
        states, _, terminated, truncated, said = batch.step(actions)
        steps += len(asked)
        vetoes += int((actions != asked).sum())
        over = terminated | truncated
        successes += int(said['success'][over].sum())
        forced += int((said['failure'][over] == _FORCE).sum())
        rows = np.flatnonzero(~over)
        if not len(rows):
            break
        if over.any():
            batch.select(rows)
            shield.select(rows)
            states = states[rows]
    batch.close()
    return Cost(procedure, patients, successes, forced, steps, vetoes)


@dataclass(frozen=True)
class CostSettings:
    """
    How much is operated on.

    :param patients: of each procedure at each level.
    :param levels: H of the patients.
    :param seed: of the patients.
    """

    patients: int
    levels: tuple[float, ...]
    seed: int


def cost_study(
    files: Sequence[Path], procedures: Sequence[str], settings: CostSettings
) -> tuple[Study, list[Part]]:
    """
    Return a study that keeps nothing, and its parts: everyone in every procedure and shield.

    :param files: of policies, which act beside the expert.
    :raises FdrlError: if one of them cannot be read, or is of another task.
    :raises SettingError: if there are no patients.
    """
    if not settings.patients >= 1:
        raise SettingError('patients', settings.patients, 'at least 1')
    actors: dict[str, Policy | None] = {'expert': None}
    for path in files:
        actors[str(path)] = load_policy(path).policy(Plan())
    parts = []
    for (who, policy), procedure, word in product(actors.items(), procedures, SHIELDS):
        asked = {'who': who, 'procedure': procedure, 'shield': word}
        title = f'{Path(who).stem}, {procedure}, {word}'
        parts.append(Part(title, asked, (policy, procedure, word, settings), title))
    return Study('cost', None, measure_cost), parts


def measure_cost(
    policy: Policy | None, procedure: str, shield: str, settings: CostSettings, work: Work
) -> Json:
    """Let a policy, or the expert, operate at every level."""
    choose, found = by_policy(policy) if policy else by_expert, list[Json]()
    for level in settings.levels:
        work.check()
        row = cost(procedure, choose, SHIELDS[shield], settings.patients, level, settings.seed)
        found.append({'heterogeneity': level, **asdict(row)})
    return {'found': found}
