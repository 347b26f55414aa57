# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""
Gymnasium's CartPole as a task: 200 steps upright, with carts that differ between hospitals.

H moves the hospitals apart in gravity, length of the pole and force of the push; public carts are
Gymnasium's own.
"""

from collections.abc import Mapping, Sequence
import math
from typing import Any, SupportsFloat

from fdrl_ros.errors import TaskError
from fdrl_ros.settings import Settings
from fdrl_ros.tasks import Action, Field, GymTask
from fdrl_ros.tasks.gym_task import GymPatient
import gymnasium
from gymnasium.envs.classic_control.cartpole import CartPoleEnv
import numpy as np

STEPS = 200
"""Steps of an episode; who is upright after them has succeeded."""

FALL = -2.0
"""Added to the reward of the step in which the pole falls."""

_RATIOS = {'gravity': (1.3, 0.1), 'length': (1.9, 0.2), 'force_mag': (1.4, 0.1)}
"""Of each attribute: greatest factor between a hospital and the mean one, and the patients' own
log-standard deviation in it. The push weakens where pole and gravity grow."""


class UprightReward(gymnasium.RewardWrapper):
    """
    Reward how upright and how central the cart is, -(angle^2 + x^2 / 2), in shares of the limits.

    Gymnasium's own reward is 1 in every step: what an action did shows only many steps later.
    """

    def reward(self, reward: SupportsFloat) -> float:
        """Return the reward of the state that was reached."""
        cart = _cart_of(self)
        x, _, angle, _ = (float(each) for each in cart.state)  # type: ignore[union-attr]
        x, angle = x / cart.x_threshold, angle / cart.theta_threshold_radians
        fallen = abs(x) > 1.0 or abs(angle) > 1.0
        return -(angle**2 + x**2 / 2.0) + (FALL if fallen else 0.0)


class CartPoleTask(GymTask):
    """Balance a pole on a cart by pushes to the left or the right."""

    name = 'cartpole'
    summary = "Gymnasium's CartPole: gravity, pole and push differ between hospitals"
    env_id = 'CartPole-v1'
    env_arguments = {'max_episode_steps': STEPS}
    fields = (
        Field('position', 'm', 2.4),
        Field('velocity', 'm/s', 2.0),
        Field('angle', 'rad', 0.2095),
        Field('angular_velocity', 'rad/s', 2.0),
    )
    action_names = ('left', 'right')
    defaults = {
        'collection': {'patients': 500, 'exploration': 0.7},
        'pretraining': {'patients': 20, 'steps': 300, 'discount': 0.8},
        'learner': {'discount': 0.8, 'n_step': 5, 'learning_rate': 0.01, 'epochs': 8},
        'privacy': {'batch': 166, 'noise_multiplier': 3.0, 'delta': 1e-3},
        'rounds': {'rounds': 8},
    }

    def make_env(self, world: Settings) -> gymnasium.Env:
        """Return CartPole with the reward of :class:`UprightReward`."""
        return UprightReward(super().make_env(world))

    def draw_patient(self, lean: float, rng: np.random.Generator) -> Mapping[str, float]:
        """Return gravity, half the pole's length and the force of a push."""
        usual = CartPoleEnv()
        values = {}
        for name, (ratio, spread) in _RATIOS.items():
            side = -lean if name == 'force_mag' else lean
            factor = math.exp(side * math.log(ratio) + spread * rng.standard_normal())
            values[name] = factor * float(getattr(usual, name))
        return {**values, 'polemass_length': usual.masspole * values['length']}

    def controller(self, observation: np.ndarray, patient: GymPatient) -> Action:
        """Push towards where the pole falls, and a little towards the middle."""
        scales = [field.scale for field in self.fields]
        position, velocity, angle, turn = (observation * scales).tolist()
        return int(angle + 0.3 * turn + 0.02 * position + 0.05 * velocity > 0.0)

    def succeeded(self, rewards: Sequence[float], info: Mapping[str, Any]) -> bool:
        """Return whether the pole was upright to the end."""
        return len(rewards) == STEPS and rewards[-1] > FALL

    def constants(self) -> bytes:
        """Return the law of the patients and of the reward."""
        return super().constants() + repr((STEPS, FALL, _RATIOS)).encode()


def _cart_of(env: gymnasium.Env) -> CartPoleEnv:
    cart = env.unwrapped
    if not isinstance(cart, CartPoleEnv):
        raise TaskError(f'{cart}: expected CartPole')
    return cart
