# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""Try a task on a few public patients, before anything is trained in it."""

from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import dataclass
from typing import Generic

from fdrl_ros.errors import TaskError
from fdrl_ros.tasks.spec import TaskSpec
from fdrl_ros.tasks.task import Choice, Episode, Hospitals, P, Task, W
import numpy as np
from numpy.typing import NDArray

WIDE = 10.0
"""A policy learns badly from numbers beyond this: the scale of the field is too small."""


@dataclass(frozen=True, eq=False)
class Trial(Generic[P]):
    """
    Episodes of a task on public patients.

    :param guided: by the task's guide; empty if it has none.
    :param random: by random actions.
    """

    spec: TaskSpec
    guided: Sequence[Episode[P]]
    random: Sequence[Episode[P]]

    @property
    def states(self) -> NDArray[np.float32]:
        """All states as a policy sees them, shape (states, size)."""
        episodes = (*self.guided, *self.random)
        return np.concatenate([np.asarray(each.states, np.float32) for each in episodes])

    def warnings(self) -> list[str]:
        """Return what will keep a policy from learning, a sentence each; empty if nothing."""
        found, states = [], self.states
        for place, field in enumerate(self.spec.fields):
            low, high = float(states[:, place].min()), float(states[:, place].max())
            if max(-low, high) > WIDE:
                found.append(
                    f'{field.name} is up to {max(-low, high):.3g} for a policy: give it a scale '
                    f'of about {max(-low, high) * field.scale:.2g}'
                )
        guided = [each.success for each in self.guided]
        random = [each.success for each in self.random]
        if not any((*guided, *random)):
            found.append('nobody succeeds: the release test cannot tell policies apart')
        elif all(random):
            found.append('random actions always succeed: the aim is too easy to compare policies')
        elif guided and np.mean(guided) <= np.mean(random):
            found.append('the controller succeeds no more often than random actions')
        return found


def try_task(task: Task[P, W], world: W, chosen: Hospitals, patients: int) -> Trial[P]:
    """
    Let the task's guide and random actions act on public patients.

    :param patients: how many, for each of the two.
    :raises TaskError: if a state does not fit the spec, or is not finite.
    """
    spec, population = task.spec(world), task.population(chosen, None, chosen.heterogeneity)

    def operate(choice: Callable[[P], Choice | None]) -> list[Episode[P]]:
        found = []
        with closing(task.make_env(world)) as env:
            for index in range(patients):
                patient = population.patient(index)
                choose = choice(patient)
                if choose is None:
                    return []
                rng = np.random.default_rng(index)
                found.append(_checked(task.operate(env, choose, patient, rng), spec, task.name))
        return found

    rng = np.random.default_rng(chosen.seed)
    guided = operate(lambda patient: task.guide(patient, world))
    return Trial(spec, guided, operate(lambda patient: lambda state: spec.draw_action(rng)))


def _checked(episode: Episode[P], spec: TaskSpec, name: str) -> Episode[P]:
    """Refuse an episode whose states or rewards are not what the spec says."""
    states = episode.states
    if states.shape != (len(episode.actions) + 1, spec.size):
        expected = len(episode.actions) + 1, spec.size
        raise TaskError(f'task {name}: states of shape {states.shape}, expected {expected}')
    if not np.isfinite(states).all() or not np.isfinite(episode.rewards).all():
        raise TaskError(f'task {name}: a state or a reward is not finite')
    return episode
