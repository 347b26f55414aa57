# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""
What the study of mastery measures: cells, seeds, sizes, and the settings of every learner.

All of it was fixed before the seeds of the report were run. The plan ``mastery`` holds what all
rows share, in the default cell; a row is that plan with the changes that stand here.
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

CHOOSING_SEEDS = (901, 902, 903)
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

    :param default: unseen patients of each hospital in a default cell.
    :param other: in another one.
    :param motors: of them, those that are operated on with motors too.
    :param public: public patients of the start.
    :param steps: of its learning.
    """

    default: int = 1000
    other: int = 400
    motors: int = 60
    public: int = 6000
    steps: int = 20000

    def of(self, cell: Cell) -> int:
        """Return the unseen patients of each hospital."""
        return self.default if cell.default else self.other


FULL = Sizes()
QUICK = Sizes(60, 30, 2, 600, 1500)
"""For a look in 5 minutes; its numbers mean little."""

EPSILON = 8.0
"""What everybody's records may spend in all."""

_SPARE = 0.01
"""Left of it, so that no rounding makes the ledger refuse the last step."""

TARGET = EPSILON - _SPARE

BATCH = 0.256
"""Share of a hospital's patients that join a step on average; 128 of 500."""

BLOCK = 4
"""Steps of a local epoch: what includes each patient once on average."""


@dataclass(frozen=True)
class Recipe:
    """
    How a row learns from records.

    :param changes: of the plan, group to name to value.
    :param start: whose public start it begins with, a name of :data:`STARTS`.
    :param local: rounds that each hospital goes on by itself after those of the federation.
    """

    changes: Changes = field(default_factory=dict)
    start: str = 'cloning'
    local: int = 0


_DONE = {'labels': 'done'}

STARTS: dict[str, Changes] = {
    'cloning': {'learner': {'algorithm': 'behaviour_cloning'}},
    'double_dqn': {'learner': {'algorithm': 'double_dqn'}, 'pretraining': _DONE},
}
"""Changes of the plan by which each public start is learned."""

_OWN: Changes = {'federation': {'personal': 'shared.0'}}
_NO_HOME: Changes = {'home': {'epochs': 0}}

FEDERATED: dict[str, Recipe] = {
    'global': Recipe({**_NO_HOME, 'rounds': {'rounds': 6}}),
    'own_layers': Recipe({**_NO_HOME, **_OWN, 'rounds': {'rounds': 6}}),
    'personal': Recipe(_NO_HOME, local=2),
    'federated': Recipe({**_OWN, 'home': {'candidates': 'global, own_layers, personal'}}),
    'federated_or_alone': Recipe(
        {**_OWN, 'home': {'candidates': 'global, own_layers, personal, alone'}}
    ),
}
"""Rows that hospitals learn together, all with the same epsilon and about the same steps."""

ALONE: dict[str, Recipe] = {
    'alone': Recipe({'learner': {'epochs': 72}, 'rounds': {'rounds': 1}, **_NO_HOME}),
}
"""Rows that each hospital learns without the others, in one round of the same epsilon."""

POOLED: dict[str, Recipe] = {
    'pooled': ALONE['alone'],
}
"""Rows that learn from everybody's records in one place, with the same epsilon."""

_OPEN: Changes = {'pretraining': {'steps': 4000, 'learning_rate': 0.001}}

OPEN_ALONE: dict[str, Recipe] = {'cloning_alone_without_privacy': Recipe(_OPEN)}
OPEN_POOLED: dict[str, Recipe] = {'pooled_without_privacy': Recipe(_OPEN)}
"""Rows that learn without privacy, by minibatches as the public start does."""

EQUAL_STEPS = 288
"""Steps of DP-SGD of each row: six rounds of 48, four of 48 and 96 at home, or all at once."""


def base_plan() -> Plan:
    """
    Return the plan that all rows share.

    :raises SettingError: if it is not there, or not a plan.
    """
    return Plan.load(resource(f'config/paper/{PLAN}.yaml'))


def plan_of(plan: Plan, cell: Cell, seed: int) -> Plan:
    """Return the plan of a cell and a seed."""
    federation = {'heterogeneity': cell.heterogeneity, 'gap': cell.gap, 'seed': seed}
    return plan.changed(
        {
            'federation': federation,
            'collection': {'patients': cell.patients},
            'privacy': {'batch': max(1, math.floor(BATCH * cell.patients))},
        }
    )
