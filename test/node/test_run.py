# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""`fdrl run` starts the nodes, hears their rounds, and notes them."""

from pathlib import Path
import shutil

from fdrl_ros.deployment.plan import Plan
from fdrl_ros.deployment.policy_file import load_policy
from fdrl_ros.experiments.ros_federation import RosFederation
from fdrl_ros.experiments.run_directory import RunDirectory
from fdrl_ros.experiments.studies.experiment import run_training
from fdrl_ros.runtime.progress import NOBODY
import numpy as np
from support import pole
from support.small_run import SMALL_PLAN


def test_rounds_over_ros_are_noted(tmp_path):
    said = []
    run = RunDirectory.create(tmp_path, 'run')
    notes = RosFederation(run, SMALL_PLAN, NOBODY, said.append, namespace='north').operate(0)
    assert [(each.round, len(each.contributors)) for each in notes] == [(1, 3)], said
    assert (run.policies / 'global_1.npz').exists()


def test_a_task_of_a_users_file_learns_the_same_over_ros_and_in_process(tmp_path):
    shutil.copy(Path(pole.__file__), tmp_path / 'their_pole.py')
    plan = Plan(
        {
            'federation': {'task': f'{tmp_path}/their_pole.py:Pole', 'noise': 'seeded'},
            'rounds': {'rounds': 2},
        }
    ).checked()
    said = []
    run = RunDirectory.create(tmp_path, 'run')
    notes = RosFederation(run, plan, NOBODY, said.append).operate(3)
    assert [each.round for each in notes] == [1, 2], said
    assert any('No robot acts in task pole' in each for each in said)
    run_training(tmp_path / 'in_process', plan)
    for name in ('global_1', 'global_2'):
        one, other = (
            load_policy(each / 'policies' / f'{name}.npz')
            for each in (run.path, tmp_path / 'in_process')
        )
        assert one.task == other.task == plan.identity
        assert np.array_equal(one.weights, other.weights)
    start = load_policy(run.policies / 'global_0.npz').weights
    assert not np.array_equal(one.weights, start)
