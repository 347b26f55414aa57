# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""Where memory and time of this package go."""

from collections.abc import Callable
import linecache
import os
from pathlib import Path
import re
import signal
import time
from types import FrameType

import fdrl_ros
from turns import Skipped, Work

PERIOD = 0.0007
"""Between two looks at where the time goes, s."""

SHOWN = 8
"""Places that are named, the busiest first."""

PACKAGE = str(Path(fdrl_ros.__file__).parent) + os.sep


def resident() -> float:
    """
    Return the memory that this process holds now, MB.

    :raises Skipped: where the system does not say.
    """
    try:
        pages = int(Path('/proc/self/statm').read_text('ascii').split()[1])
    except OSError:
        raise Skipped('this system has no /proc/self/statm') from None
    return pages * os.sysconf('SC_PAGE_SIZE') / 1e6


def peak() -> float:
    """
    Return the most memory that this process ever held, MB.

    :raises Skipped: where the system does not say.
    """
    status = Path('/proc/self/status')
    if not status.exists():
        raise Skipped('this system has no /proc/self/status')
    for line in status.read_text('ascii').splitlines():
        if line.startswith('VmHWM:'):
            return int(line.split()[1]) * 1024 / 1e6
    raise Skipped('this system does not tell the most memory of a process')


def memory_growth(given: Work, drawn: Work, count: int, progress: Callable[[str], None]) -> float:
    """
    Return what so many resets leave in memory, MB.

    :param given: resets with a given patient, which half of them are.
    :param drawn: resets with one that is drawn.
    """
    for _ in range(1000):
        given(), drawn()
    before = resident()
    for turn in range(count // 2):
        if turn % 2500 == 0:
            progress(f'memory: {2 * turn} of {count} resets')
        given(), drawn()
    return resident() - before


def where_time_goes(work: Work, seconds: float) -> list[tuple[str, float]]:
    """
    Look at the running work now and then, which slows it little, and return shares by place.

    A place is a module of this package, or a call of it into PyBullet.
    """
    places: dict[tuple[str, int | None], float] = {}
    last = 0.0

    def look(_signal: int, frame: FrameType | None) -> None:
        nonlocal last
        # A long call into C, as a write to disk, is seen once, at its end, and counts in full.
        now = time.perf_counter()
        since, last = now - last, now
        while frame is not None and not frame.f_code.co_filename.startswith(PACKAGE):
            frame = frame.f_back
        if frame is not None:
            place = frame.f_code.co_filename, frame.f_lineno
            places[place] = places.get(place, 0.0) + since

    work()
    last = time.perf_counter()
    old = signal.signal(signal.SIGALRM, look)
    signal.setitimer(signal.ITIMER_REAL, PERIOD, PERIOD)
    try:
        end = time.perf_counter() + seconds
        while time.perf_counter() < end:
            work()
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0.0)
        signal.signal(signal.SIGALRM, old)
    shares: dict[str, float] = {}
    whole = sum(places.values())
    for (file, number), spent in places.items():
        called = re.search(r'pybullet\.([a-z]\w+)\(', linecache.getline(file, number or 0))
        place = f'PyBullet {called[1]}' if called else file.removeprefix(PACKAGE)
        shares[place] = shares.get(place, 0.0) + spent / whole
    return sorted(shares.items(), key=lambda each: -each[1])[:SHOWN]
