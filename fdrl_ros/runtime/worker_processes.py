# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""Run independent pieces of work in worker processes, one thread each, with progress."""

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from dataclasses import dataclass
from multiprocessing import get_context
from multiprocessing.queues import Queue
from multiprocessing.synchronize import Event
import os
import queue
import signal
from types import FrameType
from typing import NamedTuple, TypeVar

from fdrl_ros.errors import FdrlError, TrainingStopped
from fdrl_ros.runtime.environment_variables import ONE_THREAD, with_variables
from fdrl_ros.runtime.interrupts import spared_interrupts
from fdrl_ros.runtime.orphans import end_with_parent
from fdrl_ros.runtime.progress import Caller, Progress

_POLL = 0.1  # seconds between two looks at the progress of workers

R = TypeVar('R')

_channel: 'tuple[Queue[Progress], Event] | None' = None  # of a worker process
_asked = False  # whether a worker process itself was asked to end
_ENDING = (signal.SIGINT, signal.SIGTERM)


class _Pool(NamedTuple):
    """Worker processes, and how they tell their progress and are told to stop."""

    executor: ProcessPoolExecutor
    progress: 'Queue[Progress]'
    stop: Event


@dataclass
class _Kept:
    """What :func:`kept_workers` keeps: the pool that pieces of work share, once there is one."""

    niceness: int
    pool: _Pool | None = None


_kept: list[_Kept] = []


@contextmanager
def kept_workers(niceness: int = 0) -> Iterator[None]:
    """
    Let all calls of :func:`run_tasks` within have the same worker processes.

    So modules are imported once, and what they keep is there for the next call. Calls come one
    after the other.

    :param niceness: how far workers stand back behind processes that act in real time, 0 to 19.
    """
    _kept.append(_Kept(niceness))
    try:
        yield
    finally:
        pool = _kept.pop().pool
        if pool is not None:
            pool.executor.shutdown(wait=True, cancel_futures=True)


def run_tasks(
    work: Callable[..., R], tasks: Sequence[tuple[object, ...]], *, workers: int, caller: Caller
) -> list[R]:
    """
    Call `work` once with each tuple of arguments.

    :param work: of a module; also takes the keyword `caller`.
    :param workers: processes; with 1 all happens in this one.
    :returns: results in the order of the tasks.
    :raises TrainingStopped: as soon as the caller says so; workers have ended then.
    :raises FdrlError: the one that a task ended with, or if a worker is gone.
    """
    if min(workers, len(tasks)) <= 1:
        return [work(*each, caller=caller) for each in tasks]
    with with_variables(ONE_THREAD), _pool(workers if _kept else min(workers, len(tasks))) as pool:
        try:
            with spared_interrupts(*_ENDING):  # they take the mask off when they are ready
                futures = [pool.executor.submit(_in_worker, work, each) for each in tasks]
            _watch(futures, pool.progress, caller)
            return [future.result() for future in futures]
        except BaseException as error:
            pool.stop.set()
            pool.executor.shutdown(wait=True, cancel_futures=True)
            if _kept:
                _kept[-1].pool = None
            if not isinstance(error, BrokenProcessPool):
                raise
            if caller.stopped():
                raise TrainingStopped('stopped by the user') from error
            raise FdrlError(
                'a worker process is gone: killed, or out of memory; fewer workers need less'
            ) from error


@contextmanager
def _pool(workers: int) -> Iterator[_Pool]:
    """Return worker processes: the kept ones, or others that end with the block."""
    pool, niceness = (_kept[-1].pool, _kept[-1].niceness) if _kept else (None, 0)
    if pool is None:
        context = get_context('spawn')
        progress: Queue[Progress] = context.Queue()
        stop: Event = context.Event()
        executor = ProcessPoolExecutor(workers, context, _begin_worker, (progress, stop, niceness))
        pool = _Pool(executor, progress, stop)
        if _kept:
            _kept[-1].pool = pool
    if _kept:
        yield pool
        return
    with pool.executor:
        yield pool


def _watch(futures: 'Sequence[Future[R]]', progress: 'Queue[Progress]', caller: Caller) -> None:
    """Pass progress on until all is done, one piece has failed, or it shall stop."""
    waiting = set(futures)
    while waiting:
        done, waiting = wait(waiting, timeout=_POLL)
        for each in _drain(progress):
            caller.report(each)
        caller.check()
        for future in done:
            future.result()
    for each in _drain(progress):
        caller.report(each)


def _drain(progress: 'Queue[Progress]') -> Iterator[Progress]:
    while True:
        try:
            yield progress.get_nowait()
        except queue.Empty:
            return


def _begin_worker(progress: 'Queue[Progress]', stop: Event, niceness: int) -> None:
    """
    Prepare a worker: Ctrl-C is the parent's to handle.

    SIGTERM may come to the whole group. A worker that died of it would break the pool under the
    parent, so it ends its work and says so; asked again, it goes at once.
    """
    global _channel
    end_with_parent()
    os.nice(niceness)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, _ask)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, _ENDING)
    _channel = (progress, stop)


def _ask(number: int, frame: FrameType | None) -> None:
    global _asked
    if _asked:
        os._exit(128 + number)
    _asked = True


def _in_worker(work: Callable[..., R], arguments: tuple[object, ...]) -> R:
    assert _channel is not None
    progress, stop = _channel
    return work(*arguments, caller=Caller(progress.put, lambda: _asked or stop.is_set()))
