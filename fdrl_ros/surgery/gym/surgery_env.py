# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""
The Gymnasium env: one operation driven by the 15 discrete actions.

Importing this module registers the surgical envs with Gymnasium.
"""

from collections.abc import Mapping, Sequence
from itertools import product
from typing import Any

from fdrl_ros.errors import SettingError, StateError
from fdrl_ros.surgery.gym.actions import ACTION_COUNT, action_numbered, SUBSTEPS
from fdrl_ros.surgery.gym.operation import Operation
from fdrl_ros.surgery.gym.state import Info, PROCEDURE_NAMES, STATE_BOUND, STATE_SIZE
from fdrl_ros.surgery.patient.cohort import Admissions, PatientSource
from fdrl_ros.surgery.patient.patient import Patient
from fdrl_ros.surgery.render.picture import picture
from fdrl_ros.surgery.settings import checked_world, SPARSE, sparse, WorldSettings
import gymnasium
import numpy as np
from numpy.typing import NDArray


def env_id(procedure: str = 'surgery', *, sparse: bool = False) -> str:
    """
    Return the name that Gymnasium knows a procedure by, as `fdrl_ros/PegTransfer-v0`.

    :param procedure: its name; 'surgery' for several.
    :param sparse: whether only the end is rewarded, as in `fdrl_ros/PegTransferSparse-v0`.
    """
    return f'fdrl_ros/{procedure.title().replace("_", "")}{"Sparse" * sparse}-v0'


class SurgeryEnv(gymnasium.Env[NDArray[np.float32], np.int64]):
    """
    One procedure on breathing tissue, patient after patient.

    The state is described in :mod:`fdrl_ros.surgery.gym.state`, the actions in
    :mod:`fdrl_ros.surgery.gym.actions`, the procedures in :mod:`fdrl_ros.surgery.tasks`. Success
    and the failures by force, breach, depth, drop and vitals terminate; the end of the time
    truncates.

    :param cohort: where patients come from; public ones unless given.
    :param settings: of the world.
    :param split: 'train' or 'test' patients.
    :param render_mode: 'rgb_array' or none.
    :param procedures: as :class:`fdrl_ros.surgery.patient.cohort.Admissions` takes them.
    :param heterogeneity: how far public patients differ, H in [0, 1]; 0 unless given.
    """

    metadata: Info = {
        'render_modes': ['rgb_array'],
        'render_fps': 20,
    }

    def __init__(
        self,
        cohort: PatientSource | None = None,
        settings: WorldSettings | None = None,
        split: str = 'train',
        render_mode: str | None = None,
        procedures: str | Sequence[str] | None = None,
        heterogeneity: float | None = None,
    ) -> None:
        if render_mode not in (None, 'rgb_array'):
            raise SettingError('render_mode', render_mode, "'rgb_array' or None")
        self._admissions = Admissions(cohort, split, procedures, heterogeneity)
        self.settings = WorldSettings() if settings is None else checked_world(settings)
        self.render_mode = render_mode
        self.operation = Operation(self.settings)
        self._closed = False
        self.action_space = gymnasium.spaces.Discrete(ACTION_COUNT)
        self.observation_space = gymnasium.spaces.Box(
            -STATE_BOUND, STATE_BOUND, (STATE_SIZE,), np.float32
        )

    @property
    def patient(self) -> Patient:
        """
        Return who is on the table.

        :raises StateError: before the first reset, and after :meth:`close`.
        :raises ResourceError: if the compiled arithmetic was not built.
        """
        self._check_open()
        return self.operation.patient

    def reset(
        self, *, seed: int | None = None, options: Mapping[str, object] | None = None
    ) -> tuple[NDArray[np.float32], Info]:
        """
        Begin with the next patient: `options['patient']`, or one drawn from the cohort.

        :raises SettingError: on another option, or a patient that is none.
        :raises StateError: if the env is closed.
        :raises UnreachableError: if the arm cannot start there; the old operation goes on.
        """
        self._check_open()
        super().reset(seed=seed)
        if not isinstance(options, Mapping | None):
            raise SettingError('options', options, "only 'patient', by name")
        given = dict(options or {})
        chosen = given.pop('patient', None)
        if given:
            raise SettingError('options', sorted(given), "only 'patient'")
        if chosen is None:
            patient = self._admissions.draw(self.np_random)
        else:
            patient = self._admissions.checked(chosen)
        self.operation.reset(patient)
        return self.operation.state(), self._info()

    def step(self, action: np.int64 | int) -> tuple[NDArray[np.float32], float, bool, bool, Info]:
        """
        Move the set-point by one action and let 50 ms pass.

        :raises StateError: on an action that does not exist, after the end of the operation, or
            if the env is closed.
        """
        operation = self.operation
        self._check_open()
        chosen = action_numbered(action)
        operation.check_started()
        if operation.done:
            raise StateError('the operation is over: reset the env')
        operation.act(chosen)
        operation.advance(SUBSTEPS)
        outcome = operation.tick()
        state, info = operation.state(), self._info()
        return state, outcome.reward, outcome.terminated, outcome.truncated, info

    def _info(self) -> Info:
        return self.operation.info() | {'patient': self.operation.patient.name}

    def render(self) -> NDArray[np.uint8] | None:
        """
        Return a picture from near, shape (240, 320, 3), when made with render_mode 'rgb_array'.

        For other sizes and places see :func:`fdrl_ros.surgery.render.picture.picture`.

        :raises StateError: before the first reset, and after :meth:`close`.
        :raises ResourceError: if the compiled arithmetic was not built.
        """
        self._check_open()
        if self.render_mode is None:
            return None
        return picture(self.operation)

    def close(self) -> None:
        """Give back the physics client; the env refuses whatever is asked of it from now on."""
        self._closed = True
        self.operation.close()

    def _check_open(self) -> None:
        if self._closed:
            raise StateError.closed('env')


def sparse_env(settings: WorldSettings = SPARSE, **given: Any) -> SurgeryEnv:
    """
    Return an env that rewards success, punishes failure and tells nothing on the way.

    :param settings: of the world, but for the rewards on the way.
    :param given: what else :class:`SurgeryEnv` takes.
    """
    return SurgeryEnv(settings=sparse(settings), **given)


ENV_ID = env_id()
_MADE = {False: ('SurgeryEnv', 'VectorSurgeryEnv'), True: ('sparse_env', 'sparse_vector_env')}

for _procedure, _sparse in product(('surgery', *PROCEDURE_NAMES), (False, True)):
    _id = env_id(_procedure, sparse=_sparse)
    if _id not in gymnasium.registry:
        _one, _many = _MADE[_sparse]
        gymnasium.register(
            _id,
            entry_point=f'fdrl_ros.surgery.gym.surgery_env:{_one}',
            vector_entry_point=f'fdrl_ros.surgery.gym.vector_env:{_many}',
            kwargs={} if _procedure == 'surgery' else {'procedures': _procedure},
        )
