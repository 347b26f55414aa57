# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""What the learner's way of sampling, clipping and summing returns costs whom (spec section 5)."""

from dataclasses import dataclass
import math
from typing import Protocol

from fdrl_ros.errors import PrivacyError
from fdrl_ros.privacy.accountant import Charge, check_delta
from fdrl_ros.privacy.group import records_of_a_transition
from fdrl_ros.privacy.sampling import charge_for
from fdrl_ros.trainer.settings import LearnerSettings, PrivacySettings


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
    ``rate``: L / n_records. ``group``: the most records that one privacy unit owns.
    """

    clips_transitions: bool
    n_units: int
    n_records: int
    rate: float
    group: int
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
        if privacy.batch > n_records:
            unit = 'transitions' if transitions else 'patients'
            raise PrivacyError(
                f'privacy.batch = {privacy.batch}: expected at most {n_records}, as many as there '
                f'are {unit} in the records'
            )
        check_delta(privacy.delta, n_units)
        made = cls(
            clips_transitions=transitions,
            n_units=n_units,
            n_records=n_records,
            rate=privacy.batch / n_records,
            group=_group(records, learner, privacy),
            sampling=learner.replay,
            noise_multiplier=privacy.noise_multiplier,
        )
        if made.charge(1).noise_multiplier == 0.0 and not math.isinf(privacy.budget):
            why = (
                f'{learner.replay} replay has no finite epsilon'
                if privacy.noise_multiplier > 0.0
                else 'without noise there is no privacy'
            )
            raise PrivacyError(f'{why}: a budget of {privacy.budget:g} cannot be kept, only inf')
        return made

    def charge(self, steps: int) -> Charge:
        """Return what so many steps are charged as."""
        return charge_for(
            self.sampling,
            noise_multiplier=self.noise_multiplier,
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
