# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""The same steps of training with and without a patient, for tests of what one patient moves."""

from dataclasses import dataclass, field, replace
from pathlib import Path
from types import SimpleNamespace

from fdrl_ros.learner.records.sampling import Replay, SampledUnits
from fdrl_ros.learner.records.transitions import Batch
from fdrl_ros.learner.trainer import Trainer, TrainingSetup
from fdrl_ros.privacy.ledger.chain import Owner
from fdrl_ros.privacy.noise import NoiseSource
import numpy as np
from support.small_hospital import joined, records_of

ROUNDS = 2
STEPS = 3


@dataclass
class FullCompany:
    """What the hospital with all patients did in each step."""

    units: dict[int, np.ndarray] = field(default_factory=dict)
    """Who joined."""
    batches: dict[int, Batch] = field(default_factory=dict)
    released: dict[int, np.ndarray] = field(default_factory=dict)


class SharedNoise(NoiseSource):
    """
    Seeded noise of which everybody takes the part that is theirs in full company.

    Those who join share one stream for their transitions. Its numbers are independent, so each may
    have those that it has in full company.
    """

    kept: np.ndarray
    """Whether each of those who join in full company joins here."""

    def uniform(self, purpose, round, step, size):
        if purpose != 'transitions':
            return super().uniform(purpose, round, step, size)
        each = size // self.kept.sum()
        drawn = super().uniform(purpose, round, step, len(self.kept) * each)
        return drawn.reshape(-1, each)[self.kept].ravel()


class SparseReplay(Replay):
    """Sampling in a hospital where nobody joins from some places; the others keep theirs."""

    def __init__(self, ward, priorities):
        super().__init__(ward.mechanism, ward.learner, ward.source, priorities)
        self.ward = ward

    def draw(self, round, step):
        units, weights = super().draw(round, step)
        there = ~np.isin(units, self.ward.empty)
        units, weights = (x if x is None else x[there] for x in (units, weights))
        full = self.ward.company.units.setdefault(step, units)
        self.ward.source.kept = ~np.isin(full, self.ward.empty)
        np.testing.assert_array_equal(units, full[self.ward.source.kept])  # coins of the others
        return SampledUnits(units, weights)


class Ward(Trainer):
    """A trainer with empty places, which goes on from what the full company released."""

    empty = np.arange(0)

    def __init__(self, network, learner, privacy, records, seed):
        owner = Owner('a', privacy.unit, privacy.delta, privacy.budget)
        ledger = SimpleNamespace(owner=owner, reserve=lambda **named: None)
        self.company, self.source = FullCompany(), SharedNoise.seeded(seed)
        fields = tuple(f'input_{i}' for i in range(network.states))
        setup = TrainingSetup(network, learner, privacy, ledger, self.source, fields=fields)
        super().__init__(setup, records, Path('no checkpoint'), STEPS)

    def replay(self, priorities=None):
        return SparseReplay(self, priorities)

    def batch(self, draw, round, step):
        own = super().batch(draw, round, step)
        full = self.company.batches.setdefault(step, own)
        for name in ('states', 'actions', 'rewards', 'next_states', 'discounts', 'weights'):
            column, expected = getattr(own, name), getattr(full, name)
            if expected is not None:
                expected = expected[self.source.kept]
            np.testing.assert_array_equal(column, expected)
        return own

    def private_gradient(self, replay, weights, target, round, step):
        own = super().private_gradient(replay, weights, target, round, step)
        released = self.company.released.setdefault(step, own)
        moved = self.privacy.batch * np.linalg.norm(released - own)
        assert moved <= self.privacy.clip_norm * self.mechanism.group
        return released.copy()  # the caller changes it


def check_each_patient_in_turn(network, learner, privacy, lengths, *, wild=1.0, seed=0):
    """
    Train without each patient in turn, from the releases of all, and compare every step.

    A release moves by at most C for each record that the patient is charged for. All that
    training keeps is the same bits but for the patient's own priorities.

    :param lengths: transitions of each patient.
    :param wild: factor of the first patient's states and rewards.
    """
    size = network.states, network.actions
    parts = [records_of([count], size, first=i + 1) for i, count in enumerate(lengths)]
    first = {name: getattr(parts[0], name) * np.float32(wild) for name in ('states', 'rewards')}
    parts[0] = replace(parts[0], **first)
    starts, by_record = np.cumsum([0, *lengths]), privacy.clipped == 'transition'

    ward = Ward(network, learner, privacy, joined(parts), seed)

    def trained():
        rng, state = np.random.default_rng(seed), None
        start = network.draw(rng)
        for round in range(1, ROUNDS + 1):
            state = ward.train_on(state, start, round, stopped=lambda: False)
            if round < ROUNDS and len(state.priorities):  # as if after many rounds
                drawn = rng.uniform(1e-3, 1.0, len(state.priorities))
                state = replace(state, priorities=drawn)
        return state

    whole = trained()
    for left in range(len(parts)):
        ward.empty = np.arange(starts[left], starts[left + 1]) if by_record else np.array([left])
        # Other records lie at the empty places: as many as before only where each has a place.
        count = lengths[left] + (0 if by_record else 2)
        other = records_of([count], size, first=100 + left)
        ward.use_records(joined([*parts[:left], other, *parts[left + 1 :]]), STEPS)
        state = trained()
        for name in ('weights', 'target', 'moments', 'total'):
            np.testing.assert_array_equal(getattr(state, name), getattr(whole, name))
        if len(whole.priorities):
            np.testing.assert_array_equal(
                *(np.delete(each.priorities, ward.empty) for each in (state, whole))
            )
