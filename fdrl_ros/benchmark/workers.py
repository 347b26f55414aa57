# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""Run independent pieces of work in worker processes, one thread each, with progress."""

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor, wait
from multiprocessing import get_context
from multiprocessing.queues import Queue
from multiprocessing.synchronize import Event
import queue
import signal
from typing import Any

from fdrl_ros.benchmark.progress import Progress, Report, Stopped
from fdrl_ros.errors import FdrlError
from fdrl_ros.trainer.learner import TrainingStopped
from fdrl_ros.variables import with_variables

THREADS = ('OMP_NUM_THREADS', 'OPENBLAS_NUM_THREADS', 'MKL_NUM_THREADS')
"""Small matrices: one thread a process is fastest, and makes sums repeatable."""

_POLL = 0.1  # seconds between two looks at the progress of workers

Work = Callable[..., Any]
"""Takes its arguments, then the keywords `report` and `stopped`; importable by name."""

_channel: tuple[Any, Any] | None = None  # of a worker process: its queue and its stop sign


def run_tasks(
    work: Work,
    tasks: Sequence[tuple[Any, ...]],
    *,
    workers: int,
    report: Report,
    stopped: Stopped,
) -> list[Any]:
    """
    Call `work` once with each tuple of arguments.

    :param workers: processes; with 1 all happens in this one.
    :returns: results in the order of the tasks.
    :raises TrainingStopped: as soon as `stopped` says so; workers have ended then.
    :raises FdrlError: with the message of the one that a task ended with.
    """
    workers = min(workers, len(tasks))
    if workers <= 1:
        return [work(*each, report=report, stopped=stopped) for each in tasks]
    context = get_context('spawn')
    progress: Queue[Progress] = context.Queue()
    stop: Event = context.Event()
    with (
        with_variables(dict.fromkeys(THREADS, '1')),
        ProcessPoolExecutor(workers, context, _begin_worker, (progress, stop)) as pool,
    ):
        futures = [pool.submit(_in_worker, work, each) for each in tasks]
        try:
            _watch(futures, progress, report, stopped)
            return [_result(each) for each in futures]
        except BaseException:
            stop.set()
            pool.shutdown(wait=True, cancel_futures=True)
            raise


def _watch(
    futures: Sequence[Future[Any]],
    progress: 'Queue[Progress]',
    report: Report,
    stopped: Stopped,
) -> None:
    """Pass progress on until all is done, one piece has failed, or it shall stop."""
    waiting = set(futures)
    while waiting:
        done, waiting = wait(waiting, timeout=_POLL)
        for each in _drain(progress):
            report(each)
        for future in done:
            _result(future)
        if stopped():
            raise TrainingStopped('stopped by the user')
    for each in _drain(progress):
        report(each)


def _drain(progress: 'Queue[Progress]') -> Iterator[Progress]:
    while True:
        try:
            yield progress.get_nowait()
        except queue.Empty:
            return


def _result(future: Future[Any]) -> Any:
    done, value = future.result()
    if not done:
        raise FdrlError(value)
    return value


def _begin_worker(progress: Any, stop: Any) -> None:
    """Prepare a worker: Ctrl-C is the parent's to handle."""
    global _channel
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    _channel = (progress, stop)


def _in_worker(work: Work, arguments: tuple[Any, ...]) -> tuple[bool, Any]:
    """Work; errors go back as words, for not every error survives the way as an object."""
    assert _channel is not None
    progress, stop = _channel
    try:
        return True, work(*arguments, report=progress.put, stopped=stop.is_set)
    except FdrlError as error:
        return False, str(error)
