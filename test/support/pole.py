# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""A small task as a user writes it: CartPole, whose hospitals have poles of different lengths."""

from fdrl_ros.tasks import Field, GymTask


class Pole(GymTask):
    """CartPole with a proportional controller."""

    name = 'pole'
    env_id = 'CartPole-v1'
    env_arguments = {'max_episode_steps': 60}
    success_return = 60.0
    fields = (
        Field('position', 'm', 2.4),
        Field('velocity', 'm/s', 3.0),
        Field('angle', 'rad', 0.2),
        Field('angular velocity', 'rad/s', 3.0),
    )
    action_names = ('left', 'right')
    defaults = {
        'learner': {'discount': 0.95, 'hidden': 8},
        'collection': {'patients': 24, 'exploration': 0.2},
        'privacy': {'batch': 6, 'delta': 1e-3},
        'pretraining': {'patients': 10, 'steps': 100},
        'validation': {'patients': 5, 'margin': 1.0},
    }

    def draw_patient(self, lean, rng):
        """Return the length of the pole."""
        return {'length': 0.5 + 0.3 * lean}

    def controller(self, observation, patient):
        """Push the cart to where the pole falls."""
        return int(0.2 * observation[2] + 0.9 * observation[3] > 0.0)
