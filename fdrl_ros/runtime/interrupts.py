# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""Ctrl-C goes to the whole process group; who makes a process decides when that one stops."""

from collections.abc import Iterator
from contextlib import contextmanager
from multiprocessing import resource_tracker
import signal


@contextmanager
def spared_interrupts(*numbers: signal.Signals) -> Iterator[None]:
    """
    Make processes that Ctrl-C, or these signals, do not reach.

    They inherit this thread's mask, and what came meanwhile as soon as they take it off.
    """
    # The tracker's own start would take the mask off again.
    resource_tracker.ensure_running()
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, numbers or (signal.SIGINT,))
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)
