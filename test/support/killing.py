# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""Kill an action before each thing that it does to the disk, in a child that is really gone."""

from collections.abc import Callable, Iterator
import contextlib
import os
import signal
import sys
from typing import Any

KILLED = 77
EVENTS = ('open', 'os.mkdir', 'os.rename', 'os.rmdir', 'os.remove', 'os.truncate', 'shutil.rmtree')


def killed_at_every_step(
    begin: Callable[[], Any], action: Callable[[], Any], every: int = 1
) -> Iterator[int]:
    """
    Run an action in children that end without a word before their first, second, ... step.

    :param begin: makes the state that the action starts from, for each child anew.
    :param action: what is killed.
    :param every: to leave steps out, where time is short.
    :yields: the number of each step that was not taken any more; the state is as it left it.
    """
    for step in range(0, 1000, every):
        begin()
        child = os.fork()
        if not child:
            _run(action, step)
        _, status = os.waitpid(child, 0)
        code = os.waitstatus_to_exitcode(status)
        if code == 0:
            assert step > every, 'an action that does nothing to the disk'
            return
        assert code == KILLED, f'the action failed at step {step}'
        yield step
    raise AssertionError('the action has no end')


def _run(action: Callable[[], Any], step: int) -> None:
    """Do it in this process, which ends here whatever happens."""
    left = [step]

    def count() -> None:
        if left[0] == 0:
            os._exit(KILLED)
        left[0] -= 1

    def watch(event: str, arguments: tuple[Any, ...]) -> None:
        # Files that are only read change nothing.
        if event in EVENTS and not (event == 'open' and not arguments[2] & _WRITES):
            count()

    really = os.fsync

    def fsync(descriptor: int) -> None:
        count()
        really(descriptor)

    try:
        os.fsync = fsync
        sys.addaudithook(watch)
        action()
    except BaseException as error:
        os.write(2, f'{error!r}\n'.encode())
        os._exit(1)
    os._exit(0)


_WRITES = os.O_WRONLY | os.O_RDWR | os.O_CREAT


def killed(action: Callable[[], Any]) -> bool:
    """Run an action in a child process, and tell whether `die` ended it."""
    child = os.fork()
    if not child:
        with contextlib.suppress(BaseException):
            action()
        os._exit(1)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == -signal.SIGKILL


def die(*_: object, **__: object) -> None:
    """Kill this process, as `kill -9` does."""
    os.kill(os.getpid(), signal.SIGKILL)
