# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""The 15 discrete actions: six coarse moves, six fine ones, stay, and the jaw."""

from dataclasses import dataclass
import operator
from typing import SupportsIndex

from fdrl_ros.errors import StateError
import numpy as np
from numpy.typing import NDArray

COARSE_STEP = 0.0025
"""Coarse move, metres a tick: 50 mm/s at 20 Hz."""

FINE_STEP = 0.0005
"""Fine move, metres a tick."""

SUBSTEP = 1.0 / 240.0
"""Physics step, seconds."""

SUBSTEPS = 12
"""Physics steps in one policy tick."""

TICK = SUBSTEP * SUBSTEPS
"""Policy tick, seconds: one action each."""

MAXIMUM_SPEED = COARSE_STEP / TICK
"""Fastest that the set-point of the tip may move, metres a second."""


@dataclass(frozen=True)
class Action:
    """
    What one action asks for.

    :param displacement: of the tip's set-point, metres in the arm's base frame.
    :param jaw: 1 opens the jaw, 0 closes it, None leaves it.
    """

    name: str
    displacement: tuple[float, float, float]
    jaw: int | None = None


def _moves(word: str, step: float) -> list[Action]:
    moves = []
    for axis, letter in enumerate('xyz'):
        for sign, mark in ((-1.0, '-'), (1.0, '+')):
            displacement = [0.0, 0.0, 0.0]
            displacement[axis] = sign * step
            x, y, z = displacement
            moves.append(Action(f'{word} {mark}{letter}', (x, y, z)))
    return moves


_MOVES = 6  # of either size

ACTIONS: tuple[Action, ...] = (
    *_moves('coarse', COARSE_STEP),
    *_moves('fine', FINE_STEP),
    Action('stay', (0.0, 0.0, 0.0)),
    Action('open jaw', (0.0, 0.0, 0.0), jaw=1),
    Action('close jaw', (0.0, 0.0, 0.0), jaw=0),
)
ACTION_COUNT = len(ACTIONS)
STAY, OPEN_JAW, CLOSE_JAW = range(ACTION_COUNT - 3, ACTION_COUNT)

DISPLACEMENTS: NDArray[np.float64] = np.array([action.displacement for action in ACTIONS])
"""The moves as rows, shape (15, 3), metres; read-only."""
DISPLACEMENTS.setflags(write=False)


def action_numbered(action: SupportsIndex) -> Action:
    """
    Return an action by its number.

    :raises StateError: if it is no whole number, or there is no such action.
    """
    try:
        index = -1 if isinstance(action, bool) else operator.index(action)
    except TypeError:
        index = -1
    if not 0 <= index < ACTION_COUNT:
        raise StateError(
            f'action {action!r}: expected a whole number from 0 to {ACTION_COUNT - 1}'
        )
    return ACTIONS[index]


def finest(action: int) -> int:
    """Return the fine move in the direction of a coarse one; other actions as they are."""
    return action + _MOVES if action < _MOVES else action


def displacement(action: int) -> tuple[float, float, float]:
    """
    Return what an action adds to the set-point, metres.

    :raises StateError: if there is no such action.
    """
    return action_numbered(action).displacement
