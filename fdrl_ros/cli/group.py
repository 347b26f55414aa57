# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""How every command ends: one line on an error, exit code 1; exit code 130 after Ctrl-C."""

from collections.abc import Iterator
from contextlib import contextmanager
import signal
import threading
from types import FrameType
from typing import Any

import click
from fdrl_ros.errors import FdrlError
from fdrl_ros.trainer.learner import TrainingStopped

INTERRUPTED = 130


class FdrlGroup(click.Group):
    """The top of the command line; turns errors of the package into one line."""

    def invoke(self, ctx: click.Context) -> Any:
        """Run the command that was asked for."""
        try:
            return super().invoke(ctx)
        except (TrainingStopped, KeyboardInterrupt):
            click.echo(
                'fdrl: stopped; --directory with the run named above goes on from here', err=True
            )
            ctx.exit(INTERRUPTED)
        except FdrlError as error:
            click.echo(f'fdrl: {error}', err=True)
            ctx.exit(1)


class Stopping:
    """Whether the user asked to stop; calling it tells."""

    def __init__(self) -> None:
        self._asked = threading.Event()

    def __call__(self) -> bool:
        """Return whether to stop."""
        return self._asked.is_set()

    def ask(self, number: int, frame: FrameType | None) -> None:
        """Stop at the next good moment; asked again, at once."""
        if self._asked.is_set():
            raise KeyboardInterrupt
        self._asked.set()
        click.echo('fdrl: stopping cleanly; once more to stop at once', err=True)


@contextmanager
def stopping() -> Iterator[Stopping]:
    """Listen to Ctrl-C and to the request to terminate while long work runs."""
    asked = Stopping()
    numbers = (signal.SIGINT, signal.SIGTERM)
    before = {number: signal.signal(number, asked.ask) for number in numbers}
    try:
        yield asked
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
