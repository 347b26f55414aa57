# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""Processes that a test watches the end of, though another one started them."""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
import os
from pathlib import Path
import select
import signal


def descendants(process: int) -> list[int]:
    """Return what a process started, and what those did."""
    text = Path(f'/proc/{process}/task/{process}/children').read_text()
    return [each for child in map(int, text.split()) for each in (child, *descendants(child))]


@contextmanager
def watched(processes: Iterable[int]) -> Iterator[list[int]]:
    """Give file descriptors of processes, of which none is left behind."""
    orphans = [os.pidfd_open(each) for each in processes]
    try:
        yield orphans
    finally:
        for each in orphans:
            with suppress(ProcessLookupError):
                signal.pidfd_send_signal(each, signal.SIGKILL)
            os.close(each)


def ended(orphans: Iterable[int], seconds: float = 20.0) -> bool:
    """Wait for the end of each; give up after a time."""
    return all(select.select([each], [], [], seconds)[0] for each in orphans)
