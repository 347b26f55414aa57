# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""Progress of long work as data, for whoever draws it."""

from collections.abc import Callable
from dataclasses import dataclass

from fdrl_ros.errors import TrainingStopped


@dataclass(frozen=True)
class Progress:
    """
    How far a piece of work is.

    :param what: 'pretrain', 'collect', 'train', 'home', 'local', 'value' or 'evaluate'.
    :param who: hospital or policy that it is for.
    :param done: of `total`.
    :param detail: more for people, such as the epsilon spent.
    """

    what: str
    who: str
    done: int
    total: int
    detail: str = ''


Report = Callable[[Progress], None]
Stopped = Callable[[], bool]


def silent(progress: Progress) -> None:
    """Report to nobody."""


def never() -> bool:
    """Go on to the end."""
    return False


def stop_if(stopped: Stopped) -> None:
    """
    End long work that is no longer wanted.

    :raises TrainingStopped: if `stopped` says so.
    """
    if stopped():
        raise TrainingStopped('stopped by the user')


@dataclass(frozen=True)
class Caller:
    """Who called long work: hears of its progress, and may stop it."""

    report: Report = silent
    stopped: Stopped = never

    def check(self) -> None:
        """
        End long work that is no longer wanted.

        :raises TrainingStopped: if the caller stops it.
        """
        stop_if(self.stopped)

    def counter(self, what: str, who: str) -> Callable[[int, int], None]:
        """Return a function that reports how many of how many are done."""
        return lambda done, total: self.report(Progress(what, who, done, total))


NOBODY = Caller()
"""Hears nothing, and lets work go on to its end."""
