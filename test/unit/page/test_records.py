# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""Runs and bags are listed and replayed; what is broken says so and stops nothing."""

import json
import os
from pathlib import Path
import shutil
import subprocess
import sys

from fdrl_ros.deployment.plan import Plan
from fdrl_ros.errors import RecordsError
from fdrl_ros.page.records import BETWEEN, records_beside, run_ended, RunRecords
from fdrl_ros.page.state import as_json
from fdrl_ros.runtime.durable import exclusive, LOCK
from fdrl_ros.surgery.data.bag import write_bag
from fdrl_ros.surgery.data.dataset import Dataset
from fdrl_ros.surgery.data.recording import demonstrations
from fdrl_ros.surgery.settings import WorldSettings
import pytest

pytest.importorskip('rosbags', reason='rosbags is not installed')

NOTE = {
    'seconds': 2.0,
    'epsilon': {'hospital_1': 1.0, 'hospital_2': None, 'hospital_3': 1.0},
    'contributors': ['hospital_1', 'hospital_3'],
    'rolled_back': False,
    'ended': '',
    'blamed': {},
}


@pytest.fixture(scope='session')
def dataset(tmp_path_factory) -> Dataset:
    world = WorldSettings(mode='kinematic', horizon=40)
    return demonstrations('palpation', tmp_path_factory.mktemp('one') / 'a', 1, world=world)


@pytest.fixture(scope='session')
def bag(dataset, tmp_path_factory) -> Path:
    path = tmp_path_factory.mktemp('bags') / 'bag'
    write_bag(dataset, path)
    return path


@pytest.fixture
def runs(tmp_path, bag) -> Path:
    folder = tmp_path / 'runs'
    federation = folder / 'first' / 'federation'
    federation.mkdir(parents=True)
    (folder / 'first' / 'policies').mkdir()
    (federation / 'plan.yaml').write_text(Plan().to_yaml())
    notes = [{**NOTE, 'round': 1}, {**NOTE, 'round': 2, 'rolled_back': True}]
    notes[0]['epsilon'] = dict(NOTE['epsilon'], hospital_2=float('nan'))
    notes[0]['public_success'] = 0.75
    notes[1] |= {'blamed': {'hospital_2': 'sealed shares'}, 'epsilon': {}}
    (folder / 'first' / 'rounds.json').write_text(json.dumps(notes))
    (folder / 'latest').symlink_to('first')
    shutil.copytree(bag, folder / 'first' / 'bag')
    return folder


def test_runs_and_bags_are_listed_once(runs):
    listed = {each['id']: each for each in RunRecords(runs).listed()}
    assert listed.keys() == {'first', 'first/bag:robot_1'}
    assert listed['first']['kind'] == 'run' and listed['first']['seconds'] == 4.0
    assert listed['first/bag:robot_1']['kind'] == 'bag'
    assert listed['first/bag:robot_1']['seconds'] > 0.0


def test_a_run_is_replayed_round_by_round(runs):
    found = RunRecords(runs).read('first')
    as_json(found)
    first, second = found['rounds']
    assert (first['t'], second['t'], found['duration']) == (2.0, 4.0, 4.0)
    assert first['hospitals']['hospital_1']['epsilon'] == 1.0
    assert first['hospitals']['hospital_2']['epsilon'] is None
    assert first['roll_backs'] == [] and len(second['roll_backs']) == 1
    assert first['success'] == [
        {'round': 1, 'policy': 'global', 'success': 0.75, 'procedures': {}}
    ]
    assert first['missing'] == {'hospital_2': 'it has no part in the policy of this round'}
    assert second['missing'] == {'hospital_2': 'sealed shares'}
    assert second['blames'] == [[4.0, 'hospital_2', 'sealed shares']]


def test_a_bag_is_replayed_frame_by_frame(runs, dataset):
    found = RunRecords(runs).read('first/bag:robot_1')
    as_json(found)
    frames, (episode,) = found['frames'], dataset.episodes
    assert len(frames) == episode.length + 1
    assert all(b['t'] - a['t'] >= BETWEEN for a, b in zip(frames, frames[1:], strict=False))
    assert found['procedures'] == [episode.patient.procedure.name]
    assert frames[-1]['joints'] and len(frames[-1]['tip']) == 3
    assert frames[-1]['choice']['policy'] == 'recorded'


def test_only_what_is_listed_can_be_read(runs, tmp_path):
    (tmp_path / 'secret').mkdir()
    (tmp_path / 'secret' / 'rounds.json').write_text('[]')
    for name in ('../secret', str(tmp_path / 'secret'), '', 'first/federation'):
        with pytest.raises(RecordsError, match='there is no record'):
            RunRecords(runs).read(name)


DAMAGED = {
    'no_time': '[{"seconds": NaN}]',
    'endless': '[{"seconds": 1e999}]',
    'deep': '[' * 100_000,
    'huge': '[{"seconds": ' + '1' * 400 + '}]',
}


def test_broken_records_say_so_and_stop_nothing(runs):
    for name, content in (
        ('cut', '[{"round": 1'),
        ('other', '{"a": 1}'),
        ('empty', ''),
        *DAMAGED.items(),
    ):
        (runs / name).mkdir()
        (runs / name / 'rounds.json').write_text(content)
        (runs / name / 'metadata.yaml').write_text(content)
    data = next((runs / 'first' / 'bag').glob('*.mcap'))
    data.write_bytes(data.read_bytes()[: data.stat().st_size // 2])
    records = RunRecords(runs)
    broken = [each for each in records.listed() if each['broken']]
    assert {each['id'] for each in broken} == {
        *('cut', 'other', 'empty', 'first/bag:robot_1'),
        *DAMAGED,
    }
    for each in broken:
        assert each['title'].endswith('is cut off or damaged') and '\n' not in each['title']
        with pytest.raises(RecordsError, match='cut off or damaged'):
            records.read(each['id'])
    with pytest.raises(RecordsError, match='cut off'):
        records.read('first/bag:robot_1')
    assert records.read('first')['rounds']


@pytest.mark.parametrize('storage', ['mcap', 'sqlite3'])
def test_a_bag_without_its_end_says_so_in_the_list(dataset, tmp_path, storage):
    write_bag(dataset, tmp_path / 'bag', storage=storage)
    (listed,) = RunRecords(tmp_path).listed()
    assert not listed['broken'] and listed['title'] == 'bag, robot_1'
    (data,) = (each for each in (tmp_path / 'bag').iterdir() if each.name != 'metadata.yaml')
    size = data.stat().st_size
    # The last is a file that nobody reads whole: 64 GiB of nothing behind its beginning.
    for cut in (size - 1, 3000, 50, 0, *([2**36] if storage == 'mcap' else [])):
        os.truncate(data, cut)
        (listed,) = RunRecords(tmp_path).listed()
        assert listed['broken'] and listed['seconds'] is None
        assert listed['title'] == f'bag, robot_1: {data.name} is cut off or damaged'
    data.unlink()
    assert RunRecords(tmp_path).listed()[0]['broken']


def test_a_run_has_ended_once_nobody_works_in_it(runs):
    directories = runs / 'first', runs / 'latest', runs / 'first' / 'federation'
    with exclusive(runs / 'first'):
        assert not any(map(run_ended, directories))
    assert (runs / 'first' / LOCK).read_text().startswith(f'{os.getpid()} (')
    # A process that was killed left its number there.
    (runs / 'first' / LOCK).write_text(f'{ended_process()} (fdrl run)')
    assert all(map(run_ended, directories))
    for other in ('', '-1', '0', 'fdrl', '9' * 40):
        (runs / 'first' / LOCK).write_text(other)
        assert run_ended(runs / 'first')
    assert not run_ended(runs)  # is no run


def ended_process() -> int:
    process = subprocess.Popen([sys.executable, '-c', ''])
    process.wait()
    return process.pid


def test_the_records_of_a_run_are_those_beside_it(runs):
    for directory in (runs / 'first', runs / 'latest', runs / 'first' / 'federation'):
        assert records_beside(directory) == runs.resolve()


def test_the_records_of_no_run_are_in_its_own_folder_alone(tmp_path):
    federation = tmp_path / 'federation'
    (federation / 'keys').mkdir(parents=True)
    assert records_beside(federation) == federation.resolve()
    assert records_beside(tmp_path) == tmp_path.resolve()


def test_no_folder_is_no_record(tmp_path):
    assert RunRecords(tmp_path / 'missing').listed() == []
