# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""The learner `torch`, as plans name it; PyTorch is imported when a plan does."""

from typing import TYPE_CHECKING

from fdrl_ros.errors import PluginError
from fdrl_ros.learner.settings import LearnerSettings
from fdrl_ros.tasks.spec import TaskSpec

if TYPE_CHECKING:
    from fdrl_ros.learner.torch.gradients import TrainableNetwork


def torch_network(spec: TaskSpec, learner: LearnerSettings) -> 'TrainableNetwork':
    """
    Return the network that the settings name, for a task.

    :raises PluginError: if PyTorch or Opacus is not installed, or a reference cannot be loaded.
    :raises PolicyError: if module, algorithm and task do not fit each other.
    """
    try:
        import opacus  # noqa: F401
        import torch  # noqa: F401
    except ImportError as error:
        raise PluginError(
            'learner torch', f'{error}: pip install "fdrl_ros[torch]", or `make setup`'
        ) from error
    from fdrl_ros.learner.torch.gradients import TrainableNetwork

    return TrainableNetwork.from_settings(spec, learner)
