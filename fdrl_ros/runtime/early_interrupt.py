# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""Ctrl-C in the first second of a process, while its modules are imported."""

from collections.abc import Iterator
from contextlib import contextmanager
import signal
import sys
import threading
from types import FrameType


@contextmanager
def quietly_stopped() -> Iterator[None]:
    """End on Ctrl-C with one line and exit code 130, not with a traceback of imports."""
    ours = (
        threading.current_thread() is threading.main_thread()
        and signal.getsignal(signal.SIGINT) is signal.default_int_handler
    )
    if ours:
        signal.signal(signal.SIGINT, _leave)
    try:
        yield
    finally:
        if ours:
            signal.signal(signal.SIGINT, signal.default_int_handler)


def _leave(number: int, frame: FrameType | None) -> None:
    """End the process."""
    print('fdrl: stopped', file=sys.stderr)
    sys.exit(130)
