# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""Made-up transitions for tests of what the learner computes."""

from fdrl_ros.learner.records.transitions import Batch, Transitions
import numpy as np


def batch_of(rng, shape, *size, weighted=False):
    """Draw a batch of a size, (units, transitions), for a network."""
    return Batch(
        states=rng.normal(size=(*size, shape.states)).astype(np.float32),
        actions=rng.integers(shape.actions, size=size),
        rewards=rng.normal(scale=2.0, size=size).astype(np.float32),
        next_states=rng.normal(size=(*size, shape.states)).astype(np.float32),
        discounts=(0.9 * rng.integers(2, size=size)).astype(np.float32),
        weights=rng.uniform(0.1, 1.0, size).astype(np.float32) if weighted else None,
    )


def part(batch, units):
    """Take some units of a batch."""
    return batch.mapped(lambda column: column[units])


def transitions_of(rng, shape, count):
    """Draw a hospital's transitions, each a unit of its own."""
    rows = vars(batch_of(rng, shape, count, 1).rows())
    del rows['weights']
    return Transitions(**rows, starts=np.arange(count + 1))
