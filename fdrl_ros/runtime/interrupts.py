# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""Ctrl-C goes to the whole process group; who makes a process decides when that one stops."""

from collections.abc import Iterator
from contextlib import contextmanager
from multiprocessing import resource_tracker
import signal


@contextmanager
def spared_interrupts() -> Iterator[None]:
    """Make processes that Ctrl-C does not reach; they inherit this thread's mask for good."""
    # The tracker's own start would take the mask off again.
    resource_tracker.ensure_running()
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, (signal.SIGINT,))
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)
