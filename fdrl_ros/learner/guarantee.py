# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""What the learner's way of sampling, clipping and summing returns costs whom (spec section 5)."""

from dataclasses import dataclass
import math
from typing import Protocol

from fdrl_ros.errors import PrivacyError
from fdrl_ros.learner.settings import LearnerSettings, PrivacySettings
from fdrl_ros.privacy.accountant.accountant import Charge, check_delta
from fdrl_ros.privacy.accountant.group import records_of_a_transition
from fdrl_ros.privacy.sampling import charge_for, charged_probability


class Sized(Protocol):
    """What is asked of records: how many there are."""

    @property
    def n_patients(self) -> int:
        """Number of patients."""
        ...

    @property
    def n_transitions(self) -> int:
        """Transitions of all patients."""
        ...

    @property
    def longest(self) -> int:
        """The most transitions that one patient has."""
        ...


@dataclass(frozen=True)
class Guarantee:
    """
    The mechanism of one hospital, as the accountant is told of it.

    ``n_units``: privacy units. ``n_records``: what is sampled and clipped, units or transitions.
    ``counted``: how many of them there may be at most, a public number: L over it is ``rate``, q.
    ``group``: the most records that one privacy unit owns. ``replaced``: whether some of them are
    not gone without it, but others: each then moves a sum by up to 2 C.
    """

    clips_transitions: bool
    n_units: int
    n_records: int
    counted: int
    group: int
    replaced: bool
    batch: int
    sampling: str
    noise_multiplier: float

    @classmethod
    def of(cls, records: Sized, learner: LearnerSettings, privacy: PrivacySettings) -> 'Guarantee':
        """
        Work out what settings and records promise.

        :raises PrivacyError: if they promise nothing while a budget is set, or if delta, batch or
            the transitions of a patient do not suit.
        """
        transitions = privacy.unit == 'transition' or privacy.clipped == 'transition'
        steps, patients = records.n_transitions, records.n_patients
        n_units = steps if privacy.unit == 'transition' else patients
        n_records = steps if transitions else patients
        counted = n_records
        if privacy.unit == 'patient' and transitions:
            # How many transitions patients have is private: coins must not depend on it.
            counted = patients * max(1, privacy.most_transitions)
        if privacy.batch > counted:
            # How many patients there are is declared; how many transitions, may be private.
            most = (
                'as many as there are transitions' if transitions else f'{patients}, all patients'
            )
            raise PrivacyError(f'privacy.batch = {privacy.batch}: expected at most {most}')
        check_delta(privacy.delta, n_units)
        group = _group(records, learner, privacy)
        made = cls(
            clips_transitions=transitions,
            n_units=n_units,
            n_records=n_records,
            counted=counted,
            group=group,
            replaced=privacy.unit == 'transition' and group > 1,
            batch=privacy.batch,
            sampling=learner.replay,
            noise_multiplier=privacy.noise_multiplier,
        )
        if made.charge(1).noise_multiplier == 0.0 and not math.isinf(privacy.budget):
            if privacy.noise_multiplier > 0.0:
                charged_probability(learner.replay, made.rate)  # refuses, with the reason
            raise PrivacyError(
                f'without noise there is no privacy: a budget of {privacy.budget:g} cannot be '
                'kept, only inf'
            )
        return made

    @property
    def rate(self) -> float:
        """Sampling probability q = L / counted, in (0, 1]."""
        return self.batch / self.counted

    def charge(self, steps: int) -> Charge:
        """Return what so many steps are charged as."""
        return charge_for(
            self.sampling,
            noise_multiplier=self.noise_multiplier / (2.0 if self.replaced else 1.0),
            sampling_probability=self.rate,
            steps=steps,
            group=self.group,
        )


def _group(records: Sized, learner: LearnerSettings, privacy: PrivacySettings) -> int:
    """Return how many clipped records one privacy unit owns at most."""
    if privacy.unit == 'transition':
        return records_of_a_transition(learner.n_step, learner.frame_stack)
    if privacy.clipped == 'unit':
        return 1
    if records.longest > privacy.most_transitions:
        # How long the longest is, is private: only the public limit is told.
        raise PrivacyError(
            f'a patient has more than most_transitions = {privacy.most_transitions} transitions: '
            'clipping transitions protects a patient only up to a public limit'
        )
    return privacy.most_transitions
