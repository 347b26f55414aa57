# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""Real-time behaviour of a process: no garbage collection, priority and no sleep if asked for."""

from collections.abc import Callable
from contextlib import suppress
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


def with_priority(priority: int, complain: Callable[[str], None]) -> _Undo:
    """
    Run all threads of this process in real time (SCHED_FIFO), and keep its memory from the disk.

    Processes that it starts, and threads that come later, are as any other. A thread may keep
    SCHED_RESET_ON_FORK after all is undone, as only CAP_SYS_NICE lets it be cleared.

    :param priority: 1 to 99.
    :param complain: is told what cannot be given back; undoing raises nothing.
    :returns: undoes it.
    :raises OSError: if the system does not permit it; it is undone then.
    """
    before: dict[int, tuple[int, os.sched_param]] = {}
    chosen = os.SCHED_FIFO | os.SCHED_RESET_ON_FORK, os.sched_param(priority)

    def undo() -> None:
        for thread, held in before.items():
            try:
                if is_own_thread(thread):
                    _schedule(thread, *held)
            except OSError as error:
                complain(f'thread {thread} stays as it is scheduled: {error}')
        try:
            call_libc('munlockall')
        except OSError as error:
            complain(f'memory stays locked: {error}')

    try:
        call_libc('mlockall', _MCL_CURRENT)
        for each in thread_ids():
            with suppress(ProcessLookupError):
                held = os.sched_getscheduler(each), os.sched_getparam(each)
                os.sched_setscheduler(each, *chosen)
                before[each] = held
    except OSError:
        undo()
        raise
    return undo


def _schedule(thread: int, policy: int, parameter: os.sched_param) -> None:
    """Schedule a thread as it was before, unless it ends meanwhile."""
    with suppress(ProcessLookupError):
        try:
            os.sched_setscheduler(thread, policy, parameter)
        except PermissionError:
            # Without CAP_SYS_NICE the flag cannot be cleared; it tells of children alone.
            os.sched_setscheduler(thread, policy | os.SCHED_RESET_ON_FORK, parameter)


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


def thread_ids() -> list[int]:
    """Return the threads of this process."""
    return [int(each.name) for each in Path('/proc/self/task').iterdir()]


def is_own_thread(thread: int) -> bool:
    """Tell whether a thread is still this process's: another one may have its number by now."""
    return Path(f'/proc/self/task/{thread}').exists()


def call_libc(name: str, *arguments: int) -> None:
    """
    Call a function of the C library that returns 0 on success.

    :raises OSError: if it fails.
    """
    library = ctypes.CDLL(None, use_errno=True)
    if getattr(library, name)(*arguments):
        number = ctypes.get_errno()
        raise OSError(number, f'{name}: {os.strerror(number)}')
