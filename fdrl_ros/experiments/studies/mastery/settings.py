# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""
What the study of mastery measures: cells, seeds, sizes, and the settings of every learner.

All of it was fixed before the seeds of the report were run, but for the selector: half of a first
run showed faults of it on these seeds, and it was mended and sized anew on seeds 902 to 907. The
plan ``mastery`` and the defaults of the task hold what all rows share, in the default cell; a row
is that plan with the changes that stand here.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
import math
from typing import NamedTuple

from fdrl_ros.deployment.plan import Plan
from fdrl_ros.resources import resource

PLAN = 'mastery'
"""Name of the plan, among those of the package."""

SEEDS = tuple(range(301, 311))
"""Of the default cells: ten, fixed beforehand."""

FEW_SEEDS = SEEDS[:3]
"""Of all other cells, which show a trend and claim nothing."""

CHOOSING_SEEDS = tuple(range(901, 908))
"""On which settings are chosen; the report has none of their numbers."""

HETEROGENEITIES = (0.5, 1.0)
GAPS = (0.0, 1.0, 2.0, 4.0)
RECORDS = (100, 500, 2000)

Changes = Mapping[str, Mapping[str, object]]
"""Of a plan: group to name to value."""


class Cell(NamedTuple):
    """H, gap between the public simulator and hospitals, patients of each one's records."""

    heterogeneity: float = 0.5
    gap: float = 1.0
    patients: int = 500

    @property
    def default(self) -> bool:
        """Return whether it is one of those that the claims are about."""
        return self[1:] == (1.0, 500)


CELLS = tuple(
    Cell(level, gap, patients) for level in HETEROGENEITIES for gap in GAPS for patients in RECORDS
)


@dataclass(frozen=True)
class Sizes:
    """
    How much is measured.

    :param seeds: of the default cells, and of the others.
    :param cells: that are measured.
    :param default: unseen patients of each hospital in a default cell, a thousand at least.
    :param other: in another one.
    :param motors: of them, those that are operated on with motors too.
    :param expert: of them, those whom the expert operates on, one after the other.
    :param robust: of them, those on whom robustness is measured.
    :param public: public patients of a start.
    :param steps: of its learning.
    :param open_steps: of what learns from records without privacy.
    :param ppo: steps of PPO in the public simulator.
    :param ceiling: patients of each hospital that the ceiling learns from, and its steps.
    :param records: most patients of a hospital's records.
    :param valued: for each procedure: public patients whom value models are fitted on, those
        whom their error is measured on, and matched patients for each of the latter.
    :param chosen_for: patients of each hospital on whom it is compared with each candidate.
    :param foreseen: of them, those on whom it is compared with the oracle.
    :param implicit: whether implicit Q-learning, which is slow, is measured too.
    """

    seeds: tuple[tuple[int, ...], tuple[int, ...]] = (SEEDS, FEW_SEEDS)
    cells: tuple[Cell, ...] = CELLS
    default: int = 1000
    other: int = 400
    motors: int = 60
    expert: int = 100
    robust: int = 250
    public: int = 6000
    steps: int = 20000
    open_steps: int = 4000
    ppo: int = 600_000
    ceiling: tuple[int, int] = (1500, 1500)
    valued: tuple[int, int, int] = (500, 12, 60)
    chosen_for: int = 200
    foreseen: int = 8
    implicit: bool = True
    records: int = max(RECORDS)

    def of(self, cell: Cell) -> int:
        """Return the unseen patients of each hospital."""
        return self.default if cell.default else self.other

    def seeds_of(self, cell: Cell) -> tuple[int, ...]:
        """Return the seeds that a cell is measured with."""
        return self.seeds[not cell.default]

    def first(self, seed: int) -> bool:
        """Return whether a seed is one of the first, which what is slow is measured with."""
        return seed in self.seeds[1]


FULL = Sizes()
QUICK = Sizes(
    (CHOOSING_SEEDS[:1], CHOOSING_SEEDS[:1]),
    tuple(Cell(level) for level in HETEROGENEITIES),
    default=80,
    motors=2,
    expert=8,
    robust=20,
    public=1000,
    steps=2000,
    open_steps=500,
    ppo=20_000,
    ceiling=(150, 150),
    valued=(30, 2, 16),
    chosen_for=20,
    foreseen=1,
    implicit=False,
    records=100,
)
"""For a look in 3 minutes; its numbers mean nothing."""

EPSILON = 8.0
"""What the records of everybody may spend in all; the budget of the plan."""

_SPARE = 0.01
"""Left of it, so that no rounding makes the ledger refuse the last step."""

TARGET = EPSILON - _SPARE

BATCHES = {100: 26, 500: 128, 2000: 256}
"""Patients that join a step on average, by the patients of a hospital; a fourth otherwise."""

BLOCK = 4
"""Steps of a local epoch in the recipes below; epochs of other batches are as many steps."""


@dataclass(frozen=True)
class Recipe:
    """
    How a row learns from records.

    :param changes: of the plan, group to name to value.
    :param start: whose public start it begins with, a name of :data:`STARTS`.
    :param local: rounds that each hospital goes on by itself after those of the federation.
    :param few: whether it is slow, and measured with the first seeds alone.
    """

    changes: Changes = field(default_factory=dict)
    start: str = 'cloning'
    local: int = 0
    few: bool = False


Recipes = Mapping[str, Recipe]

_DONE = {'labels': 'done'}
_DQN: dict[str, object] = {'algorithm': 'double_dqn', 'discount': 0.4, 'learning_rate': 0.001}
_DQN |= {'idle_weight': 1.0, 'proximal': 0.01}
_CONSERVATIVE: dict[str, object] = {
    'algorithm': 'double_dqn',
    'conservative': 5.0,
    'discount': 0.9,
}
_WEIGHTED: dict[str, object] = {'algorithm': 'advantage_weighted'}
_IMPLICIT: dict[str, object] = {'kind': 'torch', 'network': 'mlp', 'algorithm': 'implicit_q'}


def _with(*changes: Changes) -> Changes:
    """Join changes of a plan, the last one first."""
    groups = {group for each in changes for group in each}
    return {
        group: {name: value for each in changes for name, value in each.get(group, {}).items()}
        for group in sorted(groups)
    }


_ALL_WEIGHTS: Changes = {'learner': {'frozen': '', 'offsets': '', 'learning_rate': 0.0005}}
"""In place of the first bias and offsets of inputs alone."""

STARTS: dict[str, Changes] = {
    'cloning': {},
    'double_dqn': {'learner': _DQN, 'pretraining': {**_DONE, 'discount': 0.4}},
    'conservative_q': {'learner': _CONSERVATIVE, 'pretraining': {**_DONE, 'discount': 0.9}},
    'advantage_weighted': {'learner': _WEIGHTED, 'pretraining': _DONE},
    'implicit_q': {'learner': _IMPLICIT, 'pretraining': _DONE},
}
"""Changes of the plan by which each public start is learned."""

STARTS |= {name: _with(_ALL_WEIGHTS, each) for name, each in STARTS.items() if each}

_ROUNDS: Changes = {'home': {'epochs': 0}, 'rounds': {'rounds': 6}}
_AT_ONCE: Changes = {
    'home': {'epochs': 0},
    'rounds': {'rounds': 1},
    'learner': {'epochs': 72},
}
_OWN: Changes = {'federation': {'personal': 'shared.0'}}
_LIGHT_AT_HOME: Changes = {
    'home': {
        'frozen': 'shared.0.weight, shared.1, value, advantage',
        'offsets': 'goal_error_x, goal_error_y, goal_error_z, force_error',
    }
}


_BIAS_ONLY: Changes = {
    'learner': {'offsets': '', 'learning_rate': 0.002},
    'home': {'learning_rate': 0.002},
}


def _another_loss(start: str, *, few: bool = False) -> Recipe:
    """Return rounds with the loss and the settings of a public start."""
    learner = {'learner': STARTS[start]['learner']}
    return Recipe(_with(_ROUNDS, learner), start, few=few)


FEDERATED: Recipes = {
    'federated': Recipe(),
    'bias_only': Recipe(_BIAS_ONLY),
    'federated_or_alone': Recipe({'home': {'candidates': 'global, personal, alone'}}),
    'global': Recipe(_ROUNDS),
    'all_weights': Recipe(_with(_ALL_WEIGHTS, _LIGHT_AT_HOME)),
    'own_layers': Recipe(_with(_ALL_WEIGHTS, _ROUNDS, _OWN)),
    'personal': Recipe(_with(_ALL_WEIGHTS, {'home': {'epochs': 0}}), local=2),
    'dp_dqn': _another_loss('double_dqn'),
    'conservative_q': _another_loss('conservative_q'),
    'advantage_weighted': _another_loss('advantage_weighted'),
    'implicit_q': _another_loss('implicit_q', few=True),
}
"""
Rows that hospitals learn together. All spend the same epsilon, and 288 steps of DP-SGD: six rounds
of 48, or four and 96 at home; whoever may choose alone takes 96 more for that candidate.
"""

ALONE: Recipes = {
    'alone': Recipe(),
    'alone_at_once': Recipe(_AT_ONCE),
    'alone_all_weights': Recipe(_with(_AT_ONCE, _ALL_WEIGHTS)),
    'dp_dqn_alone': Recipe(_with(STARTS['double_dqn'], _AT_ONCE), 'double_dqn'),
}
"""Rows that each hospital learns without the others, with the same epsilon and steps."""

POOLED: Recipes = {'pooled': Recipe(_AT_ONCE), 'pooled_at_home': Recipe()}
"""Rows that learn from the records of all in one place, with the same epsilon and steps."""

_OPEN: Changes = {'pretraining': {'learning_rate': 0.001}}

OPEN_ALONE: Recipes = {'cloning_alone_without_privacy': Recipe(_OPEN)}
OPEN_POOLED: Recipes = {'pooled_without_privacy': Recipe(_OPEN)}
"""Rows that learn without privacy, by minibatches as the public start does."""

SPARSE_POOLED = Recipe(_AT_ONCE)
"""How they learn with privacy."""

SPARSE_ROWS: dict[str, Changes] = {
    'cloning': _OPEN,
    'advantage_weighted': _OPEN,
    'implicit_q': _OPEN,
}
"""What learns where only the end is rewarded, with its settings without privacy."""

EVERYWHERE = ('alone', 'global', 'federated', 'pooled_at_home', 'pooled_without_privacy')
"""Rows of all cells; the others are measured in the default cells."""

UNDISTURBED = 'federated_undisturbed'
"""As federated, with a public start and records without disturbances."""

ROBUST = ('public_start', 'alone', 'global', 'federated', UNDISTURBED)
"""Rows that are tried under disturbances."""

WITH_MOTORS = ('public_start', 'alone', 'federated')
"""Rows that are tried with motors."""

AWAY = 10_000
"""Added to the seed of a federation, for the hospitals of another one."""

UNSEEN_H = 0.75
"""H of patients that no cell learns from."""

GAMMA = 0.98
"""Discount where only the end of an operation is rewarded: an operation takes 100 ticks."""


def base_plan() -> Plan:
    """
    Return the plan that all rows share.

    :raises SettingError: if it is not there, or not a plan.
    """
    return Plan.load(resource(f'config/paper/{PLAN}.yaml'))


def plan_of(plan: Plan, cell: Cell, seed: int, sizes: Sizes = FULL) -> Plan:
    """Return the plan of a cell and a seed; its pre-training is what learns without privacy."""
    federation = {'heterogeneity': cell.heterogeneity, 'gap': cell.gap, 'seed': seed}
    patients = min(cell.patients, sizes.records)
    return plan.changed(
        {
            'federation': federation,
            'collection': {'patients': patients},
            'pretraining': {'steps': sizes.open_steps},
            'privacy': {'batch': BATCHES.get(patients, max(1, patients // BLOCK))},
        }
    )


def planned(plan: Plan, recipe: Recipe) -> Plan:
    """Return a plan for a recipe, with epochs of as many steps as they have by default."""
    plan = plan.changed(recipe.changes)
    block = math.ceil(plan.collection.patients / plan.privacy.batch)

    def epochs(count: int) -> int:
        return math.ceil(count * BLOCK / block)

    home = {name: epochs(getattr(plan.home, name)) for name in ('epochs', 'alone_epochs')}
    return plan.changed({'learner': {'epochs': epochs(plan.learner.epochs)}, 'home': home})
