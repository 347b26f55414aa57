# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""The Gymnasium env of sepsis: one patient, one treatment each four hours (DP-DQN section 4.2)."""

from collections.abc import Mapping
from typing import Any

from fdrl_ros.errors import SettingError, StateError
from fdrl_ros.worlds.icu_sepsis.assets import icu_sepsis
from fdrl_ros.worlds.icu_sepsis.hospitals import SepsisHospital
from fdrl_ros.worlds.icu_sepsis.model import (
    ACTION_COUNT,
    FEATURE_COUNT,
    HORIZON,
    IcuSepsis,
    PATIENT_STATES,
    rewards_of,
    STATE_COUNT,
)
from fdrl_ros.worlds.icu_sepsis.records import CLIP, observations_of
import gymnasium
import numpy as np
from numpy.typing import NDArray

ENV_ID = 'fdrl_ros/IcuSepsis-v0'
Observation = NDArray[np.float32] | np.int64


class IcuSepsisEnv(gymnasium.Env[Observation, np.int64]):
    """
    One patient of ICU-Sepsis after another, treated with 5 levels of fluid and of vasopressor.

    Action 5 f + v gives fluid level f and vasopressor level v. The reward is +15 for survival,
    -15 for death, 0 between. Death and survival terminate; 500 steps truncate.

    :param model: the dynamics; those of the installed icu-sepsis unless given.
    :param hospital: who is admitted; everyone unless given.
    :param observation: 'features' (47), 'one_hot' (716) or 'state' (a number).
    :raises ResourceError: if icu-sepsis is not installed.
    """

    metadata: dict[str, Any] = {'render_modes': []}

    def __init__(
        self,
        model: IcuSepsis | None = None,
        hospital: SepsisHospital | None = None,
        observation: str = 'features',
    ) -> None:
        self.model = icu_sepsis() if model is None else model
        self.hospital = hospital
        self.render_mode = None
        self.observation_space = observation_space(observation)
        self.action_space = gymnasium.spaces.Discrete(ACTION_COUNT)
        self._table = None if observation == 'state' else observations_of(self.model, observation)
        self._start = None if hospital is None else hospital.start(self.model)
        self._state: int | None = None
        self._steps = 0

    def reset(
        self, *, seed: int | None = None, options: Mapping[str, Any] | None = None
    ) -> tuple[Observation, dict[str, Any]]:
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
        return self._said()

    def step(
        self, action: np.int64 | int
    ) -> tuple[Observation, float, bool, bool, dict[str, Any]]:
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
        self._state = int(reached[0])
        self._steps += 1
        over = self._state >= PATIENT_STATES
        seen, info = self._said()
        return (
            seen,
            float(rewards_of(reached)[0]),
            over,
            not over and self._steps >= HORIZON,
            info,
        )

    def _said(self) -> tuple[Observation, dict[str, Any]]:
        """Return what is seen, and the state with its SOFA score and admissible actions."""
        assert self._state is not None
        state = self._state
        there = state < PATIENT_STATES
        info = {
            'state': state,
            'sofa': float(self.model.sofa[state]) if there else 0.0,
            'admissible': self.model.admissible[state].copy()
            if there
            else np.ones(ACTION_COUNT, np.bool_),
        }
        return np.int64(state) if self._table is None else self._table[state].copy(), info


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


def _numbers(value: Any, count: int) -> bool:
    whole = isinstance(value, int | np.integer) and not isinstance(value, bool)
    return whole and 0 <= value < count
