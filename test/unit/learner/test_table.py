# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""The table's gradients are those of the dueling network that it stands for."""

from fdrl_ros.learner.gradient import DoubleDqn
from fdrl_ros.learner.records.transitions import Batch
from fdrl_ros.learner.settings import LearnerSettings
from fdrl_ros.learner.table import make_dqn, TableDqn
from fdrl_ros.policy import NetworkShape
from hypothesis import given, settings
from hypothesis import strategies as st
import numpy as np

SHAPE = NetworkShape(6, 3, ())


def batch(rng, weighted: bool) -> Batch:
    size = (7, 4)
    return Batch(
        rng.integers(6, size=(*size, 1)).astype(np.float32),
        rng.integers(3, size=size),
        rng.normal(size=size).astype(np.float32),
        rng.integers(6, size=(*size, 1)).astype(np.float32),
        rng.integers(2, size=size).astype(np.float32),
        rng.uniform(size=size).astype(np.float32) if weighted else None,
    )


def looked_up(rows: Batch, inputs: np.ndarray) -> Batch:
    seen = [inputs[each[..., 0].astype(int)] for each in (rows.states, rows.next_states)]
    return Batch(seen[0], rows.actions, rows.rewards, seen[1], rows.discounts, rows.weights)


@settings(max_examples=40, deadline=None)
@given(
    seed=st.integers(0, 2**31),
    loss=st.sampled_from(('huber', 'squared')),
    conservative=st.sampled_from((0.0, 0.5)),
    clip_norm=st.floats(0.01, 10.0),
    weighted=st.booleans(),
)
def test_a_table_has_the_gradients_of_its_network(seed, loss, conservative, clip_norm, weighted):
    rng = np.random.default_rng(seed)
    inputs = np.diag(rng.uniform(0.5, 3.0, 6)).astype(np.float32)
    learner = LearnerSettings(loss=loss, conservative=conservative)
    table = make_dqn(SHAPE, learner, inputs)
    network = DoubleDqn(SHAPE, learner)
    assert isinstance(table, TableDqn)
    now, apart = (
        network.layered(rng.normal(size=SHAPE.n_parameters).astype(np.float32)) for _ in range(2)
    )
    rows = batch(rng, weighted)
    same = looked_up(rows, inputs)
    for found, expected in (
        (
            table.clipped_sum(now, apart, rows, clip_norm),
            network.clipped_sum(now, apart, same, clip_norm),
        ),
        (table.mean(now, apart, rows), network.mean(now, apart, same)),
        (table.errors(now, apart, rows), network.errors(now, apart, same)),
    ):
        np.testing.assert_allclose(found, expected, rtol=1e-4, atol=2e-5)


def test_other_inputs_or_hidden_layers_are_no_table():
    learner = LearnerSettings()
    dense = np.ones((6, 6), np.float32)
    assert not isinstance(make_dqn(SHAPE, learner, dense), TableDqn)
    assert not isinstance(make_dqn(SHAPE, learner, None), TableDqn)
    deep = NetworkShape(6, 3, (4,))
    assert not isinstance(make_dqn(deep, learner, np.eye(6, dtype=np.float32)), TableDqn)
