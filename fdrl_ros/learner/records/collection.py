# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""
Simulate a hospital's operations by surgeons of differing skill.

Every operation is a pure function of the population, the settings and the patient's number: the
record of a patient depends on no other patient, as the privacy unit requires.
"""

from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass, replace
from typing import Generic

from fdrl_ros.errors import SettingError, TrainingStopped
from fdrl_ros.learner.records.records import Records
from fdrl_ros.policy.policy import Action
from fdrl_ros.runtime.random_streams import Stream
from fdrl_ros.settings import setting, Settings
from fdrl_ros.tasks.spec import Observation
from fdrl_ros.tasks.task import Choice, P, Population, Task, W
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
    guide: str = setting('expert', 'who moves at the other ticks', choices=('expert', 'policy'))


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
        :param stopped: called before each patient.
        :raises SettingError: if the settings need a policy and none is given.
        :raises TrainingStopped: once `stopped` returns True.
        """
        if self.settings.guide == 'policy' and self.policy is None:
            raise SettingError('guide', self.settings.guide, "a policy to be given, or 'expert'")
        episodes = []
        with closing(self.task.make_env(self.world)) as env:
            for index in range(self.settings.patients):
                if stopped():
                    raise TrainingStopped(f'collection stopped before patient {index}')
                where = population.seed, population.hospital, int(population.public), index
                rng = np.random.default_rng([Stream.BEHAVIOUR, *where])
                patient = population.patient(index)
                choose = self._surgeon(patient, rng)
                episodes.append(self.task.operate(env, choose, patient, rng))
                progress(index + 1, self.settings.patients)
        return replace(Records.from_episodes(episodes), task=self.task.identity(self.world))

    def _surgeon(self, patient: P, rng: np.random.Generator) -> Choice:
        """Draw a patient's surgeon: the guide with an individual exploration."""
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
