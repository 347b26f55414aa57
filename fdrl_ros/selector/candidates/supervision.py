# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""
The surgeon's supervision: which policy alone may act, which must not, who drives the arm.

It is on the disk: a selector that restarts continues under the same supervision, and leaves the
arm to the surgeon if it was with the surgeon.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
import json
from pathlib import Path
import re
from typing import Self

from fdrl_ros.errors import StoreError, SupervisionError
from fdrl_ros.runtime.durable import write_whole
from fdrl_ros.selector.candidates.candidate import HOLD

SUPERVISION_FILE = 'supervision.json'
"""File of it, in the robot's directory."""

_FORMAT = 1
_DIGEST = re.compile('[0-9a-f]{64}')


class Command(StrEnum):
    """Orders of a surgeon, by service, topic or command line."""

    LOCK = 'lock'
    UNLOCK = 'unlock'
    VETO = 'veto'
    ALLOW = 'allow'
    TAKE_OVER = 'take_over'
    HAND_BACK = 'hand_back'


class Driver(StrEnum):
    """Who moves the arm."""

    SELECTOR = 'selector'
    SURGEON = 'surgeon'


NAMED = frozenset({Command.LOCK, Command.VETO, Command.ALLOW})
"""Commands that are about a policy."""

URGENT = frozenset({Command.TAKE_OVER, Command.VETO})
"""Commands that only take something away from the selector: they wait for no disk."""

BY_TOPIC = frozenset({Command.TAKE_OVER})
"""Commands that a pedal or a console may give with a topic, which nobody signs."""


def command_named(text: str) -> Command:
    """
    Return a command by its name.

    :raises SupervisionError: if there is none.
    """
    try:
        return Command(text)
    except ValueError:
        known = ', '.join(Command)
        raise SupervisionError(f'command {text[:60]!r}: expected one of {known}') from None


@dataclass(frozen=True)
class Supervision:
    """
    The surgeon's orders in force; every change makes a new object.

    :param locked: the policy that alone may act; empty for none.
    :param vetoed: policies that are never chosen.
    :param pinned: name of a policy to the digest of the version that stands for it, hexadecimal.
    :param surgeon: whether the surgeon drives the arm.
    """

    locked: str = ''
    vetoed: frozenset[str] = frozenset()
    pinned: Mapping[str, str] = field(default_factory=dict)
    surgeon: bool = False

    def ordered(self, command: Command, name: str, known: Collection[str]) -> Self:
        """
        Return the supervision after a command; one that changes nothing is accepted too.

        A veto is accepted whatever is locked: a locked policy that is vetoed does not act, and no
        other does, so the robot holds.

        :param name: of the policy, for those commands that are about one; else empty.
        :param known: names that a policy can have here, without `hold`.
        :raises SupervisionError: if the command is refused.
        """
        if (command in NAMED) != bool(name):
            wanted = 'the name of a policy' if command in NAMED else 'no name'
            raise SupervisionError(f'{command} {name!r}: expected {wanted}')
        if name and name not in known and not (name == HOLD and command is Command.LOCK):
            there = sorted(known) + [HOLD] * (command is Command.LOCK)
            raise SupervisionError(f'{command} {name!r}: expected one of {", ".join(there)}')
        if command is Command.LOCK and name in self.vetoed:
            raise SupervisionError(f'{name} is vetoed: allow it before it is locked')
        match command:
            case Command.LOCK | Command.UNLOCK:
                return replace(self, locked=name)
            case Command.VETO:
                return replace(self, vetoed=self.vetoed | {name})
            case Command.ALLOW:
                return replace(self, vetoed=self.vetoed - {name})
            case Command.TAKE_OVER | Command.HAND_BACK:
                return replace(self, surgeon=command is Command.TAKE_OVER)

    def with_pin(self, name: str, digest: str) -> Self:
        """
        Return the supervision that pins one version of a name.

        :param digest: hexadecimal; empty unpins it.
        """
        others = {each: value for each, value in self.pinned.items() if each != name}
        return replace(self, pinned=others | {name: digest} if digest else others)

    def in_words(self) -> str:
        """Describe the supervision in one line."""
        words = ['the surgeon drives' if self.surgeon else 'the selector drives']
        if self.locked:
            words.append(f'{self.locked} alone may act')
        for each in sorted(self.vetoed):
            holds = each == self.locked and not self.surgeon
            words.append(f'{each} is vetoed' + (', so the robot holds' if holds else ''))
        words += [f'{name} is pinned to {self.pinned[name][:12]}' for name in sorted(self.pinned)]
        return '; '.join(words)

    def to_json(self) -> str:
        """Return what :meth:`from_json` reads."""
        return json.dumps(
            {
                'format': _FORMAT,
                'locked': self.locked,
                'vetoed': sorted(self.vetoed),
                'pinned': dict(sorted(self.pinned.items())),
                'surgeon': self.surgeon,
            },
            indent=1,
        )

    @classmethod
    def from_json(cls, text: str) -> Self:
        """
        Read a supervision.

        :raises ValueError: if it is not in its form, to the last field.
        """
        values = json.loads(text)
        kinds = {'locked': str, 'vetoed': list, 'pinned': dict, 'surgeon': bool}
        if not isinstance(values, dict) or values.pop('format', None) != _FORMAT:
            raise ValueError(f'not of format {_FORMAT}')
        if {name: type(value) for name, value in values.items()} != kinds:
            words = ', '.join(f'{name} ({kind.__name__})' for name, kind in kinds.items())
            raise ValueError(f'expected {words}')
        vetoed, digests = values['vetoed'], values['pinned'].values()
        if not all(isinstance(each, str) for each in (*vetoed, *digests)):
            raise ValueError('expected names')
        if not all(_DIGEST.fullmatch(each) for each in digests):
            raise ValueError('expected digests of what is pinned')
        return cls(**values | {'vetoed': frozenset(vetoed)})


def load_supervision(path: Path) -> Supervision:
    """
    Read the supervision; without a file there is none.

    :raises StoreError: if it is damaged: what was vetoed is then unknown, and a robot must not
        act.
    """
    try:
        return Supervision.from_json(path.read_text('utf-8'))
    except FileNotFoundError:
        return Supervision()
    except (OSError, ValueError) as error:
        raise StoreError(
            f'{path} is damaged ({error}); it holds what the surgeon vetoed, locked and took '
            'over: restore it, or remove it and order it again'
        ) from error


def save_supervision(path: Path, supervision: Supervision) -> None:
    """
    Write the supervision; it is on the disk at the end.

    :raises StoreError: if it cannot be written.
    """
    write_whole(path, supervision.to_json().encode())
