# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""Many sepsis patients treated at once, with array operations alone."""

from collections.abc import Mapping
from typing import Any

from fdrl_ros.errors import SettingError, StateError
from fdrl_ros.worlds.icu_sepsis.assets import icu_sepsis
from fdrl_ros.worlds.icu_sepsis.env import observation_space
from fdrl_ros.worlds.icu_sepsis.hospitals import SepsisHospital
from fdrl_ros.worlds.icu_sepsis.model import (
    ACTION_COUNT,
    check_numbers,
    HORIZON,
    IcuSepsis,
    PATIENT_STATES,
    rewards_of,
    STATE_COUNT,
)
from fdrl_ros.worlds.icu_sepsis.records import observations_of
import gymnasium
from gymnasium.vector import AutoresetMode, VectorEnv
from gymnasium.vector.utils import batch_space
import numpy as np
from numpy.typing import ArrayLike, NDArray

Observations = NDArray[np.float32] | NDArray[np.int64]


class IcuSepsisVectorEnv(VectorEnv[Observations, NDArray[np.int64], NDArray[Any]]):
    """
    A ward of beds: where a patient dies or survives, the next one is admitted in the same step.

    `infos['final_obs']` then holds what was seen of the leaving ones, an array with a row for
    each bed, of which `infos['_final_obs']` names those that count. All beds draw from one
    source, so a bed has other patients than an
    :class:`fdrl_ros.worlds.icu_sepsis.env.IcuSepsisEnv`.

    :param num_envs: beds.
    :param model: as the env takes it, and so `hospital` and `observation`.
    """

    metadata: dict[str, Any] = {'render_modes': [], 'autoreset_mode': AutoresetMode.SAME_STEP}

    def __init__(
        self,
        num_envs: int,
        model: IcuSepsis | None = None,
        hospital: SepsisHospital | None = None,
        observation: str = 'features',
    ) -> None:
        if num_envs < 1:
            raise SettingError('num_envs', num_envs, 'at least 1')
        self.num_envs = num_envs
        self.model = icu_sepsis() if model is None else model
        self.hospital = hospital
        self.render_mode = None
        self.single_action_space = gymnasium.spaces.Discrete(ACTION_COUNT)
        self.single_observation_space = observation_space(observation)
        self.action_space = batch_space(self.single_action_space, num_envs)
        self.observation_space = batch_space(self.single_observation_space, num_envs)
        self._table = None if observation == 'state' else observations_of(self.model, observation)
        self._start = None if hospital is None else hospital.start(self.model)
        # Where all is over there is no SOFA score, and every action does as little.
        gone = STATE_COUNT - PATIENT_STATES
        self._sofa = np.concatenate((self.model.sofa, np.zeros(gone)))
        self._admissible = np.concatenate(
            (self.model.admissible, np.ones((gone, ACTION_COUNT), np.bool_))
        )
        self._states: NDArray[np.int64] | None = None
        self._steps = np.zeros(num_envs, np.int64)

    def reset(
        self, *, seed: int | None = None, options: Mapping[str, Any] | None = None
    ) -> tuple[Observations, dict[str, Any]]:
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
        return self._seen(self._states), self._infos(self._states)

    def step(
        self, actions: ArrayLike
    ) -> tuple[
        Observations, NDArray[np.float64], NDArray[np.bool_], NDArray[np.bool_], dict[str, Any]
    ]:
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
        infos: dict[str, Any] = {}
        states = reached
        if over.any():
            infos = {'final_obs': self._seen(reached), '_final_obs': over}
            infos |= {
                'final_info': self._infos(reached) | dict.fromkeys(_MASKS, over),
                '_final_info': over,
            }
            states = reached.copy()
            fresh = self.np_random.random(int(over.sum()))
            states[over] = self.model.admit(fresh, self._start)
            self._steps[over] = 0
        self._states = states
        infos |= self._infos(states)
        return self._seen(states), rewards_of(reached), terminated, truncated, infos

    def _seen(self, states: NDArray[np.int64]) -> Observations:
        return states.copy() if self._table is None else self._table[states]

    def _infos(self, states: NDArray[np.int64]) -> dict[str, Any]:
        """Return the info of each patient, with masks that every entry is valid."""
        everyone = np.ones(self.num_envs, np.bool_)
        return {
            'state': states.copy(),
            'sofa': self._sofa[states],
            'admissible': self._admissible[states],
        } | dict.fromkeys(_MASKS, everyone)


_MASKS = ('_state', '_sofa', '_admissible')
