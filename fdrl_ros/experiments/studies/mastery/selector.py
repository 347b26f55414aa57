# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""
The selector on top of the federation: policies with owners, at home and away.

Values are fitted on public patients, so they cost no epsilon. What those do not show is how far a
hospital's robots are off. Its home policy shows it: it acts like the public start in states moved
by so much, and what is computed from it costs nothing more. Public operations are repeated with
robots that are off by about as much as some home policy says. At home the value of a policy
depends on how far the robot's own policy says it is off; away the state alone must tell.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace

from fdrl_ros.deployment.plan import Plan
from fdrl_ros.deployment.robot.public_value import public_patient
from fdrl_ros.experiments.json_file import Json
from fdrl_ros.experiments.studies.mastery.evaluation import measured, MEASURES
from fdrl_ros.experiments.studies.selector.baselines import oracle_returns
from fdrl_ros.experiments.studies.selector.study import earned
from fdrl_ros.experiments.studies.selector.summary import share
from fdrl_ros.metrics.risk import risk_terms
from fdrl_ros.policy import Policy
from fdrl_ros.runtime.random_streams import Stream
from fdrl_ros.selector import Candidate, Experience, fit_value, HOLD, SelectorSettings
from fdrl_ros.selector.candidates.candidate import CandidateSet
from fdrl_ros.selector.control.selector import Ranking
from fdrl_ros.selector.value.bank import Estimates
from fdrl_ros.selector.value.model import RETURN, RISK, StateValue
from fdrl_ros.selector.value.monte_carlo_reference import (
    chooser_of,
    EXPLORATION,
    handing_over,
    LED,
    LONGEST_LEAD,
)
from fdrl_ros.surgery.gym.actions import ACTION_COUNT, TICK
from fdrl_ros.surgery.gym.episode import roll_out
from fdrl_ros.surgery.gym.state import INDEX, PROCEDURE_NAMES, SCALES
from fdrl_ros.surgery.patient.patient import Patient
from fdrl_ros.tasks.task import Chooser
import numpy as np
from numpy.typing import NDArray
from scipy import optimize

SELECTOR, OWN, GLOBAL, PUBLIC = 'selector', 'own', 'global', 'public_start'
OTHERS, BASE = 'others', 'without'

_MOVED = [INDEX[name] for name in ('goal_error_x', 'goal_error_y', 'goal_error_z', 'force_error')]
_SPREAD = 0.15
"""Of how far simulated robots are off around what a policy says, in scales of these numbers."""

UNDERSTATED = np.array([1.25, 1.25, 1.25, 1.6])
"""Learning with noise from a public start goes part of the way; by seeds 901 to 903."""

_DOUBT = np.array([0.06, 0.06, 0.1, 0.2])
"""Standard deviations of how far a robot is off, given its own policy; by the same seeds."""

Array = NDArray[np.float64]
Policies = Mapping[str, Policy | None]
"""Candidates by name, hold last; None stays where it is."""


def calibration_of(policy: Policy, start: Policy, states: NDArray[np.float32]) -> Array:
    """
    Return how far the robots are off that a policy was made for: its post-processing.

    The policy values actions as the public start does in states with other goal errors and force
    errors; these are found by least squares.

    :param states: public ones, shape (N, STATE_SIZE).
    :returns: in scales of the goal errors and of the force error, shape (4,).
    """
    touching = states[states[:, INDEX['contact']] > 0.0]
    off = _shift(policy, start, states)
    off[-1] = _shift(policy, start, touching)[-1]
    return off * UNDERSTATED


def _shift(policy: Policy, start: Policy, states: NDArray[np.float32]) -> Array:
    """Return by how much states are moved for one who acts like another."""

    def centred(values: NDArray[np.float32]) -> Array:
        return np.asarray(values - values.mean(axis=1, keepdims=True), np.float64)

    wanted = centred(policy.q_values(states))

    def errors(off: Array) -> Array:
        moved = states.copy()
        moved[:, _MOVED] += off.astype(np.float32)
        return (centred(start.q_values(moved)) - wanted).ravel()

    begin = np.zeros(len(_MOVED))
    found = optimize.least_squares(errors, begin, loss='soft_l1', diff_step=0.02, x_scale=0.2)
    return np.asarray(found.x)


def off_by(patient: Patient, off: Array) -> Patient:
    """
    Return a patient whose robot is off.

    A force at which a policy feels a share too little to do is measured as that share more.

    :param off: as :func:`calibration_of` returns it.
    """
    x, y, z, force = (off * SCALES[_MOVED]).tolist()
    return replace(patient, calibration=(x, y, z), force_gain=max(1.0 + force, 0.1))


class Fitted:
    """
    Values of all candidates in one procedure, for many states at once.

    :param values: of each candidate.
    :param risk_weight: returns that one unit of risk to go counts as much as.
    """

    def __init__(self, values: Sequence[StateValue], risk_weight: float) -> None:
        def joined(parts: np.ndarray) -> np.ndarray:
            return np.asarray(parts[RETURN] - risk_weight * parts[RISK])

        self._values = values
        self._basis = values[0].basis
        self._means = np.stack([joined(each.weights) for each in values])
        self._risks = np.stack([each.weights[RISK] for each in values])
        self._deviations = np.stack([joined(each.deviations) for each in values])

    def __call__(self, inputs: Array, off: Array | None = None) -> list[Estimates]:
        """
        Estimate, for each row of inputs.

        :param off: how far the robot is probably off, which follows the state in the inputs.
        """
        moved = []
        if off is not None:
            inputs = np.concatenate([inputs, np.broadcast_to(off, (len(inputs), len(off)))], 1)
            for number, doubt in enumerate(_DOUBT):
                other = inputs.copy()
                other[:, number - len(off)] += doubt
                moved.append(self._basis(other))
        features = self._basis(inputs)
        means, risks = features @ self._means.T, features @ self._risks.T
        deviations = np.einsum('nf,ckf->nck', features, self._deviations, optimize=True)
        if moved:
            doubts = [(each - features) @ self._means.T for each in moved]
            deviations = np.concatenate([deviations, np.stack(doubts, axis=2)], axis=2)
        strange = [np.square(each.caution * each.outside(inputs)) for each in self._values]
        strangeness = np.stack(strange, axis=1)
        stds = np.sqrt(np.square(deviations).sum(axis=2) + strangeness)
        columns = zip(means, stds, risks, deviations, strangeness, strict=True)
        return [Estimates(*each) for each in columns]


class Valuer:
    """
    Values candidates on public patients, with robots that are off by about what policies say.

    :param plan: of the cell.
    :param policies: candidates.
    :param start: the public start, who operates before the hand-over.
    :param patients: of each procedure.
    """

    def __init__(self, plan: Plan, policies: Policies, start: Policy, patients: int) -> None:
        self.plan, self.policies = plan, policies
        public = [public_patient(index, plan) for index in range(min(patients, 200))]
        states = roll_out(public, chooser_of(start), plan.world).states[::7]
        self.off = {
            name: calibration_of(each, start, states)
            for name, each in policies.items()
            if each is not None
        }
        self._start, self._patients = start, patients
        self._at_home: dict[str, Fitted] = {}
        self._away: dict[str, Fitted] = {}
        for place, name in enumerate(plan.federation.names):
            self._fit(place, name)

    def _fit(self, place: int, name: str) -> None:
        """Fit a procedure: the same patients and hand-overs for every candidate."""
        plan, count = self.plan, self._patients
        rng = np.random.default_rng([Stream.VALUATION, plan.federation.seed, place])
        known = np.stack(list(self.off.values()))
        off = known[rng.integers(len(known), size=count)]
        off += _SPREAD * rng.standard_normal(off.shape)
        patients = [
            off_by(public_patient(index, plan, name), each) for index, each in enumerate(off)
        ]
        cases = np.arange(count)
        groups = plan.value.groups
        led = (cases % groups + cases // groups) % 2
        handover = np.where(led, rng.integers(LONGEST_LEAD, size=count), 0)
        random = rng.random((LONGEST_LEAD, count)) < rng.uniform(0.0, EXPLORATION, count)
        moves = np.where(random, rng.integers(ACTION_COUNT, size=random.shape), LED)
        both: tuple[list[StateValue], list[StateValue]] = [], []
        for policy in self.policies.values():
            made = roll_out(
                patients, handing_over(policy, self._start, handover, moves), plan.world
            )
            limits = np.array([each.procedure.force_limit for each in patients])[made.cases]
            risks = risk_terms(made.forces, made.damages, made.critical, limits).total
            own = made.ticks >= handover[made.cases]
            states, whose = made.states[own].astype(np.float64), made.cases[own]
            told = np.concatenate([states, off[whose]], axis=1)
            for inputs, values in zip((told, states), both, strict=True):
                lived = Experience(inputs, made.rewards[own], risks[own], whose)
                value = fit_value(lived, plan.value)
                values.append(replace(value, caution=0.0) if policy is None else value)
        weight = plan.selector.risk_weight
        self._at_home[name], self._away[name] = (Fitted(each, weight) for each in both)

    def estimates(self, states: NDArray[np.float32], off: Array | None) -> list[Estimates]:
        """
        Estimate what each candidate is worth.

        :param states: shape (n, STATE_SIZE).
        :param off: how far the robot is off; None where nobody knows.
        """
        kinds = states[:, : len(PROCEDURE_NAMES)].argmax(axis=1)
        found: dict[int, Estimates] = {}
        for kind in np.unique(kinds):
            rows = np.flatnonzero(kinds == kind)
            inputs = states[rows].astype(np.float64)
            name = PROCEDURE_NAMES[kind]
            made = self._away[name](inputs) if off is None else self._at_home[name](inputs, off)
            for row, each in zip(rows, made, strict=True):
                found[int(row)] = each
        return [found[row] for row in range(len(states))]


class SelectorActs:
    """
    The selector on many patients: who operates, as a policy does (FDRL Eq. 7 with caution).

    :param owner: name of the policy that is the robot's own: it acts until another one is surely
        better, and tells how far the robot is off. Empty where it has none.
    """

    def __init__(self, valuer: Valuer, settings: SelectorSettings, owner: str = '') -> None:
        self._valuer, self._settings, self._owner = valuer, settings, owner
        self._choosers = [chooser_of(each) for each in valuer.policies.values()]
        self._set = CandidateSet([Candidate(*each) for each in valuer.policies.items()])
        self._set.valued = True  # by the valuer, for all patients at once
        self._free = [True] * len(self._choosers)
        self._rankings: dict[int, Ranking] = {}
        self.chosen: Counter[str] = Counter()

    def __call__(
        self, states: NDArray[np.float32], rows: NDArray[np.int64], tick: int
    ) -> NDArray[np.int64]:
        """Return the action of the chosen candidate in each state."""
        off = self._valuer.off[self._owner] if self._owner else None
        places = np.empty(len(states), np.int64)
        for place, (row, each) in enumerate(
            zip(rows.tolist(), self._valuer.estimates(states, off), strict=True)
        ):
            if tick == 0:
                self._rankings[row] = Ranking(self._settings)
                self._rankings[row].reset(self._owner or None)
            ranking = self._rankings[row]
            places[place], _ = ranking.choose(self._set, each, self._free, tick * TICK)
        actions = np.empty(len(states), np.int64)
        for number, (name, choose) in enumerate(
            zip(self._valuer.policies, self._choosers, strict=True)
        ):
            own = np.flatnonzero(places == number)
            self.chosen[name] += len(own)
            if len(own):
                actions[own] = choose(states[own], rows[own], tick)
        return actions


RETURN_AND_RISK = ('return', 'success', 'risk')
"""
Of each patient: discounted return J, success, 1 - risk-adjusted success.
"""

Rows = dict[str, Array]
"""Of each row, what :data:`RETURN_AND_RISK` names, shape (patients, 3)."""


class SelectorBench:
    """
    The selector and each of its candidates on the same patients, at home or away.

    :param count: patients of each hospital on whom all candidates are tried.
    :param foreseen: of them, those on whom the oracle is; no force sensor is noisy there.
    """

    def __init__(self, valuer: Valuer, count: int, foreseen: int) -> None:
        self.valuer, self.plan = valuer, valuer.plan
        self._count, self._foreseen = count, foreseen
        self.calm: list[Patient] = []
        self._rows: list[Json] = []
        self._true: list[dict[str, float]] = []
        self._chosen = dict.fromkeys((OWN, GLOBAL, PUBLIC, OTHERS, HOLD), 0)

    def acts(self, owner: str) -> SelectorActs:
        """Return the selector at a hospital's robots; the owner is empty where it has no own."""
        return SelectorActs(self.valuer, self.plan.selector, owner)

    def add(self, patients: Sequence[Patient], owner: str) -> None:
        """Try everybody on the patients of one hospital."""
        some, selector = patients[: self._count], self.acts(owner)
        choosers = {name: chooser_of(each) for name, each in self.valuer.policies.items()}
        every = {name: self._tried(some, each) for name, each in choosers.items()}
        rows: Rows = {SELECTOR: self._tried(some, selector)}
        rows |= {name: every[name] for name in (GLOBAL, PUBLIC, HOLD)}
        if owner:
            rows[OWN] = every[owner]
        others = [each for name, each in every.items() if self._role(name, owner) == OTHERS]
        rows[OTHERS] = np.mean(others, axis=0)
        table = np.stack(list(every.values()))
        rows['hindsight'] = table[table[:, :, 0].argmax(axis=0), np.arange(len(some))]
        self._rows.append(
            {
                name: dict(zip(RETURN_AND_RISK, each.mean(axis=0).tolist(), strict=True))
                for name, each in rows.items()
            }
        )
        for name, ticks in selector.chosen.items():
            self._chosen[self._role(name, owner)] += ticks
        calm = [replace(each, force_noise=0.0) for each in some[: self._foreseen]]
        acting: dict[str, Chooser] = {SELECTOR: self.acts(owner), HOLD: choosers[HOLD]}
        acting[BASE] = choosers[owner or GLOBAL]
        self.calm += calm
        self._true.append(
            {name: float(self._tried(calm, each)[:, 0].mean()) for name, each in acting.items()}
        )

    @staticmethod
    def _role(name: str, owner: str) -> str:
        """Return whose a candidate is for a robot."""
        if name == owner:
            return OWN
        return name if name in (GLOBAL, PUBLIC, HOLD) else OTHERS

    def _tried(self, patients: Sequence[Patient], choose: Chooser) -> Array:
        made = roll_out(patients, choose, self.plan.world)
        found = measured(made, self.plan.world)
        returns = earned(made, len(patients), self.plan.value.discount)
        success, risk = found[:, 0], 1.0 - found[:, MEASURES.index('risk_adjusted_success')]
        return np.stack([returns, success, risk], axis=1)

    def summed(self, best: Array) -> Json:
        """
        Return means over hospitals by the row, and the shares of what can be gained.

        :param best: return of the oracle on the `calm` patients.
        """

        def mean(rows: Sequence[Mapping[str, float]]) -> dict[str, float]:
            return {name: float(np.mean([each[name] for each in rows])) for name in rows[0]}

        rows = {name: mean([each[name] for each in self._rows]) for name in self._rows[0]}
        true = {'oracle': float(best.mean()), **mean(self._true)}
        ticks = sum(self._chosen.values())
        own, nothing, most = (rows[name]['return'] for name in (SELECTOR, HOLD, 'hindsight'))
        return {
            'rows': rows,
            'oracle': true,
            'share_of_hindsight': share(own, nothing, most),
            'share_of_oracle': share(true[SELECTOR], true[HOLD], true['oracle']),
            'share_of_oracle_without': share(true[BASE], true[HOLD], true['oracle']),
            'chosen': {name: each / ticks for name, each in self._chosen.items()},
        }


def summed_with_oracle(benches: Mapping[str, SelectorBench]) -> Json:
    """
    Return what benches found, by the same names.

    An oracle tries all candidates to the end in all states, on all patients side by side.
    """
    first = next(iter(benches.values()))
    choosers = [chooser_of(each) for each in first.valuer.policies.values()]
    patients = [each for bench in benches.values() for each in bench.calm]
    plan = first.plan
    best = oracle_returns(patients, choosers, plan.value.discount, plan.world)
    ends = np.cumsum([len(each.calm) for each in benches.values()])[:-1]
    own = zip(benches.items(), np.split(best, ends), strict=True)
    return {name: bench.summed(each) for (name, bench), each in own}
