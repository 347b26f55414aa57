# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""
Gymnasium envs of sepsis: one patient after another, or many beds treated at once.

A step is one treatment for four hours (DP-DQN section 4.2).
"""

from typing import Any

from fdrl_ros.errors import SettingError, StateError
from fdrl_ros.worlds.icu_sepsis.assets import icu_sepsis
from fdrl_ros.worlds.icu_sepsis.episodes import SepsisHospital
from fdrl_ros.worlds.icu_sepsis.model import (
    ACTION_COUNT,
    check_numbers,
    FEATURE_COUNT,
    HORIZON,
    IcuSepsis,
    PATIENT_STATES,
    rewards_of,
    STATE_COUNT,
)
from fdrl_ros.worlds.icu_sepsis.records import CLIP, observations_of
import gymnasium
from gymnasium.vector import AutoresetMode, VectorEnv
from gymnasium.vector.utils import batch_space
import numpy as np
from numpy.typing import ArrayLike, NDArray

ENV_ID = 'fdrl_ros/IcuSepsis-v0'
Observation = NDArray[np.float32] | np.int64
Observations = NDArray[np.float32] | NDArray[np.int64]
Info = dict[str, Any]
_MASKS = ('_state', '_sofa', '_admissible')


class Ward:
    """
    What one bed and many have in common: the dynamics, who is admitted, what is seen.

    :param model: the dynamics; those of the installed icu-sepsis unless given.
    :param hospital: who is admitted; everyone unless given.
    :param observation: 'features' (47), 'one_hot' (716) or 'state' (a number).
    """

    def __init__(
        self, model: IcuSepsis | None, hospital: SepsisHospital | None, observation: str
    ) -> None:
        self.model = icu_sepsis() if model is None else model
        self.hospital = hospital
        self._table = None if observation == 'state' else observations_of(self.model, observation)
        self._start = None if hospital is None else hospital.start(self.model)
        # Where all is over there is no SOFA score, and every action does as little.
        gone = STATE_COUNT - PATIENT_STATES
        self._sofa = np.concatenate((self.model.sofa, np.zeros(gone)))
        everything = np.ones((gone, ACTION_COUNT), np.bool_)
        self._admissible = np.concatenate((self.model.admissible, everything))

    def seen(self, states: NDArray[np.int64]) -> Observations:
        """Return what is seen of patients in some states, a row each."""
        return states.copy() if self._table is None else self._table[states]

    def info(self, states: NDArray[np.int64]) -> Info:
        """Return the states with their SOFA scores and admissible actions."""
        return {
            'state': states.copy(),
            'sofa': self._sofa[states],
            'admissible': self._admissible[states],
        }


class IcuSepsisEnv(Ward, gymnasium.Env[Observation, np.int64]):
    """
    One patient of ICU-Sepsis after another, treated with 5 levels of fluid and of vasopressor.

    Action 5 f + v gives fluid level f and vasopressor level v. The reward is +15 for survival,
    -15 for death, 0 between. Death and survival terminate; 500 steps truncate.

    :param model: the dynamics; those of the installed icu-sepsis unless given.
    :param hospital: who is admitted; everyone unless given.
    :param observation: 'features' (47), 'one_hot' (716) or 'state' (a number).
    :raises ResourceError: if icu-sepsis is not installed.
    """

    metadata: Info = {'render_modes': []}

    def __init__(
        self,
        model: IcuSepsis | None = None,
        hospital: SepsisHospital | None = None,
        observation: str = 'features',
    ) -> None:
        super().__init__(model, hospital, observation)
        self.render_mode = None
        self.observation_space = observation_space(observation)
        self.action_space = gymnasium.spaces.Discrete(ACTION_COUNT)
        self._state: int | None = None
        self._steps = 0

    def reset(
        self, *, seed: int | None = None, options: Info | None = None
    ) -> tuple[Observation, Info]:
        """
        Admit the next patient, or one in the state `options['state']`, 0 to 712.

        :raises SettingError: on another option.
        :raises StateError: if the state is not one of a patient.
        """
        super().reset(seed=seed)
        given = dict(options or {})
        state = given.pop('state', None)
        if given:
            raise SettingError('options', sorted(given), "only 'state'")
        if state is None:
            state = self.model.admit(self.np_random.random(1), self._start)[0]
        elif not _numbers(state, PATIENT_STATES):
            raise StateError(f'state {state!r}: expected 0 to {PATIENT_STATES - 1}')
        self._state, self._steps = int(state), 0
        return self._observation_and_info()

    def step(self, action: np.int64 | int) -> tuple[Observation, float, bool, bool, Info]:
        """
        Treat the patient for four hours.

        :raises StateError: on an action that does not exist, before a reset, or after the end.
        """
        if not _numbers(action, ACTION_COUNT):
            raise StateError(f'action {action!r}: expected 0 to {ACTION_COUNT - 1}')
        state = self._state
        if state is None or state >= PATIENT_STATES or self._steps >= HORIZON:
            raise StateError('no patient is being treated: reset the env')
        reached = self.model.advance(
            np.array([state]), np.array([int(action)]), self.np_random.random(1)
        )
        self._state, self._steps = int(reached[0]), self._steps + 1
        over = self._state >= PATIENT_STATES
        truncated = not over and self._steps >= HORIZON
        seen, info = self._observation_and_info()
        return seen, float(rewards_of(reached)[0]), over, truncated, info

    def _observation_and_info(self) -> tuple[Observation, Info]:
        """Return what is seen, and the state with its SOFA score and admissible actions."""
        state = np.array([self._state])
        info = {name: values[0] for name, values in self.info(state).items()}
        return self.seen(state)[0], {**info, 'state': self._state, 'sofa': float(info['sofa'])}


class IcuSepsisVectorEnv(Ward, VectorEnv[Observations, NDArray[np.int64], NDArray[Any]]):
    """
    A ward of beds: where a patient dies or survives, the next one is admitted in the same step.

    `infos['final_obs']` then holds what was seen of the leaving ones, an array with a row for
    each bed, of which `infos['_final_obs']` names those that count. All beds draw from one
    source, so a bed has other patients than an
    :class:`fdrl_ros.worlds.icu_sepsis.env.IcuSepsisEnv`.

    :param num_envs: beds.
    :param model: as the env takes it, and so `hospital` and `observation`.
    """

    metadata: Info = {'render_modes': [], 'autoreset_mode': AutoresetMode.SAME_STEP}

    def __init__(
        self,
        num_envs: int,
        model: IcuSepsis | None = None,
        hospital: SepsisHospital | None = None,
        observation: str = 'features',
    ) -> None:
        if num_envs < 1:
            raise SettingError('num_envs', num_envs, 'at least 1')
        super().__init__(model, hospital, observation)
        self.num_envs = num_envs
        self.render_mode = None
        self.single_action_space = gymnasium.spaces.Discrete(ACTION_COUNT)
        self.single_observation_space = observation_space(observation)
        self.action_space = batch_space(self.single_action_space, num_envs)
        self.observation_space = batch_space(self.single_observation_space, num_envs)
        self._states: NDArray[np.int64] | None = None
        self._steps = np.zeros(num_envs, np.int64)

    def reset(
        self, *, seed: int | None = None, options: Info | None = None
    ) -> tuple[Observations, Info]:
        """
        Admit a new patient to every bed.

        :param seed: of all that follows.
        :raises SettingError: on options.
        """
        if options:
            raise SettingError('options', sorted(options), 'none')
        super().reset(seed=seed)
        self._states = self.model.admit(self.np_random.random(self.num_envs), self._start)
        self._steps[:] = 0
        return self.seen(self._states), self._infos(self._states)

    def step(
        self, actions: ArrayLike
    ) -> tuple[Observations, NDArray[np.float64], NDArray[np.bool_], NDArray[np.bool_], Info]:
        """
        Treat every patient for four hours.

        :raises StateError: on actions that cannot be, or before a reset; then nothing changes.
        """
        if self._states is None:
            raise StateError('no patient is being treated: reset the env')
        chosen = np.asarray(actions)
        if chosen.shape != (self.num_envs,):
            raise StateError(f'actions of shape {chosen.shape}: expected ({self.num_envs},)')
        check_numbers('actions', chosen, ACTION_COUNT)
        uniforms = self.np_random.random(self.num_envs)
        reached = self.model.advance(self._states, chosen, uniforms)
        self._steps += 1
        terminated = reached >= PATIENT_STATES
        truncated = ~terminated & (self._steps >= HORIZON)
        over = terminated | truncated
        infos: Info = {}
        states = reached
        if over.any():
            final = self.info(reached) | dict.fromkeys(_MASKS, over)
            infos = {'final_obs': self.seen(reached), '_final_obs': over}
            infos |= {'final_info': final, '_final_info': over}
            states = reached.copy()
            fresh = self.np_random.random(int(over.sum()))
            states[over] = self.model.admit(fresh, self._start)
            self._steps[over] = 0
        self._states = states
        infos |= self._infos(states)
        return self.seen(states), rewards_of(reached), terminated, truncated, infos

    def _infos(self, states: NDArray[np.int64]) -> Info:
        """Return the info of each patient, with masks that every entry is valid."""
        return self.info(states) | dict.fromkeys(_MASKS, np.ones(self.num_envs, np.bool_))


def observation_space(observation: str) -> gymnasium.spaces.Space[Any]:
    """
    Return the space of what is seen.

    :raises SettingError: if there is no such observation.
    """
    if observation == 'features':
        return gymnasium.spaces.Box(-CLIP, CLIP, (FEATURE_COUNT,), np.float32)
    if observation == 'one_hot':
        return gymnasium.spaces.Box(0.0, 1.0, (STATE_COUNT,), np.float32)
    if observation == 'state':
        return gymnasium.spaces.Discrete(STATE_COUNT)
    raise SettingError('observation', observation, "'features', 'one_hot' or 'state'")


def _numbers(value: object, count: int) -> bool:
    if isinstance(value, bool) or not isinstance(value, int | np.integer):
        return False
    return bool(0 <= value < count)
