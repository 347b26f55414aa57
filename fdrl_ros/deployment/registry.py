# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""
Tasks and learners by name: those that ship, those of installed packages, and those of a file.

An installed package registers its own under the entry points `fdrl_ros.tasks` and
`fdrl_ros.learners`; a class in a file is named `path/to/file.py:Class`.
"""

from collections.abc import Callable, Mapping
from functools import cache
import hashlib
from importlib.metadata import entry_points
import inspect
from pathlib import Path
from typing import Any

from fdrl_ros.errors import FdrlError, PluginError, SettingError, TaskError
from fdrl_ros.learner.settings import LearnerSettings
from fdrl_ros.policy.network import Network
from fdrl_ros.runtime.references import load_reference, reference_digest
from fdrl_ros.settings import named_among
from fdrl_ros.tasks import Task, TaskSpec

LearnerFactory = Callable[[TaskSpec, LearnerSettings], Network]
"""Makes the network that a learner trains, of a task's spec and the settings."""

TASKS_GROUP, LEARNERS_GROUP = 'fdrl_ros.tasks', 'fdrl_ros.learners'

TASKS = {
    'surgery': 'fdrl_ros.surgery.task:SurgeryTask',
    'cartpole': 'fdrl_ros.worlds.cartpole:CartPoleTask',
    'icu_sepsis': 'fdrl_ros.worlds.icu_sepsis.task:IcuSepsisTask',
    'paper': 'fdrl_ros.worlds.paper.task:PaperTask',
    'instruments': 'fdrl_ros.segmentation.task:InstrumentsTask',
}

LEARNERS = {
    'torch': 'fdrl_ros.learner.torch.learner:torch_network',
    'dqn': 'fdrl_ros.learner.tabular_dqn:dueling_network',
}


def registered(group: str) -> dict[str, str]:
    """
    Return what is registered, by name: the reference `module:object` of each.

    :param group: :data:`TASKS_GROUP` or :data:`LEARNERS_GROUP`.
    :returns: those that ship first; no package can take their names.
    """
    found = dict(TASKS if group == TASKS_GROUP else LEARNERS)
    for point in entry_points(group=group):
        found.setdefault(point.name, point.value)
    return found


@cache
def task_named(name: str) -> Task[Any, Any]:
    """
    Make a task.

    :param name: a registered one, `package.module:Class` or `path/to/file.py:Class`.
    :raises SettingError: if nothing has this name.
    :raises PluginError: if it cannot be loaded.
    :raises TaskError: if it is no task.
    """
    made = _load(TASKS_GROUP, name, 'federation.task')
    try:
        task = made() if isinstance(made, type) else made
    except (FdrlError, TypeError, ValueError) as error:
        raise TaskError(f'task {name} cannot be made: {error}') from error
    if not isinstance(task, Task):
        raise TaskError(f'{name} is {made!r}: expected a class below fdrl_ros.tasks.Task')
    for what in ('name', 'version'):
        if not hasattr(task, what):
            raise TaskError(f'task {name} has no {what}')
    task.source = reference_digest(name) or _module_digest(type(task))
    return task


def _module_digest(kind: type) -> bytes:
    """Return the SHA-256 of the module that defines a class, b'' for one of this package."""
    if kind.__module__.startswith('fdrl_ros.'):
        return b''
    try:
        return hashlib.sha256(Path(inspect.getfile(kind)).read_bytes()).digest()
    except (OSError, TypeError) as error:
        raise PluginError(kind.__name__, f'its source cannot be read: {error}') from error


@cache
def learner_named(name: str) -> LearnerFactory:
    """
    Return what makes the network of a learner.

    :param name: a registered one, `package.module:object` or `path/to/file.py:object`.
    :raises SettingError: if nothing has this name.
    :raises PluginError: if it cannot be loaded.
    :raises TaskError: if it is none.
    """
    made = _load(LEARNERS_GROUP, name, 'learner.kind')
    if not callable(made):
        raise TaskError(f'learner {name} is {made!r}: expected a function or a class')
    factory: LearnerFactory = made
    return factory


def _load(group: str, name: str, setting: str) -> object:
    found: Mapping[str, str] = registered(group)
    if ':' not in name and name not in found:
        what = group.removeprefix('fdrl_ros.')
        raise SettingError(setting, name, 'FILE.py:CLASS, or ' + named_among(name, what, found))
    return load_reference(found.get(name, name))
