# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""PPO of Stable-Baselines3 in the public simulator (Schulman et al. 2017): without any record."""

from itertools import pairwise
from typing import Any

from fdrl_ros.deployment.plan import Plan
from fdrl_ros.errors import PluginError
from fdrl_ros.surgery.gym.actions import ACTION_COUNT
from fdrl_ros.surgery.gym.state import STATE_SIZE
from fdrl_ros.surgery.gym.vector_env import VectorSurgeryEnv
from fdrl_ros.tasks.task import Chooser
import numpy as np
from numpy.typing import NDArray

ENVS = 64
SETTINGS: dict[str, Any] = {
    'n_steps': 128,
    'batch_size': 1024,
    'n_epochs': 6,
    'gamma': 0.97,
    'gae_lambda': 0.95,
    'learning_rate': 0.0005,
    'ent_coef': 0.005,
}
"""Of PPO; the rest are its own defaults."""

LAYERS = (64, 64)
"""Units of policy and value, as everybody's network has them."""


def learn_ppo(plan: Plan, steps: int) -> NDArray[np.float32]:
    """
    Train on public patients of the plan's pre-training, by its reward.

    :param steps: in all envs together.
    :returns: flat weights of the policy: matrix (outputs, inputs) and bias of each layer.
    :raises PluginError: if Stable-Baselines3 is not installed.
    """
    try:
        from stable_baselines3 import PPO
    except ImportError as error:
        raise PluginError('PPO', f'{error}: pip install "fdrl_ros[torch]"') from error
    import torch

    torch.set_num_threads(1)
    envs = _envs(plan)
    architecture = {'pi': list(LAYERS), 'vf': list(LAYERS)}
    model = PPO(
        'MlpPolicy',
        envs,
        seed=plan.federation.seed,
        policy_kwargs={'net_arch': architecture},
        device='cpu',
        **SETTINGS,
    )
    model.learn(steps)
    envs.close()
    policy = model.policy
    layers = [*policy.mlp_extractor.policy_net[::2], policy.action_net]
    tensors = [each.detach().numpy() for one in layers for each in (one.weight, one.bias)]
    return np.concatenate([each.reshape(-1) for each in tensors])


def ppo_acts(weights: NDArray[np.float32]) -> Chooser:
    """
    Return the policy of greatest probability.

    :param weights: as :func:`learn_ppo` returns them.
    """
    sizes, layers, at = (STATE_SIZE, *LAYERS, ACTION_COUNT), [], 0
    for inputs, outputs in pairwise(sizes):
        matrix = weights[at : at + inputs * outputs].reshape(outputs, inputs)
        at += matrix.size + outputs
        layers.append((matrix, weights[at - outputs : at]))
    *hidden, (last, bias) = layers

    def choose(
        states: NDArray[np.float32], rows: NDArray[np.int64], tick: int
    ) -> NDArray[np.int64]:
        found = states
        for matrix, own in hidden:
            found = np.tanh(found @ matrix.T + own)
        answers: NDArray[np.int64] = (found @ last.T + bias).argmax(axis=1)
        return answers

    return choose


def _envs(plan: Plan) -> Any:
    """Return many public operations in step, as Stable-Baselines3 takes them."""
    from stable_baselines3.common.vec_env import VecEnv

    cohort = plan.public_cohort(plan.pretraining.heterogeneity)
    inner = VectorSurgeryEnv(ENVS, cohort, plan.world)

    class Operations(VecEnv):
        """The envs of :class:`VectorSurgeryEnv`, whose interface is Gymnasium's."""

        def __init__(self) -> None:
            super().__init__(ENVS, inner.single_observation_space, inner.single_action_space)
            self._actions: NDArray[np.int64] = np.zeros(ENVS, np.int64)

        def reset(self) -> NDArray[np.float32]:
            return inner.reset(seed=plan.federation.seed)[0]

        def step_async(self, actions: NDArray[np.int64]) -> None:
            self._actions = actions

        def step_wait(self) -> Any:
            states, rewards, terminated, truncated, info = inner.step(self._actions)
            over = terminated | truncated
            told: list[dict[str, object]] = [{} for _ in range(ENVS)]
            for row in np.flatnonzero(over).tolist():
                told[row] = {
                    'terminal_observation': info['final_obs'][row],
                    'TimeLimit.truncated': bool(truncated[row] and not terminated[row]),
                }
            return states, rewards.astype(np.float32), over, told

        def close(self) -> None:
            inner.close()

        def get_attr(self, attr_name: str, indices: Any = None) -> list[Any]:
            return [getattr(inner, attr_name, None)] * ENVS

        def set_attr(self, attr_name: str, value: Any, indices: Any = None) -> None:
            """Set nothing."""

        def env_method(self, method_name: str, *args: Any, **kwargs: Any) -> list[Any]:
            return [None] * ENVS

        def env_is_wrapped(self, wrapper_class: Any, indices: Any = None) -> list[bool]:
            return [False] * ENVS

    return Operations()
