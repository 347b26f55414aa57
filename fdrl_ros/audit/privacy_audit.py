# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""Audit in one run: train as a hospital does, with canaries, and bound epsilon from below."""

from collections.abc import Callable
from dataclasses import dataclass, replace
import math
from pathlib import Path
import time

from fdrl_ros.audit.attack import Adversary, plan_guesses, Proof, prove, Release
from fdrl_ros.audit.bound import gaussian_lower_bound
from fdrl_ros.audit.canary import Canaries, compiled, draw_canaries, planted, PlantedDqn
from fdrl_ros.errors import PrivacyError
from fdrl_ros.learner.learner import TrainingProgress
from fdrl_ros.learner.privacy_cost import ChargedMechanism
from fdrl_ros.learner.records.records import Records
from fdrl_ros.learner.records.sampling import SampledUnits
from fdrl_ros.learner.records.transitions import Batch
from fdrl_ros.learner.settings import LearnerSettings, PrivacySettings
from fdrl_ros.learner.trainer import Trainer, TrainingSetup
from fdrl_ros.policy import NetworkShape
from fdrl_ros.privacy.accountant.accountant import Charge
from fdrl_ros.privacy.ledger.chain import Owner
from fdrl_ros.privacy.ledger.ledger import Ledger
from fdrl_ros.privacy.noise import NoiseSource
from fdrl_ros.settings import setting, Settings
import numpy as np
from numpy.typing import NDArray

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

    def add_noise(self, clipped: np.ndarray, noise: np.ndarray) -> np.ndarray:
        """Return the private mean gradient of a step, and show it."""
        gradient = super().add_noise(clipped, noise)
        units, self.dqn.units = self.dqn.units, np.empty(0, np.int64)
        known = self.dqn.known if len(units) else np.zeros(self.dqn.size)
        for observer in self.observers:
            observer(Release(gradient.copy(), clipped, known, units))
        return gradient


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


@dataclass(frozen=True)
class AuditSettings(Settings):
    """What is put among the patients, and how sure the bound shall be."""

    canaries: int = setting(
        2000,
        'canaries, each a member by a fair coin; at most the number of trained weights',
        limits=(2, 1000000),
    )
    strength: float = setting(
        10.0, "norm of a canary's gradient before clipping, in units of C", limits=(1.0, 1000.0)
    )
    failure: float = setting(
        0.001,
        'chance of a bound above the true epsilon: one minus the confidence',
        limits=(1e-9, 0.5),
    )


@dataclass(frozen=True, eq=False)
class Audited:
    """
    What an audit found.

    ``claimed``: epsilon that the hospital reports at ``delta`` when training ends.
    ``bound``: epsilon is at least this with the asked confidence, whatever the mechanism is.
    ``gaussian``: the same, taking for granted that the mechanism is the claimed one with some
    isotropic Gaussian noise.
    ``attainable``: the mean bound on a flawless mechanism of the same history and canaries.
    ``scores`` and ``members``: of canaries.
    """

    claimed: float
    delta: float
    bound: float
    gaussian: float
    attainable: float
    proofs: tuple[Proof, Proof]
    charge: Charge
    patients: int
    seconds: float
    scores: NDArray[np.float64]
    members: NDArray[np.bool_]

    @property
    def consistent(self) -> bool:
        """Return whether no bound exceeds the claim."""
        return max(self.bound, self.gaussian) <= self.claimed


@dataclass(frozen=True, eq=False)
class Audit:
    """
    Training that is to be audited.

    :param records: of the patients.
    :param rounds: of training, each from the policy of the round before.
    :param inputs: as :class:`fdrl_ros.learner.trainer.Trainer` takes it.
    :param trainer: the code that is audited.
    """

    records: Records
    shape: NetworkShape
    learner: LearnerSettings
    privacy: PrivacySettings
    rounds: int
    settings: AuditSettings = AuditSettings()
    inputs: NDArray[np.floating] | None = None
    trainer: type[AuditedTrainer] = AuditedTrainer

    def run(
        self,
        directory: Path,
        source: NoiseSource,
        rng: np.random.Generator,
        *,
        report: Callable[[TrainingProgress], None] = lambda progress: None,
        stopped: Callable[[], bool] = lambda: False,
        observers: tuple[ReleaseObserver, ...] = (),
    ) -> Audited:
        """
        Train with canaries among the patients, and bound epsilon.

        Patients and canaries join as often as patients alone would, or a trifle less: the
        expected batch grows in proportion, to a whole number. So the budget lasts as long.

        :param directory: empty; ledger and checkpoint are made in it.
        :param source: of the trainer's noise and coins.
        :param rng: of directions and coins of canaries, and of the starting weights.
        :param observers: see every step too.
        :raises PrivacyError: if no finite epsilon is claimed, or a unit owns several records.
        :raises TrainingStopped: as soon as `stopped` says so.
        """
        begun = time.perf_counter()
        settings, learner = self.settings, self.learner
        mechanism = ChargedMechanism.from_settings(self.records, learner, self.privacy)
        patients, count = mechanism.n_records, settings.canaries
        charge = mechanism.charge(0)
        if charge.group > 1:
            raise PrivacyError('a unit owns several records here and a canary is one record only')
        batch = self.privacy.batch * (patients + count) // patients
        privacy = replace(self.privacy, batch=batch)
        norm = settings.strength * privacy.clip_norm
        canaries = draw_canaries(self.shape, learner, self.inputs, count=count, norm=norm, rng=rng)
        with Ledger(
            directory / 'ledger.sqlite',
            Owner(hospital='audit', unit=privacy.unit, delta=privacy.delta, budget=privacy.budget),
        ) as ledger:
            audited = self.trainer(
                TrainingSetup(self.shape, learner, privacy, ledger, source, self.inputs),
                with_canary_places(self.records, count),
                directory / 'checkpoint',
                steps=math.ceil(1.0 / mechanism.rate),
            )
            audited.plant(canaries)
            steps = self.rounds * learner.epochs * audited.steps_per_block
            charge = audited.mechanism.charge(steps)
            adversary = Adversary(
                canaries, charge, clip_norm=privacy.clip_norm, expected_batch=privacy.batch
            )
            chances = {'delta': privacy.delta, 'failure': settings.failure}
            planned, attainable = plan_guesses([charge], count, rng, **chances)
            audited.observers = (adversary, *observers)
            weights, claimed = self.shape.draw(rng), 0.0
            for number in range(1, self.rounds + 1):
                result = audited.train(weights, number, report=report, stopped=stopped)
                weights, claimed = result.weights, result.epsilon
        proofs = prove(adversary.scores, canaries.members, planned, **chances)
        return Audited(
            claimed=claimed,
            delta=privacy.delta,
            bound=max(each.epsilon for each in proofs),
            gaussian=gaussian_lower_bound(charge, adversary.scores, canaries.members, **chances),
            attainable=attainable,
            proofs=proofs,
            charge=charge,
            patients=patients,
            seconds=time.perf_counter() - begun,
            scores=adversary.scores,
            members=canaries.members,
        )
