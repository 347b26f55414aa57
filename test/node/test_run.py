# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""`fdrl run` starts the nodes, hears their rounds, and notes them."""

from fdrl_ros.experiments.ros_federation import RosFederation
from fdrl_ros.experiments.run_directory import RunDirectory
from fdrl_ros.runtime.progress import NOBODY
from support.small_run import SMALL_PLAN


def test_rounds_over_ros_are_noted(tmp_path):
    said = []
    run = RunDirectory.create(tmp_path, 'run')
    notes = RosFederation(run, SMALL_PLAN, NOBODY, said.append).operate(0)
    assert [(each.round, len(each.contributors)) for each in notes] == [(1, 3)], said
    assert (run.policies / 'global_1.npz').exists()
