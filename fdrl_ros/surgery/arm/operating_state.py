# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""
CRTK's operating state: what an arm may do now, and which command leads where.

After the Collaborative Robotics Toolkit's table of transitions. Two things are left open there
and decided here: homing takes no motion, as the simulated arm always knows its joints, and a
fault forgets the homing, so that `enable` and then `home` lead out of it.
"""

from enum import StrEnum
from types import MappingProxyType
from typing import Final

from fdrl_ros.errors import StateError


class State(StrEnum):
    """The four states of CRTK."""

    DISABLED = 'DISABLED'
    ENABLED = 'ENABLED'
    PAUSED = 'PAUSED'
    FAULT = 'FAULT'


class CommandError(StateError):
    """
    A command of motion or of state is refused: unknown, or not one for this state.

    Who passed it on makes the arm hold.
    """


COMMANDS: Final = ('enable', 'disable', 'pause', 'resume', 'home', 'unhome')

TRANSITIONS: Final = MappingProxyType(
    {
        (State.DISABLED, 'enable'): State.ENABLED,
        (State.DISABLED, 'disable'): State.DISABLED,
        (State.ENABLED, 'enable'): State.ENABLED,
        (State.ENABLED, 'disable'): State.DISABLED,
        (State.ENABLED, 'pause'): State.PAUSED,
        (State.PAUSED, 'disable'): State.DISABLED,
        (State.PAUSED, 'pause'): State.PAUSED,
        (State.PAUSED, 'resume'): State.ENABLED,
        (State.FAULT, 'enable'): State.ENABLED,
        (State.FAULT, 'disable'): State.DISABLED,
        (State.ENABLED, 'home'): State.ENABLED,
        **{(state, 'unhome'): state for state in State},
    }
)
"""Where each command leads; what is not here is refused. No command leads into FAULT."""


class OperatingState:
    """
    The operating state of one arm; a simulated one starts enabled and homed.

    Leaving ENABLED, or forgetting the homing, ends a move for good: `resume` does not go on with
    it, as what it was planned for may have passed.
    """

    def __init__(self, state: State = State.ENABLED, is_homed: bool = True) -> None:
        self.state = state
        self.is_homed = is_homed
        self.is_busy = False

    @property
    def is_ready(self) -> bool:
        """Say whether the arm takes motion commands."""
        return self.state is State.ENABLED and self.is_homed

    def command(self, word: str) -> None:
        """
        Obey a state command.

        :raises CommandError: if there is no such command, or it is none for this state; nothing
            changes then.
        """
        if word not in COMMANDS:
            raise CommandError(f'state command {word!r}: expected one of {", ".join(COMMANDS)}')
        after = TRANSITIONS.get((self.state, word))
        if after is None:
            fitting = ', '.join(word for word in COMMANDS if (self.state, word) in TRANSITIONS)
            raise CommandError(f'{word} while {self.state}: expected one of {fitting}')
        self.state = after
        if word in ('home', 'unhome'):
            self.is_homed = word == 'home'
        self.is_busy = self.is_busy and self.is_ready

    def require_ready(self, what: str) -> None:
        """
        Refuse a motion command unless the arm is enabled and homed.

        :param what: the command, for the message.
        :raises CommandError: if the arm is not ready.
        """
        if not self.is_ready:
            homed = 'homed' if self.is_homed else 'not homed'
            way = ' and '.join(self._way())
            raise CommandError(
                f'{what} while {self.state}, {homed}: expected ENABLED and homed ({way} first)'
            )

    def fail(self) -> None:
        """Enter FAULT, as the arm does by itself."""
        self.state, self.is_homed, self.is_busy = State.FAULT, False, False

    def _way(self) -> list[str]:
        """Return the commands that make the arm ready."""
        first = {State.ENABLED: [], State.PAUSED: ['resume']}.get(self.state, ['enable'])
        return first + ([] if self.is_homed else ['home'])
