# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""Files of policies as npz: weights, their layout, the task, and the learner's settings."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
import json
import os
from pathlib import Path
from typing import Any
from zipfile import BadZipFile

from fdrl_ros.deployment.plan import Plan
from fdrl_ros.errors import os_errors_as, PolicyError, SettingError, StoreError
from fdrl_ros.learner.learner import HomePolicy
from fdrl_ros.policy import decode_weights, encode_weights, Policy
from fdrl_ros.policy.layout import TensorLayout
from fdrl_ros.policy.task_identity import TaskIdentity
from fdrl_ros.runtime.durable import sync_folder
import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True, eq=False)
class SavedPolicy:
    """
    What a file of a policy holds.

    ``weights``: shape (n_parameters,), float32. ``task``: that it acts in.
    ``learner``: settings of the group `learner`, which name the network. ``network``: its name,
    which tells what a user's files held. ``home``: of a home policy, how it was chosen: its round,
    the digest of the global policy, the chosen candidate, noised leads over it, epsilon, notes;
    empty for others.
    """

    path: Path
    weights: NDArray[np.float32]
    layout: TensorLayout
    task: TaskIdentity
    learner: dict[str, object]
    network: str
    home: dict[str, object] = field(default_factory=dict)

    def policy(self, plan: Plan, *, any_world: bool = False) -> Policy:
        """
        Return the policy, of the network that the file names.

        :param any_world: whether another version of the same task is fine, so that a policy can be
            tried in a world that has changed.
        :raises TaskError: if it is of another task than the plan.
        :raises PolicyError: if the network that the file names has other tensors.
        """
        if not (any_world and self.task and self.task.name == plan.identity.name):
            plan.identity.check(self.task, self.path)
        try:
            network = plan.replaced({'learner': self.learner}).network
        except SettingError as error:
            raise PolicyError(f'{self.path}: {error}') from error
        if (network.name, network.layout) != (self.network, self.layout):
            raise PolicyError(
                f'{self.path} is of network {self.network}, which is now {network.name}: put back '
                'the file of the network that it was trained with'
            )
        return network.policy(self.weights)


def save_home(path: Path, made: HomePolicy, *, plan: Plan) -> None:
    """
    Write a home policy, with how it was chosen, atomically.

    :raises StoreError: if the file cannot be written.
    """
    told = {each.name: getattr(made, each.name) for each in fields(made)}
    del told['weights']
    save_policy(path, made.weights, plan, home={**told, 'base': made.base.hex()})


def load_home(path: Path) -> HomePolicy | None:
    """Read what :func:`save_home` wrote; None if it is missing or damaged."""
    try:
        saved = load_policy(path)
        told: dict[str, Any] = dict(saved.home)
        told |= {'base': bytes.fromhex(told['base']), 'notes': tuple(told['notes'])}
        return HomePolicy(weights=saved.weights, **told)
    except (PolicyError, KeyError, TypeError, ValueError):
        return None


def save_policy(
    path: Path,
    weights: NDArray[np.float32],
    plan: Plan,
    *,
    home: Mapping[str, object] | None = None,
) -> None:
    """
    Write weights of the network of a plan atomically.

    :param home: of a home policy, how it was chosen; see :class:`SavedPolicy`.
    :raises StoreError: if the file cannot be written.
    """
    part = path.with_name(path.name + '.part')
    arrays = {
        'weights': np.frombuffer(encode_weights(weights), '<f4'),
        'layout': np.array(plan.network.layout.to_json()),
        'task': np.array(plan.identity.to_json()),
        'learner': np.array(json.dumps(asdict(plan.learner))),
        'network': np.array(plan.network.name),
    }
    if home:
        arrays['home'] = np.array(json.dumps(home))
    with os_errors_as(StoreError, f'cannot write the policy {path}'):
        with part.open('wb') as file:
            np.savez(file, **arrays)  # type: ignore[arg-type]
            file.flush()
            os.fsync(file.fileno())
        part.replace(path)
        sync_folder(path.parent)


def load_policy(path: Path) -> SavedPolicy:
    """
    Read what :func:`save_policy` wrote.

    :raises PolicyError: if the file is missing, damaged, contradicts itself, or is of a version
        before tasks had names.
    """
    try:
        with np.load(path, allow_pickle=False) as file:
            if 'hidden' in file:
                raise PolicyError(
                    f'{path} is of an older version: `fdrl migrate` brings it to this one'
                )
            names = ('layout', 'task', 'learner', 'network')
            layout, task, learner, network = (str(file[name]) for name in names)
            data = file['weights'].astype('<f4').tobytes()
            settings = dict(json.loads(learner))
            home = dict(json.loads(str(file['home']))) if 'home' in file else {}
    except OSError as error:
        raise PolicyError(f'cannot read the policy {path}: {error.strerror or error}') from error
    except (KeyError, ValueError, TypeError, EOFError, BadZipFile) as error:
        raise PolicyError(
            f'{path} is no policy file, or damaged: expected one such as policies/global_6.npz '
            'of a run'
        ) from error
    tensors = TensorLayout.from_json(layout)
    weights = decode_weights(data, tensors.n_parameters)
    return SavedPolicy(
        path, weights, tensors, TaskIdentity.from_json(task), settings, network, home
    )
