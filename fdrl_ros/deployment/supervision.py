# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""What the end of a node means: the one rule of nodes, launch files and the plain runner."""

from enum import Enum
import signal
from typing import Final

REFUSED: Final = 1
"""Exit code of a node that could not begin: settings, directory or keys are refused."""

FAULT: Final = 3
"""Exit code of a node that failed after it had begun."""

RESPAWN_DELAY: Final = 2.0
"""Time between the end of a node and its next start, second."""


class Ending(Enum):
    """Why a process ended, and what its launcher does then."""

    STOPPED = 'it was told to'
    """By a signal or its shutdown transition: it stays ended."""

    REFUSED = 'it cannot begin'
    """It would refuse again: the launcher ends with exit code 1."""

    DIED = 'it died'
    """By a fault, or killed: it is started again, if `use_respawn` says so."""

    @classmethod
    def of(cls, code: int, *, ours: bool = True) -> 'Ending':
        """
        Judge an exit code.

        :param code: of the process; negative for a signal.
        :param ours: whether the node is of this package: what others mean by 1 nobody knows.
        """
        if code in (0, -signal.SIGINT, -signal.SIGTERM):  # negative before it could listen
            return cls.STOPPED
        return cls.REFUSED if ours and code == REFUSED else cls.DIED
