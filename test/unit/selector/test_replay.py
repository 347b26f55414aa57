# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""A recording gone through again: the decisions of the selector on its states, bit for bit."""

from dataclasses import replace
from itertools import count

from fdrl_ros.selector import Candidate, Reason, Selector
from fdrl_ros.selector.replay import other_layout, replay
from fdrl_ros.shield import damage
from fdrl_ros.surgery.data.bag import message_types, OPERATION, PATIENT, TOPICS, write_bag
from fdrl_ros.surgery.data.log import FIELDS
from fdrl_ros.surgery.data.recording import demonstrations
from fdrl_ros.surgery.gym.state import layout_of, PATIENT_FIELDS, PATIENT_LAYOUT, unscale
from fdrl_ros.surgery.settings import WorldSettings
from fdrl_ros.surgery.tasks.procedures import procedure_named
import numpy as np
import pytest
from support.choices import observe, select

rosbag2 = pytest.importorskip('rosbags.rosbag2')

CANDIDATES = [
    Candidate('global', lambda state: int(abs(1e3 * float(state.sum()))) % 15),
    Candidate('other', lambda state: 3),
]

OTHER_SCALES = [1.0 if each.name == 'heart_rate' else each.scale for each in PATIENT_FIELDS]
OTHER = layout_of(
    [each.name for each in PATIENT_FIELDS], [each.unit for each in PATIENT_FIELDS], OTHER_SCALES
)
"""Layout of vital signs with another scale of the heart rate."""


@pytest.fixture(scope='module')
def dataset(tmp_path_factory):
    path = tmp_path_factory.mktemp('demonstrations') / 'demo'
    return demonstrations('palpation', path, 2, world=WorldSettings(mode='kinematic'))


@pytest.fixture(scope='module')
def bag(dataset, tmp_path_factory):
    path = tmp_path_factory.mktemp('bags') / 'bag'
    write_bag(dataset, path)
    return path


def test_decisions_are_those_of_the_selector_on_the_recorded_states(dataset, bag):
    found = replay(bag, CANDIDATES)
    selector, expected = Selector(), []
    selector.set_candidates(CANDIDATES)
    now = 1.0
    for episode in dataset.episodes:
        for values in unscale(episode.states):
            halves = observe(values, now, episode.patient.name, episode.patient.procedure.name)
            expected.append(select(selector, *halves, now))
            now += 0.05
        now += 2.0 - 0.05
    assert len(found) == len(expected) == sum(len(each.states) for each in dataset.episodes)
    for one, other in zip(found, expected, strict=True):
        assert (one.policy, one.action, one.reason) == (other.policy, other.action, other.reason)
        assert one.risk.total == pytest.approx(other.risk.total, abs=1e-9)
    assert found[-1].risk.cases == 2


def test_a_patient_who_is_operated_on_twice_is_two_cases(dataset, tmp_path):
    one = dataset.episodes[0]
    write_bag(replace(dataset, episodes=(one, one)), tmp_path / 'bag')
    found = replay(tmp_path / 'bag', CANDIDATES)
    assert len(found) == 2 * len(one.states), 'the first state of each was judged'
    risks = [each.risk for each in found]
    assert [each.cases for each in risks] == sorted([1, 2] * len(one.states))
    first, second = (risks[k * len(one.states) :][: len(one.states)] for k in range(2))
    assert [each.total for each in first] == pytest.approx([each.total for each in second])


def test_states_of_other_fields_are_explained_by_the_fields_that_were_recorded(bag, tmp_path):
    assert other_layout(bag) == ''
    store, path = message_types(), tmp_path / 'bag'
    with rosbag2.Reader(bag) as reader:
        messages = [
            (c.topic, at, c.msgtype, store.deserialize_cdr(data, c.msgtype))
            for c, at, data in reader.messages()
            if c.topic.rpartition('/')[2] in (FIELDS, OPERATION, PATIENT)
        ]
    with rosbag2.Writer(path, version=9, storage_plugin=rosbag2.StoragePlugin.MCAP) as writer:
        known = {}
        for topic, at, kind, message in messages:
            if message.layout == PATIENT_LAYOUT:
                if topic.endswith(FIELDS):
                    message.scales = np.array(OTHER_SCALES)
                message.layout = OTHER
            if topic not in known:
                known[topic] = writer.add_connection(topic, kind, typestore=store)
            writer.write(known[topic], at, store.serialize_cdr(message, kind))
    assert {each.reason for each in replay(path, CANDIDATES)} == {Reason.MISMATCH}
    assert f"vital signs has layout '{OTHER}'" in other_layout(path)
    assert 'scale of heart_rate is 1.0, expected 100.0' in other_layout(path)


def _copy(source, target, heard_at):
    """Copy the states of a bag to another one, as heard at other times; at None, not at all."""
    with rosbag2.Reader(source) as reader:
        messages = [(c.topic, at, data) for c, at, data in reader.messages()]
    with rosbag2.Writer(target, version=9, storage_plugin=rosbag2.StoragePlugin.MCAP) as writer:
        known = {
            name: writer.add_connection(
                f'/robot_1/{name}', TOPICS[name], typestore=message_types()
            )
            for name in (OPERATION, PATIENT)
        }
        for topic, at, data in messages:
            name = topic.rpartition('/')[2]
            heard = heard_at(name, at) if name in known else None
            if heard is not None:
                writer.write(known[name], heard, data)


def test_neither_the_pace_of_a_recording_nor_the_order_of_its_topics_decides(bag, tmp_path):
    expected = [each._replace(time=0.0) for each in replay(bag, CANDIDATES)]
    for number, pace in enumerate((0.1, 7.0)):
        path = tmp_path / f'bag{number}'

        def heard(topic, at, pace=pace):
            """Hear vital signs 5 us after the state that they belong to."""
            return int(at * pace) + (5000 if topic == PATIENT else 0)

        _copy(bag, path, heard)
        found = [each._replace(time=0.0) for each in replay(path, CANDIDATES)]
        assert list(map(repr, found)) == list(map(repr, expected))


def test_following_feels_what_the_robot_felt_without_vital_signs(bag, tmp_path, monkeypatch):
    harmful = replace(procedure_named('palpation'), warn_force=0.0)
    monkeypatch.setattr(damage, 'procedure_named', lambda name: harmful)
    lost, numbers = tmp_path / 'lost', count()

    def heard(topic, at):
        return None if topic == PATIENT and 14 <= next(numbers) < 20 else at

    _copy(bag, lost, heard)
    whole, told = ([each.risk for each in replay(path, CANDIDATES)] for path in (bag, lost))
    assert [each is None for each in told] == [14 <= k < 20 for k in range(len(whole))]
    assert told[20].damage == whole[20].damage > 2.0 * told[13].damage > 0.0
    decided = [each.stamp for each in replay(lost, CANDIDATES) if each.risk is not None]
    followed = replay(lost, CANDIDATES, decided=decided)
    assert [each.risk for each in followed] == told


def test_states_count_where_stamps_go_back_after_the_first_that_was_answered(bag, tmp_path):
    """A reset of simulated time sets the stamps of the second patient back."""
    store, path, patients = message_types(), tmp_path / 'bag', []
    with rosbag2.Reader(bag) as reader:
        messages = [
            (c.topic, at, c.msgtype, store.deserialize_cdr(data, c.msgtype))
            for c, at, data in reader.messages()
            if c.topic.rpartition('/')[2] in (OPERATION, PATIENT)
        ]
    with rosbag2.Writer(path, version=9, storage_plugin=rosbag2.StoragePlugin.MCAP) as writer:
        known = {}
        for topic, at, kind, message in messages:
            if not patients or message.patient != patients[-1]:
                patients.append(message.patient)
            message.header.stamp.sec += 1000 * (len(patients) == 1)
            if topic not in known:
                known[topic] = writer.add_connection(topic, kind, typestore=store)
            writer.write(known[topic], at, store.serialize_cdr(message, kind))
        action, kind = '/robot_1/action', TOPICS['action']
        answer = store.types[kind](
            header=messages[0][3].header,
            patient=patients[0],
            policy='global',
            action=3,
            displacement=np.zeros(3),
            value=0.0,
            uncertainty=0.0,
            expected_risk=0.0,
            reason=Reason.BEST,
            proposed=3,
            veto='',
            predicted_force=0.0,
        )
        connection = writer.add_connection(action, kind, typestore=store)
        writer.write(connection, messages[-1][1], store.serialize_cdr(answer, kind))
    last = [m.header.stamp.sec for _, _, _, m in messages if m.patient == patients[-1]]
    found = {int(each.stamp // 10**9) for each in replay(path, CANDIDATES)}
    assert len(patients) == 2 and found >= set(last)
