# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""Read a bag: a recording back into a dataset, or the log of a live arm into its transitions."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
import json
from pathlib import Path
from typing import Any

from fdrl_ros.errors import RecordsError, StateError
from fdrl_ros.surgery.data.bag_types import (
    ACTION,
    bags,
    EPISODE,
    message_types,
    OPERATION,
    OURS,
    OUTCOME,
    PATIENT,
    TOPICS,
)
from fdrl_ros.surgery.data.dataset import Dataset
from fdrl_ros.surgery.data.identity import check_identity, identity
from fdrl_ros.surgery.data.json_dataclasses import from_plain
from fdrl_ros.surgery.data.log import LoggedOperation
from fdrl_ros.surgery.data.log_parts import LogReader
from fdrl_ros.surgery.data.recording import recorded_episode
from fdrl_ros.surgery.gym.episode import Episode
from fdrl_ros.surgery.gym.surgery_env import SurgeryEnv
from fdrl_ros.surgery.patient.patient import Patient
from fdrl_ros.surgery.settings import WorldSettings
import numpy as np

Progress = Callable[[int, int], None]
"""How many of how many are done."""

_ORDER = (EPISODE, PATIENT, OPERATION, ACTION, OUTCOME)
"""Of messages with one stamp: a state comes before what is chosen in it."""


def read_log(
    path: Path, robot: str | None = None, *, partial: bool = False
) -> list[LoggedOperation]:
    """
    Read the operations of one robot.

    A log tells states, actions and how an operation ended; see :mod:`fdrl_ros.surgery.data.log`
    for what it lacks.

    :param path: of the bag's folder, or of its one file.
    :param robot: namespace of its topics; needed where the bag is of several robots.
    :param partial: leave out what is broken off or has gaps, instead of refusing it.
    :raises RecordsError: if the bag is cut off, damaged, without operations, of several robots,
        or with a topic of another type; or, unless `partial`, if an operation has gaps or no end.
    """
    reader = LogReader(partial)
    for topic, message in _messages(path, robot, set(OURS)):
        reader.take(topic, message)
    return reader.finish()


def read_recording(
    path: Path, robot: str | None = None, *, progress: Progress = lambda done, count: None
) -> Dataset:
    """
    Read what :func:`fdrl_ros.surgery.data.bag.write_bag` wrote, bit by bit.

    Rewards, damage and whatever else no topic tells come from going through each operation again;
    its states must be those of the bag.

    :raises RecordsError: if the bag is broken, of another world, or is no recording of ours.
    """
    reader = LogReader(partial=False)
    documents = []
    for topic, message in _messages(path, robot, {*OURS, EPISODE}):
        if topic == EPISODE:
            documents.append(message.data)
        else:
            reader.take(topic, message)
    logged = reader.finish()
    if len(documents) != len(logged):
        raise RecordsError(
            f'{path}: {len(documents)} documents for {len(logged)} operations. The log of a live '
            'arm has none: its patients are not known, so it makes records, not a dataset'
        )
    recordings = [_recording(each, f'{path}, episode {i}') for i, each in enumerate(documents)]
    world, note = recordings[0].world, recordings[0].note
    episodes: list[Episode] = []
    env = SurgeryEnv(settings=world)
    try:
        for index, (one, log) in enumerate(zip(recordings, logged, strict=True)):
            name = f'{path}, episode {index}'
            if (one.world, one.note) != (world, note):
                raise RecordsError(f'{name}: of another recording than the first')
            episodes.append(_again(env, one, log, name))
            progress(index + 1, len(logged))
    finally:
        env.close()
    return Dataset(world, tuple(episodes), tuple(each.seed for each in recordings), note)


def is_recording(path: Path) -> bool:
    """
    Tell whether a bag is a recording of ours, which makes a dataset, or the log of an arm.

    :raises RecordsError: if it is no bag.
    """
    with _opened(path) as reader:
        return any(each.topic.split('/')[-1] == EPISODE for each in reader.connections)


@dataclass(frozen=True)
class _Recording:
    """What a replay needs besides actions."""

    world: WorldSettings
    note: str
    seed: int | None
    patient: Patient


def _recording(text: str, name: str) -> _Recording:
    try:
        document = json.loads(text)
        check_identity(document)
        data = {each: value for each, value in document.items() if each not in identity()}
        return from_plain(_Recording, data, 'document')
    except (ValueError, RecursionError, RecordsError) as error:
        raise RecordsError(f'{name}: {error}') from error


def _again(env: SurgeryEnv, one: _Recording, log: LoggedOperation, name: str) -> Episode:
    """Go through an operation again and compare it with the log."""
    if (log.patient, log.procedure) != (one.patient.name, one.patient.procedure.name):
        raise RecordsError(f'{name}: {log.procedure} on {log.patient}, but {one.patient.name}')
    waiting: Iterator[int] = iter(log.actions.tolist())
    try:
        found = recorded_episode(env, lambda state: next(waiting), one.patient, one.seed)
    except StopIteration:
        raise RecordsError(f'{name}: more than the {len(log.actions)} recorded ticks') from None
    except StateError as error:
        raise RecordsError(f'{name}: {error}') from error
    same = (
        found.length == len(log.actions)
        and np.array_equal(found.states[:-1], log.states)
        and np.array_equal(found.states[-1], log.next_states[-1])
        and (found.success, found.failure) == (log.success, log.failure)
    )
    if not same:
        raise RecordsError(f'{name}: going through it again gives other states or another end')
    return found


def recorded(
    path: Path, robot: str | None, kinds: Mapping[str, Iterable[str]], needed: Iterable[str]
) -> list[tuple[int, str, Any]]:
    """
    Return messages of a robot in the order in which they were recorded.

    :param robot: namespace of its topics; needed where the bag is of several robots.
    :param kinds: types that each wanted topic may have.
    :param needed: topics that must be there.
    :returns: when each was recorded, ns; its topic below the namespace; the message.
    :raises RecordsError: if the bag is cut off, damaged, of several robots, without a needed
        topic, or with a topic of another type.
    """
    store = message_types()
    with _opened(path) as reader:
        prefix = _namespace(path, [each.topic for each in reader.connections], robot)
        chosen = []
        for each in reader.connections:
            topic = each.topic.removeprefix(prefix)
            if each.topic.startswith(prefix) and topic in kinds:
                _check_type(path, each, tuple(kinds[topic]), store)
                chosen.append(each)
        missing = set(needed) - {each.topic.removeprefix(prefix) for each in chosen}
        if missing:
            raise RecordsError(f'{path}: {prefix} has no {", ".join(sorted(missing))}')
        if not chosen:
            return []  # the library takes none of them for all
        try:
            return [
                (
                    logged_at,
                    connection.topic.removeprefix(prefix),
                    store.deserialize_cdr(data, connection.msgtype),
                )
                for connection, logged_at, data in reader.messages(connections=chosen)
            ]
        except Exception as error:  # the library, SQLite and decompressors raise many kinds
            raise RecordsError(f'{path} is cut off or damaged: {error}') from error


def _messages(path: Path, robot: str | None, wanted: set[str]) -> Iterator[tuple[str, Any]]:
    """Yield the robot's messages by topic, in the order of their stamps."""
    kinds = {topic: (TOPICS[topic],) for topic in wanted}
    found = recorded(path, robot, kinds, OURS)
    found.sort(key=lambda each: (_stamp(each[2], each[0]), _ORDER.index(each[1])))
    for _, topic, message in found:
        yield topic, message


def _stamp(message: Any, logged_at: int) -> int:
    """Return when a message was made, ns: by its header, or else when it was recorded."""
    header = getattr(message, 'header', None)
    if header is None:
        return logged_at
    return int(header.stamp.sec) * 1_000_000_000 + int(header.stamp.nanosec)


class _opened:  # noqa: N801 (used as a function)
    """Opens a bag and closes it, whatever the library raises."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._reader: Any = None

    def __enter__(self) -> Any:
        library = bags()
        if not self._path.exists():
            raise RecordsError(f'{self._path} does not exist')
        try:
            self._reader = library.Reader(self._path)
            self._reader.open()
        except Exception as error:  # the library, YAML, SQLite and the disk raise many kinds
            raise RecordsError(f'{self._path} is no bag, or cut off: {error}') from error
        return self._reader

    def __exit__(self, *unused: object) -> None:
        self._reader.close()


def _namespace(path: Path, topics: list[str], robot: str | None) -> str:
    """Return the beginning of the robot's topics."""
    found = sorted({each.removesuffix(OPERATION) for each in topics if each.endswith(OPERATION)})
    if robot is not None:
        prefix = f'/{robot.strip("/")}/'
        if prefix not in found:
            raise RecordsError(f'{path} has no {prefix}{OPERATION}; found {found}')
        return prefix
    if len(found) != 1:
        raise RecordsError(f'{path}: expected the {OPERATION} of one robot, found {found}')
    return found[0]


def _check_type(path: Path, connection: Any, kinds: tuple[str, ...], store: Any) -> None:
    """Refuse a topic of another type, or of another version of the type."""
    kind = connection.msgtype
    if kind not in kinds:
        raise RecordsError(
            f'{path}: {connection.topic} is a {kind}, expected {" or ".join(kinds)}'
        )
    if connection.digest and connection.digest != store.hash_rihs01(kind):
        raise RecordsError(
            f'{path}: {connection.topic} was recorded with another version of {kind}'
        )
