# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""
The selector on top of the federation: policies with owners, at home and away.

Candidates are valued as a robot values them (:mod:`fdrl_ros.deployment.robot.public_value`): on
public patients, with a robot that is off as the policy of its hospital says, or away as one or
another of the policies does. That costs no epsilon.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from fdrl_ros.deployment.plan import Plan
from fdrl_ros.deployment.robot.public_value import PublicValuation
from fdrl_ros.experiments.json_file import Json
from fdrl_ros.experiments.studies.mastery.evaluation import measured, MEASURES
from fdrl_ros.experiments.studies.selector.baselines import oracle_returns
from fdrl_ros.experiments.studies.selector.study import earned
from fdrl_ros.experiments.studies.selector.summary import share
from fdrl_ros.policy import Policy
from fdrl_ros.runtime.progress import never, Stopped
from fdrl_ros.selector import Candidate, HOLD
from fdrl_ros.selector.candidates.candidate import CandidateSet, HOME
from fdrl_ros.selector.control.selector import Ranking
from fdrl_ros.selector.value.monte_carlo_reference import chooser_of
from fdrl_ros.surgery.gym.actions import TICK
from fdrl_ros.surgery.gym.episode import roll_out
from fdrl_ros.surgery.gym.state import PROCEDURE_NAMES
from fdrl_ros.surgery.patient.patient import Patient
from fdrl_ros.tasks.task import Chooser
import numpy as np
from numpy.typing import NDArray

SELECTOR, OWN, GLOBAL, PUBLIC = 'selector', 'own', 'global', 'public_start'
OTHERS, BASE = 'others', 'without'

Array = NDArray[np.float64]
Policies = Mapping[str, Policy | None]
"""Candidates by name; None stays where it is."""


@dataclass(frozen=True)
class Robot:
    """
    A robot with its candidates, valued where it is.

    :param plan: of the cell.
    :param policies: candidates; hold stays where it is.
    :param owner: name of the robot's own policy, which is called home there; empty where it has
        none, as away.
    """

    plan: Plan
    policies: Policies
    owner: str
    stopped: Stopped = never

    @cached_property
    def candidates(self) -> CandidateSet:
        """Candidates with their values, hold last."""
        start = self.policies[PUBLIC]
        assert start is not None
        learned = {name: each for name, each in self.policies.items() if each and name != PUBLIC}
        known = [learned[self.owner]] if self.owner else list(learned.values())
        valuation = PublicValuation(self.plan, start, self.stopped, known=known)
        found = [
            Candidate(self.name(each), policy, valuation.value_model(policy))
            for each, policy in self.policies.items()
        ]
        return CandidateSet(found, self.plan.selector.risk_weight)

    def name(self, policy: str) -> str:
        """Return the name of a policy among the robot's candidates."""
        return HOME if policy == self.owner else policy


class SelectorActs:
    """The selector on many patients: who operates, as a policy does (FDRL Eq. 7 with caution)."""

    def __init__(self, robot: Robot) -> None:
        self._set, self._settings = robot.candidates, robot.plan.selector
        policies = {robot.name(name): each for name, each in robot.policies.items()}
        self._choosers = [chooser_of(policies[name]) for name in self._set.names]
        self._free = [True] * len(self._choosers)
        self._rankings: dict[int, Ranking] = {}
        self.chosen: Counter[str] = Counter()

    def __call__(
        self, states: NDArray[np.float32], rows: NDArray[np.int64], tick: int
    ) -> NDArray[np.int64]:
        """Return the action of the chosen candidate in each state."""
        kinds = states[:, : len(PROCEDURE_NAMES)].argmax(axis=1).tolist()
        places = np.empty(len(states), np.int64)
        for place, (row, kind, state) in enumerate(zip(rows.tolist(), kinds, states, strict=True)):
            if tick == 0:
                self._rankings[row] = Ranking(self._settings)
            estimates = self._set.bank.estimate(PROCEDURE_NAMES[kind], state)
            ranking = self._rankings[row]
            places[place], _ = ranking.choose(self._set, estimates, self._free, tick * TICK)
        actions = np.empty(len(states), np.int64)
        for number, (name, choose) in enumerate(zip(self._set.names, self._choosers, strict=True)):
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

    :param policies: candidates of all robots.
    :param count: patients of each hospital on whom all candidates are tried.
    :param foreseen: of them, those on whom the oracle is; no force sensor is noisy there.
    """

    def __init__(self, plan: Plan, policies: Policies, count: int, foreseen: int) -> None:
        self.plan, self.policies = plan, policies
        self._count, self._foreseen = count, foreseen
        self.calm: list[Patient] = []
        self._rows: list[Json] = []
        self._true: list[dict[str, float]] = []
        self._chosen = dict.fromkeys((OWN, GLOBAL, PUBLIC, OTHERS, HOLD), 0)

    def add(self, patients: Sequence[Patient], robot: Robot) -> None:
        """Try everybody on the patients of one hospital, where the robot is."""
        some, selector, owner = patients[: self._count], SelectorActs(robot), robot.owner
        choosers = {name: chooser_of(each) for name, each in self.policies.items()}
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
            self._chosen[OWN if name == HOME else self._role(name, owner)] += ticks
        calm = [replace(each, force_noise=0.0) for each in some[: self._foreseen]]
        acting: dict[str, Chooser] = {SELECTOR: SelectorActs(robot), HOLD: choosers[HOLD]}
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
    choosers = [chooser_of(each) for each in first.policies.values()]
    patients = [each for bench in benches.values() for each in bench.calm]
    plan = first.plan
    best = oracle_returns(patients, choosers, plan.value.discount, plan.world)
    ends = np.cumsum([len(each.calm) for each in benches.values()])[:-1]
    own = zip(benches.items(), np.split(best, ends), strict=True)
    return {name: bench.summed(each) for (name, bench), each in own}
