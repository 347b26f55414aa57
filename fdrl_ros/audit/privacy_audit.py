# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""
The audit: train as a hospital does, with canaries, and hold epsilon against what is released.

A lower bound on epsilon above the accountant's is a fault, and so is a release, or what was made
of it, that is not as the accountant takes it to be.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
import math
from pathlib import Path
import time

from fdrl_ros.audit.attack import Guesses, Hits, log_ratio, plan_guesses
from fdrl_ros.audit.canary import draw_canaries
from fdrl_ros.audit.distribution import FAULTS
from fdrl_ros.audit.estimate import Projections
from fdrl_ros.audit.observation import (
    AuditedTrainer,
    Follower,
    Observation,
    ReleaseObserver,
    with_canary_places,
)
from fdrl_ros.errors import PrivacyError
from fdrl_ros.learner.learner import TrainingProgress
from fdrl_ros.learner.privacy_cost import ChargedMechanism
from fdrl_ros.learner.records.records import Records
from fdrl_ros.learner.settings import LearnerSettings, PrivacySettings
from fdrl_ros.learner.trainer import TrainingSetup
from fdrl_ros.policy import NetworkShape
from fdrl_ros.privacy.accountant.accountant import Charge, epsilon_pld
from fdrl_ros.privacy.ledger.chain import Owner
from fdrl_ros.privacy.ledger.ledger import Ledger
from fdrl_ros.privacy.noise import NoiseSource
from fdrl_ros.privacy.stated import stated
from fdrl_ros.settings import setting, Settings
import numpy as np
from numpy.typing import NDArray

SHARES = {'estimated': 0.4, 'bound': 0.3, 'by_errors': 0.1, 'tests': 0.2}
"""Of the chance of failure, for each way to find a fault."""

_ROUNDING = 0.99  # of epsilon, between the ledger's and that of the steps that were seen


@dataclass(frozen=True)
class AuditSettings(Settings):
    """What is put among the patients, and how sure a fault shall be."""

    canaries: int = setting(
        4000,
        'canaries, each a member by a fair coin; at most the number of trained weights',
        limits=(2, 1000000),
    )
    strength: float = setting(
        10.0, "norm of a canary's gradient before clipping, in units of C", limits=(1.0, 1000.0)
    )
    transitions: int = setting(
        2,
        'transitions drawn of each who joins a step, in place of those of the learner; they '
        'change neither noise nor coins, but how long an audit takes; 0: those of the learner',
        limits=(0, 10000),
    )
    failure: float = setting(
        0.0002,
        'chance that an audit of flawless code finds a fault, all bounds and tests together',
        limits=(1e-9, 0.5),
    )


@dataclass(frozen=True)
class Evidence:
    """
    What one run or several together show, and what it proves.

    ``hits``: of guesses. ``projections``: of releases on canaries. ``charge``: what each run
    claims. ``planned``: guesses that were chosen beforehand.
    """

    hits: Hits
    projections: Projections
    charge: Charge
    planned: Guesses

    def bounds(self, *, delta: float, failure: dict[str, float]) -> dict[str, float]:
        """
        Return lower bounds on epsilon, each with its own chance of failure.

        ``estimated``: if the mechanism is Gaussian. ``bound``: whatever it is. ``by_errors``: if
        it is the claimed one but for its noise multiplier.
        """
        return {
            'estimated': self.projections.epsilon(
                self.charge, delta=delta, failure=failure['estimated']
            ),
            'bound': self.hits.proven(self.planned, delta=delta, failure=failure['bound']),
            'by_errors': self.hits.by_errors(
                self.charge, delta=delta, failure=failure['by_errors']
            ),
        }


@dataclass(frozen=True, eq=False)
class Audited:
    """
    What an audit found.

    ``claimed``: epsilon that the hospital reports at ``delta`` when training ends. ``bounds``: see
    :meth:`Evidence.bounds`. ``attainable``: the mean of ``bound`` on a flawless mechanism of the
    same history and canaries. ``tests``: p-values. ``faults``: what is wrong, in words; empty if
    nothing is. ``scores`` and ``members``: of canaries.
    """

    claimed: float
    delta: float
    evidence: Evidence
    bounds: dict[str, float]
    attainable: float
    tests: dict[str, float]
    faults: tuple[str, ...]
    patients: int
    seconds: float
    scores: NDArray[np.float64]
    members: NDArray[np.bool_]

    @property
    def charge(self) -> Charge:
        """All steps, as they are charged."""
        return self.evidence.charge


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
        others: Sequence[NoiseSource] = (),
    ) -> Audited:
        """
        Train with canaries among the patients, and hold what is claimed against what is seen.

        Patients and canaries join as often as patients alone would, or a trifle less: the
        expected batch grows in proportion, to a whole number. So the budget lasts as long.

        :param directory: empty; ledgers and checkpoints are made in it.
        :param source: of the trainer's noise and coins.
        :param rng: of directions and coins of canaries, and of the starting weights.
        :param observers: see every step too.
        :param others: noise of other hospitals, which must be another.
        :raises PrivacyError: if no finite epsilon is claimed, or a unit owns several records.
        :raises TrainingStopped: as soon as `stopped` says so.
        """
        begun = time.perf_counter()
        settings, learner = self.settings, self.learner
        if settings.transitions:
            learner = replace(learner, transitions_per_patient=settings.transitions)
        mechanism = ChargedMechanism.from_settings(self.records, learner, self.privacy)
        patients, count = mechanism.n_records, settings.canaries
        charge = mechanism.charge(0)
        if charge.group > 1:
            raise PrivacyError('a unit owns several records here and a canary is one record only')
        if charge.noise_multiplier <= 0.0:
            raise PrivacyError('a finite epsilon is not claimed: there is nothing to audit')
        batch = self.privacy.batch * (patients + count) // patients
        privacy = replace(self.privacy, batch=batch)
        norm = settings.strength * privacy.clip_norm
        canaries = draw_canaries(self.shape, learner, self.inputs, count=count, norm=norm, rng=rng)
        records, length = with_canary_places(self.records, count), math.ceil(1.0 / mechanism.rate)

        def setup(privacy: PrivacySettings, ledger: Ledger, source: NoiseSource) -> TrainingSetup:
            return TrainingSetup(self.shape, learner, privacy, ledger, source, self.inputs)

        free = replace(privacy, budget=math.inf)
        with (
            _ledger(directory / 'ledger.sqlite', privacy) as ledger,
            _ledger(directory / 'follower.sqlite', free) as other,
        ):
            audited = self.trainer(
                setup(privacy, ledger, source), records, directory / 'checkpoint', length
            )
            audited.plant(canaries)
            follower = Follower(
                setup(free, other, NoiseSource.seeded(0)), records, directory / 'follower', length
            )
            steps = self.rounds * learner.epochs * audited.steps_per_block
            charge = audited.mechanism.charge(steps)
            seen = Observation(
                canaries,
                charge,
                n_units=audited.mechanism.n_records,
                clip_norm=privacy.clip_norm,
                expected_batch=privacy.batch,
                rng=rng,
            )
            failure = {name: share * settings.failure for name, share in SHARES.items()}
            planned, attainable = plan_guesses(
                [charge], count, rng, delta=privacy.delta, failure=failure['bound']
            )
            audited.observers = (seen, follower.told.append, *observers)
            weights, claimed = self.shape.draw(rng), 0.0
            for number in range(1, self.rounds + 1):
                result = audited.train(weights, number, report=report, stopped=stopped)
                follower.follow(weights, number, result.weights)
                weights, claimed = result.weights, result.epsilon
            counted = sum(each.steps for each in ledger.chain.history())
        tests = seen.tests(learner, [seen.noise_of(each, audited.dqn.size) for each in others])
        scores = log_ratio(np.array(seen.along), charge).sum(axis=0)
        hits = Hits.of(scores, canaries.members)
        evidence = Evidence(hits, seen.projections, charge, planned)
        bounds = evidence.bounds(delta=privacy.delta, failure=failure)
        faults = [
            *_too_little_claimed(claimed, bounds),
            *_unlikely(tests, failure['tests']),
            *_miscounted(counted, claimed, charge._replace(steps=len(seen.steps)), privacy.delta),
        ]
        if follower.astray:
            faults.append(
                f'the weights {follower.astray} are not those that follow from the releases'
            )
        return Audited(
            claimed=claimed,
            delta=privacy.delta,
            evidence=evidence,
            bounds=bounds,
            attainable=attainable,
            tests=tests,
            faults=tuple(faults),
            patients=patients,
            seconds=time.perf_counter() - begun,
            scores=scores,
            members=canaries.members,
        )


def _ledger(path: Path, privacy: PrivacySettings) -> Ledger:
    return Ledger(
        path,
        Owner(hospital='audit', unit=privacy.unit, delta=privacy.delta, budget=privacy.budget),
    )


def _too_little_claimed(claimed: float, bounds: dict[str, float]) -> list[str]:
    """Say which lower bounds are above the claimed epsilon."""
    return [
        f'epsilon is at least {each:.3f} ({BOUNDS[name]}), and {stated(claimed, 3)} is claimed'
        for name, each in bounds.items()
        if each > claimed
    ]


def _unlikely(tests: dict[str, float], failure: float) -> list[str]:
    """Say what tests refuse: p-values that even one of all tests has too rarely."""
    return [
        f'{FAULTS[name]} ({name}, p = {p:.1e})'
        for name, p in tests.items()
        if p * len(tests) < failure
    ]


def _miscounted(counted: int, claimed: float, ran: Charge, delta: float) -> list[str]:
    """
    Say where the ledger does not tell what ran.

    :param counted: steps in the ledger.
    :param ran: all steps that were seen.
    """
    found = []
    if counted != ran.steps:
        found.append(f'the ledger counts {counted} steps, and {ran.steps} were released')
    true = epsilon_pld([ran], delta)
    if claimed < _ROUNDING * true:
        found.append(
            f'epsilon {stated(claimed, 3)} is claimed, and the {ran.steps} steps that ran cost '
            f'{stated(true, 3)}'
        )
    return found


BOUNDS = {
    'estimated': 'estimated, if the mechanism is Gaussian',
    'bound': 'proven, whatever the mechanism is',
    'by_errors': 'proven, if the mechanism is the claimed one but for its noise',
}
"""What each lower bound takes for granted."""
