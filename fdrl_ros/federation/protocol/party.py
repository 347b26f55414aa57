# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""The interface between a party and its driver: messages in, messages and jobs out."""

from collections import Counter
from collections.abc import Callable, Collection
from dataclasses import dataclass
import logging
from typing import Protocol

from fdrl_ros.errors import LateError, MessageError
from fdrl_ros.federation.protocol.message import Message

Report = Callable[[object], None]
Stopped = Callable[[], bool]


@dataclass(frozen=True)
class Job:
    """
    Work that takes long; the driver runs it off its own thread and hands the result back.

    :param name: for people and for :meth:`Party.finish`.
    :param run: the work; it may report progress, and returns early when asked to stop.
    """

    name: str
    run: Callable[[Report, Stopped], object]


@dataclass(frozen=True)
class Effects:
    """What a party wants done: messages to send, jobs to run, lines for the log."""

    messages: tuple[Message, ...] = ()
    jobs: tuple[Job, ...] = ()
    notes: tuple[str, ...] = ()

    def __add__(self, other: 'Effects') -> 'Effects':
        """Join effects in order."""
        return Effects(
            self.messages + other.messages, self.jobs + other.jobs, self.notes + other.notes
        )


class Party(Protocol):
    """
    A plain object that a driver moves.

    It opens no socket and starts no thread. `now` is the driver's steady clock in seconds; only
    the channel reads a wall clock, to stamp the journal and to let rosters and orders expire.
    """

    @property
    def takes(self) -> Collection[type[Message]]:
        """Kinds of messages that it takes."""
        ...

    def start(self, now: float) -> Effects:
        """Begin, or go on after a restart."""
        return Effects()

    def handle(self, message: Message, now: float) -> Effects:
        """
        Take a message.

        :raises MessageError: if it is refused; nothing has changed then.
        """
        ...

    def finish(self, job: Job, result: object, now: float) -> Effects:
        """Take the result of a job, or the exception that ended it."""
        ...

    def tick(self, now: float) -> Effects:
        """Let time pass; called a few times a second."""
        return Effects()


def worth_logging(count: int) -> bool:
    """Tell whether to log one more refusal: a flood of them must not fill the disk."""
    return count <= 20 or count.bit_count() == 1


class Refusals(Counter[str]):
    """How often a party refused something, by the reason."""

    def note(self, error: MessageError) -> int:
        """Count a refusal; return the level at which to log it, NOTSET for not at all."""
        self[error.reason] += 1
        if isinstance(error, LateError):
            return logging.DEBUG
        return logging.WARNING if worth_logging(self[error.reason]) else logging.NOTSET
