# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""Datasets: nothing is lost in a file, operations replay bit by bit, what is broken is refused."""

from contextlib import closing
from dataclasses import fields, replace
import json

from fdrl_ros.errors import RecordsError, SettingError
from fdrl_ros.surgery.data.dataset import Dataset, record, SCALARS, world_digest
from fdrl_ros.surgery.data.recording import (
    demonstrations,
    first_difference,
    Operator,
    record_operations,
    RecordingStopped,
    replay,
)
from fdrl_ros.surgery.gym.episode import Episode, SIGNALS
from fdrl_ros.surgery.gym.state import PROCEDURE_NAMES
from fdrl_ros.surgery.gym.surgery_env import SurgeryEnv
from fdrl_ros.surgery.patient.cohort import Cohort, mixture
from fdrl_ros.surgery.settings import WorldSettings
import numpy as np
import pytest

WORLD = WorldSettings(mode='kinematic')
NOISY = WorldSettings(mode='dynamic', force_noise=0.15)


def walker(world=WORLD):
    """Walk at random on patients of any procedure."""
    return Operator(mixture(3, 0.8, 5, PROCEDURE_NAMES), world, 5, exploration=1.0)


def make(world=WORLD, count=4):
    with closing(SurgeryEnv(settings=world)) as env:
        made = [walker(world).operate(env, index) for index in range(count)]
    episodes, seeds = zip(*made, strict=True)
    return Dataset(world, episodes, seeds, 'random walks')


@pytest.fixture(scope='module')
def walks():
    return make()


@pytest.fixture(scope='module')
def noisy():
    return make(NOISY, 3)


def test_a_file_keeps_every_bit_of_every_field(walks, tmp_path):
    assert {*SIGNALS, *SCALARS, 'patient'} == {each.name for each in fields(Episode)}
    walks.save(tmp_path / 'walks.npz')
    loaded = Dataset.load(tmp_path / 'walks.npz', digest=walks.digest)
    assert loaded.digest == walks.digest
    assert (loaded.world, loaded.seeds, loaded.note) == (walks.world, walks.seeds, walks.note)
    for old, new in zip(walks.episodes, loaded.episodes, strict=True):
        assert old.patient == new.patient
        assert first_difference(old, new) == ''
        assert [new.states.dtype, new.critical.dtype] == [np.float32, np.bool_]


def test_the_same_dataset_makes_the_same_bytes(walks, tmp_path):
    for name in ('a', 'b'):
        walks.save(tmp_path / name)
    assert (tmp_path / 'a').read_bytes() == (tmp_path / 'b').read_bytes()
    assert (tmp_path / 'a').stat().st_mode & 0o077 == 0
    assert sorted(each.name for each in tmp_path.iterdir()) == ['a', 'b']


@pytest.mark.parametrize('name', ['walks', 'noisy'])
def test_recorded_operations_replay_bit_by_bit_in_any_order(name, request, tmp_path):
    dataset = request.getfixturevalue(name)
    dataset.save(tmp_path / 'file')
    loaded = Dataset.load(tmp_path / 'file')
    env = SurgeryEnv(settings=dataset.world)
    seen = []
    for index in reversed(range(len(loaded))):
        replay(loaded, index, env)
    found = replay(loaded, 0, watch=lambda operation: seen.append(operation.ticks))
    env.close()
    assert seen == list(range(found.length + 1))


@pytest.mark.parametrize('name', sorted(set(SIGNALS) - {'actions'}))
def test_a_replay_tells_the_first_number_that_differs(walks, name):
    episode = walks.episodes[1]
    array = getattr(episode, name).copy()
    place = (3, *(0 for _ in array.shape[1:]))
    array[place] = (
        not array[place]
        if array.dtype == bool
        else np.nextafter(array[place], array.dtype.type(9))
        if array.dtype.kind == 'f'
        else array[place] + 1
    )
    changed = replace(episode, **{name: array})
    told = rf'episode 0: {name}\[{", ".join(map(str, place))}\]'
    with pytest.raises(RecordsError, match=told):
        replay(Dataset(WORLD, (changed,), (1,)), 0)


def test_a_replay_tells_an_operation_that_ended_at_another_time(walks):
    episode = walks.episodes[0]
    shorter = replace(episode, **{name: getattr(episode, name)[:-1] for name in SIGNALS})
    with pytest.raises(RecordsError, match=f'ended after {episode.length - 1} ticks'):
        replay(Dataset(WORLD, (shorter,), (1,)), 0)
    other = 'drop' if episode.failure != 'drop' else 'depth'
    with pytest.raises(RecordsError, match='(success|failure) was'):
        replay(Dataset(WORLD, (replace(episode, success=False, failure=other),), (1,)), 0)


@pytest.mark.parametrize('end', [(True, 'zzz'), (False, 'zzz'), (True, 'force'), (False, '')])
def test_an_end_that_contradicts_itself_is_refused(walks, end):
    success, failure = end
    with pytest.raises(RecordsError, match='episode 0: success is'):
        Dataset(WORLD, (replace(walks.episodes[0], success=success, failure=failure),), (1,))


def test_minus_zero_is_not_zero(walks):
    rewards = np.zeros_like(walks.episodes[0].rewards)
    other = replace(walks.episodes[0], rewards=-rewards)
    told = first_difference(replace(walks.episodes[0], rewards=rewards), other)
    assert told.startswith('rewards[0]')


def test_a_replay_in_another_world_or_of_no_episode_is_refused(walks):
    env = SurgeryEnv(settings=WorldSettings(mode='kinematic', horizon=9))
    with pytest.raises(RecordsError, match='horizon'):
        replay(walks, 0, env)
    env.close()
    for index in (-1, 4):
        with pytest.raises(RecordsError, match='expected 0 to 3'):
            replay(walks, index)


def test_a_file_cut_off_or_changed_anywhere_is_refused(walks, tmp_path):
    path = tmp_path / 'file'
    walks.save(path)
    whole = path.read_bytes()
    for end in [*range(0, len(whole), len(whole) // 37), len(whole) - 1]:
        path.write_bytes(whole[:end])
        with pytest.raises(RecordsError):
            Dataset.load(path)
    with pytest.raises(RecordsError):
        Dataset.load(tmp_path / 'none')
    with pytest.raises(RecordsError, match='digest'):
        path.write_bytes(whole)
        Dataset.load(path, digest='0' * 64)


def rewrite(path, change):
    """Change the document of a file and give it the digest that it then has."""
    from fdrl_ros.surgery.data import dataset

    with np.load(path) as file:
        arrays = {name: file[name] for name in file.files}
    head = json.loads(arrays.pop('document').tobytes())
    arrays.pop('digest')
    change(head, arrays)
    document = json.dumps(head)
    digest = dataset.file_digest(document, arrays)
    with path.open('wb') as file:
        np.savez(
            file, document=dataset.to_bytes(document), digest=dataset.to_bytes(digest), **arrays
        )


def first(head):
    return head['episodes'][0]


CHANGES = {
    'format': lambda head, arrays: head.update(format='fdrl_ros dataset 2'),
    'another world': lambda head, arrays: head.update(constants='0' * 64),
    'its state': lambda head, arrays: head['state'][0].__setitem__(2, 2.0),
    'its actions': lambda head, arrays: head['actions'].pop(),
    'horizon': lambda head, arrays: head['world'].update(horizon=-1),
    'world: expected': lambda head, arrays: head['world'].pop('mode'),
    'note': lambda head, arrays: head.update(note=3),
    'expected a list': lambda head, arrays: head.update(episodes={}),
    'without a tick': lambda head, arrays: first(head).update(length=0),
    'length': lambda head, arrays: first(head).update(length=None),
    'expected': lambda head, arrays: first(head).update(length=first(head)['length'] + 1),
    'young_modulus': lambda head, arrays: first(head)['patient'].update(young_modulus='soft'),
    'patient: expected': lambda head, arrays: first(head)['patient'].update(extra=1),
    'success': lambda head, arrays: first(head).update(success=1),
    'no seed': lambda head, arrays: first(head).update(seed=-1),
    'came': lambda head, arrays: first(head).pop('failure'),
    'arrays': lambda head, arrays: arrays.pop('states'),
    'rewards': lambda head, arrays: arrays.update(rewards=arrays['rewards'].astype('f8')),
    'states holds': lambda head, arrays: arrays['states'].__setitem__((0, 0), np.nan),
    'actions from': lambda head, arrays: arrays['actions'].__setitem__(0, 15),
}


@pytest.mark.parametrize('told', CHANGES)
def test_a_file_of_another_version_world_or_form_is_refused(walks, tmp_path, told):
    path = tmp_path / 'file'
    walks.save(path)
    rewrite(path, lambda head, arrays: None)
    assert Dataset.load(path).digest == walks.digest
    rewrite(path, CHANGES[told])
    with pytest.raises(RecordsError, match=told):
        Dataset.load(path)


def test_a_bomb_is_not_unpacked(walks, tmp_path, monkeypatch):
    walks.save(tmp_path / 'file')
    monkeypatch.setattr('fdrl_ros.surgery.data.dataset.LARGEST', 1000)
    with pytest.raises(RecordsError, match='unpacks'):
        Dataset.load(tmp_path / 'file')


def test_what_could_not_be_replayed_is_not_recorded(walks, tmp_path):
    episode = walks.episodes[0]
    broken = replace(episode, rewards=episode.rewards[1:])
    for place, episodes, world, seeds, told in (
        ('file', [], WORLD, None, 'no episodes'),
        ('file', [episode], WORLD, [1, 2], '2 seeds'),
        ('file', [broken], WORLD, None, 'rewards'),
        ('none/file', [episode], WORLD, None, 'cannot write'),
    ):
        with pytest.raises(RecordsError, match=told):
            record(tmp_path / place, episodes, world, seeds=seeds)


def test_the_digest_of_the_world_tells_every_constant(monkeypatch):
    from fdrl_ros.surgery import constants
    from fdrl_ros.surgery.data import dataset

    before = world_digest()
    values = {**constants.constants(), 'jaw.open': np.nextafter(0.8, 1.0).item()}
    monkeypatch.setattr(dataset, 'constants', lambda: values)
    assert world_digest() != before


@pytest.mark.parametrize('procedure', PROCEDURE_NAMES)
def test_demonstrations_are_successes_of_the_expert_that_replay(procedure, tmp_path):
    told = []
    found = demonstrations(
        procedure, tmp_path / 'demos', 3, world=WORLD, progress=lambda *each: told.append(each)
    )
    assert [each.success for each in found.episodes] == [True] * 3
    assert {each.patient.procedure.name for each in found.episodes} == {procedure}
    assert told[-1] == (3, 3)
    replay(found, 2)
    assert [each.name for each in tmp_path.iterdir()] == ['demos']


def test_an_interrupted_recording_goes_on_to_the_same_file(tmp_path, monkeypatch):
    whole = demonstrations('reach', tmp_path / 'whole', 16, world=WORLD)
    path, made = tmp_path / 'parts', []

    def stop(done, count):
        if done == 14:
            raise RecordingStopped('stopped')

    with pytest.raises(RecordingStopped):
        demonstrations('reach', path, 16, world=WORLD, progress=stop)
    assert not path.exists()
    (part,) = (tmp_path / 'parts.parts').iterdir()
    assert part.name == '000000.npz'
    operate = Operator.operate
    monkeypatch.setattr(
        Operator, 'operate', lambda *given: (made.append(given[-1]), operate(*given))[1]
    )
    demonstrations('reach', path, 16, world=WORLD)
    assert made == list(range(10, 16)), 'ten were finished and are read'
    assert path.read_bytes() == (tmp_path / 'whole').read_bytes()
    assert sorted(each.name for each in tmp_path.iterdir()) == ['parts', 'whole']
    assert demonstrations('reach', path, 16, world=WORLD).digest == whole.digest


def test_a_file_grows_over_failures_into_the_one_of_a_single_call(tmp_path):
    def liked(episode):
        return not episode.patient.name.startswith('hospital_1/')

    def some(path, count):
        return record_operations(path, walker(), count=count, note='walks', keep=liked)

    for count in (1, 4, 8):
        grown = some(tmp_path / 'grown', count)
    assert grown.digest == some(tmp_path / 'whole', 8).digest
    assert (tmp_path / 'grown').read_bytes() == (tmp_path / 'whole').read_bytes()
    assert grown.note == 'walks; operations 0 to 11', 'every third was left out'


def test_a_broken_part_is_made_anew(tmp_path):
    path = tmp_path / 'file'
    folder = tmp_path / 'file.parts'
    folder.mkdir()
    (folder / '000000.npz').write_bytes(b'cut')
    found = demonstrations('reach', path, 3, world=WORLD)
    assert len(found) == 3


def test_a_file_of_something_else_is_never_written_over(walks, tmp_path):
    walks.save(tmp_path / 'file')
    for count in (3, len(walks)):
        with pytest.raises(RecordsError, match='something else'):
            demonstrations('reach', tmp_path / 'file', count, world=WORLD)
    assert Dataset.load(tmp_path / 'file').digest == walks.digest


def test_demonstrations_of_nothing_are_refused(tmp_path):
    with pytest.raises(SettingError, match='procedure'):
        demonstrations('heart', tmp_path / 'file')
    with pytest.raises(SettingError, match='count'):
        demonstrations('reach', tmp_path / 'file', 0)
    others = Cohort(0, 1, 0.0, 1, procedures=('follow',))
    with pytest.raises(SettingError, match='follow'):
        demonstrations('reach', tmp_path / 'file', 1, world=WORLD, patients=others)


def test_a_recording_that_nobody_would_keep_ends(tmp_path):
    with pytest.raises(RecordsError, match='only 0 are worth keeping'):
        record_operations(
            tmp_path / 'file', walker(), count=1, note='none', keep=lambda episode: False
        )
