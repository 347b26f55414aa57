# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""A small hospital to train: records, a ledger, and noise that records every draw."""

from collections.abc import Sequence
from pathlib import Path

from fdrl_ros.learner.learner import TrainingResult
from fdrl_ros.learner.records.records import Records
from fdrl_ros.learner.settings import PrivacySettings
from fdrl_ros.learner.trainer import Trainer
from fdrl_ros.policy import NetworkShape
from fdrl_ros.privacy.ledger.chain import Owner
from fdrl_ros.privacy.ledger.ledger import Ledger
from fdrl_ros.privacy.noise import NoiseSource
import numpy as np

SHAPE = NetworkShape(states=2, actions=2, hidden=(3,))
PRIVACY = PrivacySettings(batch=5, noise_multiplier=2.0, delta=1e-3, budget=50.0, clip_norm=1.0)
START = SHAPE.draw(np.random.default_rng(0))

Draws = list[tuple[str, str, int, int]]
"""In order: what was done, in which hospital, in which round, and in which block or step."""


class RecordedNoise(NoiseSource):
    """A seeded source that notes every draw."""

    def __init__(self, hospital: str, told: Draws) -> None:
        super().__init__(hospital.encode().ljust(32), private=False)
        self.hospital, self.told = hospital, told

    def uniform_words(self, purpose, round, step, size):
        self.told.append(('drawn', self.hospital, round, step))
        return super().uniform_words(purpose, round, step, size)

    def gaussian(self, purpose, round, step, size):
        self.told.append(('drawn', self.hospital, round, step))
        return super().gaussian(purpose, round, step, size)


def records_of(
    lengths: Sequence[int], size: tuple[int, int] = (2, 2), first: int = 0, **changes: object
) -> Records:
    """
    Return patients who walk at random, one after the other, each of so many transitions.

    :param size: numbers in a state, and actions.
    :param first: number of the first patient; others have other records.
    :param changes: arrays in place of those.
    """
    rng, starts = np.random.default_rng(first), np.cumsum([0, *lengths])
    path = rng.normal(size=(starts[-1] + 1, size[0]))
    arrays = {
        'states': path[:-1],
        'actions': rng.integers(size[1], size=starts[-1]),
        'rewards': rng.normal(size=starts[-1]),
        'next_states': path[1:],
        'terminals': rng.random(starts[-1]) < 0.2,
        'starts': starts,
        'patients': np.array([f'patient_{first + i}' for i in range(len(lengths))]),
    }
    return Records(**arrays | changes)


def records(patients: int = 10, first: int = 0) -> Records:
    """Return patients of three transitions, none of which is terminal."""
    return records_of([3] * patients, first=first, terminals=np.zeros(3 * patients, bool))


def trained(trainer: Trainer, weights: np.ndarray, round: int = 1) -> TrainingResult:
    """Train a round, and tell nobody."""
    return trainer.train(weights, round, report=lambda told: None, stopped=lambda: False)


def joined(parts: Sequence[Records]) -> Records:
    """Put the records of different patients together."""
    counts = np.cumsum([0, *(each.n_transitions for each in parts)])
    arrays = {
        name: np.concatenate([part.arrays()[name] for part in parts]) for name in parts[0].arrays()
    }
    starts = [each.starts[:-1] + count for each, count in zip(parts, counts[:-1], strict=True)]
    return Records(**{**arrays, 'starts': np.concatenate((*starts, counts[-1:]))})


def ledger_of(home: Path, hospital: str, privacy: PrivacySettings) -> Ledger:
    return Ledger(
        home / f'{hospital}.sqlite',
        Owner(hospital=hospital, unit=privacy.unit, delta=privacy.delta, budget=privacy.budget),
    )
