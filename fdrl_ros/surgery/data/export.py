# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""
Datasets in the formats of others: Minari 0.5 (HDF5) and LeRobotDataset 3.0 (Parquet, no video).

Both hold states as a policy sees them, actions, rewards and how operations ended. Neither can be
replayed: patients and seeds stay in our own file.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
import json
from pathlib import Path
import re
import shutil
from types import ModuleType
from typing import Any, Final

from fdrl_ros.errors import os_errors_as, RecordsError, ResourceError, SettingError
from fdrl_ros.surgery.data.dataset import Dataset
from fdrl_ros.surgery.gym.actions import ACTION_COUNT, ACTIONS, TICK
from fdrl_ros.surgery.gym.episode import Episode
from fdrl_ros.surgery.gym.state import STATE_BOUND, STATE_FIELDS, STATE_SIZE
import numpy as np

MINARI_VERSION: Final = '0.5.3'
"""Version of Minari whose format is written; 0.5 reads it."""

LEROBOT_VERSION: Final = 'v3.0'
"""Version of LeRobot's format that is written."""

_MINARI_NAME = re.compile(r'[-\w]+-v\d+')
_AUTHOR = 'fdrl_ros'
_CHUNK = 'chunk-000/file-000.parquet'
_MOTIONS = ('x', 'y', 'z', 'jaw')  # of the tip, m; 1 opens the jaw, -1 closes it
_QUANTILES = {'q01': 0.01, 'q10': 0.1, 'q50': 0.5, 'q90': 0.9, 'q99': 0.99}

Arrays = dict[str, np.ndarray]


def export(dataset: Dataset, path: Path, form: str) -> None:
    """
    Write a dataset as a folder in a format of others.

    :param path: of the folder; it must not exist.
    :param form: one of :data:`FORMS`.
    :raises SettingError: on another format, or a name that Minari does not take.
    :raises RecordsError: if the folder exists or cannot be written.
    :raises ResourceError: if the library of the format is not installed.
    """
    if form not in FORMS:
        raise SettingError('to', form, 'one of ' + ', '.join(FORMS))
    FORMS[form](dataset, path)


def _library(name: str) -> ModuleType:
    try:
        return __import__(name, fromlist=['_'])
    except ImportError as error:
        raise ResourceError(
            f'exports need {name} ({error}): pip install "fdrl_ros[export]"'
        ) from error


@contextmanager
def _new_folder(path: Path) -> Iterator[Path]:
    """Give a folder that is at its place once it is complete."""
    if path.exists():
        raise RecordsError(f'{path} exists already and is not written over')
    part = path.with_name(path.name + '.part')
    with os_errors_as(RecordsError, f'cannot write {path}'):
        try:
            shutil.rmtree(part, ignore_errors=True)
            part.mkdir(parents=True)
            yield part
            part.rename(path)
        finally:
            shutil.rmtree(part, ignore_errors=True)


def _write_json(path: Path, document: object) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(document, indent=2) + '\n', 'utf-8')


def _ends(episode: Episode) -> tuple[np.ndarray, np.ndarray]:
    """Return which ticks ended it by success or failure, and which because the time was up."""
    ends = np.zeros((2, episode.length), bool)
    ends[0 if episode.terminated else 1, -1] = True
    return ends[0], ends[1]


def _write_minari(dataset: Dataset, path: Path) -> None:
    """Write data/main_data.hdf5 and data/metadata.json, as Minari's dataset standards have it."""
    h5py = _library('h5py')
    if not _MINARI_NAME.fullmatch(path.name):
        raise SettingError('target', path.name, 'NAME-vN, such as surgery-expert-v0')
    with _new_folder(path) as folder:
        data = folder / 'data'
        data.mkdir()
        with h5py.File(data / 'main_data.hdf5', 'w', track_order=True) as file:
            for number, (episode, seed) in enumerate(
                zip(dataset.episodes, dataset.seeds, strict=True)
            ):
                group = file.create_group(f'episode_{number}')
                group.attrs.update(
                    id=number,
                    total_steps=episode.length,
                    patient=episode.patient.name,
                    procedure=episode.patient.procedure.name,
                    success=episode.success,
                    failure=episode.failure,
                )
                if seed is not None:
                    group.attrs['seed'] = np.uint64(seed)
                terminations, truncations = _ends(episode)
                for name, values in (
                    ('observations', episode.states),
                    ('actions', episode.actions),
                    ('rewards', episode.rewards.astype(np.float64)),
                    ('terminations', terminations),
                    ('truncations', truncations),
                ):
                    group.create_dataset(name, data=values)
                infos = group.create_group('infos')
                infos.create_dataset('tip', data=episode.tips)
                infos.create_dataset('jaw', data=episode.jaws)
        box = {
            'type': 'Box',
            'dtype': 'float32',
            'shape': [STATE_SIZE],
            'low': [-STATE_BOUND] * STATE_SIZE,
            'high': [STATE_BOUND] * STATE_SIZE,
        }
        discrete = {'type': 'Discrete', 'dtype': 'int64', 'start': 0, 'n': ACTION_COUNT}
        steps = sum(each.length for each in dataset.episodes)
        metadata = {
            'dataset_id': path.name,
            'minari_version': MINARI_VERSION,
            'data_format': 'hdf5',
            'total_episodes': len(dataset),
            'total_steps': steps,
            'dataset_size': round((data / 'main_data.hdf5').stat().st_size / 1e6, 1),
            'observation_space': json.dumps(box),
            'action_space': json.dumps(discrete),
            'algorithm_name': dataset.note,
            'author': [_AUTHOR],
            'description': 'Simulated surgery, for research, not a medical device. '
            f'Observations: {", ".join(each.name for each in STATE_FIELDS)}.',
        }
        _write_json(data / 'metadata.json', metadata)


def _write_lerobot(dataset: Dataset, path: Path) -> None:
    """Write data/, meta/episodes/, meta/tasks.parquet, meta/stats.json and meta/info.json."""
    pyarrow, parquet = _library('pyarrow'), _library('pyarrow.parquet')
    tasks = sorted({each.patient.procedure.name for each in dataset.episodes})
    frames = [_frames(each, tasks) for each in dataset.episodes]
    starts = np.cumsum([0, *(each.length for each in dataset.episodes)])
    for number, each in enumerate(frames):
        count = dataset.episodes[number].length
        each['episode_index'] = np.full(count, number)
        each['index'] = np.arange(starts[number], starts[number + 1])
    whole = {name: np.concatenate([each[name] for each in frames]) for name in frames[0]}
    with _new_folder(path) as folder:
        _write_table(
            parquet,
            folder / 'data' / _CHUNK,
            pyarrow.table({name: _column(pyarrow, each) for name, each in whole.items()}),
        )
        rows = [
            {
                'episode_index': number,
                'tasks': [episode.patient.procedure.name],
                'length': episode.length,
                'data/chunk_index': 0,
                'data/file_index': 0,
                'dataset_from_index': int(starts[number]),
                'dataset_to_index': int(starts[number + 1]),
                'meta/episodes/chunk_index': 0,
                'meta/episodes/file_index': 0,
                **{
                    f'stats/{name}/{what}': each.tolist()
                    for name, values in frames[number].items()
                    for what, each in _stats(values).items()
                },
            }
            for number, episode in enumerate(dataset.episodes)
        ]
        episodes = pyarrow.Table.from_pylist(rows)
        _write_table(parquet, folder / 'meta' / 'episodes' / _CHUNK, episodes)
        _write_table(parquet, folder / 'meta' / 'tasks.parquet', _task_table(pyarrow, tasks))
        stats = {
            name: {what: each.tolist() for what, each in _stats(values).items()}
            for name, values in whole.items()
        }
        _write_json(folder / 'meta' / 'stats.json', stats)
        _write_json(folder / 'meta' / 'info.json', _lerobot_info(dataset, tasks, whole))


def _frames(episode: Episode, tasks: list[str]) -> Arrays:
    """Return what LeRobot has of each tick."""
    ticks = np.arange(episode.length)
    moves = [ACTIONS[each] for each in episode.actions.tolist()]
    jaws = [0.0 if each.jaw is None else 2.0 * each.jaw - 1.0 for each in moves]
    motions = np.column_stack([[each.displacement for each in moves], jaws])
    done, late = _ends(episode)
    return {
        'observation.state': episode.states[:-1],
        'action': motions.astype(np.float32),
        'action.number': episode.actions,
        'next.reward': episode.rewards,
        'next.done': done | late,
        'next.success': (ticks == episode.length - 1) & episode.success,
        'timestamp': (ticks * TICK).astype(np.float32),
        'frame_index': ticks,
        'task_index': np.full(episode.length, tasks.index(episode.patient.procedure.name)),
    }


def _lerobot_info(dataset: Dataset, tasks: list[str], whole: Arrays) -> dict[str, Any]:
    names = {
        'observation.state': [each.name for each in STATE_FIELDS],
        'action': list(_MOTIONS),
    }
    features = {
        name: {
            'dtype': str(values.dtype),
            'shape': list(values.shape[1:]) or [1],
            'names': names.get(name),
        }
        for name, values in whole.items()
    }
    return {
        'codebase_version': LEROBOT_VERSION,
        'robot_type': 'simulated dVRK PSM',
        'total_episodes': len(dataset),
        'total_frames': len(whole['index']),
        'total_tasks': len(tasks),
        'chunks_size': 1000,
        'data_files_size_in_mb': 100,
        'video_files_size_in_mb': 200,
        'fps': round(1.0 / TICK),
        'splits': {'train': f'0:{len(dataset)}'},
        'data_path': 'data/chunk-{chunk_index:03d}/file-{file_index:03d}.parquet',
        'video_path': None,
        'features': features,
    }


def _stats(values: np.ndarray) -> Arrays:
    """Return the statistics that LeRobot normalises with, of each column."""
    columns = values.reshape(len(values), -1).astype(np.float64)
    found = {
        'min': columns.min(axis=0),
        'max': columns.max(axis=0),
        'mean': columns.mean(axis=0),
        'std': columns.std(axis=0),
        'count': np.array([len(values)]),
    }
    return found | {name: np.quantile(columns, q, axis=0) for name, q in _QUANTILES.items()}


def _column(pyarrow: ModuleType, values: np.ndarray) -> Any:
    if values.ndim == 1:
        return pyarrow.array(values)
    flat = pyarrow.array(np.ascontiguousarray(values).reshape(-1))
    return pyarrow.FixedSizeListArray.from_arrays(flat, values.shape[1])


def _task_table(pyarrow: ModuleType, tasks: list[str]) -> Any:
    """Return the table of tasks; pandas reads their names as its index."""
    index = '__index_level_0__'
    text = {'pandas_type': 'unicode', 'numpy_type': 'object', 'metadata': None}
    number = {'pandas_type': 'int64', 'numpy_type': 'int64', 'metadata': None}
    described = {
        'index_columns': [index],
        'column_indexes': [],
        'columns': [
            {'name': 'task_index', 'field_name': 'task_index', **number},
            {'name': None, 'field_name': index, **text},
        ],
        'creator': {'library': 'pyarrow', 'version': pyarrow.__version__},
        'pandas_version': '2.2.0',
    }
    table = pyarrow.table({'task_index': list(range(len(tasks))), index: tasks})
    return table.replace_schema_metadata({'pandas': json.dumps(described)})


def _write_table(parquet: ModuleType, path: Path, table: Any) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    parquet.write_table(table, path, compression='snappy')


FORMS: Final[dict[str, Callable[[Dataset, Path], None]]] = {
    'minari': _write_minari,
    'lerobot': _write_lerobot,
}
"""The formats, by name."""
