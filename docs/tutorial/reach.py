# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""
An env of your own with continuous actions: bring a tip to its goal against the pull of the tissue.

    fdrl run --task docs/tutorial/reach.py:Reach
"""

import math

from fdrl_ros.tasks import Field, GymTask
import gymnasium
import numpy as np

STEP = 0.05  # s


class ReachEnv(gymnasium.Env):
    """A tip on a soft organ, pushed by a force of at most 4 N in each of two directions."""

    observation_space = gymnasium.spaces.Box(-np.inf, np.inf, (6,), np.float64)
    action_space = gymnasium.spaces.Box(-1.0, 1.0, (2,), np.float32)
    mass, drag, pull = 1.0, 0.5, 1.5  # kg, N s/m, N/m: what patients set

    def reset(self, *, seed=None, options=None):
        """Begin at rest, 50 to 100 cm from the goal."""
        super().reset(seed=seed)
        angle, distance = self.np_random.uniform((0.0, 0.5), (2.0 * math.pi, 1.0))
        self.rest = distance * np.array([math.cos(angle), math.sin(angle)])
        self.tip, self.speed, self.held = self.rest.copy(), np.zeros(2), 0
        return self.state(), {'success': False}

    def state(self):
        """Return the tip from the goal, its speed, and how far the tissue is stretched."""
        return np.concatenate((self.tip, self.speed, self.tip - self.rest))

    def step(self, action):
        """Push for 50 ms; six steps in a row within 8 cm succeed."""
        before = np.linalg.norm(self.tip)
        force = 4.0 * np.clip(action, -1.0, 1.0)
        force = force - self.drag * self.speed - self.pull * (self.tip - self.rest)
        self.speed = self.speed + STEP * force / self.mass
        self.tip = self.tip + STEP * self.speed
        distance = np.linalg.norm(self.tip)
        self.held = self.held + 1 if distance < 0.08 else 0
        done = self.held == 6
        return self.state(), float(before - distance), done, False, {'success': done}


if 'tutorial/Reach-v0' not in gymnasium.registry:
    gymnasium.register('tutorial/Reach-v0', entry_point=ReachEnv, max_episode_steps=60)


class Reach(GymTask):
    """Imitate noisy surgeons, whose forces are continuous."""

    name = 'reach'
    summary = 'two continuous forces bring a tip to its goal'
    env_id = 'tutorial/Reach-v0'
    fields = (
        Field('x', 'm'),
        Field('y', 'm'),
        Field('speed_x', 'm/s'),
        Field('speed_y', 'm/s'),
        Field('stretch_x', 'm'),
        Field('stretch_y', 'm'),
    )
    defaults = {
        'learner': {
            **{'kind': 'torch', 'algorithm': 'behaviour_cloning', 'hidden': 32},
            **{'learning_rate': 0.008, 'epochs': 8},
        },
        'collection': {'patients': 300, 'exploration': 0.3},
        'pretraining': {'patients': 5, 'steps': 40},
        'privacy': {'batch': 100, 'noise_multiplier': 2.3, 'delta': 1e-3, 'clip_norm': 1.0},
        'rounds': {'rounds': 6},
    }

    def draw_patient(self, lean, rng):
        """Hospitals differ in what they move and how the tissue pulls."""
        return {
            'mass': math.exp(0.4 * lean + 0.1 * rng.standard_normal()),
            'drag': 0.5 * math.exp(-0.5 * lean + 0.2 * rng.standard_normal()),
            'pull': 1.5 * math.exp(0.2 * lean + 0.1 * rng.standard_normal()),
        }

    def controller(self, observation, patient):
        """Return the force of a surgeon who feels the pull."""
        tip, speed, stretch = np.split(observation, 3)
        force = -1.5 * tip - speed + patient.values['pull'] / 4.0 * stretch
        return np.clip(force, -1.0, 1.0).astype(np.float32)
