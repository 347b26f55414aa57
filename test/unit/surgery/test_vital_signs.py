# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""Vital signs over time, from a table or a bag."""

from fdrl_ros.errors import RecordsError
from fdrl_ros.surgery.data.bag import write_bag
from fdrl_ros.surgery.data.recording import demonstrations
from fdrl_ros.surgery.data.vital_signs import NAMES, VitalSigns
from fdrl_ros.surgery.gym.state import OPERATION_SIZE, unscale
from fdrl_ros.surgery.settings import WorldSettings
import numpy as np
import pytest

HEAD = ','.join(('time', *NAMES))


def table(tmp_path, *rows, head=HEAD):
    path = tmp_path / 'vitals.csv'
    path.write_text('\n'.join((head, *rows)) + '\n')
    return path


def test_the_newest_row_counts_and_tells_its_age(tmp_path):
    found = VitalSigns.read(table(tmp_path, '1,80,70,98,14', '3,75,72,97,15'))
    assert found.at(0.5) is None
    assert found.at(1.0) == ([80.0, 70.0, 98.0, 14.0], 0.0)
    assert found.at(2.5) == ([80.0, 70.0, 98.0, 14.0], 1.5)
    assert found.at(10.0) == ([75.0, 72.0, 97.0, 15.0], 7.0)


@pytest.mark.parametrize(
    ('rows', 'head', 'told'),
    [
        ((), HEAD, 'expected rows'),
        (('1,80',), 'time,heart_rate', 'expected rows under the columns time, mean_arterial'),
        (('1,80,70,98,x',), HEAD, 'could not convert'),
        (('1,80,70,98',), HEAD, 'float'),
        (('1,80,70,98,nan',), HEAD, 'not finite'),
        (('1,80,70,98,14', '1,80,70,98,14'), HEAD, 'do not rise'),
        (('-1,80,70,98,14',), HEAD, 'do not rise from 0'),
    ],
)
def test_a_table_without_vital_signs_is_refused(tmp_path, rows, head, told):
    with pytest.raises(RecordsError, match=told):
        VitalSigns.read(table(tmp_path, *rows, head=head))


def test_a_missing_file_is_refused(tmp_path):
    with pytest.raises(RecordsError, match=r'none\.csv'):
        VitalSigns.read(tmp_path / 'none.csv')


def test_those_of_a_bag_are_those_of_its_states(tmp_path):
    pytest.importorskip('rosbags.rosbag2')
    world = WorldSettings(mode='kinematic')
    dataset = demonstrations('palpation', tmp_path / 'demo', 1, world=world)
    write_bag(dataset, tmp_path / 'bag')
    found = VitalSigns.read(tmp_path / 'bag')
    for tick, values in enumerate(unscale(dataset.episodes[0].states)):
        row, age = found.at(0.05 * tick + 1e-6)
        assert age < 1e-3 and np.array_equal(row, values[OPERATION_SIZE:])
