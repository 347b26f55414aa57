# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""What a policy sees and does in a task, as data."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
import hashlib
import json
import math
from typing import Self

from fdrl_ros.errors import TaskError
from fdrl_ros.policy.policy import Action
import gymnasium
from gymnasium import spaces
import numpy as np
from numpy.typing import NDArray

Observation = NDArray[np.float32] | NDArray[np.uint8]


@dataclass(frozen=True)
class Field:
    """One number of an observation; a policy sees the value divided by the scale."""

    name: str
    unit: str = '1'
    scale: float = 1.0
    description: str = ''


@dataclass(frozen=True)
class TaskSpec:
    """
    Shapes, types and names of what a policy sees and does.

    Records, messages and policies hold an observation as a flat vector: float32, each number
    divided by the scale of its field, or uint8 for an image.

    :param shape: of an observation as a network sees it, such as (26,) or (1, 24, 24).
    :param dtype: 'float32', or 'uint8' for images.
    :param fields: of the numbers of a vector, one each; none for an image.
    :param actions: names of the discrete actions; none if actions are continuous.
    :param low: least value of each number of a continuous action.
    :param high: greatest value of each.
    :param places: of an observation that have a discrete action each, such as pixels to label.
    """

    shape: tuple[int, ...]
    dtype: str = 'float32'
    fields: tuple[Field, ...] = ()
    actions: tuple[str, ...] = ()
    low: tuple[float, ...] = ()
    high: tuple[float, ...] = ()
    places: int = 1

    def __post_init__(self) -> None:
        """Refuse what contradicts itself."""
        if not self.shape or min(self.shape) < 1:
            raise TaskError(f'observations of shape {self.shape}: expected at least one number')
        if self.dtype not in ('float32', 'uint8'):
            raise TaskError(f'observations of type {self.dtype}: expected float32 or uint8')
        if self.fields and len(self.fields) != self.size:
            raise TaskError(f'{len(self.fields)} fields for {self.size} numbers of an observation')
        if not all(0.0 < field.scale < math.inf for field in self.fields):
            raise TaskError('a scale of the observation is not above 0 and finite')
        limits = list(zip(self.low, self.high, strict=False))
        if len(self.low) != len(self.high) or not all(low < high for low, high in limits):
            raise TaskError(f'actions from {self.low} to {self.high}: expected low < high')
        if bool(self.actions) == bool(self.low):
            raise TaskError('expected discrete actions by name, or limits of continuous ones')
        if self.places < 1 or (self.places > 1 and len(self.actions) not in range(2, 257)):
            expected = 'at least 1; 2 to 256 discrete actions where there are several'
            raise TaskError(f'actions at {self.places} places: expected {expected}')

    @property
    def size(self) -> int:
        """Numbers of a flat observation."""
        return math.prod(self.shape)

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the numbers of an observation; none for an image."""
        return tuple(field.name for field in self.fields)

    @property
    def continuous(self) -> bool:
        """Whether an action is a vector of real numbers."""
        return bool(self.low)

    @property
    def n_actions(self) -> int:
        """Number of discrete actions, or numbers of a continuous one."""
        return len(self.low or self.actions)

    @classmethod
    def from_spaces(
        cls,
        observation: gymnasium.Space,
        action: gymnasium.Space,
        *,
        fields: Sequence[Field] = (),
        actions: Sequence[str] = (),
    ) -> Self:
        """
        Describe the spaces of a Gymnasium env.

        :param fields: of the flat observation; numbered ones with scale 1 unless given.
        :param actions: names of discrete actions; their numbers unless given.
        :raises TaskError: if a policy cannot see or act in such a space, or names do not fit.
        """
        image = isinstance(observation, spaces.Box) and observation.dtype == np.uint8
        if image:
            shape = observation.shape or ()
        elif observation.is_np_flattenable:
            shape = (spaces.flatdim(observation),)
            fields = fields or [Field(f'observation_{each}') for each in range(shape[0])]
        else:
            raise TaskError(f'observations in {observation}: expected a Box, Dict or Discrete')
        dtype = 'uint8' if image else 'float32'
        if isinstance(action, spaces.Discrete):
            names = tuple(actions) or tuple(f'action_{each}' for each in range(int(action.n)))
            if len(names) != action.n or action.start != 0:
                raise TaskError(f'{len(names)} names for {action}')
            return cls(shape, dtype, tuple(fields), names)
        vector = isinstance(action, spaces.Box) and len(action.shape) == 1 and action.is_bounded()
        if not isinstance(action, spaces.Box) or not vector:
            raise TaskError(
                f'actions in {action}: expected a Discrete, or a Box of one axis with limits'
            )
        low, high = (
            tuple(map(float, each.reshape(-1).tolist())) for each in (action.low, action.high)
        )
        return cls(shape, dtype, tuple(fields), (), low, high)

    def encode(self, observation: object, space: gymnasium.Space) -> Observation:
        """
        Return an observation as the stack holds it: flat, scaled, of :attr:`dtype`.

        :param space: that it is from.
        :returns: shape (size,).
        """
        flat = np.asarray(spaces.flatten(space, observation)).reshape(-1)
        if self.dtype == 'uint8':
            return flat.astype(np.uint8)
        if self.fields:
            flat = flat / np.array([field.scale for field in self.fields])
        return flat.astype(np.float32)

    @property
    def in_words(self) -> str:
        """How many actions of which kind there are."""
        kind = 'continuous' if self.continuous else 'discrete'
        return f'{self.n_actions} {kind}' + (f' at {self.places} places' * (self.places > 1))

    def draw_action(self, rng: np.random.Generator) -> Action:
        """Draw an action, each as likely as the others; one for each of several places."""
        if self.continuous:
            return rng.uniform(self.low, self.high).astype(np.float32)
        if self.places > 1:
            return rng.integers(len(self.actions), size=self.places, dtype=np.uint8)
        return int(rng.integers(len(self.actions)))

    def digest(self) -> str:
        """Return the SHA-256 of all of it, hexadecimal."""
        found = asdict(self)
        if self.places == 1:  # specs without places keep their digests
            del found['places']
        return hashlib.sha256(json.dumps(found).encode()).hexdigest()
