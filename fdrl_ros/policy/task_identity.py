# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""Which world a file belongs to: records, policies, checkpoints and results carry it."""

from dataclasses import asdict, dataclass
import json
from typing import Self

from fdrl_ros.errors import TaskError

_SHORT = 12  # letters of a hash that a message shows


@dataclass(frozen=True)
class TaskIdentity:
    """
    Which world a file belongs to.

    :param name: of the task.
    :param version: of the task; a higher one when its laws changed.
    :param world_hash: SHA-256 over name, version, observation, actions and constants of the world,
        hexadecimal.
    """

    name: str
    version: int
    world_hash: str

    def __str__(self) -> str:
        """Return what a message shows."""
        return f'task {self.name} {self.version} (world {self.world_hash[:_SHORT]})'

    def to_json(self) -> str:
        """Return the canonical text."""
        return json.dumps(asdict(self), separators=(',', ':'))

    @classmethod
    def from_json(cls, text: str) -> Self:
        """
        Read what :meth:`to_json` wrote.

        :raises TaskError: on anything else.
        """
        try:
            found = json.loads(text)
            return cls(str(found['name']), int(found['version']), str(found['world_hash']))
        except (ValueError, TypeError, KeyError) as error:
            raise TaskError(f'not the identity of a task: {text[:80]!r}') from error

    def check(self, found: 'TaskIdentity | None', what: object) -> None:
        """
        Refuse what belongs to another task, or to none.

        :param found: identity that a file carries; None if it has none.
        :param what: the file, for the message.
        :raises TaskError: if it is not this one.
        """
        if found is None:
            raise TaskError(
                f'{what} does not say which task it is of; expected {self}. `fdrl tasks mark` '
                'marks a file of which you know it, `fdrl migrate` an older federation'
            )
        if found != self:
            raise TaskError(f'{what} is of {found}: expected {self}')
