# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""A recording gone through again: the decisions of the selector on its states, bit for bit."""

from dataclasses import replace

from fdrl_ros.env.bag import write_bag
from fdrl_ros.env.bag_types import message_types, OPERATION, PATIENT, TOPICS
from fdrl_ros.env.recording import demonstrations
from fdrl_ros.env.settings import WorldSettings
from fdrl_ros.env.state import OPERATION_FIELDS, OPERATION_SIZE, PATIENT_FIELDS, unscale
from fdrl_ros.errors import RecordsError
from fdrl_ros.selector import Candidate, GateSettings, Observation, Reason, Selector
from fdrl_ros.selector.replay import replay, Rules
import numpy as np
import pytest

rosbag2 = pytest.importorskip('rosbags.rosbag2')

CANDIDATES = [
    Candidate('global', lambda state: int(abs(1e3 * float(state.sum()))) % 15),
    Candidate('other', lambda state: 3),
]


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
            halves = [
                Observation(
                    episode.patient.name,
                    tuple(each.name for each in fields),
                    part,
                    np.array([each.scale for each in fields]),
                    now,
                    episode.patient.procedure.name,
                )
                for fields, part in (
                    (OPERATION_FIELDS, values[:OPERATION_SIZE]),
                    (PATIENT_FIELDS, values[OPERATION_SIZE:]),
                )
            ]
            expected.append(selector.select(*halves, now))
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


def test_neither_the_pace_of_a_recording_nor_the_order_of_its_topics_decides(bag, tmp_path):
    expected = [each._replace(time=0.0) for each in replay(bag, CANDIDATES)]
    with rosbag2.Reader(bag) as reader:
        messages = [(c.topic, at, data) for c, at, data in reader.messages()]
    wanted = [f'/robot_1/{each}' for each in (OPERATION, PATIENT)]
    for number, pace in enumerate((0.1, 7.0)):
        path = tmp_path / f'bag{number}'
        with rosbag2.Writer(path, version=9, storage_plugin=rosbag2.StoragePlugin.MCAP) as writer:
            known = {
                topic: writer.add_connection(
                    topic, TOPICS[topic.rpartition('/')[2]], typestore=message_types()
                )
                for topic in wanted
            }
            for topic, at, data in messages:
                if topic in wanted:
                    # The vital signs come 5 us after the state that they belong to.
                    late = 5000 if topic == wanted[1] else 0
                    writer.write(known[topic], int(at * pace) + late, data)
        found = [each._replace(time=0.0) for each in replay(path, CANDIDATES)]
        assert list(map(repr, found)) == list(map(repr, expected))


def test_settings_of_gate_and_selector_count(bag):
    held = replay(bag, CANDIDATES, Rules(gate=GateSettings(close_at=0.0, open_below=0.0)))
    assert {each.reason for each in held} == {Reason.RISK_GATE}
    assert {each.reason for each in replay(bag, [])} == {Reason.NO_POLICY}


def test_what_is_no_recording_of_a_robot_is_refused(bag, tmp_path):
    with pytest.raises(RecordsError):
        replay(tmp_path / 'none', CANDIDATES)
    with pytest.raises(RecordsError, match='robot_2'):
        replay(bag, CANDIDATES, robot='robot_2')
