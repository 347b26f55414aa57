# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""The one thread beside the executor's: it runs jobs that take long, one after the other."""

from collections.abc import Callable
from functools import partial
from queue import Empty, Full, Queue
import threading
from typing import Any

from fdrl_ros.errors import FdrlError

Post = Callable[[Callable[[], object]], object]
Take = Callable[[Any], None]
"""Takes the result, the error or the progress of a job."""

Run = Callable[[Take, Callable[[], bool]], object]
"""The work of a job, which is told how to report and how to learn that it shall stop."""

WAITING = 16
"""Jobs that may wait; a party asks for one at a time."""


class Worker:
    """Runs jobs in order and hands results and reports back to the executor's thread."""

    def __init__(self, name: str, post: Post, waiting: int = WAITING) -> None:
        """
        Start the thread.

        :param post: makes the executor call something on its own thread.
        :param waiting: how many jobs may wait.
        """
        self._post = post
        self._jobs: Queue[tuple[Run, Take, Take] | None]
        self._jobs = Queue(waiting)
        self._stopping = threading.Event()
        self._newest: tuple[Take, object] | None = None
        self._lock = threading.Lock()
        # A daemon, so that a job that hangs in foreign code cannot keep the process alive.
        self._thread = threading.Thread(target=self._work, name=name, daemon=True)
        self._thread.start()

    def submit(self, run: Run, done: Take, reported: Take) -> None:
        """
        Queue a job.

        :param done: called with the result, or the exception that ended it.
        :param reported: called with the newest report; older ones may be left out.
        :raises FdrlError: if too many jobs wait.
        """
        try:
            self._jobs.put_nowait((run, done, reported))
        except Full:
            raise FdrlError(f'{self._jobs.maxsize} jobs wait already') from None

    def close(self, timeout: float) -> bool:
        """
        Ask the job to stop, forget the others and all results.

        :param timeout: longest wait for the thread, second.
        :returns: whether the thread has ended.
        """
        self._stopping.set()
        try:
            while True:
                self._jobs.get_nowait()
        except Empty:
            pass
        self._jobs.put_nowait(None)
        self._thread.join(timeout)
        return self.ended

    @property
    def ended(self) -> bool:
        """Whether the thread has ended."""
        return not self._thread.is_alive()

    def when_ended(self, action: Callable[[], None]) -> None:
        """Do something once the thread has ended: now if it has, else in a thread that waits."""

        def wait() -> None:
            self._thread.join()
            action()

        if self.ended:
            action()
        else:
            threading.Thread(target=wait, name=f'{self._thread.name} end', daemon=True).start()

    def _work(self) -> None:
        while (job := self._jobs.get()) is not None:
            run, done, reported = job
            try:
                result = run(partial(self._report, reported), self._stopping.is_set)
            except Exception as error:  # whatever it is, the party judges it
                result = error
            self._deliver(partial(done, result))

    def _report(self, reported: Take, value: object) -> None:
        """Keep the newest report and ask for one call, however fast reports come."""
        with self._lock:
            pending, self._newest = self._newest, (reported, value)
        if pending is None:
            self._deliver(self._flush)

    def _flush(self) -> None:
        with self._lock:
            newest, self._newest = self._newest, None
        if newest is not None:
            newest[0](newest[1])

    def _deliver(self, action: Callable[[], None]) -> None:
        def unless_closed() -> None:
            if not self._stopping.is_set():
                action()

        if not self._stopping.is_set():
            self._post(unless_closed)
