# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""
Whole operations in one file: patients, seeds, actions, states, rewards, and the world's digest.

A file holds all that is needed to replay every operation bit by bit
(:func:`fdrl_ros.surgery.data.recording.replay`). Simulated patients only: nothing is encrypted.
"""

from collections.abc import Sequence
from dataclasses import dataclass, fields
import hashlib
import json
from pathlib import Path
from typing import Any, TypeVar
import zipfile

from fdrl_ros.errors import errors_named, os_errors_as, RecordsError
from fdrl_ros.runtime.durable import replacing
from fdrl_ros.surgery.constants import constants
from fdrl_ros.surgery.data.json_dataclasses import from_plain, to_plain
from fdrl_ros.surgery.gym.actions import ACTION_COUNT, ACTIONS
from fdrl_ros.surgery.gym.episode import Episode, PER_STATE, SIGNALS
from fdrl_ros.surgery.gym.state import STATE_FIELDS
from fdrl_ros.surgery.patient.patient import Patient
from fdrl_ros.surgery.settings import WorldSettings
from fdrl_ros.surgery.tasks.outcome import FAILURES
import numpy as np

FORMAT = 'fdrl_ros dataset 1'
LARGEST = 2**33
"""Bytes of a file when unpacked; more is refused."""

Arrays = dict[str, np.ndarray]
T = TypeVar('T')

SCALARS = tuple(e.name for e in fields(Episode) if e.name not in SIGNALS and e.name != 'patient')
"""What else an episode has: success, failure and the like."""


def world_digest() -> str:
    """Return the SHA-256 over the names and values of config/world.yaml, hexadecimal."""
    lines = [f'{name}={value!r}\n' for name, value in sorted(constants().items())]
    return hashlib.sha256(''.join(lines).encode()).hexdigest()


def identity() -> dict[str, object]:
    """Return what must agree between a recording and this code."""
    return {
        'format': FORMAT,
        'state': [[field.name, field.unit, field.scale] for field in STATE_FIELDS],
        'actions': [to_plain(action) for action in ACTIONS],
        'constants': world_digest(),
    }


def check_identity(head: object) -> None:
    """
    Refuse what was recorded by another version or in another world.

    :param head: a document that has what :func:`identity` returns, and more.
    :raises RecordsError: saying what differs.
    """
    if not isinstance(head, dict) or head.get('format') != FORMAT:
        came = head.get('format') if isinstance(head, dict) else head
        raise RecordsError(f'expected the format {FORMAT!r}, came {came!r}')
    for name, wanted in identity().items():
        came = head.get(name)
        if came != wanted:
            if isinstance(wanted, list) and isinstance(came, list):
                came, wanted = next(
                    (pair for pair in zip(came, wanted, strict=False) if pair[0] != pair[1]),
                    (f'{len(came)} of them', f'{len(wanted)} of them'),
                )
            raise RecordsError(
                f'recorded in another world: its {name} are {came!r}, here {wanted!r}'
            )


def to_document(record: object) -> str:
    """Return as JSON a dataclass and what must agree between a recording and this code."""
    return json.dumps({**identity(), **to_plain(record)}, allow_nan=False)


def from_document(kind: type[T], text: str) -> T:
    """
    Return the dataclass that :func:`to_document` wrote; nothing of the text is believed.

    :raises RecordsError: if it is of another version or world, or not of this form.
    """
    try:
        document = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise RecordsError(str(error)) from error
    check_identity(document)
    own = {name: value for name, value in document.items() if name not in identity()}
    return from_plain(kind, own, 'document')


@dataclass(frozen=True)
class _Entry:
    """What a file's document has of an episode: its ticks, seed, patient and SCALARS."""

    length: int
    patient: Patient
    seed: int | None
    time_above: dict[float, float]
    success: bool
    failure: str
    terminated: bool


@dataclass(frozen=True)
class _Head:
    """What a file's document has besides its :func:`identity`."""

    world: WorldSettings
    note: str
    episodes: tuple[_Entry, ...]


def _check_array(name: str, array: object, rows: int) -> np.ndarray:
    """Return an array of an episode, or of several, that has its type and so many rows."""
    kind, row, _info = SIGNALS[name]
    if isinstance(array, np.ndarray) and (array.shape, array.dtype) == ((rows, *row), kind):
        return array
    came = f'{array.dtype} {array.shape}' if isinstance(array, np.ndarray) else repr(array)
    raise RecordsError(f'{name} is {came}, expected {np.dtype(kind)} {(rows, *row)}')


def _check_episode(episode: Episode) -> None:
    """Refuse an operation that contradicts itself, or that would lose a bit in a file."""
    if episode.length < 1:
        raise RecordsError('no tick')
    for name in SIGNALS:
        array = _check_array(name, getattr(episode, name), episode.length + (name in PER_STATE))
        if array.dtype.kind == 'f' and not np.isfinite(array).all():
            raise RecordsError(f'{name} holds a number that is not finite')
    if episode.actions.min() < 0 or episode.actions.max() >= ACTION_COUNT:
        raise RecordsError(f'expected actions from 0 to {ACTION_COUNT - 1}')
    if episode.failure not in ('', *FAILURES) or episode.success != (episode.failure == ''):
        raise RecordsError(
            f'success is {episode.success!r} and the failure {episode.failure!r}: '
            f'expected success without one, or one of {", ".join(FAILURES)}'
        )
    if from_plain(Patient, to_plain(episode.patient)) != episode.patient:
        raise RecordsError('the patient cannot be kept as data')


@dataclass(frozen=True, eq=False)
class Dataset:
    """
    Operations of one world.

    :param world: its settings.
    :param episodes: what happened.
    :param seeds: of each operation's generator; None where nothing was drawn.
    :param note: how it came about, for people.
    :raises RecordsError: if an operation contradicts itself or could not be replayed.
    """

    world: WorldSettings
    episodes: tuple[Episode, ...]
    seeds: tuple[int | None, ...]
    note: str = ''

    def __post_init__(self) -> None:
        """Check that every operation is whole and can be replayed."""
        if len(self.seeds) != len(self.episodes):
            raise RecordsError(f'{len(self.episodes)} episodes, but {len(self.seeds)} seeds')
        for index, (episode, seed) in enumerate(zip(self.episodes, self.seeds, strict=True)):
            with errors_named(RecordsError, f'episode {index}'):
                _check_episode(episode)
                if seed is not None and (type(seed) is not int or not 0 <= seed < 2**64):
                    raise RecordsError(f'{seed!r} is no seed: expected 0 to 2^64 - 1')

    def __len__(self) -> int:
        """Return the number of operations."""
        return len(self.episodes)

    @property
    def digest(self) -> str:
        """SHA-256 over all that is kept, hexadecimal."""
        return file_digest(self._document(), self._arrays())

    def save(self, path: Path) -> None:
        """
        Write the file atomically, readable by the owner alone.

        :raises RecordsError: if it cannot be written.
        """
        document, arrays = self._document(), self._arrays()
        texts = {'document': document, 'digest': file_digest(document, arrays)}
        members = {name: to_bytes(text) for name, text in texts.items()}
        with os_errors_as(RecordsError, f'cannot write {path}'):
            with replacing(path) as file:
                np.savez_compressed(file, **members, **arrays)  # type: ignore[arg-type]

    @classmethod
    def load(cls, path: Path, digest: str | None = None) -> 'Dataset':
        """
        Read a file and refuse one that is damaged or not of this version and world.

        :param digest: the digest that the file must have, hexadecimal.
        :raises RecordsError: if it is missing, cut off, changed, or of another version, world,
            state or set of actions.
        """
        try:
            document, arrays, saved = _unpack(path)
            found = file_digest(document, arrays)
            for wanted in (saved, digest or saved):
                if found != wanted:
                    raise RecordsError(f'expected the digest {wanted}, came {found}')
            return cls._from_parts(document, arrays)
        except RecordsError as error:
            raise RecordsError(f'{path}: {error}') from error
        except OSError as error:
            raise RecordsError(f'cannot read {path}: {error.strerror or error}') from error
        except Exception as error:  # a damaged archive raises half a dozen kinds
            raise RecordsError(f'{path} is no dataset, or damaged: {error}') from error

    @classmethod
    def _from_parts(cls, document: str, arrays: Arrays) -> 'Dataset':
        """Return the dataset of a document and its arrays, of which nothing is believed."""
        head = from_document(_Head, document)
        if arrays.keys() != SIGNALS.keys():
            raise RecordsError(f'arrays {sorted(arrays)}: expected {sorted(SIGNALS)}')
        lengths = [entry.length for entry in head.episodes]
        if any(length < 1 for length in lengths):
            raise RecordsError('an episode without a tick')
        pieces = [_split(name, arrays[name], lengths) for name in SIGNALS]
        episodes = []
        for entry, *own in zip(head.episodes, *pieces, strict=True):
            fields: dict[str, Any] = {name: getattr(entry, name) for name in SCALARS}
            fields.update(zip(SIGNALS, own, strict=True))
            episodes.append(Episode(entry.patient, **fields))
        seeds = tuple(entry.seed for entry in head.episodes)
        return cls(head.world, tuple(episodes), seeds, head.note)

    def _document(self) -> str:
        entries = (
            _Entry(e.length, e.patient, seed, e.time_above, e.success, e.failure, e.terminated)
            for e, seed in zip(self.episodes, self.seeds, strict=True)
        )
        return to_document(_Head(self.world, self.note, tuple(entries)))

    def _arrays(self) -> Arrays:
        return {
            name: np.concatenate(
                [np.empty((0, *row), kind), *(getattr(e, name) for e in self.episodes)]
            )
            for name, (kind, row, _info) in SIGNALS.items()
        }


def record(
    path: Path,
    episodes: Sequence[Episode],
    world: WorldSettings,
    *,
    seeds: Sequence[int | None] | None = None,
    note: str = '',
) -> Dataset:
    """
    Write operations to one file.

    :param world: the settings that they happened under.
    :param seeds: of each operation's generator; needed where the force sensor is noisy.
    :returns: what was written.
    :raises RecordsError: without an episode, if one cannot be replayed, or the file not written.
    """
    if not episodes:
        raise RecordsError('no episodes to record')
    given = tuple(seeds) if seeds is not None else (None,) * len(episodes)
    dataset = Dataset(world, tuple(episodes), given, note)
    dataset.save(path)
    return dataset


def _unpack(path: Path) -> tuple[str, Arrays, str]:
    """Return the document, the arrays and the digest of a file."""
    with zipfile.ZipFile(path) as archive:
        size = sum(member.file_size for member in archive.infolist())
    if size > LARGEST:
        raise RecordsError(f'unpacks to {size} bytes: expected at most {LARGEST}')
    with np.load(path, allow_pickle=False) as file:
        members = {name: file[name] for name in file.files}
    missing = {'document', 'digest'} - members.keys()
    if missing:
        raise RecordsError(f'is no dataset: it is an archive without {sorted(missing)[0]}')
    document = members.pop('document').tobytes().decode()
    return document, members, members.pop('digest').tobytes().decode()


def to_bytes(text: str) -> np.ndarray:
    """Return a text as a file's array holds it, uint8."""
    return np.frombuffer(text.encode(), np.uint8)


def file_digest(document: str, arrays: Arrays) -> str:
    """Return the SHA-256 over a file's document and arrays, hexadecimal."""
    sha = hashlib.sha256(document.encode())
    for name, array in sorted(arrays.items()):
        sha.update(f'\n{name} {array.dtype.str} {array.shape}\n'.encode())
        sha.update(np.ascontiguousarray(array).tobytes())
    return sha.hexdigest()


def _split(name: str, array: np.ndarray, lengths: Sequence[int]) -> list[np.ndarray]:
    """Split an array of all episodes into one for each."""
    rows = [length + (name in PER_STATE) for length in lengths]
    return np.split(_check_array(name, array, sum(rows)), np.cumsum(rows)[:-1])
