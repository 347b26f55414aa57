# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""
An env of your own that sees images: move an endoscope until a polyp is in the middle of its view.

    fdrl run --task docs/tutorial/endoscope.py:Endoscope
"""

import math
from pathlib import Path

from fdrl_ros.tasks import GymTask
import gymnasium
import numpy as np

SIDE = 24  # pixels
ROW, COLUMN = np.mgrid[:SIDE, :SIDE] - (SIDE - 1) / 2.0
MOVES = np.array([(0, 0), (0, 1), (0, -1), (1, 0), (-1, 0)])
NETWORK = Path(__file__).with_name('spot_network.py')


class EndoscopeEnv(gymnasium.Env):
    """A bright spot on a grey wall; the view shifts by 1.5 pixels in a step."""

    observation_space = gymnasium.spaces.Box(0, 255, (1, SIDE, SIDE), np.uint8)
    action_space = gymnasium.spaces.Discrete(len(MOVES))
    brightness, wall, size = 120.0, 45.0, 2.0  # levels, levels, pixels: what patients set

    def reset(self, *, seed=None, options=None):
        """Begin with the spot anywhere in the view."""
        super().reset(seed=seed)
        self.spot, self.held = self.np_random.uniform(-10.0, 10.0, 2), 0
        return self.image(), {'success': False}

    def image(self):
        """Return the view with the noise of a camera."""
        squares = (ROW - self.spot[0]) ** 2 + (COLUMN - self.spot[1]) ** 2
        view = self.wall + self.brightness * np.exp(-squares / (2.0 * self.size**2))
        view = view + 8.0 * self.np_random.standard_normal(view.shape)
        return np.clip(view, 0, 255).astype(np.uint8)[None]

    def step(self, action):
        """Shift the view; three steps in a row within 2 pixels of the middle succeed."""
        before = np.linalg.norm(self.spot)
        self.spot = np.clip(self.spot - 1.5 * MOVES[action], -SIDE / 2.0, SIDE / 2.0)
        distance = np.linalg.norm(self.spot)
        self.held = self.held + 1 if distance <= 2.0 else 0
        done = self.held == 3
        return self.image(), float(before - distance), done, False, {'success': done}


if 'tutorial/Endoscope-v0' not in gymnasium.registry:
    gymnasium.register('tutorial/Endoscope-v0', entry_point=EndoscopeEnv, max_episode_steps=20)


class Endoscope(GymTask):
    """Imitate surgeons by a small convolutional network."""

    name = 'endoscope'
    summary = 'centre a polyp in an image of 24 x 24 pixels'
    env_id = 'tutorial/Endoscope-v0'
    action_names = ('stay', 'right', 'left', 'down', 'up')
    defaults = {
        'learner': {
            **{'kind': 'torch', 'algorithm': 'behaviour_cloning', 'network': f'{NETWORK}:SpotNet'},
            **{'learning_rate': 0.01, 'epochs': 6, 'transitions_per_patient': 8},
        },
        'collection': {'patients': 300, 'exploration': 0.4},
        'pretraining': {'patients': 10, 'steps': 40, 'batch': 64},
        'privacy': {'batch': 100, 'noise_multiplier': 2.0, 'delta': 1e-3, 'clip_norm': 1.0},
        'rounds': {'rounds': 4},
    }

    def draw_patient(self, lean, rng):
        """Hospitals differ in light, camera and polyps."""
        return {
            'brightness': 120.0 * math.exp(0.5 * lean + 0.1 * rng.standard_normal()),
            'wall': 45.0 + 25.0 * lean,
            'size': 2.0 * math.exp(0.3 * lean + 0.1 * rng.standard_normal()),
        }

    def controller(self, observation, patient):
        """Find the spot by its light and move towards it, along the longer way first."""
        light = np.clip(observation.reshape(SIDE, SIDE) - patient.values['wall'] - 30.0, 0.0, None)
        total = light.sum() + 1e-9
        down, right = float((light * ROW).sum() / total), float((light * COLUMN).sum() / total)
        if max(abs(down), abs(right)) < 1.0:
            return 0
        if abs(down) > abs(right):
            return 3 if down > 0.0 else 4
        return 1 if right > 0.0 else 2
