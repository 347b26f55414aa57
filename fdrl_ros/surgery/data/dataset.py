# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""
Whole operations in one file: patients, seeds, actions, states, rewards, and the world's digest.

A file holds all that is needed to go through every operation again, bit by bit
(:func:`fdrl_ros.surgery.data.replaying.replay`). Simulated patients only: nothing is encrypted.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
import hashlib
import json
import os
from pathlib import Path
from typing import Any, get_type_hints
import zipfile

from fdrl_ros.errors import RecordsError
from fdrl_ros.surgery.data.episode_check import ARRAYS, check_episode, PER_STATE, SCALARS
from fdrl_ros.surgery.data.identity import check_identity, identity
from fdrl_ros.surgery.data.json_dataclasses import from_plain, to_plain
from fdrl_ros.surgery.gym.episode import Episode
from fdrl_ros.surgery.patient.patient import Patient
from fdrl_ros.surgery.settings import WorldSettings
import numpy as np

LARGEST = 2**33
"""Bytes of a file when unpacked; more is refused."""


@dataclass(frozen=True, eq=False)
class Dataset:
    """
    Operations of one world.

    :param world: its settings.
    :param episodes: what happened.
    :param seeds: of each operation's generator; None where nothing was drawn.
    :param note: how it came about, for people.
    :raises RecordsError: if an operation contradicts itself or could not be gone through again.
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
            check_episode(episode, f'episode {index}')
            if seed is None and self.world.force_noise > 0.0:
                raise RecordsError(
                    f'episode {index}: with noise of the force sensor, its seed must be known'
                )
            if seed is not None and (type(seed) is not int or not 0 <= seed < 2**64):
                raise RecordsError(f'episode {index}: {seed!r} is no seed: expected 0 to 2^64 - 1')

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
        members = {
            'document': to_bytes(document),
            'digest': to_bytes(file_digest(document, arrays)),
        }
        part = path.with_name(path.name + '.part')
        try:
            descriptor = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
            with os.fdopen(descriptor, 'wb') as file:
                np.savez_compressed(file, **members, **arrays)  # type: ignore[arg-type]
                file.flush()
                os.fsync(file.fileno())
            part.replace(path)
        except OSError as error:
            raise RecordsError(f'cannot write {path}: {error.strerror}') from error

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
        except RecordsError:
            raise
        except OSError as error:
            raise RecordsError(f'cannot read {path}: {error.strerror or error}') from error
        except Exception as error:  # a damaged archive raises half a dozen kinds
            raise RecordsError(f'{path} is no dataset, or damaged: {error}') from error
        found = file_digest(document, arrays)
        for wanted in (saved, digest or saved):
            if found != wanted:
                raise RecordsError(f'{path}: expected the digest {wanted}, came {found}')
        try:
            head = json.loads(document)
        except ValueError as error:
            raise RecordsError(f'{path}: its document is no JSON: {error}') from error
        try:
            return cls._from_parts(head, arrays)
        except RecordsError as error:
            raise RecordsError(f'{path}: {error}') from error

    @classmethod
    def _from_parts(cls, head: Any, arrays: dict[str, np.ndarray]) -> 'Dataset':
        _check_head(head)
        if arrays.keys() != ARRAYS.keys():
            raise RecordsError(f'arrays {sorted(arrays)}: expected {sorted(ARRAYS)}')
        hints = get_type_hints(Episode)
        lengths = from_plain(
            tuple[int, ...], [each.get('length') for each in head['episodes']], 'length'
        )
        if any(each < 1 for each in lengths):
            raise RecordsError('an episode without a tick')
        pieces = {name: _cut(name, array, lengths) for name, array in arrays.items()}
        episodes, seeds = [], []
        for index, each in enumerate(head['episodes']):
            if each.keys() != {'length', 'patient', 'seed', *SCALARS}:
                raise RecordsError(f'episode {index}: came {sorted(each)}')
            scalars: dict[str, Any] = {
                name: from_plain(hints[name], each[name], f'episode {index}: {name}')
                for name in SCALARS
            }
            patient = from_plain(Patient, each['patient'], f'episode {index}: patient')
            own: dict[str, Any] = {name: next(piece) for name, piece in pieces.items()}
            episodes.append(Episode(patient=patient, **own, **scalars))
            seeds.append(each['seed'])
        world = from_plain(WorldSettings, head['world'], 'world')
        return cls(world, tuple(episodes), tuple(seeds), from_plain(str, head['note'], 'note'))

    def _document(self) -> str:
        return json.dumps(
            {
                **identity(),
                'world': to_plain(self.world),
                'note': self.note,
                'episodes': [
                    {
                        'length': episode.length,
                        'patient': to_plain(episode.patient),
                        'seed': seed,
                        **{name: to_plain(getattr(episode, name)) for name in SCALARS},
                    }
                    for episode, seed in zip(self.episodes, self.seeds, strict=True)
                ],
            },
            allow_nan=False,
        )

    def _arrays(self) -> dict[str, np.ndarray]:
        return {
            name: np.concatenate(
                [
                    np.empty((0, *shape), kind),
                    *(np.asarray(getattr(e, name), kind) for e in self.episodes),
                ]
            )
            for name, (kind, shape) in ARRAYS.items()
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


def _check_head(head: Any) -> None:
    check_identity(head)
    listed = head.get('episodes')
    if not isinstance(listed, list) or not all(isinstance(each, dict) for each in listed):
        raise RecordsError('expected a list of episodes')
    if head.keys() != {*identity(), 'world', 'note', 'episodes'}:
        raise RecordsError(f'came {sorted(head)}')


def _unpack(path: Path) -> tuple[str, dict[str, np.ndarray], str]:
    """Return the document, the arrays and the digest of a file."""
    with zipfile.ZipFile(path) as archive:
        size = sum(each.file_size for each in archive.infolist())
    if size > LARGEST:
        raise RecordsError(f'{path} unpacks to {size} bytes: expected at most {LARGEST}')
    with np.load(path, allow_pickle=False) as file:
        members = {name: file[name] for name in file.files}
    missing = {'document', 'digest'} - members.keys()
    if missing:
        raise RecordsError(f'{path} is no dataset: it is an archive without {sorted(missing)[0]}')
    document = members.pop('document').tobytes().decode()
    return document, members, members.pop('digest').tobytes().decode()


def to_bytes(text: str) -> np.ndarray:
    """Return a text as a file's array holds it, uint8."""
    return np.frombuffer(text.encode(), np.uint8)


def file_digest(document: str, arrays: dict[str, np.ndarray]) -> str:
    """Return the SHA-256 over a file's document and arrays, hexadecimal."""
    sha = hashlib.sha256(document.encode())
    for name, array in sorted(arrays.items()):
        sha.update(f'\n{name} {array.dtype.str} {array.shape}\n'.encode())
        sha.update(np.ascontiguousarray(array).tobytes())
    return sha.hexdigest()


def _cut(name: str, array: np.ndarray, lengths: tuple[int, ...]) -> Iterator[np.ndarray]:
    """Cut an array of all episodes into one for each."""
    kind, row = ARRAYS[name]
    rows = [each + (name in PER_STATE) for each in lengths]
    if array.shape != (sum(rows), *row) or array.dtype != kind:
        raise RecordsError(
            f'{name} is {array.dtype} {array.shape}, expected {np.dtype(kind)} {(sum(rows), *row)}'
        )
    return iter(np.split(array, np.cumsum(rows)[:-1]) if rows else [])
