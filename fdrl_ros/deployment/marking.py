# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""Mark records and policies of a version before tasks had names with the task of a plan."""

from dataclasses import replace
from pathlib import Path
from zipfile import BadZipFile

from fdrl_ros.deployment.plan import Plan
from fdrl_ros.deployment.policy_file import save_policy
from fdrl_ros.errors import FdrlError, PolicyError, SettingError
from fdrl_ros.learner.records.records import Records
from fdrl_ros.learner.records.transitions import check_actions
from fdrl_ros.policy import decode_weights
import numpy as np


def mark(path: Path, plan: Plan, *, dry_run: bool = False) -> bool:
    """
    Write the identity of the plan's task into a file that has none, in one step.

    :param path: of records, or of a policy, as npz.
    :param dry_run: whether to check the file without writing it.
    :returns: whether it had none.
    :raises TaskError: if it is of another task.
    :raises FdrlError: if it is damaged, or does not fit the task.
    """
    try:
        with np.load(path, allow_pickle=False) as file:
            names = set(file)
            old = {name: file[name] for name in ('weights', 'states', 'actions', 'hidden')}
    except KeyError:
        old = {}
    except (OSError, ValueError, EOFError, BadZipFile) as error:
        raise FdrlError(f'{path} can neither be read as records nor as a policy') from error
    if 'starts' in names:
        return _mark_records(path, plan, dry_run)
    if not old:
        return False
    states, actions, hidden = (old[name].tolist() for name in ('states', 'actions', 'hidden'))
    if len(set(hidden)) != 1 or len(hidden) != 2:
        raise PolicyError(f'{path} has hidden layers of {hidden}: no setting makes this network')
    whole = plan.changed({'learner': {'hidden': hidden[0]}})
    if (states, actions) != (whole.network.states, whole.network.actions):
        raise PolicyError(
            f'{path} sees {states} numbers and has {actions} actions: {plan.identity}'
        )
    data = old['weights'].astype('<f4').tobytes()
    weights = decode_weights(data, whole.network.layout.n_parameters)
    if not dry_run:
        save_policy(path, weights, whole)
    return True


def _mark_records(path: Path, plan: Plan, dry_run: bool) -> bool:
    records = Records.load(path, plan.spec.size)
    if records.task is not None:
        plan.identity.check(records.task, path)
        return False
    if (records.actions.dtype == np.float32) != plan.spec.continuous:
        raise SettingError('task', plan.task.name, f'a task with the actions of {path}')
    spec = plan.spec
    check_actions(records.actions, spec.n_actions, continuous=spec.continuous, places=spec.places)
    if not dry_run:
        replace(records, task=plan.identity).save(path)
    return True


def files_to_mark(directory: Path) -> list[Path]:
    """Return the files of records and policies of a federation, and of the run around it."""
    found = [*directory.glob('*/records.npz'), *directory.glob('alone/*/policy.npz')]
    found += [*directory.glob('pretrained.npz'), *directory.parent.glob('policies/*.npz')]
    return sorted(found)
