# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""A small hospital to train: records, a ledger, and noise that records every draw."""

from collections.abc import Sequence
from dataclasses import fields
from pathlib import Path

from fdrl_ros.learner.records.records import Records
from fdrl_ros.learner.settings import PrivacySettings
from fdrl_ros.policy import NetworkShape
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


def records(patients: int = 10, first: int = 0) -> Records:
    rng = np.random.default_rng(first)
    count = 3 * patients
    return Records(
        states=rng.normal(size=(count, 2)),
        actions=rng.integers(2, size=count),
        rewards=rng.normal(size=count),
        next_states=rng.normal(size=(count, 2)),
        terminals=np.zeros(count, bool),
        starts=np.arange(patients + 1) * 3,
        patients=np.array([f'patient_{first + i}' for i in range(patients)]),
    )


def joined(parts: Sequence[Records]) -> Records:
    """Put the records of different patients together."""
    counts = np.cumsum([0, *(each.n_transitions for each in parts)])
    arrays = {
        each.name: np.concatenate([getattr(part, each.name) for part in parts])
        for each in fields(Records)
    }
    starts = [each.starts[:-1] + count for each, count in zip(parts, counts[:-1], strict=True)]
    return Records(**{**arrays, 'starts': np.concatenate((*starts, counts[-1:]))})


def ledger_of(home: Path, hospital: str, privacy: PrivacySettings) -> Ledger:
    return Ledger.open(
        home / f'{hospital}.sqlite',
        hospital=hospital,
        unit=privacy.unit,
        delta=privacy.delta,
        budget=privacy.budget,
    )
