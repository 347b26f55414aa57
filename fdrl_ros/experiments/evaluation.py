# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""Contenders of any task, and their evaluation on unseen patients, in worker processes."""

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
import csv
from dataclasses import dataclass, field, replace
import functools
import hashlib
from pathlib import Path
from typing import Any

from fdrl_ros.deployment.layout import Layout
from fdrl_ros.deployment.plan import Plan
from fdrl_ros.errors import os_errors_as, RecordsError, TaskError
from fdrl_ros.experiments.json_file import Json
from fdrl_ros.experiments.patient_results import (
    PatientResults,
    plain_scores,
    score_of,
    Scores,
)
from fdrl_ros.policy import Policy
from fdrl_ros.runtime.progress import Caller, NOBODY, Progress
from fdrl_ros.runtime.random_streams import Stream
from fdrl_ros.runtime.worker_processes import run_tasks
from fdrl_ros.tasks import Choice, Patient
from matplotlib.axes import Axes
import numpy as np


@dataclass(frozen=True, eq=False)
class Contender(ABC):
    """
    Anything that can act; it travels to worker processes.

    :param name: of its row in the table.
    """

    name: str

    @abstractmethod
    def begin(self, patient: Patient, plan: Plan) -> Choice:
        """Return the function that chooses actions for this patient."""

    def chosen(self, choose: Choice) -> Sequence[str]:
        """
        Return which policy a selector took at each step; nothing for others.

        :param choose: what :meth:`begin` returned, after the patient.
        """
        return ()


@dataclass(frozen=True, eq=False)
class GuideContender(Contender):
    """The guide of the task, which may see more than a policy does."""

    name: str = 'expert'

    def begin(self, patient: Patient, plan: Plan) -> Choice:
        """
        Return the guide for this patient.

        :raises TaskError: if there is none.
        """
        guide = plan.task.guide(patient, plan.world)
        if guide is None:
            raise TaskError(f'task {plan.task.name} has no guide for {patient.name}')
        return guide


@dataclass(frozen=True, eq=False)
class RandomContender(Contender):
    """Actions drawn at random, the same ones for a patient each time."""

    name: str = 'random'

    def begin(self, patient: Patient, plan: Plan) -> Choice:
        """Return a source of actions, seeded by the patient's name."""
        words = np.frombuffer(hashlib.sha256(patient.name.encode()).digest(), np.uint32)
        seed = Stream.RANDOM_CONTENDER, plan.federation.seed, *words.tolist()
        rng, spec = np.random.default_rng(seed), plan.spec
        return lambda state: spec.draw_action(rng)


@dataclass(frozen=True, eq=False)
class PolicyContender(Contender):
    """One policy, the same for every patient."""

    name: str
    policy: Policy

    def begin(self, patient: Patient, plan: Plan) -> Choice:
        """Return the policy."""
        return self.policy


def hospital_of(patient: Patient, plan: Plan) -> str:
    """Return the hospital of a patient, by the name; empty for one of none."""
    name = patient.name.split('/')[0]
    return name if name in plan.hospitals else ''


@dataclass(frozen=True, eq=False)
class OwnContender(Contender):
    """
    Each hospital's own policy on its own patients.

    :param policies: by the hospital.
    """

    name: str
    policies: Mapping[str, Policy]

    def begin(self, patient: Patient, plan: Plan) -> Choice:
        """Return the policy of the patient's hospital."""
        return self.policies[hospital_of(patient, plan)]


PORTION = 40
"""Patients that one piece of work operates on."""


OWN_ROWS = {'alone': 'local_', 'home': 'home_'}
"""Rows of each hospital's own policy on its own patients, and how its name begins."""


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


@dataclass(frozen=True)
class Extras:
    """
    What a run of one task shows beside the results of any task.

    :param lines: below the table.
    :param details: of ``details.json``.
    :param plots: what draws each plot, by name.
    :param pictures: what draws whole files into a directory.
    """

    lines: tuple[str, ...] = ()
    details: Json = field(default_factory=dict)
    plots: Mapping[str, Callable[[Axes], None]] = field(default_factory=dict)
    pictures: tuple[Callable[[Path], None], ...] = ()


def unseen_patients(plan: Plan, count: int, first: int = 0) -> list[Any]:
    """Return test patients of all hospitals in turn."""
    hospitals = [plan.population(each) for each in range(plan.federation.hospitals)]
    numbers = (divmod(each, len(hospitals)) for each in range(first, first + count))
    return [hospitals[hospital].patient(number, 'test') for number, hospital in numbers]


class Evaluator:
    """How policies of a task are compared. This one serves every task."""

    grouped: tuple[str, ...] = ('hospital', 'procedure')
    """Columns of texts: results are also told for each value of one that a task has."""

    learned: tuple[str, ...] = ('success', 'mean_total')
    """Scores with intervals, of the global policy after each round and of its leads."""

    def __init__(self, plan: Plan) -> None:
        self.plan = plan

    @property
    def scores(self) -> Scores:
        """The numbers of a policy."""
        task = self.plan.task
        return plain_scores(task.measures, task.exact_measures)

    def rivals(self) -> tuple[str, ...]:
        """Return the rows over which the report states the lead of the policy that robots use."""
        return ('pretrained', 'random', 'alone', 'global', 'expert')

    def baselines(self) -> list[Contender]:
        """Return who learned nothing: the guide, where the task has one, and chance."""
        plan = self.plan
        patient = plan.population(0).patient(0, 'test')
        guided = plan.task.guide(patient, plan.world) is not None
        return [*([GuideContender()] if guided else []), RandomContender()]

    def contenders(
        self,
        policies: Mapping[str, Policy],
        choices: Sequence[str],
        caller: Caller = NOBODY,
        robots: Sequence[Path] = (),
    ) -> list[Contender]:
        """
        Return all rows of a run's table.

        :param policies: of the run, by name; of a hospital those begin with local_ and home_.
        :param choices: those among which a selector may choose.
        :param robots: directories of robots that may have valued some of these.
        """
        own = {row: self.own(policies, start) for row, start in OWN_ROWS.items()}
        made = {row: OwnContender(row, each) for row, each in own.items() if each}
        ordered = ('untrained', 'pretrained', 'alone', 'global', 'home')
        common = {
            name: PolicyContender(name, policies[name]) for name in policies.keys() & {*ordered}
        }
        rows: dict[str, Contender] = {**common, **made}
        return [*self.baselines(), *(rows[name] for name in ordered if name in rows)]

    def own(self, policies: Mapping[str, Policy], start: str) -> dict[str, Policy]:
        """Return the policies of each hospital whose names begin so, if every hospital has one."""
        found = {name: policies.get(f'{start}{name}') for name in self.plan.hospitals}
        return {name: each for name, each in found.items() if each and all(found.values())}

    def figures(self, contender: Contender) -> dict[str, float]:
        """Return what is measured of a contender beside patients."""
        plan = self.plan
        if not plan.task.exact_measures:
            return {}
        at_random = isinstance(contender, RandomContender)
        begin = None if at_random else functools.partial(contender.begin, plan=plan)
        return dict(plan.task.exact(begin, plan.federation, plan.world))

    def extras(
        self, contenders: Sequence[Contender], evaluations: Mapping[str, Evaluation]
    ) -> Extras:
        """Return what else the report of a run shows."""
        plan = self.plan
        words = f'{plan.identity}; learner {plan.learner.kind}: {plan.network.name}'
        score = next(iter(evaluations.values())).score
        same = [
            f'{name} {score[name]:.3f}'
            for name, heading in plan.task.exact_measures.items()
            if not heading
        ]
        return Extras(lines=(words, f'exactly: {", ".join(same)}') if same else (words,))

    def keep(self, layout: Layout) -> None:
        """Keep in a run's directory what another evaluation is compared by."""

    def evaluate(
        self,
        contenders: Sequence[Contender],
        count: int,
        caller: Caller = NOBODY,
        *,
        first: int = 0,
    ) -> dict[str, Evaluation]:
        """
        Let every contender act on the same unseen patients.

        :param count: of patients, from number `first` on.
        :returns: results by the contender's name, in the order given.
        :raises TrainingStopped: as soon as the caller says so.
        """
        numbers = range(first, first + count)
        portions = [numbers[at : at + PORTION] for at in range(0, count, PORTION)]
        tasks = [(each, part, self.plan) for each in contenders for part in portions]
        done = dict.fromkeys((each.name for each in contenders), 0)

        def tell(progress: Progress) -> None:
            done[progress.who] += 1
            caller.report(Progress('evaluate', progress.who, done[progress.who], count))

        workers = self.plan.evaluation.workers
        parts = iter(
            run_tasks(operate, tasks, workers=workers, caller=replace(caller, report=tell))
        )
        found = {}
        for contender in contenders:
            mine = [next(parts) for _ in portions]
            figures = self.figures(contender)
            results = PatientResults.joined([part for part, _ in mine], figures)
            chosen = sum((counts for _, counts in mine), Counter[str]())
            score = score_of(results, self.scores)
            found[contender.name] = Evaluation(contender.name, results, score, dict(chosen))
        return found

    def save_episodes(self, directory: Path, evaluations: Mapping[str, Evaluation]) -> None:
        """
        Write what was measured of every patient, in files for each policy.

        :raises RecordsError: if a file cannot be written.
        """
        with os_errors_as(RecordsError, f'cannot write into {directory}'):
            directory.mkdir(parents=True, exist_ok=True)
            for name, each in evaluations.items():
                self.write_episodes(directory / name.replace('/', '_'), each.results)

    def write_episodes(self, stem: Path, results: PatientResults) -> None:
        """
        Write a CSV file with a row for each patient.

        :param stem: path without a suffix.
        """
        names = ('patient', 'hospital', *sorted({*results.columns} - {'patient', 'hospital'}))
        rows = zip(*(results.columns[name].tolist() for name in names), strict=True)
        with stem.with_name(f'{stem.name}.csv').open('w', encoding='utf-8', newline='') as file:
            writer = csv.writer(file, lineterminator='\n')
            writer.writerow(names)
            writer.writerows(rows)


def operate(
    contender: Contender, numbers: range, plan: Plan, caller: Caller
) -> tuple[PatientResults, Counter[str]]:
    """
    Act on some unseen patients; a piece of work for a worker process.

    :returns: what happened, and how often the selector chose each policy.
    """
    episodes, chosen, task = [], Counter[str](), plan.task
    patients = unseen_patients(plan, len(numbers), numbers.start)
    with closing(task.make_env(plan.world)) as env:
        rng = np.random.default_rng([Stream.EVALUATION, plan.federation.seed])
        for patient in patients:
            caller.check()
            choose = contender.begin(patient, plan)
            episodes.append(task.operate(env, choose, patient, rng))
            chosen.update(contender.chosen(choose))
            caller.report(Progress('evaluate', contender.name, 1, 1))
    hospitals = [plan.hospitals[each % len(plan.hospitals)] for each in numbers]
    return PatientResults.of(episodes, plan, hospitals), chosen
