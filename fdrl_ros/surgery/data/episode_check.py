# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""Which arrays a whole operation has, and what contradicts itself."""

from dataclasses import fields

from fdrl_ros.errors import RecordsError
from fdrl_ros.surgery.data.json_dataclasses import from_plain, to_plain
from fdrl_ros.surgery.gym.actions import ACTION_COUNT
from fdrl_ros.surgery.gym.episode import Episode
from fdrl_ros.surgery.gym.state import STATE_SIZE
from fdrl_ros.surgery.patient.patient import Patient
from fdrl_ros.surgery.tasks.outcome import FAILURES
import numpy as np

PER_STATE: dict[str, tuple[str, tuple[int, ...]]] = {
    'states': ('<f4', (STATE_SIZE,)),
    'tips': ('<f8', (3,)),
    'jaws': ('<f8', ()),
    'news2': ('<i8', ()),
    'sofa': ('<i8', ()),
}
"""Arrays of an episode with a row for each of T + 1 states: type, and shape of a row."""

PER_TICK: dict[str, tuple[str, tuple[int, ...]]] = {
    'actions': ('<i8', ()),
    'rewards': ('<f4', ()),
    'forces': ('<f8', ()),
    'mean_forces': ('<f8', ()),
    'damages': ('<f8', ()),
    'pressures': ('<f8', ()),
    'critical': ('|b1', ()),
}
"""Arrays with a row for each of T ticks."""

ARRAYS = {**PER_STATE, **PER_TICK}
SCALARS = tuple(e.name for e in fields(Episode) if e.name not in ARRAYS and e.name != 'patient')
"""What else an episode has: success, failure and the like."""


def check_episode(episode: Episode, name: str) -> None:
    """
    Refuse an operation whose arrays contradict each other, or that would lose a bit in a file.

    :raises RecordsError: saying what.
    """
    length = len(episode.actions)
    if length < 1:
        raise RecordsError(f'{name}: no tick')
    for each, (kind, row) in ARRAYS.items():
        array = getattr(episode, each)
        shape = (length + (each in PER_STATE), *row)
        if not isinstance(array, np.ndarray) or array.shape != shape or array.dtype != kind:
            came = f'{array.dtype} {array.shape}' if isinstance(array, np.ndarray) else repr(array)
            raise RecordsError(f'{name}: {each} is {came}, expected {np.dtype(kind)} {shape}')
        if array.dtype.kind == 'f' and not np.isfinite(array).all():
            raise RecordsError(f'{name}: {each} holds a number that is not finite')
    if episode.actions.min() < 0 or episode.actions.max() >= ACTION_COUNT:
        raise RecordsError(f'{name}: expected actions from 0 to {ACTION_COUNT - 1}')
    if episode.failure not in ('', *FAILURES) or episode.success != (episode.failure == ''):
        raise RecordsError(
            f'{name}: success is {episode.success!r} and the failure {episode.failure!r}: '
            f'expected success without one, or one of {", ".join(FAILURES)}'
        )
    if from_plain(Patient, to_plain(episode.patient)) != episode.patient:
        raise RecordsError(f'{name}: the patient cannot be kept as data')
