# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""
What leaves the private step: the trainer with canaries, its releases, and what follows from them.

A step may hand on its release alone. So whatever training makes of patients must follow from the
releases: :class:`Follower` makes it again without any record.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from fdrl_ros.audit.canary import Canaries, compiled, planted, PlantedDqn
from fdrl_ros.audit.distribution import (
    clipping_tests,
    FAULTS,
    Flags,
    Floats,
    inclusion_tests,
    joins_of,
    noise_tests,
)
from fdrl_ros.audit.estimate import Projections
from fdrl_ros.learner.records.records import Records
from fdrl_ros.learner.records.sampling import Replay, SampledUnits
from fdrl_ros.learner.records.transitions import Batch
from fdrl_ros.learner.settings import LearnerSettings
from fdrl_ros.learner.trainer import Trainer, TrainingSetup
from fdrl_ros.privacy.accountant.accountant import Charge
from fdrl_ros.privacy.noise import NoiseSource
import numpy as np
from numpy.typing import NDArray

_LEFT = 1.0 - 2.0**-10  # of C, after clipping; the audited code is not asked
_MOST_WEIGHTS = 8192  # whose noise is kept
_COMPARED = 64  # steps of two hospitals


@dataclass(frozen=True, eq=False)
class Release:
    """
    One step, with what the world sees of it and what only a test sees.

    ``weights`` that the step begins with, flat, float32. ``gradient``: the noised mean gradient,
    released, (trained weights,). ``clipped``: the sum before noise, and ``known``: the part of it
    that others than canaries added, same shape. ``units``: who joined, (joined,). ``priorities``
    of all units before the step; empty if there are none.
    """

    round: int
    step: int
    weights: NDArray[np.float32]
    gradient: Floats
    clipped: Floats
    known: Floats
    units: NDArray[np.int64]
    priorities: Floats


ReleaseObserver = Callable[[Release], None]
"""Sees a step."""


class AuditedTrainer(Trainer):
    """
    The trainer with canaries among its patients, which shows every release to its observers.

    A canary has a record, as a patient has, and joins a step by the trainer's own coins. One that
    is no member has an empty place: it may join, and adds nothing.
    """

    dqn: PlantedDqn
    observers: tuple[ReleaseObserver, ...] = ()

    def plant(self, canaries: Canaries) -> None:
        """Put canaries into the last records, which :func:`with_canary_places` added."""
        first = self.mechanism.n_records - len(canaries)
        self.dqn = planted(compiled(self.network), self.learner, self._inputs, canaries, first)

    def batch(self, draw: SampledUnits, round: int, step: int) -> Batch:
        """Return the transitions of those who joined; see :class:`Trainer`."""
        self.dqn.units = draw.units
        return super().batch(draw, round, step)

    def private_gradient(
        self, replay: Replay, weights: np.ndarray, target: np.ndarray, round: int, step: int
    ) -> np.ndarray:
        """Return the release of a step, and show it; see :class:`Trainer`."""
        self.dqn.forget()
        priorities = replay.priorities.copy()
        gradient = super().private_gradient(replay, weights, target, round, step)
        dqn = self.dqn
        seen = (gradient.copy(), dqn.clipped, dqn.known, dqn.units, priorities)
        for observer in self.observers:
            observer(Release(round, step, weights, *seen))
        return gradient


class Follower(Trainer):
    """
    Does what the trainer does after each release, with empty records and releases that it is told.

    Its weights are therefore those that may be known.
    """

    astray: str = ''
    """Where the audited weights first differ from these; empty: nowhere."""

    def __init__(self, setup: TrainingSetup, records: Records, file: Path, steps: int) -> None:
        """Begin as the audited trainer does; see there."""
        super().__init__(setup, emptied(records), file, steps)
        self.told: list[Release] = []

    def private_gradient(
        self, replay: Replay, weights: np.ndarray, target: np.ndarray, round: int, step: int
    ) -> np.ndarray:
        """Return the release of a step, after comparing the weights that it began with."""
        release = self.told.pop(0)
        if not self.astray and not np.array_equal(weights, release.weights):
            self.astray = f'before step {step} of round {round}'
        return release.gradient.copy()

    def follow(self, weights: np.ndarray, round: int, result: np.ndarray) -> None:
        """
        Train a round from what was told, and compare what the audited trainer ended with.

        :param weights: at the beginning, and `result`: at the end, flat.
        """
        made = self.train(
            weights, round, report=lambda progress: None, stopped=lambda: False
        ).weights
        if not self.astray and not np.array_equal(made, result):
            self.astray = f'after round {round}'


def with_canary_places(records: Records, count: int) -> Records:
    """Add places for canaries to the records: patients of one transition of zeros each."""
    columns: dict[str, NDArray[np.generic]] = {}
    for name, before in records.arrays().items():
        added = np.zeros((count, *before.shape[1:]), before.dtype)
        columns[name] = np.concatenate((before, added))
    columns['starts'] = np.append(records.starts, records.starts[-1] + 1 + np.arange(count))
    names = [f'canary {number}' for number in range(count)]
    columns['patients'] = np.concatenate((records.patients, names))
    return Records.from_arrays(columns)


def emptied(records: Records) -> Records:
    """Return as many patients and transitions, all of zeros."""
    kept = {'starts': records.starts, 'patients': records.patients}
    columns = {name: np.zeros_like(each) for name, each in records.arrays().items()}
    return Records.from_arrays(columns | kept)


class Observation:
    """
    What an audit sees of all steps.

    ``along``: projections of the releases on canaries, less what patients added, in units of C,
    (canaries,) of each step. ``units``: who joined, (joined,) of each. ``noise``: what a release
    has beside its clipped sum, in units of sigma C, of up to 8192 weights, of each.
    """

    def __init__(
        self,
        canaries: Canaries,
        charge: Charge,
        *,
        n_units: int,
        clip_norm: float,
        expected_batch: float,
        rng: np.random.Generator,
    ) -> None:
        """
        Learn what is public.

        :param charge: of which noise and sampling each step is charged to be.
        :param rng: chooses the weights whose noise is kept, where there are more.
        """
        self.canaries, self.charge, self.n_units = canaries, charge, n_units
        self.first = n_units - len(canaries)
        """Unit that is the first canary."""
        self.steps: list[tuple[int, int]] = []
        self.along: list[Floats] = []
        self.units: list[NDArray[np.int64]] = []
        self.noise: list[Floats] = []
        self.priorities: list[Floats] = []
        self._clip_norm, self._expected_batch, self._rng = clip_norm, expected_batch, rng
        self._kept: slice | NDArray[np.int64] = slice(None)

    def __call__(self, release: Release) -> None:
        """See a step."""
        total = release.gradient * self._expected_batch
        if not self.steps and len(total) > _MOST_WEIGHTS:
            self._kept = np.sort(self._rng.permutation(len(total))[:_MOST_WEIGHTS])
        self.steps.append((release.round, release.step))
        self.along.append(self.canaries.along(total - release.known) / self._clip_norm)
        self.units.append(release.units)
        unit = self.charge.noise_multiplier * self._clip_norm
        self.noise.append((total - release.clipped)[self._kept] / unit)
        self.priorities.append(release.priorities)

    def noise_of(self, source: NoiseSource, size: int) -> Floats:
        """
        Draw what another hospital's source gives in the first steps that were seen.

        :param size: number of trained weights.
        """
        drawn = [source.gaussian('gradient', *each, size) for each in self.steps[:_COMPARED]]
        return np.array(drawn)[:, self._kept]

    @cached_property
    def joins(self) -> Flags:
        """Who joined which step, shape (steps, units)."""
        return joins_of(self.units, self.n_units)

    @cached_property
    def joined(self) -> Flags:
        """Which canary joined which step as a member, shape (steps, canaries)."""
        return self.joins[:, self.first :] & self.canaries.members

    @cached_property
    def projections(self) -> Projections:
        """Sums over :attr:`along`."""
        return Projections.of(np.array(self.along), self.joined, self.joins)

    def tests(self, learner: LearnerSettings, others: list[Floats]) -> dict[str, float]:
        """
        Return the p-value of every test of :mod:`fdrl_ros.audit.distribution`.

        :param learner: says how private priorities become coins.
        :param others: as :func:`noise_of` draws them.
        """
        sigma, q = self.charge.noise_multiplier, self.charge.sampling_probability
        along, noise = np.array(self.along) / sigma, np.array(self.noise)
        sizes = np.array([len(each) for each in self.units])
        families = {
            'coins': inclusion_tests(self.units, self._probabilities(learner, q), self.n_units),
            'noise': noise_tests(noise, sizes, others),
            'clipping': clipping_tests(along, self.joined, _LEFT / sigma),
        }
        found = {
            f'{family}: {name}': p for family, each in families.items() for name, p in each.items()
        }
        assert found.keys() <= FAULTS.keys()
        return found

    def _probabilities(self, learner: LearnerSettings, q: float) -> Floats | float:
        """
        Return what the coins of each step should be.

        Priorities are private: coins that follow them may be charged at q = 1 alone. Where less is
        charged, all coins should be of that probability.
        """
        if q < 1.0 or learner.replay != 'prioritised_poisson':
            return q
        scale = self._expected_batch / self.n_units / learner.expected_priority
        return np.minimum(1.0, scale * np.array(self.priorities))
