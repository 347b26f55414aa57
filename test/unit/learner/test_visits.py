# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""A hospital's table of visits becomes records; what is wrong is named by line and column."""

from dataclasses import replace

from fdrl_ros.errors import RecordsError
from fdrl_ros.learner.records.visits import read_visits
from fdrl_ros.policy.task_identity import TaskIdentity
from fdrl_ros.tasks import Field, TaskSpec
import numpy as np
import pytest

TASK = TaskIdentity('infusion', 1, 'ab' * 32)
SPEC = TaskSpec(
    (2,), fields=(Field('pressure', 'mmHg', 100.0), Field('rate', 'ml/h', 10.0)),
    actions=('lower', 'keep', 'raise'),
)  # fmt: skip
PUMP = TaskSpec((1,), fields=(Field('pressure'),), low=(0.0, -1.0), high=(9.0, 1.0))
HEAD = 'patient,time,pressure,rate,action,reward,end\n'


def read(tmp_path, text, spec=SPEC):
    path = tmp_path / 'visits.csv'
    path.write_text(text, 'utf-8')
    return read_visits(path, spec, TASK)


def test_rows_in_any_order_become_transitions_of_patients(tmp_path):
    found = read(
        tmp_path,
        'rate,note,pressure,time,patient,reward,action,end\n'
        '5,x,80,2,p1,1,0,1\n'
        '4,,70,1,p1,0.5,raise,0\n'
        '7,,90,9,p2,,,\n'
        '6,,60,8,p2,-1,keep,\n'
        '3,,50,1,p3,,,\n',
    )
    assert found.patients.tolist() == ['p1', 'p2'] and found.starts.tolist() == [0, 2, 3]
    np.testing.assert_allclose(found.states, [[0.7, 0.4], [0.8, 0.5], [0.6, 0.6]])
    np.testing.assert_allclose(found.next_states[[0, 2]], [[0.8, 0.5], [0.9, 0.7]])
    assert found.actions.tolist() == [2, 0, 1] and found.rewards.tolist() == [0.5, 1.0, -1.0]
    assert found.terminals.tolist() == [False, True, False] and found.task == TASK


def test_stays_and_ends_separate_what_does_not_follow(tmp_path):
    found = read(
        tmp_path,
        'patient,stay,time,pressure,rate,action,reward,end\n'
        'p,a,1,10,0,keep,0,0\np,a,2,20,0,keep,0,1\np,a,3,30,0,keep,0,0\np,a,4,40,0,,,\n'
        'p,b,1,50,0,keep,0,0\np,b,2,60,0,,,\n',
    )
    assert found.n_patients == 1, 'all stays of a patient are one privacy unit'
    np.testing.assert_allclose(found.states[:, 0], [0.1, 0.2, 0.3, 0.5])
    assert found.ends.tolist() == [False, True, True, True]
    assert found.terminals.tolist() == [False, True, False, False]


def test_continuous_actions_have_a_column_each(tmp_path):
    text = 'patient,time,pressure,action_0,action_1,reward\np,0,1,2.5,-1,0\np,1,1,,,\n'
    found = read(tmp_path, text, PUMP)
    np.testing.assert_array_equal(found.actions, np.float32([[2.5, -1.0]]))
    with pytest.raises(RecordsError, match='line 2: an action beyond'):
        read(tmp_path, text.replace('2.5', '9.5'), PUMP)


@pytest.mark.parametrize(
    ('text', 'words'),
    [
        ('patient,time,rate,reward\n', 'no column pressure, action; it has patient, time'),
        ('', 'no column'),
        (HEAD, 'no operations'),
        (HEAD + 'p,1,SECRET,0,keep,0,1\n', 'line 2, column pressure: expected a number'),
        (HEAD + 'p,1,nan,0,keep,0,1\n', 'line 2, column pressure'),
        (HEAD + 'p,1,80,0,SECRET,0,1\n', 'line 2, column action: expected lower, keep, raise'),
        (HEAD + 'p,1,80,0,3,0,1\n', 'or 0 to 2'),
        (HEAD + 'p,1,80,0,keep,,1\n', 'line 2, column reward'),
        (HEAD + 'p,1,80,0,keep,0,SECRET\n', 'column end: expected 0 or 1'),
        (HEAD + ',1,80,0,keep,0,1\n', 'line 2: nobody'),
        (HEAD + 'p,1,80\n', 'line 2: expected 7 cells'),
        (HEAD + 'p,1,80,0,keep,0,0\np,1,81,0,keep,0,0\n', 'lines 2 and 3: two visits'),
        (HEAD + 'p,1,80,0,keep,0,"\n', 'no CSV'),
    ],
)
def test_what_is_wrong_is_named_by_line_without_a_value(tmp_path, text, words):
    with pytest.raises(RecordsError, match=words) as error:
        read(tmp_path, text)
    assert 'SECRET' not in str(error.value)


def test_tasks_that_a_row_cannot_hold_are_refused(tmp_path):
    with pytest.raises(RecordsError, match='cannot hold actions at 4 places'):
        read(tmp_path, HEAD, replace(SPEC, places=4))


def test_a_file_that_cannot_be_read_is_refused(tmp_path):
    with pytest.raises(RecordsError, match='cannot read'):
        read_visits(tmp_path / 'none.csv', SPEC, TASK)
    (tmp_path / 'visits.csv').write_bytes(b'\xff\xfe\x00')
    with pytest.raises(RecordsError, match='UTF-8'):
        read_visits(tmp_path / 'visits.csv', SPEC, TASK)
    with pytest.raises(RecordsError, match='images'):
        read_visits(tmp_path / 'none.csv', TaskSpec((1, 2, 2), 'uint8', actions=('a',)), TASK)
