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
from functools import cached_property, partial
from typing import Any, Generic

from fdrl_ros.errors import SettingError, TrainingStopped
from fdrl_ros.learner.records.records import Records
from fdrl_ros.policy.policy import Action
from fdrl_ros.runtime.random_streams import Stream
from fdrl_ros.settings import setting, Settings
from fdrl_ros.tasks.spec import Observation, TaskSpec
from fdrl_ros.tasks.task import (
    Choice,
    Episode,
    P,
    Population,
    Rule,
    SimpleEpisode,
    Task,
    W,
)
import numpy as np
from numpy.typing import NDArray

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
        "who moves at the other ticks; 'controller': a hand-written one that sees what a policy "
        "sees; 'surgeon': at all ticks, with mistakes of their own",
        choices=('expert', 'controller', 'policy', 'surgeon'),
    )


_AT_ONCE, _SIDE_BY_SIDE = 100, 1000
"""Patients of surgeons, and of a controller, before it is asked again whether to stop."""


class _Explorer(Generic[P]):
    """
    A guide who sometimes tries another move.

    :param guide: who acts otherwise; without one, all moves are drawn.
    :param share: of the ticks at which another move is tried.
    :param draw: draws a move.
    :param labels: as :class:`HospitalSimulator` has it.
    """

    def __init__(
        self,
        guide: Choice | None,
        rng: np.random.Generator,
        share: float,
        draw: Callable[[], Action],
        labels: str,
    ) -> None:
        self._guide, self._rng, self._share, self._draw = guide, rng, share, draw
        self._labels = labels
        self._told: list[Action] = []

    def __call__(self, state: Observation) -> Action:
        """Return what is done in a state."""
        if self._guide is None:
            return self._draw()
        if self._labels == 'guide':
            return self.tried(self._guide(state))
        return self._draw() if self._explores() else self._guide(state)

    def tried(self, told: Action) -> Action:
        """Return what is done where the guide would do something."""
        self._told.append(told)
        return self._draw() if self._explores() else told

    def _explores(self) -> bool:
        return self._rng.random() < self._share

    def labelled(self, episode: Episode[P]) -> Episode[P]:
        """Return what is recorded of an operation."""
        if self._labels == 'done':
            return episode
        actions = np.array(self._told, episode.actions.dtype).reshape(episode.actions.shape)
        return SimpleEpisode(
            episode.patient,
            episode.states,
            actions,
            episode.rewards,
            episode.success,
            episode.terminated,
        )


@dataclass(frozen=True)
class HospitalSimulator(Generic[P, W]):
    """
    How operations become records.

    :param policy: the released policy that guides, if the settings say so.
    :param labels: what is recorded as the actions: what was 'done', or what the 'guide' would do
        in every state (DAgger, Ross et al. 2011); rewards and states are of what was done.
    """

    task: Task[P, W]
    world: W
    settings: CollectionSettings = CollectionSettings()
    policy: Choice | None = None
    labels: str = 'done'

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
        :param stopped: called before each patient; of surgeons, before each hundred, and of
            operations side by side, before each thousand.
        :raises SettingError: if the settings need a policy and none is given, or surgeons or a
            controller and the task has none, or labels of a guide and there is none; also if
            moves are to be drawn where an action is a class at each of several places.
        :raises TrainingStopped: once `stopped` returns True.
        """
        guide = self.settings.guide
        if guide == 'policy' and self.policy is None:
            raise SettingError('guide', guide, "a policy to be given, or 'expert'")
        if self.labels not in ('done', 'guide') or (self.labels, guide) == ('guide', 'surgeon'):
            raise SettingError('labels', self.labels, "'done', or 'guide' where one guides")
        tried = self.settings.exploration + self.settings.variation
        if self._spec.places > 1 and self.labels == 'done' and tried:
            expected = (
                f'0, as variation: what is drawn at {self._spec.places} places teaches nothing'
            )
            raise SettingError('exploration', self.settings.exploration, expected)
        made = {'surgeon': self._operated, 'controller': self._controlled}.get(guide, self._guided)
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
                guide = self._guide(patient)
                if guide is None and self.labels == 'guide':
                    raise SettingError('labels', self.labels, "'done': nobody guides this task")
                explorer = self._explorer(guide, rng)
                yield explorer.labelled(self.task.operate(env, explorer, patient, rng))

    def _controlled(
        self, population: Population[P], stopped: Callable[[], bool]
    ) -> Iterator[Episode[P]]:
        """Let a controller who explores operate, side by side where the world can."""
        rule = self._rule()
        for begin in range(0, self.settings.patients, _SIDE_BY_SIDE):
            _refuse_stop(stopped, begin)
            indices = range(begin, min(begin + _SIDE_BY_SIDE, self.settings.patients))
            team = [self._explorer(None, _behaviour(population, index)) for index in indices]

            def choose(
                states: NDArray[Any],
                rows: NDArray[np.int64],
                tick: int,
                team: list[_Explorer[P]] = team,
            ) -> NDArray[Any]:
                pairs = zip(rows.tolist(), rule(states), strict=True)
                return np.array([team[row].tried(told) for row, told in pairs])

            patients = [population.patient(index) for index in indices]
            episodes = self.task.operate_together(patients, choose, self.world)
            if episodes is None:
                yield from self._guided(population, stopped)
                return
            for explorer, episode in zip(team, episodes, strict=True):
                yield explorer.labelled(episode)

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

    def _rule(self) -> Rule:
        """
        Return the hand-written controller.

        :raises SettingError: if the task has none.
        """
        rule = self.task.hand_written(self.world)
        if rule is None:
            expected = f"'expert' or 'policy': nobody wrote a controller for {self.task.name}"
            raise SettingError('guide', self.settings.guide, expected)
        return rule

    def _guide(self, patient: P) -> Choice | None:
        """Return who guides in operations on a patient, if anybody does."""
        if self.settings.guide == 'policy':
            return self.policy
        if self.settings.guide == 'expert':
            return self.task.guide(patient, self.world)
        rule = self._rule()
        return lambda state: rule(state[None])[0]

    def _explorer(self, guide: Choice | None, rng: np.random.Generator) -> '_Explorer[P]':
        """Draw who operates on a patient: a guide with an individual exploration."""
        settings = self.settings
        low = max(0.0, settings.exploration - settings.variation)
        high = min(1.0, settings.exploration + settings.variation)
        draw = partial(self._spec.draw_action, rng)
        return _Explorer(guide, rng, rng.uniform(low, high), draw, self.labels)

    @cached_property
    def _spec(self) -> TaskSpec:
        return self.task.spec(self.world)


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
