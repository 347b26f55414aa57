# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""
What a world must say about itself, so that hospitals can learn in it together.

A task is one object: observations and actions, how to make the env, who the patients are, who acts
in the records, when a policy succeeds. To bring your own, see docs/tutorial/own_env.md.
"""

from fdrl_ros.policy.policy import Action
from fdrl_ros.policy.task_identity import TaskIdentity
from fdrl_ros.tasks.gym_task import GymTask
from fdrl_ros.tasks.spec import Field, TaskSpec
from fdrl_ros.tasks.task import Choice, Episode, Hospitals, Patient, Population, Task

__all__ = [
    'Action',
    'Choice',
    'Episode',
    'Field',
    'GymTask',
    'Hospitals',
    'Patient',
    'Population',
    'Task',
    'TaskIdentity',
    'TaskSpec',
]
