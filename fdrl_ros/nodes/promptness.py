# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""What keeps a process prompt: no garbage in between; if asked for, priority, and no sleep."""

from collections.abc import Callable
import ctypes
import gc
import os
from pathlib import Path
import struct

_MCL_CURRENT = 1
_Undo = Callable[[], None]


def without_garbage() -> _Undo:
    """
    Collect garbage now and then no more by itself; call `gc.collect` where there is time.

    What exists now is never looked at again, so that such a collection takes no millisecond.

    :returns: undoes it.
    """
    gc.collect()
    gc.freeze()
    gc.disable()

    def undo() -> None:
        gc.enable()
        gc.unfreeze()

    return undo


def with_priority(priority: int) -> _Undo:
    """
    Run all threads of this process in real time (SCHED_FIFO), and keep its memory from the disk.

    Processes that it starts, and threads that come later, are as any other.

    :param priority: 1 to 99.
    :returns: undoes it.
    :raises OSError: if the system does not permit it; nothing has changed then.
    """
    before = {each: os.sched_getscheduler(each) for each in _threads()}
    chosen = os.SCHED_FIFO | os.SCHED_RESET_ON_FORK, os.sched_param(priority)

    def undo() -> None:
        for each in _threads():
            if each in before and os.sched_getscheduler(each) != before[each]:
                os.sched_setscheduler(each, before[each], os.sched_param(0))
        _call('munlockall')

    try:
        for each in before:
            os.sched_setscheduler(each, *chosen)
        _call('mlockall', _MCL_CURRENT)
    except OSError:
        undo()
        raise
    return undo


def without_sleep(device: str = '/dev/cpu_dma_latency') -> _Undo:
    """
    Keep the processors of this machine awake while nobody needs them, so that none has to wake.

    All of the machine's, for every process: it takes power.

    :param device: of the kernel's quality of service: as long as it is open, no processor sleeps
        more deeply than one that answers within the time written, 0 us.
    :returns: undoes it.
    :raises OSError: if the system does not permit it.
    """
    held = os.open(device, os.O_WRONLY | os.O_CLOEXEC)
    try:
        os.write(held, struct.pack('i', 0))
    except OSError:
        os.close(held)
        raise
    return lambda: os.close(held)


def _threads() -> list[int]:
    return [int(each.name) for each in Path('/proc/self/task').iterdir()]


def _call(name: str, *arguments: int) -> None:
    library = ctypes.CDLL(None, use_errno=True)
    if getattr(library, name)(*arguments):
        number = ctypes.get_errno()
        raise OSError(number, f'{name}: {os.strerror(number)}')
