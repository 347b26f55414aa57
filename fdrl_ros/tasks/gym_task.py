# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""Any Gymnasium env as a task."""

from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
import hashlib
import json
from typing import Any, ClassVar

from fdrl_ros.errors import SettingError, TaskError
from fdrl_ros.policy.policy import Action
from fdrl_ros.runtime.random_streams import Stream
from fdrl_ros.settings import Settings
from fdrl_ros.tasks.spec import Field, Observation, TaskSpec
from fdrl_ros.tasks.task import Choice, Hospitals, SimpleEpisode, SPLITS, Task
import gymnasium
from gymnasium.wrappers import FrameStackObservation
import numpy as np


@dataclass(frozen=True)
class GymPatient:
    """
    The conditions of one episode.

    :param name: pseudonym.
    :param seed: of the env's reset.
    :param values: attributes of the unwrapped env that this patient sets.
    """

    name: str
    seed: int
    values: Mapping[str, float]


@dataclass(frozen=True)
class GymPopulation:
    """
    Patients of a :class:`GymTask`; see :class:`fdrl_ros.tasks.task.Population`.

    :param lean: how far the hospital is from the others, -H to H; public patients draw it each.
    """

    task: 'GymTask'
    hospital: int
    hospitals: int
    heterogeneity: float
    seed: int
    public: bool

    def patient(self, index: int, split: str = 'train') -> GymPatient:
        """Return patient number `index`, always the same one."""
        where = SPLITS.index(split)
        stream = [Stream.GYM_PATIENTS, self.seed, int(self.public), self.hospital, where, index]
        rng = np.random.default_rng(stream)
        lean = 0.0
        if self.public:
            lean = self.heterogeneity * rng.uniform(-1.0, 1.0)
        elif self.hospitals > 1:
            lean = self.heterogeneity * (2.0 * self.hospital / (self.hospitals - 1) - 1.0)
        values = self.task.draw_patient(lean, rng)
        whose = 'public' if self.public else f'hospital_{self.hospital + 1}'
        return GymPatient(f'{whose}/{split}/{index}', int(rng.integers(2**31)), values)


class GymTask(Task[GymPatient, Settings]):
    """
    A task out of a Gymnasium id.

    A subclass names the id and says when an episode succeeds::

        class CartPole(GymTask):
            name = 'my_cartpole'
            env_id = 'CartPole-v1'
            success_return = 195.0

    Episodes are the patients. Override :meth:`draw_patient` to let hospitals differ, and
    :meth:`controller` to name who acts in the records.
    """

    env_id: ClassVar[str]
    """Id that :func:`gymnasium.make` knows."""

    env_arguments: ClassVar[Mapping[str, Any]] = {}
    """Arguments of :func:`gymnasium.make`."""

    fields: ClassVar[Sequence[Field]] = ()
    """Names, units and scales of the flat observation."""

    action_names: ClassVar[Sequence[str]] = ()
    """Names of the discrete actions."""

    success_return: ClassVar[float | None] = None
    """Undiscounted return from which on an episode succeeds; None: `info['success']` says it."""

    def make_env(self, world: Settings) -> gymnasium.Env:
        """
        Make the env by its id.

        :raises TaskError: if Gymnasium cannot.
        """
        try:
            return gymnasium.make(self.env_id, **self.env_arguments)
        except (gymnasium.error.Error, ImportError, TypeError) as error:
            raise TaskError(f'task {self.name}: cannot make {self.env_id}: {error}') from error

    def spec(self, world: Settings) -> TaskSpec:
        """Describe the spaces of the env."""
        with closing(self.make_env(world)) as env:
            return self._spec_of(env)

    def frames(self, world: Settings) -> int:
        """Count what Gymnasium's `FrameStackObservation` stacks; override it for others."""
        env, found = self.make_env(world), 1
        with closing(env):
            while isinstance(env, gymnasium.Wrapper):
                if isinstance(env, FrameStackObservation):
                    found += env.stack_size - 1
                env = env.env
        return found

    def draw_patient(self, lean: float, rng: np.random.Generator) -> Mapping[str, float]:
        """
        Return attributes of the unwrapped env that make this patient different.

        :param lean: how the hospital differs from the mean one, from -H to H.
        :param rng: of this patient.
        """
        return {}

    def controller(self, observation: Observation, patient: GymPatient) -> Action | None:
        """Return the action of who acts in the records; None: actions there are random."""
        return None

    def population(
        self, chosen: Hospitals, hospital: int | None, heterogeneity: float | None = None
    ) -> GymPopulation:
        """Return the patients of a hospital, or public ones."""
        if hospital is None:
            return GymPopulation(
                self, 0, chosen.hospitals, heterogeneity or 0.0, chosen.seed, True
            )
        numbers = chosen.hospitals, chosen.heterogeneity, chosen.seed
        return GymPopulation(self, hospital, *numbers, False)

    def guide(self, patient: GymPatient, world: Settings) -> Choice | None:
        """Return the controller, if :meth:`controller` is overridden."""
        if type(self).controller is GymTask.controller:
            return None
        return lambda observation: self._controlled(observation, patient)

    def _controlled(self, observation: Observation, patient: GymPatient) -> Action:
        action = self.controller(observation, patient)
        if action is None:
            raise TaskError(f'the controller of task {self.name} returned no action')
        return action

    def check(self, chosen: Hospitals) -> None:
        """Refuse procedures: this task has none."""
        if chosen.procedures:
            raise SettingError('procedures', chosen.procedures, f'none: task {self.name} has none')

    def operate(
        self, env: gymnasium.Env, choose: Choice, patient: GymPatient, rng: np.random.Generator
    ) -> SimpleEpisode[GymPatient]:
        """
        Run one episode with the patient's seed and values.

        The env has its own values again afterwards: nothing of a patient reaches the next one.
        """
        inner, own = env.unwrapped, {}
        for name in patient.values:
            if not hasattr(inner, name):
                raise TaskError(f'{self.env_id} has no attribute {name!r} for a patient to set')
            own[name] = getattr(inner, name)
        try:
            for name, value in patient.values.items():
                setattr(inner, name, value)
            return self._run(env, choose, patient)
        finally:
            for name, value in own.items():
                setattr(inner, name, value)

    def _run(
        self, env: gymnasium.Env, choose: Choice, patient: GymPatient
    ) -> SimpleEpisode[GymPatient]:
        spec, space = self._spec_of(env), env.observation_space
        observation, info = env.reset(seed=patient.seed)
        states, actions, rewards = [spec.encode(observation, space)], [], []
        terminated = truncated = False
        while not (terminated or truncated):
            action = choose(states[-1])
            actions.append(action)
            observation, reward, terminated, truncated, info = env.step(action)
            states.append(spec.encode(observation, space))
            rewards.append(float(reward))
        kind = np.float32 if spec.continuous else np.int64
        return SimpleEpisode(
            patient,
            np.array(states),
            np.array(actions, kind),
            np.array(rewards, np.float32),
            self.succeeded(rewards, info),
            bool(terminated),
        )

    def _spec_of(self, env: gymnasium.Env) -> TaskSpec:
        return TaskSpec.from_spaces(
            env.observation_space,
            env.action_space,
            fields=self.fields,
            actions=self.action_names,
        )

    def succeeded(self, rewards: Sequence[float], info: Mapping[str, Any]) -> bool:
        """
        Return whether an episode reached its aim.

        :param info: of the last step.
        :raises TaskError: if nothing says so.
        """
        if self.success_return is not None:
            return sum(rewards) >= self.success_return
        if 'success' not in info:
            raise TaskError(f"task {self.name} needs success_return, or info['success']")
        return bool(info['success'])

    def constants(self) -> bytes:
        """
        Return id, with its version, and arguments of the env.

        :raises TaskError: if an argument is an object that every process sees as another one.
        """
        found = [self.env_id, dict(self.env_arguments), self.success_return]
        text = json.dumps(found, default=repr)
        if ' at 0x' in text:
            raise TaskError(
                f'task {self.name}: env_arguments {text} hold an object without a text that is '
                'the same in every process: make it in make_env, and override constants'
            )
        return hashlib.sha256(text.encode()).digest()
