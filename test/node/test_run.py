# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""`fdrl run` starts the nodes, hears their rounds, and notes them."""

import math
from pathlib import Path
import shutil

from fdrl_ros.deployment.plan import Plan
from fdrl_ros.deployment.policy_file import load_policy
from fdrl_ros.experiments.ros_federation import RosFederation
from fdrl_ros.experiments.run_directory import RunDirectory
from fdrl_ros.experiments.studies.experiment import run_training
from fdrl_ros.resources import resource
from fdrl_ros.runtime.progress import NOBODY
import numpy as np
import pytest
from support import pole
from support.small_run import SMALL_PLAN


def nothing(caller):
    """Do nothing beside the robot."""


def test_rounds_over_ros_are_noted(tmp_path):
    said = []
    run = RunDirectory.create(tmp_path, 'run')
    federation = RosFederation(run, SMALL_PLAN, NOBODY, said.append, namespace='north')
    notes, found = federation.operate(0, nothing, lambda caller: sorted(run.policies.iterdir()))
    assert [(each.round, len(each.contributors)) for each in notes] == [(1, 3)], said
    assert notes[-1].ended == 'all rounds are done' and not any('ended' in each for each in said)
    assert run.policies / 'global_1.npz' in found  # what is done meanwhile has all policies


def test_a_task_of_a_users_file_learns_the_same_over_ros_and_in_process(tmp_path):
    shutil.copy(Path(pole.__file__), tmp_path / 'their_pole.py')
    plan = Plan(
        {
            'federation': {'task': f'{tmp_path}/their_pole.py:Pole', 'noise': 'seeded'},
            'rounds': {'rounds': 2},
            'server': {'optimizer': 'fedyogi'},
        }
    ).checked()
    said = []
    run = RunDirectory.create(tmp_path, 'run')
    notes, _ = RosFederation(run, plan, NOBODY, said.append).operate(3, nothing, nothing)
    assert [each.round for each in notes] == [1, 2], said
    assert any('No robot acts in task pole' in each for each in said)
    same_in_process(run, plan)


def test_the_paper_s_plan_learns_the_same_over_ros_and_in_process(tmp_path):
    """Two rounds of five epochs of single transitions, with the plan's own network and noise."""
    plan = Plan.load(resource('config/paper/paper_world.yaml')).changed(
        {'federation': {'noise': 'seeded'}, 'rounds': {'rounds': 2}}
    )
    said = []
    run = RunDirectory.create(tmp_path, 'run')
    notes, _ = RosFederation(run, plan, NOBODY, said.append).operate(0, nothing, nothing)
    assert [each.round for each in notes] == [1, 2], said
    assert 0.0 < max(notes[-1].epsilon.values()) < 8.0
    same_in_process(run, plan)


def same_in_process(run: RunDirectory, plan: Plan) -> list[np.ndarray]:
    """Train by a plan in process, compare its policies with those of a run, and return them."""
    here = run.path.parent / 'in_process'
    run_training(here, plan)
    found = []
    for number in range(plan.rounds.rounds + 1):
        one, other = (
            load_policy(each / f'global_{number}.npz')
            for each in (run.policies, here / 'policies')
        )
        assert one.task == other.task == plan.identity
        assert np.array_equal(one.weights, other.weights)
        found.append(one.weights)
    assert not np.array_equal(found[-1], found[0])
    return found


def test_video_is_learned_from_the_same_over_ros_and_in_process(tmp_path):
    pytest.importorskip('torch')
    plan = Plan(
        {
            'federation': {
                **{'task': 'instruments', 'noise': 'seeded', 'personal': 'encoder.*.q'},
            },
            'rounds': {'rounds': 2},
            'world': {'pixels': 32, 'frames': 2, 'serq_steps': 1, 'serq_frames': 4},
            'learner': {'epochs': 1, 'transitions_per_patient': 1},
            'collection': {'patients': 4},
            'pretraining': {'patients': 2, 'steps': 2},
            'privacy': {'noise_multiplier': 0.0, 'budget': math.inf, 'batch': 2},
            'validation': {'patients': 1, 'margin': 1.0},
        }
    ).checked()
    said = []
    run = RunDirectory.create(tmp_path, 'run')
    notes, _ = RosFederation(run, plan, NOBODY, said.append).operate(0, nothing, nothing)
    assert [each.round for each in notes] == [1, 2], said
    assert {*notes[-1].epsilon.values()} == {math.inf}
    start, *_, end = same_in_process(run, plan)
    layout = plan.network.layout
    moved = start != end
    shared, own = layout.shared(['encoder.*.q']), layout.shared(['head'])
    assert moved[shared].mean() > 0.5 and moved[own].mean() > 0.5  # SERQ trains its own queries
    assert not moved[: layout.start].any()
