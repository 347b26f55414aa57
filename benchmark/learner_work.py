# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""
What of our private learner is measured, as work that is repeated: always with ledger and noise.

Each block of steps is reserved in a ledger on disk before its noise is drawn from a secret key,
and followed by a checkpoint, as in a hospital.
"""

from dataclasses import dataclass
import itertools
import math
from pathlib import Path
import subprocess
import sys
import tempfile

from benchmarking import peak, Skipped, Work
from fdrl_ros.learner.online import GymCollector, OnlineSettings, OnlineTrainer
from fdrl_ros.learner.records.records import Records
from fdrl_ros.learner.settings import LearnerSettings, PrivacySettings
from fdrl_ros.learner.trainer import Trainer, TrainingSetup
from fdrl_ros.policy import NetworkShape
from fdrl_ros.privacy.ledger.chain import Owner
from fdrl_ros.privacy.ledger.ledger import Ledger
from fdrl_ros.privacy.noise import NoiseSource
import gymnasium
import numpy as np

SEED = 0
"""Of records, starting weights and the patients of CartPole."""
PATIENTS = 400
LENGTH = 25
"""Transitions of a patient: a hospital has 10,000."""
HOSPITALS = 30
"""Trained together."""
EPOCHS = 12
"""Blocks of a round: local epochs."""
TARGET_PERIOD = 100
"""Steps between two copies into the target network, ours and the peers'."""
DISCOUNT = 0.9
LEARNING_RATE = 1e-3
CLIP_NORM = 0.4
NOISE = 2.6
"""Noise multiplier."""
DELTA = 1e-5
PER_PATIENT = 4
"""Transitions of each patient in a step at patient level."""


@dataclass(frozen=True)
class Size:
    """Numbers in a state, actions, units of each hidden layer; transitions of a step."""

    states: int
    actions: int
    hidden: int
    batch: int

    @property
    def shape(self) -> NetworkShape:
        """Return the shape of the dueling network."""
        return NetworkShape(self.states, self.actions, (self.hidden, self.hidden))


SMALL = Size(5, 3, 64, 32)
LARGE = Size(47, 25, 128, 64)


def records(size: Size, seed: int = SEED) -> Records:
    """Return what a hospital has, made up: no step asks what the numbers mean."""
    rng, count = np.random.default_rng(seed), PATIENTS * LENGTH
    return Records(
        states=rng.normal(size=(count, size.states)).astype(np.float32),
        actions=rng.integers(size.actions, size=count),
        rewards=rng.normal(size=count).astype(np.float32),
        next_states=rng.normal(size=(count, size.states)).astype(np.float32),
        terminals=rng.random(count) < 1.0 / LENGTH,
        starts=np.arange(PATIENTS + 1) * LENGTH,
        patients=np.array([f'patient_{i}' for i in range(PATIENTS)]),
    )


def ledger_in(home: Path, unit: str) -> Ledger:
    """
    Begin a ledger.

    Without a budget, so that a long measurement never ends it; each block is checked all the same.
    """
    return Ledger(
        home / 'ledger.sqlite', Owner(hospital='measured', unit=unit, delta=DELTA, budget=math.inf)
    )


def hospital(
    size: Size,
    folder: Path,
    unit: str = 'transition',
    seed: int = SEED,
    algorithm: str = 'double_dqn',
) -> Trainer:
    """
    Return a hospital's private learner by SGD.

    A block has so many steps that each transition is expected once, whatever the unit.
    """
    home = Path(tempfile.mkdtemp(dir=folder))
    each = 1 if unit == 'transition' else PER_PATIENT
    return Trainer(
        TrainingSetup(
            size.shape,
            LearnerSettings(
                algorithm=algorithm,
                hidden=size.hidden,
                discount=DISCOUNT,
                learning_rate=LEARNING_RATE,
                epochs=EPOCHS,
                transitions_per_patient=each,
                target_period=TARGET_PERIOD,
                proximal=0.0,
                optimizer='sgd',
            ),
            PrivacySettings(
                unit=unit,
                budget=math.inf,
                delta=DELTA,
                clip_norm=CLIP_NORM,
                noise_multiplier=NOISE,
                batch=size.batch // each,
            ),
            ledger_in(home, unit),
            NoiseSource.secure(home / 'noise.key'),
        ),
        records(size, seed),
        home / 'checkpoint.npz',
        steps=math.ceil(PATIENTS * LENGTH / size.batch),
    )


def start(size: Size) -> np.ndarray:
    """Return the weights that training begins at."""
    return size.shape.draw(np.random.default_rng(SEED))


def private_steps(
    size: Size, folder: Path, unit: str = 'transition', algorithm: str = 'double_dqn'
) -> Work:
    """Return work that is a round of local training; it counts steps."""
    trainer, weights = hospital(size, folder, unit, algorithm=algorithm), start(size)
    rounds = itertools.count(1)

    def work() -> int:
        trainer.train(weights, next(rounds), report=lambda told: None, stopped=lambda: False)
        return EPOCHS * trainer.steps_per_block

    return work


def hospitals_steps(size: Size, folder: Path) -> Work:
    """Return work that trains 30 hospitals for a round in turn; it counts steps of each."""
    trainers = [hospital(size, folder, seed=SEED + i) for i in range(HOSPITALS)]
    weights, rounds = start(size), itertools.count(1)

    def work() -> int:
        round = next(rounds)
        for trainer in trainers:
            trainer.train(weights, round, report=lambda told: None, stopped=lambda: False)
        return HOSPITALS * EPOCHS * trainers[0].steps_per_block

    return work


CART_POLE = 'CartPole-v1'
CART_BATCH = 64
CART_HIDDEN = 64
CART_DISCOUNT = 0.99
ONLINE = OnlineSettings(warm_up=CART_BATCH)
"""One step of learning for each step in the env, from the first batch on."""


def cart_pole_steps(folder: Path) -> Work:
    """Return work that learns CartPole privately from nothing; it counts steps in the env."""

    def work() -> int:
        home = Path(tempfile.mkdtemp(dir=folder))
        shape = NetworkShape(4, 2, (CART_HIDDEN, CART_HIDDEN))
        with ledger_in(home, 'transition') as ledger:
            trainer = OnlineTrainer(
                TrainingSetup(
                    shape,
                    LearnerSettings(
                        hidden=CART_HIDDEN,
                        discount=CART_DISCOUNT,
                        learning_rate=LEARNING_RATE,
                        target_period=TARGET_PERIOD,
                    ),
                    PrivacySettings(
                        unit='transition',
                        budget=math.inf,
                        delta=DELTA,
                        clip_norm=CLIP_NORM,
                        noise_multiplier=NOISE,
                        batch=CART_BATCH,
                    ),
                    ledger,
                    NoiseSource.secure(home / 'noise.key'),
                ),
                GymCollector(gymnasium.make(CART_POLE), SEED),
                ONLINE,
                home,
            )
            trainer.train(shape.draw(np.random.default_rng(SEED)))
        return trainer.transitions

    return work


def peak_of(who: str, folder: Path) -> float:
    """
    Return the peak of a fresh process that trains one hospital, MB.

    :param who: 'own' or 'opacus'.
    :param folder: for ledger and checkpoint.
    :raises Skipped: if it cannot be measured.
    """
    done = subprocess.run(
        [sys.executable, __file__, who, str(folder)], capture_output=True, text=True
    )
    if done.returncode:
        raise Skipped((done.stderr.splitlines() or [f'exit code {done.returncode}'])[-1])
    return float(done.stdout)


def main() -> None:
    """Train one hospital with the larger network, and print the peak."""
    _, who, folder = sys.argv
    try:
        if who == 'opacus':
            from learner_peers import torch_steps

            torch_steps(LARGE, dueling=True, private=True)()
        else:
            private_steps(LARGE, Path(folder))()
        print(peak())
    except Skipped as reason:
        sys.exit(str(reason))


if __name__ == '__main__':
    main()
