# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""The study of mastery: the same patients, budget and records for every row."""

from fdrl_ros.experiments.studies.mastery.learning import calibrated, collect, pooled
from fdrl_ros.experiments.studies.mastery.settings import (
    base_plan,
    Cell,
    CELLS,
    CHOOSING_SEEDS,
    EPSILON,
    FEDERATED,
    plan_of,
    SEEDS,
    TARGET,
)
from fdrl_ros.learner.home import home_charges
from fdrl_ros.learner.privacy_cost import ChargedMechanism
from fdrl_ros.privacy.accountant.accountant import epsilon_pld
import numpy as np
import pytest

SMALL = Cell(patients=20)


@pytest.fixture(scope='module')
def plan():
    """Return the plan of a small cell."""
    return plan_of(base_plan(), SMALL, 901)


@pytest.fixture(scope='module')
def records(plan):
    """Return the records of every hospital."""
    return collect(plan, lambda: False)


def test_cells_and_seeds_are_those_that_were_fixed():
    assert len(CELLS) == 24
    assert sum(cell.default for cell in CELLS) == 2
    assert len(SEEDS) == 10
    assert not set(SEEDS) & set(CHOOSING_SEEDS)


def test_pooled_records_are_everybodys(records):
    every = pooled(records)
    assert every.n_patients == sum(each.n_patients for each in records.values())
    last = list(records.values())[-1]
    first = every.starts[-1 - last.n_patients]
    np.testing.assert_array_equal(every.states[first:], last.states)
    assert np.diff(every.starts)[-last.n_patients :].tolist() == np.diff(last.starts).tolist()


@pytest.mark.parametrize('name', FEDERATED)
def test_every_row_spends_the_whole_epsilon_and_no_more(plan, records, name):
    recipe, own = FEDERATED[name], next(iter(records.values()))
    made = calibrated(plan.changed(recipe.changes), own, recipe.local)
    mechanism = ChargedMechanism.from_settings(own, made.learner, made.privacy)
    rounds = made.rounds.rounds + recipe.local
    steps = rounds * made.learner.epochs * mechanism.steps_of_epoch
    home = home_charges(made.learner, made.privacy, made.home, own) if made.home.epochs else ()
    spent = epsilon_pld([mechanism.charge(steps), *home], made.privacy.delta)
    assert 0.99 * TARGET < spent <= TARGET < EPSILON == made.privacy.budget
