# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""Processes that end when the one that started them has ended, however that one ended."""

from collections.abc import Callable
import multiprocessing
import os
import select
import signal
import sys
import threading

LAUNCHER = 'FDRL_PARENT'
"""Variable with the process whose end ends this one; launch files and the runner set it."""

GRACE = 0.3
"""Time for a clean end after the end of the launcher, second."""


def end_with_launcher() -> None:
    """
    End this process when its launcher has ended: as SIGTERM does, and after GRACE in any case.

    Without FDRL_PARENT nothing is watched. A thread waits until the kernel says that this very
    process has ended: a shell or a launch-prefix may stand between, it does not matter who adopts
    orphans, and the launcher may start nodes from any of its threads. (PR_SET_PDEATHSIG takes the
    end of that thread for the launcher's, and leaves no time for a clean end.) The thread needs
    the interpreter's lock once, to set a timer by which the kernel ends the process: what its
    other threads do, in foreign code too, delays it no more.
    """
    launcher = os.environ.get(LAUNCHER)
    if launcher is None:
        return
    try:
        ended = os.pidfd_open(int(launcher))
    except (OSError, ValueError) as error:
        sys.exit(f'{LAUNCHER} = {launcher!r}: expected the process that started this one: {error}')

    def end() -> None:
        select.select([ended], [], [])
        # Nobody handles this one, so the kernel ends the process, whatever its threads do.
        signal.setitimer(signal.ITIMER_REAL, GRACE)
        os.kill(os.getpid(), signal.SIGTERM)

    _watch(end)


def end_with_parent() -> None:
    """End a process of multiprocessing when the one that started it has ended."""
    parent = multiprocessing.parent_process()
    assert parent is not None, 'the main process has no parent'

    def end() -> None:
        parent.join()
        os._exit(1)

    _watch(end)


def _watch(end: Callable[[], None]) -> None:
    threading.Thread(target=end, name='end with the launcher', daemon=True).start()
