# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""Go through a recorded operation again, and compare every number bit by bit."""

from collections.abc import Callable, Iterator

from fdrl_ros.errors import RecordsError
from fdrl_ros.surgery.data.dataset import Dataset
from fdrl_ros.surgery.data.episode_check import ARRAYS, PER_STATE, SCALARS
from fdrl_ros.surgery.data.recording import recorded_episode
from fdrl_ros.surgery.gym.episode import Episode
from fdrl_ros.surgery.gym.operation import Operation
from fdrl_ros.surgery.gym.state import STATE_FIELDS
from fdrl_ros.surgery.gym.surgery_env import SurgeryEnv
import numpy as np

Watch = Callable[[Operation], None]
"""Looks at an operation at its start and after every tick."""


def replay(
    dataset: Dataset, index: int, env: SurgeryEnv | None = None, watch: Watch | None = None
) -> Episode:
    """
    Operate on a recorded patient with the recorded actions, and compare every number.

    :param env: to operate in, of the dataset's world; one of its own unless given.
    :param watch: shown the operation at its start and after every tick.
    :returns: what happened now: the same, bit by bit.
    :raises RecordsError: if anything differs, saying what differed first.
    """
    if not 0 <= index < len(dataset):
        raise RecordsError(f'episode {index}: expected 0 to {len(dataset) - 1}')
    if env is not None and env.settings != dataset.world:
        raise RecordsError(f'the env is of {env.settings}, the recording of {dataset.world}')
    recorded = dataset.episodes[index]
    used = env if env is not None else SurgeryEnv(settings=dataset.world)
    waiting: Iterator[int] = iter(recorded.actions.tolist())

    def choose(state: np.ndarray) -> int:
        if watch is not None:
            watch(used.operation)
        try:
            return next(waiting)
        except StopIteration:
            raise RecordsError(
                f'episode {index}: ended after {recorded.length} ticks, now it goes on'
            ) from None

    try:
        found = recorded_episode(used, choose, recorded.patient, dataset.seeds[index])
        if watch is not None:
            watch(used.operation)
    finally:
        if env is None:
            used.close()
    difference = first_difference(recorded, found)
    if difference:
        raise RecordsError(f'episode {index}: {difference}')
    return found


def first_difference(recorded: Episode, found: Episode) -> str:
    """Say what differs first in time between two operations; nothing if no bit does."""
    firsts = []
    for name in ARRAYS:
        old, new = getattr(recorded, name), getattr(found, name)
        count = min(len(old), len(new))
        places = np.argwhere(_bits(old[:count]) != _bits(new[:count]))
        if len(places):
            place = tuple(int(each) for each in places[0][: old.ndim])
            # What is judged at the end of tick t comes with state t + 1.
            firsts.append((place[0] + (name not in PER_STATE), name, place))
    if firsts:
        _, name, place = min(firsts, key=lambda each: each[0])
        old, new = getattr(recorded, name)[place], getattr(found, name)[place]
        field = f', {STATE_FIELDS[place[1]].name}' if name == 'states' else ''
        return f'{name}{list(place)}{field} was {old!r}, is now {new!r}'
    if recorded.length != found.length:
        return f'ended after {recorded.length} ticks, now after {found.length}'
    for name in SCALARS:
        if getattr(recorded, name) != getattr(found, name):
            return f'{name} was {getattr(recorded, name)!r}, is now {getattr(found, name)!r}'
    return ''


def _bits(array: np.ndarray) -> np.ndarray:
    """Return the bytes of an array in a last dimension more."""
    whole = np.ascontiguousarray(array)
    return whole.reshape(*array.shape, 1).view(np.uint8)
