# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""Bags: a dataset survives the way there and back, a log becomes records, the rest is refused."""

from collections import defaultdict
import copy
from dataclasses import replace
import functools
import shutil

from fdrl_ros.errors import RecordsError, SettingError
from fdrl_ros.learner.records.records import Records
from fdrl_ros.surgery.arm.kinematics import forward_kinematics, JOINTS, straight_joints
from fdrl_ros.surgery.arm.mount import Mount
from fdrl_ros.surgery.arm.rotations import from_quaternion
from fdrl_ros.surgery.data.bag import (
    is_recording,
    message_types,
    OURS,
    read_log,
    read_recording,
    STORAGES,
    TOPICS,
    write_bag,
)
from fdrl_ros.surgery.data.dataset import Dataset
from fdrl_ros.surgery.data.log_rewards import with_rewards
from fdrl_ros.surgery.data.recording import demonstrations, recorded_episode, replay
from fdrl_ros.surgery.gym.actions import STAY, TICK
from fdrl_ros.surgery.gym.state import OPERATION_LAYOUT, PATIENT_LAYOUT
from fdrl_ros.surgery.gym.surgery_env import SurgeryEnv
from fdrl_ros.surgery.settings import WorldSettings
import numpy as np
import pytest

rosbag2 = pytest.importorskip('rosbags.rosbag2')
AnyReader = pytest.importorskip('rosbags.highlevel').AnyReader

WORLD = WorldSettings(mode='kinematic', horizon=40)


@pytest.fixture(scope='module')
def dataset(tmp_path_factory):
    """Return two demonstrations and one operation that ends when the time is up."""
    folder = tmp_path_factory.mktemp('demos')
    episodes = [
        *demonstrations('palpation', folder / 'a', 1, world=WORLD).episodes,
        *demonstrations('peg_transfer', folder / 'b', 1, world=WORLD).episodes,
    ]
    env = SurgeryEnv(settings=WORLD)
    waiting = replace(episodes[0].patient, name='public/train/99')
    episodes.append(recorded_episode(env, lambda state: 12, waiting, None))
    env.close()
    assert episodes[-1].failure == 'time'
    return Dataset(WORLD, tuple(episodes), (None,) * 3, 'three')


@pytest.fixture(scope='module')
def bag(dataset, tmp_path_factory):
    path = tmp_path_factory.mktemp('bags') / 'three'
    write_bag(dataset, path)
    return path


@pytest.fixture(scope='module')
def whole_bags(dataset, bag, tmp_path_factory):
    path = tmp_path_factory.mktemp('bags') / 'three'
    write_bag(dataset, path, storage='sqlite3')
    return {'mcap': bag, 'sqlite3': path}


@functools.cache
def contents(path):
    """Return topic, stamp, message of all that is in a bag."""
    store = message_types()
    with rosbag2.Reader(path) as reader:
        return [
            (connection.topic, at, store.deserialize_cdr(data, connection.msgtype))
            for connection, at, data in reader.messages()
        ]


def numbers(message, names='xyz'):
    return tuple(getattr(message, each) for each in names)


def write(path, messages, types=TOPICS, store=None):
    """Write messages as a bag, whatever they are, but for those that show the arm."""
    store = store or message_types()
    with rosbag2.Writer(path, version=9, storage_plugin=rosbag2.StoragePlugin.MCAP) as writer:
        known = {}
        for topic, at, message in messages:
            kind = types.get(topic.split('/', 2)[-1])
            if kind is None:
                continue
            if topic not in known:
                known[topic] = writer.add_connection(topic, kind, typestore=store)
            writer.write(known[topic], at, store.serialize_cdr(message, kind))


def edited(bag, path, change):
    """Write a bag again with what `change` makes of each topic and message; None drops one."""
    messages = []
    for topic, at, message in contents(bag):
        name = topic.removeprefix('/robot_1/')
        if name not in (*OURS, 'state_fields', 'episode'):
            continue
        made = change(name, copy.deepcopy(message))
        if made is not None:
            messages.append((topic, at, made))
    write(path, messages)
    return path


@pytest.mark.parametrize('storage', STORAGES)
def test_a_dataset_survives_the_way_there_and_back(dataset, tmp_path, storage):
    told = []
    report = lambda *each: told.append(each)  # noqa: E731
    write_bag(dataset, tmp_path / 'bag', robot='psm_2', storage=storage, progress=report)
    assert told == [(1, 3), (2, 3), (3, 3)]
    assert [each.name for each in tmp_path.iterdir()] == ['bag']
    assert is_recording(tmp_path / 'bag')
    assert read_recording(tmp_path / 'bag', 'psm_2').digest == dataset.digest


def test_a_bag_shows_the_arm_and_the_patient_at_every_tick(dataset, bag):
    ticks = sum(each.length for each in dataset.episodes)
    found = contents(bag)
    topics = [topic.removeprefix('/robot_1/') for topic, _, _ in found]
    for topic in TOPICS:
        rare = {'outcome': 3, 'episode': 3, 'state_fields': 2, 'action': ticks}
        expected = rare.get(topic, ticks + 3)
        assert topics.count(topic) == expected, topic
    tips = np.concatenate([each.tips for each in dataset.episodes])
    shown = [m.pose.position for t, _, m in found if t.endswith('measured_cp')]
    assert np.array_equal(tips, [[each.x, each.y, each.z] for each in shown])
    jaws = [m.position[0] for t, _, m in found if t.endswith('jaw/measured_js')]
    assert np.array_equal(np.concatenate([each.jaws for each in dataset.episodes]), jaws)
    arm = next(m for t, _, m in found if t == '/robot_1/measured_js')
    assert tuple(arm.name) == JOINTS
    stamps = [
        m.header.stamp.sec + 1e-9 * m.header.stamp.nanosec
        for t, _, m in found
        if t.endswith('/action')
    ]
    assert np.allclose(np.diff(stamps[: dataset.episodes[0].length]), TICK)


def test_a_bag_tells_force_and_set_point_in_the_frames_of_a_live_arm(dataset, bag):
    seen = []
    env = SurgeryEnv(settings=WORLD)
    for index in range(3):
        replay(dataset, index, env, lambda o: seen.append((o.setpoint, o.force)))
    env.close()
    said = defaultdict(list)
    for topic, _, message in contents(bag):
        said[topic.removeprefix('/robot_1/')].append(message)
    assert max(force[2] for _, force in seen) > 0.5
    names = 'body/measured_cf', 'spatial/measured_cf', 'measured_cp', 'setpoint_cp', 'setpoint_js'
    rows = zip(seen, *(said[name] for name in names), strict=True)
    for (goal, force), body, spatial, measured, aimed, joints in rows:
        assert (body.header.frame_id, spatial.header.frame_id) == ('tool_tip', 'base_link')
        tool = from_quaternion(numbers(measured.pose.orientation, 'xyzw'))
        assert numbers(spatial.wrench.force) == pytest.approx(force)
        assert tool @ numbers(body.wrench.force) == pytest.approx(np.array(force), abs=1e-12)
        lever = np.cross(numbers(measured.pose.position), force)
        assert numbers(spatial.wrench.torque) == pytest.approx(lever, abs=1e-12)
        assert numbers(body.wrench.torque) == (0.0, 0.0, 0.0)
        assert joints.position == pytest.approx([*straight_joints(*goal), 0.0, 0.0, 0.0])
        position, rotation = forward_kinematics(joints.position)
        assert numbers(aimed.pose.position) == pytest.approx(position, abs=1e-12)
        found = from_quaternion(numbers(aimed.pose.orientation, 'xyzw'))
        assert found == pytest.approx(rotation, abs=1e-12)


def test_a_bag_has_the_urdf_and_frames_in_which_the_tip_is_where_it_was(bag):
    found = contents(bag)
    (urdf,) = [m.data for t, _, m in found if t == '/robot_1/robot_description']
    assert urdf == Mount().urdf()
    (fixed,) = [m.transforms for t, _, m in found if t == '/tf_static']
    frames = [m.transforms for t, _, m in found if t == '/tf']
    tips = [m.pose.position for t, _, m in found if t == '/robot_1/measured_cp']
    assert len(frames) == len(tips)
    for moving, tip in list(zip(frames, tips, strict=True))[::20]:
        links = {each.child_frame_id: each for each in (*fixed, *moving)}
        frame, at = 'tool_tip', np.zeros(3)
        while frame != 'base_link':
            each = links[frame]
            turn = from_quaternion(numbers(each.transform.rotation, 'xyzw'))
            at = numbers(each.transform.translation) + turn @ at
            frame = each.header.frame_id
        assert at == pytest.approx(numbers(tip), abs=1e-9)


def test_a_log_tells_states_and_actions_but_no_reward(dataset, bag):
    logged = read_log(bag)
    for episode, log in zip(dataset.episodes, logged, strict=True):
        assert (log.patient, log.procedure) == (
            episode.patient.name,
            episode.patient.procedure.name,
        )
        assert np.array_equal(log.states, episode.states[:-1])
        assert np.array_equal(log.next_states, episode.states[1:])
        assert np.array_equal(log.actions, episode.actions)
        assert (log.success, log.failure, log.held) == (episode.success, episode.failure, 0)
        assert log.terminals.tolist() == [False] * (episode.length - 1) + [episode.terminated]
        assert (log.peak_force, log.damage) == (episode.forces.max(), episode.damages[-1])
        assert np.isnan(log.rewards).all()


def test_derived_rewards_are_those_of_the_world_without_progress(dataset, bag):
    world = replace(WORLD, progress_reward=0.0, force_penalty=0.7)
    env = SurgeryEnv(settings=world)
    for episode, log in zip(dataset.episodes, read_log(bag), strict=True):
        actions = iter(episode.actions.tolist())
        again = recorded_episode(env, lambda state, a=actions: next(a), episode.patient, None)
        patient = episode.patient
        weights = {name: getattr(patient, name) for name in ('force_emphasis', 'time_emphasis')}
        derived = with_rewards(log, world, **weights)
        assert np.allclose(derived.rewards, again.rewards, atol=1e-5)
    env.close()


def test_a_log_becomes_the_records_of_a_hospital(dataset, bag):
    logged = read_log(bag)
    with pytest.raises(RecordsError, match='no rewards'):
        Records.from_logs(logged)
    made = Records.from_logs([with_rewards(each, WORLD) for each in logged])
    expected = Records.from_episodes(dataset.episodes)
    for name in ('states', 'actions', 'next_states', 'terminals', 'starts', 'patients'):
        assert np.array_equal(getattr(made, name), getattr(expected, name)), name
    with pytest.raises(RecordsError, match='no operations'):
        Records.from_logs([])
    with pytest.raises(RecordsError, match='pseudonym'):
        Records.from_logs([replace(with_rewards(logged[0], WORLD), patient='')])


def test_two_operations_on_one_patient_are_one_privacy_unit(bag):
    logged = [replace(with_rewards(each, WORLD), patient='p1') for each in read_log(bag)]
    assert Records.from_logs(logged).n_patients == 1


def test_ticks_at_which_the_robot_held_are_ticks_of_stay(dataset, bag, tmp_path):
    count = 0

    def hold(topic, message):
        nonlocal count
        if topic == 'action':
            count += 1
            if count in (3, 4):
                message.action = -1
        return message

    log = read_log(edited(bag, tmp_path / 'bag', hold))[0]
    episode = dataset.episodes[0]
    assert log.held == 2
    assert np.array_equal(log.states, episode.states[:-1])
    assert np.array_equal(log.next_states, episode.states[1:])
    assert log.actions.tolist() == [*episode.actions[:2], STAY, STAY, *episode.actions[4:]]


def test_what_follows_the_end_of_an_operation_does_not_matter(dataset, bag, tmp_path):
    late = []
    for topic, at, message in contents(bag):
        late.append((topic, at, message))
        if topic.endswith('outcome'):
            action = next(m for t, _, m in contents(bag) if t.endswith('/action'))
            for number in (3, -1):
                extra = copy.deepcopy(action)
                extra.action, extra.patient = number, message.patient
                extra.header = copy.deepcopy(message.header)
                extra.header.stamp.nanosec += 5_000_000
                late.append((topic.replace('outcome', 'action'), at + 5_000_000, extra))
    write(tmp_path / 'bag', late)
    assert [len(each.actions) for each in read_log(tmp_path / 'bag')] == [
        each.length for each in dataset.episodes
    ]


def test_a_log_may_begin_before_the_state_is_heard(dataset, bag, tmp_path):
    messages = list(contents(bag))
    _, _, action = next(each for each in messages if each[0].endswith('/action'))
    early = copy.deepcopy(action)
    early.header.stamp.sec, early.header.stamp.nanosec = 0, 950_000_000
    write(tmp_path / 'bag', [('/robot_1/action', 950_000_000, early), *messages])
    assert len(read_log(tmp_path / 'bag')[0].actions) == dataset.episodes[0].length


def drop(topic_of, numbers):
    """Return a change that drops messages of a topic by number."""
    seen = []

    def change(topic, message):
        if topic == topic_of:
            seen.append(None)
            if len(seen) in numbers:
                return None
        return message

    return change


@pytest.mark.parametrize(
    ('topic', 'numbers', 'told', 'lost'),
    [
        ('action', (5,), 'between two states', 2),
        ('action', range(4, 9), 'actions in', 6),
        ('operation_state', (5,), 'without a state', 2),
        ('patient_state', (5, 6), 'without a state', 3),
        ('outcome', (1,), 'no outcome', 1),
    ],
)
def test_gaps_are_refused_or_left_out(dataset, bag, tmp_path, topic, numbers, told, lost):
    path = edited(bag, tmp_path / 'bag', drop(topic, set(numbers)))
    with pytest.raises(RecordsError, match=told):
        read_log(path)
    found, whole = read_log(path, partial=True), read_log(bag)
    assert len(found[0].actions) == len(whole[0].actions) - lost
    # Every transition that is left is one of the whole log.
    rows = [
        {
            (s.tobytes(), int(a), n.tobytes())
            for s, a, n in zip(log.states, log.actions, log.next_states, strict=True)
        }
        for log in (found[0], whole[0])
    ]
    assert rows[0] <= rows[1]
    assert found[0].terminals.any() == (topic != 'outcome')
    assert [len(each.actions) for each in found[1:]] == [len(each.actions) for each in whole[1:]]


def test_an_operation_that_the_recording_ends_in_is_kept_as_far_as_it_goes(bag, tmp_path):
    path = edited(bag, tmp_path / 'bag', drop('outcome', {3}))
    *before, last = read_log(path)
    whole = read_log(bag)
    assert [len(each.actions) for each in before] == [len(each.actions) for each in whole[:2]]
    assert len(last.actions) == len(whole[2].actions) - 1 and not last.terminals.any()


@pytest.mark.parametrize('storage', STORAGES)
def test_any_reader_takes_the_types_out_of_a_bag(whole_bags, storage):
    seen = set()
    with AnyReader([whole_bags[storage]]) as reader:
        for connection, _, data in reader.messages():
            reader.deserialize(data, connection.msgtype)
            seen.add(connection.topic)
        kind = reader.typestore.types['fdrl_ros/msg/OperationState']
    shown = {'/tf', '/tf_static', '/robot_1/robot_description'}
    assert seen == {f'/robot_1/{topic}' for topic in TOPICS} | shown
    assert kind.LAYOUT == OPERATION_LAYOUT and kind.PROCEDURE_REACH == 'reach'


@pytest.mark.parametrize('end', [0, 10, 100, 5000, 20000, -1000, -100, -20, -1])
@pytest.mark.parametrize('storage', STORAGES)
def test_a_bag_cut_off_anywhere_is_refused(dataset, whole_bags, tmp_path, storage, end):
    shutil.copytree(whole_bags[storage], tmp_path / 'bag')
    file = next(each for each in (tmp_path / 'bag').iterdir() if each.suffix != '.yaml')
    whole = file.read_bytes()
    file.write_bytes(whole[:end])
    try:
        found = read_recording(tmp_path / 'bag')
    except RecordsError:
        return
    # A few bytes less at the end of a file may hold nothing that is read.
    assert end in (-1, -20, -100, -1000)
    assert found.digest == dataset.digest


def test_what_is_no_bag_is_refused(tmp_path):
    (tmp_path / 'folder').mkdir()
    (tmp_path / 'bag.mcap').write_bytes(b'\x89MCAP0\r\n')
    (tmp_path / 'bag.txt').write_text('no bag')
    for name in ('none', 'folder', 'bag.mcap', 'bag.txt'):
        for read in (read_log, read_recording, is_recording):
            with pytest.raises(RecordsError):
                read(tmp_path / name)


def test_the_one_file_of_a_bag_is_enough(dataset, bag):
    assert read_recording(bag / 'three.mcap').digest == dataset.digest


def test_one_of_several_robots_must_be_chosen(dataset, bag, tmp_path):
    both = list(contents(bag))
    both += [(topic.replace('robot_1', 'robot_2'), at, m) for topic, at, m in both]
    write(tmp_path / 'bag', sorted(both, key=lambda each: each[1]))
    with pytest.raises(RecordsError, match=r'one robot.*robot_1.*robot_2'):
        read_log(tmp_path / 'bag')
    with pytest.raises(RecordsError, match='robot_3'):
        read_log(tmp_path / 'bag', 'robot_3')
    assert len(read_log(tmp_path / 'bag', 'robot_2')) == 3


@pytest.mark.parametrize('topic', OURS)
def test_a_missing_topic_is_told(bag, tmp_path, topic):
    path = edited(bag, tmp_path / 'bag', lambda t, m: None if t == topic else m)
    with pytest.raises(RecordsError, match=topic):
        read_log(path)


def test_a_topic_of_another_type_is_refused(bag, tmp_path):
    pose = next(m for t, _, m in contents(bag) if t.endswith('measured_cp'))
    messages = [(t, at, pose if t.endswith('/action') else m) for t, at, m in contents(bag)]
    types = {**TOPICS, 'action': 'geometry_msgs/msg/PoseStamped'}
    write(tmp_path / 'bag', messages, types)
    with pytest.raises(RecordsError, match='PoseStamped, expected fdrl_ros/msg/SelectedAction'):
        read_log(tmp_path / 'bag')


def test_a_type_of_another_version_is_refused(bag, tmp_path):
    from rosbags.typesys import get_types_from_msg, get_typestore, Stores

    old = get_typestore(Stores.ROS2_KILTED)
    kind = 'fdrl_ros/msg/Outcome'
    old.register(get_types_from_msg('std_msgs/Header header\nstring patient', kind))
    for topic, name in {**OURS, 'state_fields': 'StateFields'}.items():
        if topic != 'outcome':
            full = f'fdrl_ros/msg/{name}'
            old.register({full: message_types().fielddefs[full]})
    messages = []
    for topic, at, message in contents(bag):
        if topic.endswith('episode'):
            continue
        if topic.endswith('outcome'):
            message = old.types[kind](header=message.header, patient=message.patient)
        messages.append((topic, at, message))
    write(tmp_path / 'bag', messages, store=old)
    with pytest.raises(RecordsError, match='another version'):
        read_log(tmp_path / 'bag')


def set_to(topic_of, **values):
    def change(topic, message):
        if topic == topic_of:
            for name, value in values.items():
                setattr(message, name, value)
        return message

    return change


def unstamped(topic, message):
    if topic == 'operation_state':
        message.header.stamp.sec = message.header.stamp.nanosec = 0
    return message


def not_finite(topic, message):
    if topic == 'patient_state':
        message.values = np.full_like(message.values, np.nan)
    return message


@pytest.mark.parametrize(
    ('change', 'told'),
    [
        (set_to('action', action=15), 'action 15'),
        (set_to('action', patient='another'), 'not on the table'),
        (set_to('patient_state', patient='another'), 'without a state'),
        (set_to('outcome', patient='another'), 'not on the table'),
        (set_to('operation_state', layout='0' * 16), 'holds fields that nothing tells'),
        (set_to('operation_state', layout=PATIENT_LAYOUT), 'holds mean_arterial_pressure, heart'),
        (set_to('patient_state', values=np.ones(3)), '3 values, expected 4'),
        (unstamped, 'without a stamp'),
        (not_finite, 'not finite'),
    ],
)
def test_messages_that_cannot_be_of_this_robot_are_refused(bag, tmp_path, change, told):
    with pytest.raises(RecordsError, match=told):
        read_log(edited(bag, tmp_path / 'bag', change))


@pytest.mark.parametrize(
    ('change', 'told'),
    [
        (lambda t, m: None if t == 'episode' else m, 'live arm'),
        (set_to('episode', data='{"format": "fdrl_ros dataset 2"}'), 'dataset 2'),
        (set_to('episode', data='{'), 'episode 0'),
        (set_to('action', action=12), 'other states|goes on'),
        (set_to('outcome', failure='force', success=False), 'another end'),
        (set_to('operation_state', procedure='follow'), 'follow on'),
    ],
)
def test_a_recording_that_does_not_replay_is_no_dataset(bag, tmp_path, change, told):
    def relabelled(topic, message):
        message = change(topic, message)
        if told == 'follow on' and topic == 'outcome':
            message.procedure = 'follow'
        return message

    path = edited(bag, tmp_path / 'bag', relabelled)
    with pytest.raises(RecordsError, match=told):
        read_recording(path)


def test_a_bag_is_not_written_over_nor_half(dataset, bag, tmp_path):
    with pytest.raises(RecordsError, match='exists already'):
        write_bag(dataset, bag)
    with pytest.raises(SettingError, match='storage'):
        write_bag(dataset, tmp_path / 'bag', storage='rosbag1')
    with pytest.raises(SettingError, match='robot'):
        write_bag(dataset, tmp_path / 'bag', robot='robot 1')
    broken = replace(dataset.episodes[0], rewards=dataset.episodes[0].rewards + 1)
    with pytest.raises(RecordsError, match='rewards'):
        write_bag(Dataset(WORLD, (broken,), (None,)), tmp_path / 'bag')
    assert list(tmp_path.iterdir()) == []
