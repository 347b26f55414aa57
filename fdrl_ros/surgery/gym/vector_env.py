# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""Gymnasium's face of a batch: many operations, and a new patient wherever one has ended."""

from collections.abc import Mapping, Sequence
from typing import Any

from fdrl_ros.errors import SettingError, StateError
from fdrl_ros.runtime.ranges import check_whole
from fdrl_ros.surgery.gym.actions import ACTION_COUNT
from fdrl_ros.surgery.gym.state import Info, STATE_BOUND, STATE_SIZE
from fdrl_ros.surgery.gym.vector_operation import VectorOperation
from fdrl_ros.surgery.patient.cohort import Admissions, PatientSource
from fdrl_ros.surgery.scalar_or_array import Array
from fdrl_ros.surgery.settings import sparse, WorldSettings
import gymnasium
from gymnasium.utils import seeding
from gymnasium.vector import AutoresetMode, VectorEnv
from gymnasium.vector.utils import batch_space
import numpy as np
from numpy.typing import ArrayLike, NDArray


class VectorSurgeryEnv(VectorEnv[NDArray[np.float32], NDArray[np.int64], NDArray[Any]]):
    """
    What SyncVectorEnv makes of many kinematic :class:`.surgery_env.SurgeryEnv`, but fast.

    Where an operation ends, the state is already that of the next patient (AutoresetMode
    SAME_STEP); the end is in `final_obs` and `final_info`. Row i with seed s draws the patients
    of one env with seed s + i. Failures are numbers, see
    :data:`fdrl_ros.surgery.tasks.outcome.NO_FAILURE`, and no patient is named.

    :param num_envs: how many operations.
    :param cohort: where patients come from; public ones unless given.
    :param settings: of the world; kinematic, which they are unless given.
    :param split: 'train' or 'test' patients.
    :param procedures: as :class:`fdrl_ros.surgery.patient.cohort.Admissions` takes them.
    :param heterogeneity: how far public patients differ, H in [0, 1]; 0 unless given.
    """

    metadata: Info = {'render_modes': [], 'autoreset_mode': AutoresetMode.SAME_STEP}

    def __init__(
        self,
        num_envs: int,
        cohort: PatientSource | None = None,
        settings: WorldSettings | None = None,
        split: str = 'train',
        procedures: str | Sequence[str] | None = None,
        heterogeneity: float | None = None,
    ) -> None:
        check_whole('num_envs', num_envs, 1)
        self.num_envs = num_envs
        self._admissions = Admissions(cohort, split, procedures, heterogeneity)
        self.single_action_space = gymnasium.spaces.Discrete(ACTION_COUNT)
        self.single_observation_space = gymnasium.spaces.Box(
            -STATE_BOUND, STATE_BOUND, (STATE_SIZE,), np.float32
        )
        self.action_space = batch_space(self.single_action_space, num_envs)
        self.observation_space = batch_space(self.single_observation_space, num_envs)
        self._rngs: list[np.random.Generator] = []
        self.batch = VectorOperation(settings=settings)

    def reset(
        self,
        *,
        seed: int | Sequence[int | None] | None = None,
        options: Mapping[str, object] | None = None,
    ) -> tuple[NDArray[np.float32], Info]:
        """
        Begin with new patients on all tables.

        :param seed: of the first row, the next number for each further one; or one for each.
        :raises SettingError: on options, or another number of seeds than of rows.
        """
        if self.closed:
            raise StateError.closed('env')
        if options:
            raise SettingError('options', options, 'none')
        given: list[int | None] = [None] * self.num_envs
        if isinstance(seed, int | np.integer):
            super().reset(seed=int(seed))
            given = [int(seed) + row for row in range(self.num_envs)]
        elif seed is not None:
            given = list(seed)
        if len(given) != self.num_envs:
            raise SettingError('seed', seed, f'one, or {self.num_envs} of them')
        fresh = not self._rngs
        self._rngs = [
            seeding.np_random(own)[0] if fresh or own is not None else self._rngs[row]
            for row, own in enumerate(given)
        ]
        states = self.batch.reset([self._admissions.draw(rng) for rng in self._rngs])
        return states, self._masked(self.batch.info(), np.ones(self.num_envs, np.bool_))

    def step(
        self, actions: ArrayLike
    ) -> tuple[NDArray[np.float32], Array, NDArray[np.bool_], NDArray[np.bool_], Info]:
        """
        Carry out one action in each operation, and begin anew where one ends.

        :raises StateError: on actions that cannot be; then nothing moves.
        """
        if self.closed:
            raise StateError.closed('env')
        batch = self.batch
        states, rewards, terminated, truncated, info = batch.step(actions)
        infos = self._masked(info, np.ones(self.num_envs, np.bool_))
        over, rows = batch.over.copy(), np.flatnonzero(batch.over)
        if len(rows):
            final_states = np.full(self.num_envs, None, object)
            for row in rows.tolist():
                final_states[row] = states[row].copy()
                states[row] = batch.replace(row, self._admissions.draw(self._rngs[row]))
            final = {}
            for key, values in batch.info(rows).items():
                final[key] = np.zeros_like(info[key])
                final[key][rows] = info[key][rows]
                info[key][rows] = values
            infos |= self._masked(
                {'final_obs': final_states, 'final_info': self._masked(final, over)}, over
            )
        return states, rewards, terminated, truncated, infos

    def close_extras(self, **kwargs: object) -> None:
        """Let go of all patients: what VectorEnv.close does, once."""
        self.batch.close()

    @staticmethod
    def _masked(info: Info, rows: NDArray[np.bool_]) -> Info:
        """Add to each array, as Gymnasium does, which rows have it."""
        return info | {f'_{key}': rows.copy() for key in info}


def sparse_vector_env(
    num_envs: int, settings: WorldSettings | None = None, **given: Any
) -> VectorSurgeryEnv:
    """
    Return many of :func:`.surgery_env.sparse_env` in step.

    :param settings: of the world, but for the rewards on the way; kinematic.
    :param given: what else :class:`VectorSurgeryEnv` takes.
    """
    world = sparse(WorldSettings(mode='kinematic') if settings is None else settings)
    return VectorSurgeryEnv(num_envs, settings=world, **given)
