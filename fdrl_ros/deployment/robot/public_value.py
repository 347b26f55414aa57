# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""
What a policy is worth in a state: operations on public patients of all kinds (FDRL Eq. 7).

The patients are made up over the whole range of H = 1, so that the estimate covers whom a robot
may meet; none is of a hospital or drawn as a hospital's are, so the estimate costs no epsilon.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
import hashlib

from fdrl_ros.deployment.plan import Plan
from fdrl_ros.errors import RecordsError
from fdrl_ros.metrics.risk import risk_terms
from fdrl_ros.policy import Policy
from fdrl_ros.runtime.progress import never, stop_if, Stopped
from fdrl_ros.runtime.random_streams import Stream
from fdrl_ros.selector import (
    Experience,
    fit_value,
    HOLD,
    measured_conformal_error,
    reference,
    StateValue,
    ValueModel,
)
from fdrl_ros.selector.value.monte_carlo_reference import (
    alike_states,
    draw_meeting,
    EXPLORATION,
    handing_over,
    LED,
    LONGEST_LEAD,
)
from fdrl_ros.surgery.gym.actions import ACTION_COUNT
from fdrl_ros.surgery.gym.episode import roll_out, Rollouts
from fdrl_ros.surgery.patient.matched_patients import matched_patients
from fdrl_ros.surgery.patient.patient import Patient
import numpy as np
from numpy.typing import NDArray

FIRST = 10**6
"""Number of the first of these patients: pre-training and validation use lower ones."""

PORTION = 500
"""Patients that are operated on side by side."""

CHECKED = FIRST + 5 * 10**5
"""Number of the first of those that estimates are measured on: models are fitted to lower ones."""

_REDRAWN = 5 * 10**7  # number of the first public patient that is drawn anew for those
_APART = 10**5  # numbers kept for what is drawn anew for one patient

STATES = 3
"""States of each of those operations that are looked at, at most, beside the first."""


def public_patient(index: int, plan: Plan, procedure: str | None = None) -> Patient:
    """Return one of the public patients of all kinds."""
    return plan.public_cohort(1.0).patient(FIRST + index, procedure=procedure)


def fitted_with(plan: Plan, lead_in: Policy) -> str:
    """Return a hash over all that value models depend on beside their policy, hexadecimal."""
    made_with = (plan.value, plan.federation.seed, plan.federation.names, plan.world)
    return hashlib.sha256(repr((made_with, lead_in.digest)).encode()).hexdigest()


def _experience(rolled: Rollouts, handover: NDArray[np.int64], begin: int) -> Experience:
    """Return what came after the hand-over."""
    limits = np.array([each.procedure.force_limit for each in rolled.patients])
    risks = risk_terms(rolled.forces, rolled.damages, rolled.critical, limits[rolled.cases]).total
    own = rolled.ticks >= handover[rolled.cases]
    return Experience(
        rolled.states[own], rolled.rewards[own], risks[own], rolled.cases[own] + begin
    )


@dataclass(frozen=True)
class PublicValuation:
    """
    Values policies by operations on public patients, with kinematic arms.

    Whatever takes long raises TrainingStopped as soon as `stopped` says so.

    :param lead_in: who operates at first, the same for every policy of a plan: the public start.
    :param progress: called with how many operations are done, and of how many.
    """

    plan: Plan
    lead_in: Policy
    stopped: Stopped = never
    progress: Callable[[int, int], None] = lambda done, count: None

    def experience(self, policy: Policy | None) -> dict[str, Experience]:
        """
        Operate on public patients and note what followed from each state.

        On every other patient of each jackknife group another policy, with some random moves,
        operates at first: a selector hands over in states that the policy alone would not come
        into. Patients and what happens before the hand-over are the same for every policy.

        :param policy: None stays where it is.
        :returns: by procedure; the number of a case is that of its patient.
        """
        plan = self.plan
        names, count, groups = plan.federation.names, plan.value.patients, plan.value.groups
        found: dict[str, list[Experience]] = {}
        for place, name in enumerate(names):
            for begin in range(0, count, PORTION):
                cases = np.arange(begin, min(begin + PORTION, count))
                led = (cases % groups + cases // groups) % 2
                rng = np.random.default_rng([Stream.VALUATION, plan.federation.seed, place, begin])
                handover = np.where(led, rng.integers(LONGEST_LEAD, size=len(cases)), 0)
                often = rng.uniform(0.0, EXPLORATION, len(cases))
                # Drawn for all, so that what one policy does changes nothing for another.
                random = [
                    (rng.random(len(cases)) < often, rng.integers(ACTION_COUNT, size=len(cases)))
                    for _ in range(LONGEST_LEAD)
                ]
                moves = np.array([np.where(chance, moved, LED) for chance, moved in random])
                rolled = roll_out(
                    [public_patient(int(each), plan, name) for each in cases],
                    handing_over(policy, self.lead_in, handover, moves),
                    plan.world,
                    tick=lambda left: stop_if(self.stopped),
                )
                found.setdefault(name, []).append(_experience(rolled, handover, begin))
                self.progress(place * count + int(cases[-1]) + 1, len(names) * count)
        return {
            name: Experience(
                *(
                    np.concatenate([getattr(each, part) for each in parts])
                    for part in ('states', 'rewards', 'risks', 'cases')
                )
            )
            for name, parts in found.items()
        }

    def value_model(self, policy: Policy | None) -> ValueModel:
        """
        Fit the estimate of a policy's return and risk from its public operations.

        :param policy: None stays where it is: the estimate of hold. It is not doubted more where
            nobody has been: who stays does nothing new.
        """
        estimates = {}
        for name, experience in self.experience(policy).items():
            fitted = fit_value(experience, self.plan.value)
            error = self.conformal_error(fitted, name, policy)
            estimates[name] = fitted.with_conformal_error(error)
        if policy is None:
            calm = {name: replace(each, caution=0.0) for name, each in estimates.items()}
            return ValueModel(HOLD, calm)
        return ValueModel(policy.digest.hex(), estimates)

    def conformal_error(self, fitted: StateValue, procedure: str, policy: Policy | None) -> float:
        """
        Measure how far an estimate is off E[J given s], on patients that it was not fitted to.

        A patient whom nearly nobody looks like is passed over, as nobody can say what to expect
        there.

        :param fitted: the estimate, without conformal error.
        :param policy: whose it is; None stays where it is.
        :returns: standard deviation, in returns.
        :raises RecordsError: if most of them are like that.
        """
        plan = self.plan
        settings, cohort = plan.value, plan.public_cohort(1.0)
        place = plan.federation.names.index(procedure)
        errors, references, stds = [], [], []
        number = measured = 0
        while measured < settings.checked:
            seed = (Stream.VALUATION, plan.federation.seed, place, CHECKED + number)
            rng = np.random.default_rng(seed)
            try:
                patient = cohort.patient(CHECKED + number, procedure=procedure)
                first = _REDRAWN + _APART * number
                alike = [patient, *matched_patients(patient, cohort, settings.redraws, rng, first)]
                meeting = draw_meeting(alike, self.lead_in, bool(number % 2), STATES, seed, rng)
            except RecordsError:  # one in thousands looks like hardly anybody: another one will do
                if number >= 2 * settings.checked:
                    raise
                continue
            finally:
                number += 1
            measured += 1
            met = alike_states(
                meeting, policy, plan.world, settings.discount, lambda left: stop_if(self.stopped)
            )
            for each in met:
                found = reference(each.state, each.others, each.returns, settings.redraws // 4)
                if found is not None:
                    mean, std = fitted.mean_and_std(each.state)
                    errors.append(float(mean) - found.mean)
                    references.append(found.error)
                    stds.append(float(std))
        return measured_conformal_error(np.array(errors), np.array(references), np.array(stds))
