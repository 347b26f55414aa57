# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""Simulated time: it passes in whole cycles while it plays, or while steps are left."""

from enum import IntEnum

from fdrl_ros.errors import StateError

START = 1_000_000_000
"""Time at the start, ns: a stamp of zero would say that there is none."""

MOST_STEPS = 1_000_000
"""Most cycles that may be asked for at once."""


class Simulation(IntEnum):
    """What time does; numbered as simulation_interfaces/SimulationState."""

    STOPPED = 0
    PLAYING = 1
    PAUSED = 2


class SimulatedTime:
    """
    The time of one simulation, which plays at first.

    :param period: of a cycle, ns.
    """

    def __init__(self, period: int) -> None:
        self._period = period
        self.nanoseconds = START
        self.state = Simulation.PLAYING
        self.steps = 0
        """Cycles that are left to go on by, while it is paused."""

    @property
    def passes(self) -> bool:
        """Return whether the next cycle may pass."""
        return self.state is Simulation.PLAYING or self.steps > 0

    def advance(self) -> None:
        """
        Let a cycle pass.

        :raises StateError: while time stands.
        """
        if not self.passes:
            raise StateError('time stands: play it, or ask for steps')
        self.nanoseconds += self._period
        self.steps = max(0, self.steps - 1)

    def change(self, state: Simulation) -> None:
        """Play, pause or stop; steps that are left are given up."""
        self.state, self.steps = state, 0

    def step(self, steps: int) -> None:
        """
        Let time go on by some cycles, and stand again.

        :raises StateError: if it is not paused, goes on by steps already, or that many are none.
        """
        if self.state is not Simulation.PAUSED:
            raise StateError(f'the simulation is {self.state.name.lower()}: expected paused')
        if self.steps:
            raise StateError(f'{self.steps} steps are left: expected none')
        if not 1 <= steps <= MOST_STEPS:
            raise StateError(f'{steps} steps: expected 1 to {MOST_STEPS}')
        self.steps = steps

    def reset(self) -> None:
        """Go back to the start; it plays or stands as before."""
        self.nanoseconds = START
