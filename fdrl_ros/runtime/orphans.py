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

WITH_LAUNCHER = ('setpriv', '--pdeathsig', 'TERM')
"""Words before the command of a foreign program, which watches no variable: it ends too."""

GRACE = 0.2
"""Time for a clean end after the end of the launcher, second."""


def end_with_launcher() -> None:
    """
    End this process after its launcher has ended: by SIGTERM, and after GRACE by the kernel.

    Without FDRL_PARENT it watches nothing. A thread waits on a file descriptor of the launcher's
    process. So a shell or a launch-prefix may stand between the two, any process may adopt
    orphans, and any thread of the launcher may start nodes. (PR_SET_PDEATHSIG takes the end of
    that thread for the end of the launcher, and leaves no time for a clean end.) The thread needs
    the interpreter's lock once, to set a timer by which the kernel ends the process. After that,
    nothing that other threads do can delay the end, not even foreign code that keeps the lock.

    :raises SystemExit: if FDRL_PARENT names no process.
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
        # No handler is set for SIGALRM, so the kernel ends the process, whatever its threads do.
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
