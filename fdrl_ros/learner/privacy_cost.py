# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""
Map learner settings to the privacy cost charged per patient.

Also the reverse: the noise with which a whole training keeps a target epsilon.
"""

from dataclasses import dataclass, replace
import math
from typing import Protocol

from fdrl_ros.errors import PrivacyError
from fdrl_ros.learner.settings import LearnerSettings, PrivacySettings
from fdrl_ros.privacy.accountant.accountant import Charge, check_delta
from fdrl_ros.privacy.accountant.calibration import noise_multiplier_for
from fdrl_ros.privacy.accountant.one_step import records_of_a_transition
from fdrl_ros.privacy.mechanism import charge_for, refuse_unbounded


class Sized(Protocol):
    """The counts of records that the guarantee depends on."""

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
class ChargedMechanism:
    """
    The mechanism of one hospital, as the accountant charges it.

    ``n_units``: number of privacy units. ``n_records``: sampled and clipped records, which are
    units or transitions. ``batch``: L. ``rate``: sampling probability q, L over a public upper
    bound of the number of records. ``group``: the most records of one privacy unit.
    ``charged_noise``: half of the settings' noise multiplier where removing a unit changes some
    records instead of removing them, since each then moves a sum by up to 2 C.
    """

    clips_transitions: bool
    n_units: int
    n_records: int
    batch: int
    rate: float
    group: int
    sampling: str
    charged_noise: float

    @classmethod
    def from_settings(
        cls, records: Sized, learner: LearnerSettings, privacy: PrivacySettings
    ) -> 'ChargedMechanism':
        """
        Derive the mechanism from settings and records.

        :raises PrivacyError: if there is no guarantee although a budget is set, or if delta, batch
            or the transitions of a patient are out of range.
        """
        by_transition = privacy.unit == 'transition'
        clips_transitions = by_transition or privacy.clipped == 'transition'
        steps, patients = records.n_transitions, records.n_patients
        n_records = counted = steps if clips_transitions else patients
        if clips_transitions and not by_transition:
            # The number of a patient's transitions is private: coins must not depend on it.
            counted = patients * max(1, privacy.most_transitions)
        batch = privacy.batch
        if batch > counted:
            # The number of patients is declared; the number of transitions may be private.
            most = f'{patients}, all patients'
            if clips_transitions:
                most = 'as many as there are transitions'
            raise PrivacyError(f'privacy.batch = {batch}: expected at most {most}')
        n_units = steps if by_transition else patients
        check_delta(privacy.delta, n_units)
        group, noise = 1, privacy.noise_multiplier
        if by_transition:
            if learner.return_steps is None:
                raise PrivacyError(
                    f'privacy.unit = transition: every return of {learner.algorithm} reaches to '
                    "the end of its episode; take 'patient'"
                )
            group = records_of_a_transition(learner.return_steps, learner.frame_stack)
            noise /= 2.0 if group > 1 else 1.0
        elif clips_transitions:
            group = privacy.most_transitions
            if records.longest > group:
                # The longest length is private: the message contains only the public limit.
                raise PrivacyError(
                    f'a patient has more than most_transitions = {group} transitions: clipping '
                    'transitions protects a patient only up to a public limit'
                )
        rate, replay = batch / counted, learner.replay
        made = cls(clips_transitions, n_units, n_records, batch, rate, group, replay, noise)
        if made.charge(1).noise_multiplier == 0.0 and not math.isinf(privacy.budget):
            if noise > 0.0:
                refuse_unbounded(replay)
            raise PrivacyError(
                f'without noise there is no privacy: a budget of {privacy.budget:g} cannot be '
                'kept; set a privacy.noise_multiplier above 0, or privacy.budget to inf'
            )
        return made

    @property
    def steps_of_epoch(self) -> int:
        """Steps of a local epoch, in which each record joins once on average."""
        return math.ceil(1.0 / self.rate)

    def charge(self, steps: int) -> Charge:
        """Return the charge of that many steps."""
        return charge_for(self.sampling, Charge(self.charged_noise, self.rate, steps, self.group))


@dataclass(frozen=True)
class RecordCounts:
    """Counts of a hospital's records; ``longest``: the most transitions of one patient."""

    n_patients: int
    n_transitions: int
    longest: int = 1


@dataclass(frozen=True)
class Calibrated:
    """Settings that keep an epsilon, and the charge of all their steps."""

    privacy: PrivacySettings
    charge: Charge


def calibrated(
    learner: LearnerSettings,
    privacy: PrivacySettings,
    size: Sized,
    *,
    epsilon: float,
    rounds: int,
) -> Calibrated:
    """
    Return the privacy settings whose noise makes all rounds cost at most an epsilon.

    :param privacy: unit, clipping, delta and batch count; noise and budget are replaced.
    :param epsilon: of all rounds together, > 0.
    :param rounds: how many rounds of :meth:`fdrl_ros.learner.trainer.Trainer.train`.
    :raises PrivacyError: if no noise keeps it, or the settings do not fit the size.
    """
    if rounds < 1:
        raise PrivacyError(f'{rounds} rounds: expected at least 1')
    trial = replace(privacy, noise_multiplier=1.0, budget=math.inf)
    mechanism = ChargedMechanism.from_settings(size, learner, trial)
    charge = mechanism.charge(1)
    if charge.noise_multiplier == 0.0:
        raise PrivacyError(f'{learner.replay} replay has no finite epsilon: no noise keeps one')
    steps = rounds * learner.epochs * mechanism.steps_of_epoch
    sigma = noise_multiplier_for(
        epsilon=epsilon,
        delta=privacy.delta,
        phases=[(charge.sampling_probability, steps)],
        group=charge.group,
    )
    sigma /= charge.noise_multiplier  # the charge of noise 1
    # Rounded up, so that a printed and retyped value still keeps the epsilon.
    sigma = math.ceil(1e4 * sigma) / 1e4
    kept = replace(privacy, noise_multiplier=sigma, budget=float(epsilon))
    return Calibrated(kept, ChargedMechanism.from_settings(size, learner, kept).charge(steps))
