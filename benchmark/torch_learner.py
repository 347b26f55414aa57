# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""
How fast real models learn, travel encrypted and act: PyTorch, a million weights, ONNX.

    python benchmark/torch_learner.py --json torch_learner.json

Learning is measured beside Opacus on the same module, records and loss, in turns on one core with
one thread. Our step holds all that a hospital pays: Poisson sampling of patients, clipping by
patient in a sum that hides who else was there, noise from a secret key, the ledger and the
checkpoint. Opacus' step clips by patient as well: a patient's transitions are one sample of it.
The libraries come from `make setup`, or `pip install "fdrl_ros[torch,onnx]"`.
"""

from collections.abc import Callable
from dataclasses import dataclass
import itertools
import math
from pathlib import Path
import tempfile
from typing import Any
import warnings

from benchmarking import (
    as_process,
    check,
    circumstances,
    has,
    measure,
    Measurement,
    options,
    progress,
    Row,
    show_shares,
    Skipped,
    Table,
    where_time_goes,
    Work,
    write,
)
import crypto_million
from fdrl_ros.learner.records.records import Records
from fdrl_ros.learner.settings import LearnerSettings, PrivacySettings
from fdrl_ros.learner.trainer import Trainer, TrainingSetup
from fdrl_ros.privacy.noise import NoiseSource
from fdrl_ros.tasks.spec import TaskSpec
from learner_work import CLIP_NORM, DELTA, DISCOUNT, LEARNING_RATE, ledger_in, NOISE, SEED
import numpy as np
import onnx_decisions

PACKAGES = ('torch', 'opacus', 'onnxruntime', 'tenseal', 'numpy')
EPOCHS = 2
"""Blocks of a round: local epochs."""
TARGET_PERIOD = 12


@dataclass(frozen=True)
class Case:
    """A module and the steps that it takes: patients of a step, transitions of each."""

    spec: TaskSpec
    network: str
    hidden: int
    batch: int
    transitions: int
    patients: int
    length: int

    @property
    def learner(self) -> LearnerSettings:
        """Return how a hospital learns."""
        return LearnerSettings(
            kind='torch',
            network=self.network,
            hidden=self.hidden,
            device='cpu',
            discount=DISCOUNT,
            learning_rate=LEARNING_RATE,
            epochs=EPOCHS,
            transitions_per_patient=self.transitions,
            target_period=TARGET_PERIOD,
            proximal=0.0,
            optimizer='sgd',
        )

    def make(self) -> Any:
        """
        Return the network.

        :raises Skipped: if a library is missing.
        """
        if not (has('torch') and has('opacus')):
            raise Skipped('the extra fdrl_ros[torch] is not installed')
        from fdrl_ros.learner.torch.learner import torch_network

        return torch_network(self.spec, self.learner)

    def records(self) -> Records:
        """Return what a hospital has, made up: no step asks what the numbers mean."""
        rng, count = np.random.default_rng(SEED), self.patients * self.length
        draws = rng.normal(size=(2, count, self.spec.size)).astype(np.float32)
        if self.spec.dtype == 'uint8':
            draws = rng.integers(0, 256, draws.shape).astype(np.uint8)
        return Records(
            states=draws[0],
            actions=rng.integers(self.spec.n_actions, size=count),
            rewards=rng.normal(size=count).astype(np.float32),
            next_states=draws[1],
            terminals=rng.random(count) < 0.02,
            starts=np.arange(self.patients + 1) * self.length,
            patients=np.array([f'patient_{i}' for i in range(self.patients)]),
            ends=np.tile(np.arange(self.length) == self.length - 1, self.patients),
        )


MLP = Case(
    TaskSpec((26,), actions=tuple(f'action_{i}' for i in range(15))),
    network='mlp',
    hidden=64,
    batch=128,
    transitions=60,
    patients=1280,
    length=40,
)
"""The network and the step that plans have by default."""
CNN = Case(
    TaskSpec((3, 64, 64), 'uint8', actions=tuple(f'action_{i}' for i in range(5))),
    network='cnn',
    hidden=480,
    batch=64,
    transitions=1,
    patients=640,
    length=1,
)
"""A million weights, images of 64 x 64 pixels in colour."""


def private_steps(case: Case, folder: Path) -> Work:
    """Return work that is a round of local training; it counts steps."""
    network = case.make()
    home = Path(tempfile.mkdtemp(dir=folder))
    privacy = PrivacySettings(
        budget=math.inf,
        delta=DELTA,
        clip_norm=CLIP_NORM,
        noise_multiplier=NOISE,
        batch=case.batch,
    )
    setup = TrainingSetup(
        network,
        case.learner,
        privacy,
        ledger_in(home, 'patient'),
        NoiseSource.secure(home / 'noise.key'),
    )
    trainer = Trainer(setup, case.records(), home / 'checkpoint')
    weights, rounds = network.draw(np.random.default_rng(SEED)), itertools.count(1)

    def work() -> int:
        trainer.train(weights, next(rounds), report=lambda told: None, stopped=lambda: False)
        return EPOCHS * trainer.steps_per_block

    return work


def opacus_steps(case: Case) -> Work:
    """
    Return work that takes steps of double DQN by Opacus' hooks and optimizer; it counts them.

    A step's patients are drawn with replacement, always as many, and nobody keeps a ledger.
    """
    network = case.make()
    from opacus import GradSampleModule
    from opacus.optimizers import DPOptimizer
    import torch

    warnings.filterwarnings('ignore', 'Full backward hook is firing')  # inputs need no gradient
    torch.set_num_threads(1)
    draws = torch.Generator().manual_seed(SEED)
    own, target = (network.build(np.random.default_rng(SEED)) for _ in range(2))
    trained = GradSampleModule(own)
    optimizer = DPOptimizer(
        torch.optim.SGD(own.parameters(), lr=LEARNING_RATE),
        noise_multiplier=NOISE,
        max_grad_norm=CLIP_NORM,
        expected_batch_size=case.batch,
    )
    known, steps = case.records(), itertools.count()
    rows = case.transitions > 1  # an axis of a patient's transitions; the CNN takes none
    scale = 255.0 if case.spec.dtype == 'uint8' else 1.0

    def states(column: np.ndarray, index: Any) -> Any:
        found = torch.from_numpy(column)[index].to(torch.float32) / scale
        return found.unflatten(-1, case.spec.shape)

    def step() -> None:
        if next(steps) % TARGET_PERIOD == 0:
            target.load_state_dict(own.state_dict())
        units = torch.randint(case.patients, (case.batch,), generator=draws)
        index = units * case.length
        if rows:
            size = case.batch, case.transitions
            index = index[:, None] + torch.randint(case.length, size, generator=draws)
        now, after = states(known.states, index), states(known.next_states, index)
        actions = torch.from_numpy(known.actions)[index]
        rewards = torch.from_numpy(known.rewards)[index]
        discounts = DISCOUNT * torch.from_numpy(~known.terminals)[index]
        with torch.no_grad():
            best = own(after).argmax(-1, keepdim=True)
            wanted = rewards + discounts * target(after).gather(-1, best).squeeze(-1)
        optimizer.zero_grad()
        taken = trained(now).gather(-1, actions.unsqueeze(-1)).squeeze(-1)
        losses = torch.nn.functional.smooth_l1_loss(taken, wanted, reduction='none')
        losses.mean().backward()
        optimizer.step()

    def work() -> int:
        for _ in range(4):
            step()
        return 4

    return work


OPACUS = "Opacus' hooks, clipped by patient, us"
ROWS = (
    Row('patient_step_us', 'mlp', 'mlp opacus', OPACUS, None),
    Row('patient_step_over_opacus', 'mlp', 'mlp opacus', OPACUS, 1.2, False, 'own/peer'),
    Row('cnn_step_us', 'cnn', 'cnn opacus', OPACUS, None),
    Row('cnn_step_over_opacus', 'cnn', 'cnn opacus', OPACUS, 1.5, False, 'own/peer'),
    crypto_million.SECONDS,
    *onnx_decisions.ROWS,
)


def measurements(folder: Path) -> dict[str, Measurement]:
    """
    Return everything that is measured in turns.

    :param folder: for ledgers and checkpoints.
    """

    def ours(case: Case) -> Callable[[], Work]:
        return lambda: private_steps(case, folder)

    def theirs(case: Case) -> Callable[[], Work]:
        return lambda: opacus_steps(case)

    found = {
        'mlp': Measurement(ours(MLP), 'us'),
        'mlp opacus': Measurement(theirs(MLP), 'us'),
        'cnn': Measurement(ours(CNN), 'us'),
        'cnn opacus': Measurement(theirs(CNN), 'us'),
        crypto_million.SECONDS.own: crypto_million.measurement(),
    }
    return found | onnx_decisions.measurements()


def main() -> None:
    """Measure, print, write."""
    parser = options('Measure the speed of real models.')
    parser.add_argument('--folder', type=Path, default=Path(), help='on a disk, for ledgers')
    given = parser.parse_args()
    check(parser, given)
    as_process()
    run = circumstances(given, SEED, PACKAGES)
    with tempfile.TemporaryDirectory(dir=given.folder, prefix='benchmark_') as name:
        folder = Path(name)
        found = measure(measurements(folder), given.repeats, given.seconds)
        shares = {}
        for title, case in (('a step of the MLP', MLP), ('a step of the CNN', CNN)):
            try:
                shares[title] = where_time_goes(private_steps(case, folder), 3.0)
            except Skipped as reason:
                progress(f'{title}: {reason}')
    progress('')
    made = Table([row.name for row in (*ROWS, crypto_million.BYTES)], run)
    for row in ROWS:
        made.add(row, found)
    made.add_one(crypto_million.BYTES, crypto_million.upload(), 'B')
    made.end()
    for title, share in shares.items():
        show_shares(title, share)
    if given.json:
        write(given.json, made.written)


if __name__ == '__main__':
    main()
