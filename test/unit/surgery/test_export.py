# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""Exports of datasets hold what was recorded, in the form that Minari and LeRobot read."""

import json

from fdrl_ros.errors import RecordsError, SettingError
from fdrl_ros.surgery.data.dataset import Dataset
from fdrl_ros.surgery.data.export import export, MINARI_VERSION
from fdrl_ros.surgery.data.recording import demonstrations
from fdrl_ros.surgery.gym.actions import ACTION_COUNT, ACTIONS
from fdrl_ros.surgery.gym.state import STATE_FIELDS, STATE_SIZE
from fdrl_ros.surgery.settings import WorldSettings
import numpy as np
import pytest

WORLD = WorldSettings(mode='kinematic', horizon=60)


@pytest.fixture(scope='module')
def dataset(tmp_path_factory):
    folder = tmp_path_factory.mktemp('demos')
    made = [
        demonstrations(name, folder / name, count, world=WORLD)
        for name, count in (('palpation', 2), ('reach', 1))
    ]
    episodes = sum((each.episodes for each in made), ())
    return Dataset(WORLD, episodes, sum((each.seeds for each in made), ()), 'expert')


def test_minari_finds_episodes_spaces_and_how_they_ended(dataset, tmp_path):
    h5py = pytest.importorskip('h5py')
    path = tmp_path / 'surgery-expert-v0'
    export(dataset, path, 'minari')
    assert [each.name for each in tmp_path.iterdir()] == [path.name]
    metadata = json.loads((path / 'data' / 'metadata.json').read_text())
    assert metadata['dataset_id'] == path.name
    assert (metadata['minari_version'], metadata['data_format']) == (MINARI_VERSION, 'hdf5')
    assert metadata['total_steps'] == sum(each.length for each in dataset.episodes)
    space = json.loads(metadata['observation_space'])
    assert (space['type'], space['shape'], len(space['low'])) == ('Box', [STATE_SIZE], STATE_SIZE)
    assert json.loads(metadata['action_space'])['n'] == ACTION_COUNT
    with h5py.File(path / 'data' / 'main_data.hdf5') as file:
        assert list(file) == ['episode_0', 'episode_1', 'episode_2']
        for number, episode in enumerate(dataset.episodes):
            group = file[f'episode_{number}']
            assert np.array_equal(group['observations'], episode.states)
            assert np.array_equal(group['actions'], episode.actions)
            assert np.array_equal(group['rewards'], episode.rewards)
            ends = group['terminations'][:] | group['truncations'][:]
            assert ends.tolist() == [False] * (episode.length - 1) + [True]
            assert group['terminations'][-1] == episode.terminated
            assert group.attrs['procedure'] == episode.patient.procedure.name
            assert len(group['infos/tip']) == episode.length + 1


def test_lerobot_finds_frames_episodes_tasks_and_statistics(dataset, tmp_path):
    parquet = pytest.importorskip('pyarrow.parquet')
    path = tmp_path / 'demos'
    export(dataset, path, 'lerobot')
    info = json.loads((path / 'meta' / 'info.json').read_text())
    frames = parquet.read_table(path / info['data_path'].format(chunk_index=0, file_index=0))
    assert (info['codebase_version'], info['fps']) == ('v3.0', 20)
    assert frames.num_rows == info['total_frames'] == sum(e.length for e in dataset.episodes)
    assert set(frames.column_names) == set(info['features'])
    for name, feature in info['features'].items():
        kind = frames.schema.field(name).type
        if feature['shape'] == [1]:
            assert str(kind).replace('float', 'float32') == feature['dtype']
        else:
            assert kind.list_size == feature['shape'][0] == len(feature['names'])
    assert info['features']['observation.state']['names'] == [e.name for e in STATE_FIELDS]
    rows = frames.to_pydict()
    assert rows['index'] == list(range(frames.num_rows))
    actions = np.concatenate([each.actions for each in dataset.episodes])
    assert rows['action.number'] == actions.tolist()
    expected = [ACTIONS[each].displacement for each in actions]
    np.testing.assert_allclose(np.array(rows['action'])[:, :3], expected, rtol=1e-6)
    episodes = parquet.read_table(path / 'meta' / 'episodes' / 'chunk-000' / 'file-000.parquet')
    tasks = parquet.read_table(path / 'meta' / 'tasks.parquet').to_pydict()
    assert tasks == {'task_index': [0, 1], '__index_level_0__': ['palpation', 'reach']}
    for row, episode in zip(episodes.to_pylist(), dataset.episodes, strict=True):
        part = slice(row['dataset_from_index'], row['dataset_to_index'])
        assert np.array_equal(rows['observation.state'][part], episode.states[:-1])
        assert rows['next.done'][part] == [False] * (episode.length - 1) + [True]
        assert row['tasks'] == [episode.patient.procedure.name]
        assert rows['task_index'][part.start] == tasks['__index_level_0__'].index(*row['tasks'])
        assert row['stats/next.reward/max'] == [pytest.approx(episode.rewards.max())]
    stats = json.loads((path / 'meta' / 'stats.json').read_text())
    assert stats['action.number']['count'] == [frames.num_rows]
    assert len(stats['observation.state']['mean']) == STATE_SIZE


def test_what_cannot_be_exported_leaves_nothing(dataset, tmp_path):
    for form in ('minari', 'lerobot'):
        (tmp_path / 'there-v0').mkdir(exist_ok=True)
        with pytest.raises(RecordsError, match='exists already'):
            export(dataset, tmp_path / 'there-v0', form)
    with pytest.raises(SettingError, match='NAME-vN'):
        export(dataset, tmp_path / 'demos', 'minari')
    with pytest.raises(SettingError, match='one of minari, lerobot'):
        export(dataset, tmp_path / 'demos', 'csv')
    (tmp_path / 'file').write_text('')
    with pytest.raises(RecordsError, match='cannot write'):
        export(dataset, tmp_path / 'file' / 'demos', 'lerobot')
    assert sorted(each.name for each in tmp_path.iterdir()) == ['file', 'there-v0']
