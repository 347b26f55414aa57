# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""
Simulate a hospital's operations by surgeons of differing skill.

Every operation is a pure function of the population, the settings and the patient's number: the
record of a patient depends on no other patient, as the privacy unit requires.
"""

from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass, replace
from typing import Generic

from fdrl_ros.errors import SettingError, TrainingStopped
from fdrl_ros.learner.records.records import Records
from fdrl_ros.policy.policy import Action
from fdrl_ros.runtime.random_streams import Stream
from fdrl_ros.settings import setting, Settings
from fdrl_ros.tasks.spec import Observation
from fdrl_ros.tasks.task import Choice, Episode, P, Population, Task, W
import numpy as np

Progress = Callable[[int, int], None]
"""Called with the count done and the total."""


@dataclass(frozen=True)
class CollectionSettings(Settings):
    """How a hospital's records are collected."""

    patients: int = setting(
        500, 'patients n_i of a hospital', limits=(1, 1000000), unit='patients'
    )
    exploration: float = setting(
        0.4, 'mean share of ticks at which a surgeon tries another move', limits=(0.0, 1.0)
    )
    variation: float = setting(
        0.2, 'how far the exploration of one operation may be from the mean', limits=(0.0, 0.5)
    )
    guide: str = setting(
        'expert',
        "who moves at the other ticks; 'surgeon': at all, with mistakes of their own",
        choices=('expert', 'policy', 'surgeon'),
    )


_AT_ONCE = 100
"""Patients that surgeons operate on before it is asked again whether to stop."""


@dataclass(frozen=True)
class HospitalSimulator(Generic[P, W]):
    """
    How operations become records.

    :param policy: the released policy that guides, if the settings say so.
    """

    task: Task[P, W]
    world: W
    settings: CollectionSettings = CollectionSettings()
    policy: Choice | None = None

    def collect(
        self,
        population: Population[P],
        *,
        progress: Progress = lambda done, count: None,
        stopped: Callable[[], bool] = lambda: False,
    ) -> Records:
        """
        Operate once on each of the first training patients.

        :param progress: called after each patient.
        :param stopped: called before each patient; of surgeons, before each hundred.
        :raises SettingError: if the settings need a policy and none is given, or surgeons and the
            task has none.
        :raises TrainingStopped: once `stopped` returns True.
        """
        if self.settings.guide == 'policy' and self.policy is None:
            raise SettingError('guide', self.settings.guide, "a policy to be given, or 'expert'")
        made = self._operated if self.settings.guide == 'surgeon' else self._guided
        episodes: list[Episode[P]] = []
        for episode in made(population, stopped):
            episodes.append(episode)
            progress(len(episodes), self.settings.patients)
        return replace(Records.from_episodes(episodes), task=self.task.identity(self.world))

    def _guided(
        self, population: Population[P], stopped: Callable[[], bool]
    ) -> Iterator[Episode[P]]:
        """Let a guide who explores operate on one patient after the other."""
        with closing(self.task.make_env(self.world)) as env:
            for index in range(self.settings.patients):
                _refuse_stop(stopped, index)
                patient, rng = population.patient(index), _behaviour(population, index)
                yield self.task.operate(env, self._explorer(patient, rng), patient, rng)

    def _operated(
        self, population: Population[P], stopped: Callable[[], bool]
    ) -> Iterator[Episode[P]]:
        """Let surgeons operate on some patients at a time."""
        task, count = self.task, self.settings.patients
        for begin in range(0, count, _AT_ONCE):
            _refuse_stop(stopped, begin)
            indices = range(begin, min(begin + _AT_ONCE, count))
            episodes = task.operate_by_surgeons(
                population,
                [population.patient(index) for index in indices],
                self.world,
                [_behaviour(population, index) for index in indices],
            )
            if episodes is None:
                expected = f"'expert' or 'policy': task {task.name} has no surgeons"
                raise SettingError('guide', self.settings.guide, expected)
            yield from episodes

    def _explorer(self, patient: P, rng: np.random.Generator) -> Choice:
        """Draw who operates on a patient: the guide with an individual exploration."""
        settings, spec = self.settings, self.task.spec(self.world)
        guide = self.policy if settings.guide == 'policy' else None
        guide = guide or self.task.guide(patient, self.world)
        if guide is None:
            return lambda state: spec.draw_action(rng)
        low = max(0.0, settings.exploration - settings.variation)
        high = min(1.0, settings.exploration + settings.variation)
        exploration = rng.uniform(low, high)

        def choose(state: Observation) -> Action:
            if rng.random() < exploration:
                return spec.draw_action(rng)
            return guide(state)

        return choose


def _behaviour(population: Population[P], index: int) -> np.random.Generator:
    """Return the source of all that is drawn for the operation on a patient."""
    where = population.seed, population.hospital, int(population.public), index
    return np.random.default_rng([Stream.BEHAVIOUR, *where])


def _refuse_stop(stopped: Callable[[], bool], index: int) -> None:
    """
    Go on unless the collection is to stop.

    :raises TrainingStopped: then.
    """
    if stopped():
        raise TrainingStopped(f'collection stopped before patient {index}')
