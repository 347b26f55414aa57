# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""
What a policy is worth in a state: operations on public patients of all kinds (FDRL Eq. 7).

The patients are made up over the whole range of H = 1, so that the estimate covers whom a robot
may meet; none is of a hospital or drawn as a hospital's are, so the estimate costs no epsilon.

Public patients do not show how far a hospital's robots are off: the calibration error of their
cameras and the gain of their force sensors. A policy that was learned in the hospital reveals
both. The calibration error is the shift of the inputs that makes the public start act like that
policy. The gain is the simulated gain at which the policy succeeds most often. Public patients are
then operated on with a robot that has about these errors.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
import hashlib
import math
from typing import NamedTuple

from fdrl_ros.deployment.plan import Plan
from fdrl_ros.errors import RecordsError
from fdrl_ros.learner.offsets import offsets_of
from fdrl_ros.learner.settings import LearnerSettings
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
    Alike,
    alike_states,
    chooser_of,
    draw_meeting,
    EXPLORATION,
    handing_over,
    LED,
    LONGEST_LEAD,
    Meeting,
)
from fdrl_ros.surgery.gym.actions import ACTION_COUNT
from fdrl_ros.surgery.gym.episode import roll_out, Rollouts
from fdrl_ros.surgery.gym.state import INDEX, SCALES
from fdrl_ros.surgery.patient.matched_patients import matched_patients
from fdrl_ros.surgery.patient.patient import Patient
from fdrl_ros.surgery.settings import WorldSettings
import numpy as np
from numpy.typing import NDArray
from scipy import optimize

Off = NDArray[np.float64]
"""How far a robot is off: goal errors (x, y, z) in their scales, log of its gain; shape (4,)."""

FIRST = 10**6
"""Number of the first of these patients: pre-training and validation use lower ones."""

PORTION = 500
"""Patients that are operated on side by side."""

CHECKED = FIRST + 5 * 10**5
"""Number of the first of those that estimates are measured on: models are fitted to lower ones."""

_REDRAWN = 5 * 10**7
"""Number of the first of those whom they are matched with, the same ones for all."""

STATES = 3
"""States of each of those operations that are looked at, at most, beside the first."""

_MOVED = [INDEX[name] for name in ('goal_error_x', 'goal_error_y', 'goal_error_z', 'force_error')]
"""Inputs whose offset is estimated: three goal errors and the force error."""

_TOLD = 1.06
"""
True calibration error divided by the estimated one: private training learns only part of the
offset. Fitted to the hospitals of seeds 902 and 903.
"""

_GAINS = np.linspace(-0.4, 0.4, 9)
"""Logarithms of the gain of a force sensor that are tried."""

_DOUBT = np.array([0.03, 0.03, 0.03, 0.05])
"""Standard deviation of how far a robot is off, given what its policy says."""

_SEEN = 200, 7
"""Number of public patients, and the stride: every seventh of their states is compared."""

_NEAR = 0.1
"""Greatest difference between offsets of an input that describe the same robot, in its scales."""


def public_patient(index: int, plan: Plan, procedure: str | None = None) -> Patient:
    """Return one of the public patients of all kinds."""
    return plan.public_cohort(1.0).patient(FIRST + index, procedure=procedure)


def fitted_with(plan: Plan, lead_in: Policy, known: Sequence[Policy] = ()) -> str:
    """
    Return a hash over what value models are fitted with beside their policy, hexadecimal.

    That is the settings of valuing and of the public patients, the world, the public start, and
    the policies that tell how far the robot is off, whatever is found out of them.

    :param lead_in: as :class:`PublicValuation` takes it.
    :param known: the same; their order counts.
    """
    chosen = plan.federation
    made_with = (plan.value, chosen.seed, chosen.names, chosen.disturbances, plan.world)
    told = [each.digest for each in known if _learner(plan).offsets]
    return hashlib.sha256(repr((made_with, lead_in.digest, told)).encode()).hexdigest()


def same_robot(plan: Plan, before: Sequence[Policy], now: Sequence[Policy]) -> bool:
    """
    Tell whether policies describe nearly the robot that others describe, each that of its place.

    They do where no offset of an input that they learned differs by more than 0.1 of its scale:
    small steps of training do not make another robot of it. The gain at which they succeed is not
    compared: to find it takes operations. Policies of a learner other than the compiled one
    describe the same robot only if they are the same, as a robot may lack its network.
    """
    learner = _learner(plan)
    if not learner.offsets or [x.digest for x in before] == [x.digest for x in now]:
        return True
    if learner.kind != 'dqn' or len(before) != len(now):
        return False
    offsets = offsets_of(plan.network, learner, plan.spec.names)
    assert offsets is not None
    moved = [
        offsets.between(old.weights, new.weights) for old, new in zip(before, now, strict=True)
    ]
    return bool(np.max(np.abs(moved)) <= _NEAR)


def _learner(plan: Plan) -> LearnerSettings:
    """Return the settings by which a robot's own policy learned last."""
    return plan.home.fine_tuned(plan.learner) if plan.home.epochs else plan.learner


def calibration_of(
    policy: Policy, start: Policy, states: NDArray[np.float32]
) -> NDArray[np.float64]:
    """
    Return how far the calibration is off that a policy was made for: its post-processing.

    The policy values actions as the public start does in states with other goal errors and force
    errors; these are found by least squares.

    :param states: public ones, shape (N, STATE_SIZE).
    :returns: in scales of the goal errors, shape (3,).
    """
    return _TOLD * _shift(policy, start, states)[:-1]


def gain_of(
    policy: Policy,
    calibration: NDArray[np.float64],
    patients: Sequence[Patient],
    world: WorldSettings,
    stopped: Stopped = never,
) -> float:
    """
    Return the logarithm of the force sensor's gain at which a policy succeeds most often.

    That is about the gain at the robots that it was made for: its post-processing. What it learned
    of forces does not tell the gain directly, as it also holds how firmly surgeons press. It is
    the mean of the tried ones, weighted by success above half its height; 0 where the shares of
    success differ by no more than chance.

    :param calibration: as :func:`calibration_of` returns it.
    :param patients: public ones.
    """
    offs = [np.append(calibration, gain) for gain in _GAINS]
    at_robot = [off_by(each, off) for off in offs for each in patients]
    made = roll_out(at_robot, chooser_of(policy), world, tick=lambda left: stop_if(stopped))
    found = made.success.reshape(len(_GAINS), -1).mean(axis=1)
    by_chance = 3.0 * (0.5 / len(patients)) ** 0.5  # 3 deviations of a difference of two shares
    if found.max() - found.min() <= by_chance:
        return 0.0
    above = np.maximum(found - 0.5 * (found.max() + found.min()), 0.0)
    return float(np.average(_GAINS, weights=above))


def _shift(policy: Policy, start: Policy, states: NDArray[np.float32]) -> NDArray[np.float64]:
    """Return the shift of the inputs `_MOVED` at which `start` values actions as `policy` does."""

    def centred(values: NDArray[np.float32]) -> NDArray[np.float64]:
        return np.asarray(values - values.mean(axis=1, keepdims=True), np.float64)

    wanted = centred(policy.q_values(states))

    def errors(off: NDArray[np.float64]) -> NDArray[np.float64]:
        moved = states.copy()
        moved[:, _MOVED] += off.astype(np.float32)
        return (centred(start.q_values(moved)) - wanted).ravel()

    begin = np.zeros(len(_MOVED))
    found = optimize.least_squares(errors, begin, loss='soft_l1', diff_step=0.02, x_scale=0.2)
    return np.asarray(found.x)


def off_by(patient: Patient, off: Off) -> Patient:
    """Return a patient whose robot is off."""
    moved = np.asarray(patient.calibration) + off[:3] * SCALES[_MOVED[:3]]
    x, y, z = moved.tolist()
    gain = patient.force_gain * math.exp(off[3])
    return replace(patient, calibration=(x, y, z), force_gain=gain)


def looking_alike(patients: Sequence[Patient]) -> list[Patient]:
    """
    Return patients whom robots see as the first one, although each robot's calibration differs.

    :param patients: who would look the same to one robot.
    """
    first = np.array(patients[0].calibration)
    found = []
    for each in patients:
        x, y, z = (np.array(each.start) + each.calibration - first).tolist()
        found.append(replace(each, start=(x, y, z)))
    return found


class _Operations(NamedTuple):
    """
    Operations side by side: who is operated on, and how they are led at first.

    ``procedure``: of all. ``patients``: of the robot. ``handover`` and ``moves``: of
    :func:`handing_over`. ``begin``: number of the first patient.
    """

    procedure: str
    patients: Sequence[Patient]
    handover: NDArray[np.int64]
    moves: NDArray[np.int64]
    begin: int


def _experiences(rolled: Rollouts, operations: Sequence[_Operations]) -> Iterator[Experience]:
    """Return what came after the hand-over in each of the operations that were rolled out."""
    limits = np.array([each.procedure.force_limit for each in rolled.patients])
    risks = risk_terms(rolled.forces, rolled.damages, rolled.critical, limits[rolled.cases]).total
    after = rolled.ticks >= np.concatenate([each.handover for each in operations])[rolled.cases]
    first = 0
    for each in operations:
        last = first + len(each.patients)
        own = after & (first <= rolled.cases) & (rolled.cases < last)
        cases = rolled.cases[own] - first + each.begin
        yield Experience(rolled.states[own], rolled.rewards[own], risks[own], cases)
        first = last


def _portions(operations: Iterable[_Operations]) -> Iterator[list[_Operations]]:
    """Join operations as long as no more than PORTION go on side by side."""
    joined: list[_Operations] = []
    count = 0
    for each in operations:
        if joined and count + len(each.patients) > PORTION:
            yield joined
            joined, count = [], 0
        joined.append(each)
        count += len(each.patients)
    yield joined


@dataclass
class _Shared:
    """
    What every policy of a robot is valued with, filled when first needed.

    ``offs``: how far the robot may be off. ``operations`` that every policy is valued by, and
    ``meetings`` that every estimate is measured on, by procedure. ``models``: by digest of the
    policy, or hold.
    """

    offs: list[Off] | None = None
    operations: dict[str, list[_Operations]] = field(default_factory=dict)
    meetings: dict[str, list[Meeting]] = field(default_factory=dict)
    models: dict[str, ValueModel] = field(default_factory=dict)


@dataclass(frozen=True)
class PublicValuation:
    """
    Values policies by operations on public patients, with kinematic arms.

    Whatever takes long raises TrainingStopped as soon as `stopped` says so.

    :param lead_in: who operates at first, the same for every policy of a plan: the public start.
    :param progress: called with how many operations are done, and of how many.
    :param known: policies that reveal how far the robot is off: that of its hospital, or without
        one all that it has, one of which is drawn for each operation. If empty, the robot is
        simulated without errors.
    :param shared: what every policy is valued with; another valuation of the same plan, public
        start and known policies may have filled it.
    """

    plan: Plan
    lead_in: Policy
    stopped: Stopped = never
    progress: Callable[[int, int], None] = lambda done, count: None
    known: Sequence[Policy] = ()
    shared: _Shared = field(default_factory=_Shared, repr=False, compare=False)

    @property
    def _offs(self) -> list[Off]:
        """How far the robot may be off."""
        if self.shared.offs is None:
            self.shared.offs = self._found_offs()
        return self.shared.offs

    def _found_offs(self) -> list[Off]:
        if not self.known or not _learner(self.plan).offsets:
            return []
        count, every = _SEEN
        patients = [public_patient(index, self.plan) for index in range(count)]
        made = roll_out(
            patients,
            chooser_of(self.lead_in),
            self.plan.world,
            tick=lambda left: stop_if(self.stopped),
        )
        states = made.states[::every]
        return [self._off(each, patients, states) for each in self.known]

    def _off(
        self, policy: Policy, patients: Sequence[Patient], states: NDArray[np.float32]
    ) -> Off:
        """Return how far the robots are off that a policy was made for."""
        calibration = calibration_of(policy, self.lead_in, states)
        gain = gain_of(policy, calibration, patients, self.plan.world, self.stopped)
        return np.append(calibration, gain)

    def _at_robot(
        self, patients: Sequence[Patient], rng: np.random.Generator
    ) -> Sequence[Patient]:
        """Return patients of the robot, which is off by about as much as a policy says."""
        if not self._offs:
            return patients
        which = rng.integers(len(self._offs), size=len(patients))
        doubts = _DOUBT * rng.standard_normal((len(patients), len(_DOUBT)))
        both = zip(patients, which, doubts, strict=True)
        return [off_by(each, self._offs[number] + doubt) for each, number, doubt in both]

    def experience(self, policy: Policy | None) -> dict[str, Experience]:
        """
        Operate on public patients and note what followed from each state.

        On every other patient of each jackknife group another policy, with some random moves,
        operates at first: a selector hands over in states that the policy alone would not come
        into. Patients and what happens before the hand-over are the same for every policy.

        :param policy: None stays where it is.
        :returns: by procedure; the number of a case is that of its patient.
        """
        names, count = self.plan.federation.names, self.plan.value.patients
        found: dict[str, list[Experience]] = {}
        done = 0
        for name in names:
            if name not in self.shared.operations:
                self.shared.operations[name] = self._drawn_operations(name)
        whole = (each for name in names for each in self.shared.operations[name])
        for part in _portions(whole):
            rolled = roll_out(
                [patient for each in part for patient in each.patients],
                handing_over(
                    policy,
                    self.lead_in,
                    np.concatenate([each.handover for each in part]),
                    np.concatenate([each.moves for each in part], axis=1),
                ),
                self.plan.world,
                tick=lambda left: stop_if(self.stopped),
            )
            for each, own in zip(part, _experiences(rolled, part), strict=True):
                found.setdefault(each.procedure, []).append(own)
                done += len(each.patients)
            self.progress(done, len(names) * count)
        return {
            name: Experience(
                *(
                    np.concatenate([getattr(each, part) for each in parts])
                    for part in ('states', 'rewards', 'risks', 'cases')
                )
            )
            for name, parts in found.items()
        }

    def _drawn_operations(self, procedure: str) -> list[_Operations]:
        """Draw the operations that every policy is valued by in a procedure."""
        plan, place = self.plan, self.plan.federation.names.index(procedure)
        count, groups = plan.value.patients, plan.value.groups
        found = []
        for begin in range(0, count, PORTION):
            stop_if(self.stopped)
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
            public = [public_patient(int(each), plan, procedure) for each in cases]
            at_robot = self._at_robot(public, rng)
            found.append(_Operations(procedure, at_robot, handover, moves, begin))
        return found

    def value_model(self, policy: Policy | None) -> ValueModel:
        """
        Fit the estimate of a policy's return and risk from its public operations.

        :param policy: None stays where it is: the estimate of hold. It is not doubted more where
            nobody has been: who stays does nothing new.
        """
        digest = HOLD if policy is None else policy.digest.hex()
        if digest in self.shared.models:
            count = len(self.plan.federation.names) * self.plan.value.patients
            self.progress(count, count)
        else:
            self.shared.models[digest] = self._fitted(policy, digest)
        return self.shared.models[digest]

    def _fitted(self, policy: Policy | None, digest: str) -> ValueModel:
        estimates = {}
        experiences = self.experience(policy)
        met = self._met(list(experiences), policy)
        for name, experience in experiences.items():
            fitted = fit_value(experience, self.plan.value)
            error = self._conformal_error(fitted, met[name])
            estimates[name] = fitted.with_conformal_error(error)
        if policy is None:
            estimates = {name: replace(each, caution=0.0) for name, each in estimates.items()}
        return ValueModel(digest, estimates)

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
        return self._conformal_error(fitted, self._met([procedure], policy)[procedure])

    def _conformal_error(self, fitted: StateValue, met: Iterable[Alike]) -> float:
        errors, references, stds = [], [], []
        for each in met:
            known = reference(each.state, each.others, each.returns, self.plan.value.redraws // 4)
            if known is not None:
                mean, std = fitted.mean_and_std(each.state)
                errors.append(float(mean) - known.mean)
                references.append(known.error)
                stds.append(float(std))
        return measured_conformal_error(np.array(errors), np.array(references), np.array(stds))

    def _met(self, procedures: Sequence[str], policy: Policy | None) -> dict[str, list[Alike]]:
        """
        Return the states that estimates are measured in, by procedure.

        :raises RecordsError: as :meth:`conformal_error`.
        """
        plan, settings = self.plan, self.plan.value
        for name in procedures:
            if name not in self.shared.meetings:
                self.shared.meetings[name] = self._meetings(name)
        whole = [(name, each) for name in procedures for each in self.shared.meetings[name]]
        together = max(1, 2 * PORTION // (settings.redraws + 1))
        found: dict[str, list[Alike]] = {name: [] for name in procedures}
        for begin in range(0, len(whole), together):
            part = whole[begin : begin + together]
            states = alike_states(
                [each for _, each in part],
                policy,
                self.lead_in,
                plan.world,
                settings.discount,
                lambda left: stop_if(self.stopped),
            )
            for (name, _), own in zip(part, states, strict=True):
                found[name] += own
        return found

    def _meetings(self, procedure: str) -> list[Meeting]:
        """
        Return the patients that estimates are measured on, with others who look the same at first.

        :raises RecordsError: if nearly nobody looks like most of them.
        """
        plan, settings = self.plan, self.plan.value
        cohort, place = plan.public_cohort(1.0), plan.federation.names.index(procedure)
        found: list[Meeting] = []
        number = 0
        while len(found) < settings.checked:
            stop_if(self.stopped)
            index = CHECKED + number
            rng = np.random.default_rng([Stream.VALUATION, plan.federation.seed, place, index])
            try:
                patient = cohort.patient(index, procedure=procedure)
                others = matched_patients(patient, cohort, settings.redraws, rng, _REDRAWN)
                alike = looking_alike(self._at_robot([patient, *others], rng))
                found.append(draw_meeting(alike, bool(number % 2), STATES, rng))
            except RecordsError:  # one in thousands looks like hardly anybody: another one will do
                if number >= 2 * settings.checked:
                    raise
            number += 1
        return found


def kept_valuation(plan: Plan, lead_in: Policy, known: Sequence[Policy]) -> PublicValuation:
    """
    Return a valuation that has what an earlier one of this process found out for the same robot.

    Only what is shared of the last robot is kept.

    :param lead_in: as :class:`PublicValuation` takes it.
    :param known: the same.
    """
    robot = fitted_with(plan, lead_in, known)
    if robot not in _KEPT:
        _KEPT.clear()
        _KEPT[robot] = _Shared()
    return PublicValuation(plan, lead_in, known=known, shared=_KEPT[robot])


_KEPT: dict[str, _Shared] = {}
"""What the policies of the robot whose policy this process valued last are valued with."""
