# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""Contenders, and their evaluation on unseen patients and frozen states, in worker processes."""

from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
import functools
from pathlib import Path

from fdrl_ros.deployment.plan import Plan
from fdrl_ros.errors import os_errors_as, RecordsError
from fdrl_ros.experiments.json_file import Json
from fdrl_ros.experiments.patient_results import PatientResults, score_of
from fdrl_ros.metrics.episode import write_csv, write_json
from fdrl_ros.metrics.task import StateSet, task_accuracy
from fdrl_ros.policy import Policy
from fdrl_ros.runtime.progress import Caller, NOBODY, Progress
from fdrl_ros.runtime.random_streams import Stream
from fdrl_ros.runtime.worker_processes import run_tasks
from fdrl_ros.selector import (
    Candidate,
    HOLD,
    Observation,
    Selection,
    Selector,
    SelectorSettings,
    ShieldSettings,
    ValueModel,
)
from fdrl_ros.surgery.gym.actions import STAY, TICK
from fdrl_ros.surgery.gym.episode import Action, Choice, Episode, mixed_behaviour, run_episode
from fdrl_ros.surgery.gym.state import (
    Field,
    OPERATION_FIELDS,
    OPERATION_SIZE,
    PATIENT_FIELDS,
    unscale,
)
from fdrl_ros.surgery.gym.surgery_env import SurgeryEnv
from fdrl_ros.surgery.patient.cohort import Mixture
from fdrl_ros.surgery.patient.patient import Patient
from fdrl_ros.surgery.settings import WorldSettings
from fdrl_ros.surgery.tasks.expert import expert, expert_costs
import numpy as np


@dataclass(frozen=True, eq=False)
class Contender:
    """
    Anything that can operate; it travels to worker processes. This one holds still.

    :param name: of its row in the table.
    """

    name: str

    def begin(self, patient: Patient, world: WorldSettings) -> Choice:
        """Return the function that chooses actions for this patient."""
        return lambda state: STAY


@dataclass(frozen=True, eq=False)
class ExpertContender(Contender):
    """The expert, which reads the tissue that no policy sees."""

    name: str = 'expert'

    def begin(self, patient: Patient, world: WorldSettings) -> Choice:
        """Return the expert for this patient."""
        return lambda state: expert(state, patient, world)[0]


@dataclass(frozen=True, eq=False)
class PolicyContender(Contender):
    """One policy, the same for every patient."""

    name: str
    policy: Policy

    def begin(self, patient: Patient, world: WorldSettings) -> Choice:
        """Return the policy."""
        return self.policy


@dataclass(frozen=True, eq=False)
class SelectorContender(Contender):
    """
    The selector over candidates, as the robot runs it (FDRL Eq. 7).

    :param policies: by the candidate's name.
    :param values: candidate's name to the estimate of its return; that of hold too, if there.
    """

    name: str
    policies: Mapping[str, Policy]
    values: Mapping[str, ValueModel]
    settings: SelectorSettings
    shield: ShieldSettings = ShieldSettings()

    def begin(self, patient: Patient, world: WorldSettings) -> 'SelectorSession':
        """Return a fresh selector for this patient."""
        selector = Selector(self.settings, shield=self.shield)
        candidates = [
            Candidate(name, policy, self.values.get(name), policy.digest)
            for name, policy in self.policies.items()
        ]
        selector.set_candidates([*candidates, Candidate(HOLD, None, self.values.get(HOLD))])
        return SelectorSession(selector, patient)


class SelectorSession:
    """
    A selector that operates on one patient, with states as the two topics deliver them.

    ``selections`` holds what was chosen at each tick, and why.
    """

    def __init__(self, selector: Selector, patient: Patient) -> None:
        self.selections: list[Selection] = []
        self._selector = selector
        self._patient = patient

    def __call__(self, state: np.ndarray) -> int:
        """Select a policy and return its action; to hold is to stay, if the shield lets it."""
        now, values = len(self.selections) * TICK, unscale(state)
        operation = observe(OPERATION_FIELDS, values[:OPERATION_SIZE], now, self._patient)
        vitals = observe(PATIENT_FIELDS, values[OPERATION_SIZE:], now, self._patient)
        self.selections.append(self._selector.select(operation, vitals, now))
        return self.selections[-1].action


@functools.cache
def _named(fields: tuple[Field, ...]) -> tuple[tuple[str, ...], np.ndarray]:
    """Return names and scales of some fields of the state."""
    return tuple(each.name for each in fields), np.array([each.scale for each in fields])


def observe(
    fields: tuple[Field, ...], values: np.ndarray, now: float, patient: Patient
) -> Observation:
    """Return what one of the two state topics tells of a patient."""
    names, scales = _named(fields)
    return Observation(patient.name, names, values, scales, now, patient.procedure.name)


PORTION = 40
"""Patients that one piece of work operates on."""

FIRST_OF_STATES = 10**6
"""Number of the first patient of the frozen set: nobody is evaluated on it."""


@dataclass(frozen=True, eq=False)
class Evaluation:
    """
    All results of one contender.

    :param chosen: how often the selector took each policy; empty for others.
    """

    name: str
    results: PatientResults
    score: Json
    chosen: dict[str, int]


@dataclass(frozen=True, eq=False)
class Probe:
    """The frozen set of states for A_task, with the patient of each case."""

    states: StateSet
    patients: tuple[Patient, ...]


def unseen_patients(plan: Plan, count: int, first: int = 0) -> list[Patient]:
    """Return test patients of all hospitals in turn."""
    everyone = Mixture(plan.cohorts)
    return [everyone.patient(each, 'test') for each in range(first, first + count)]


def make_probe(plan: Plan) -> Probe:
    """
    Make the frozen set: states met by surgeons of the plan's skill on further test patients.

    It depends on nothing that was learned; the same plan gives the same digest.
    """
    chosen = plan.evaluation
    patients = unseen_patients(plan, chosen.state_patients, FIRST_OF_STATES)
    behave = mixed_behaviour(1.0 - plan.collection.exploration, plan.world)
    states, costs, cases = [], [], []
    with closing(SurgeryEnv(settings=plan.world)) as env:
        for case, patient in enumerate(patients):
            rng = np.random.default_rng([Stream.EVALUATION, plan.federation.seed, case])
            env.np_random = rng

            def choose(
                state: np.ndarray, patient: Patient = patient, rng: np.random.Generator = rng
            ) -> Action:
                return behave(state, patient, rng)

            met = run_episode(env, choose, patient).states[:-1]
            count = min(len(met), chosen.states_per_patient)
            kept = met[np.linspace(0, len(met) - 1, count).astype(int)]
            states.append(kept)
            costs.append(expert_costs(kept, patient, plan.world))
            cases.append(np.full(count, case))
    table = np.concatenate(costs)
    frozen = StateSet(np.concatenate(states), table, table.argmin(axis=1), np.concatenate(cases))
    return Probe(frozen, tuple(patients))


def actions_on(contender: Contender, probe: Probe, world: WorldSettings) -> np.ndarray:
    """Return what a contender does in each state of the set, case by case, shape (M,)."""
    actions = np.zeros(len(probe.states.cases), dtype=np.int64)
    for case, patient in enumerate(probe.patients):
        choose = contender.begin(patient, world)
        for index in np.flatnonzero(probe.states.cases == case):
            actions[index] = choose(probe.states.states[index])
    return actions


def evaluate(
    contenders: Sequence[Contender],
    patients: Sequence[Patient],
    probe: Probe,
    plan: Plan,
    caller: Caller = NOBODY,
) -> dict[str, Evaluation]:
    """
    Let every contender operate on the same patients.

    :returns: results by the contender's name, in the order given.
    :raises TrainingStopped: as soon as the caller says so.
    """
    portions = [patients[at : at + PORTION] for at in range(0, len(patients), PORTION)]
    tasks = [(each, part, plan) for each in contenders for part in portions]
    done = dict.fromkeys((each.name for each in contenders), 0)

    def count(progress: Progress) -> None:
        done[progress.who] += 1
        caller.report(Progress('evaluate', progress.who, done[progress.who], len(patients)))

    workers = plan.evaluation.workers
    counted = replace(caller, report=count)
    parts = iter(run_tasks(operate, tasks, workers=workers, caller=counted))
    results = {}
    for contender in contenders:
        mine = [next(parts) for _ in portions]
        of_all = PatientResults(tuple(row for part, _ in mine for row in part.rows))
        chosen = sum((counts for _, counts in mine), Counter[str]())
        accuracy = task_accuracy(probe.states, actions_on(contender, probe, plan.world))
        score = score_of(of_all, accuracy)
        results[contender.name] = Evaluation(contender.name, of_all, score, dict(chosen))
    return results


def operate(
    contender: Contender, patients: Sequence[Patient], plan: Plan, caller: Caller
) -> tuple[PatientResults, Counter[str]]:
    """
    Operate on some patients; a piece of work for a worker process.

    :returns: what happened, and how often the selector chose each policy.
    """
    episodes, chosen = [], Counter[str]()
    with closing(SurgeryEnv(settings=plan.world)) as env:
        env.np_random = np.random.default_rng([Stream.EVALUATION, plan.federation.seed])
        for patient in patients:
            caller.check()
            episode, selections = operate_once(env, contender, patient, plan.world)
            episodes.append(episode)
            chosen.update(each.policy for each in selections)
            caller.report(Progress('evaluate', contender.name, 1, 1))
    return PatientResults.of(episodes, plan.world, plan.value.discount), chosen


def operate_once(
    env: SurgeryEnv, contender: Contender, patient: Patient, world: WorldSettings
) -> tuple[Episode, list[Selection]]:
    """Return one operation, and what the selector chose at each tick, if it is one."""
    choose = contender.begin(patient, world)
    episode = run_episode(env, choose, patient)
    return episode, choose.selections if isinstance(choose, SelectorSession) else []


def save_episodes(directory: Path, evaluations: Mapping[str, Evaluation]) -> None:
    """
    Write the metrics of every operation, a CSV and a JSON file for each policy.

    :raises RecordsError: if a file cannot be written.
    """
    with os_errors_as(RecordsError, f'cannot make {directory}'):
        directory.mkdir(parents=True, exist_ok=True)
    for name, each in evaluations.items():
        stem = name.replace('/', '_')
        write_csv(directory / f'{stem}.csv', each.results.episodes)
        write_json(directory / f'{stem}.json', each.results.episodes)
