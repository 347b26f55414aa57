# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""Computations in a process of their own: for the control loop's pace, or a server's size."""

from collections.abc import Callable
from contextlib import suppress
from importlib import import_module
import multiprocessing
from multiprocessing.connection import Connection
from multiprocessing.context import SpawnProcess
import os
import threading
import time
from typing import Any, TypeVar

from fdrl_ros.errors import FdrlError, LastingError, TrainingStopped
from fdrl_ros.runtime.closeable import Closeable
from fdrl_ros.runtime.interrupts import spared_interrupts
from fdrl_ros.runtime.orphans import end_with_parent

R = TypeVar('R')

LOOK = 0.2
"""Time between two looks whether to stop, second."""

IDLE = 20.0
"""Time without a computation after which a kept process ends, second."""


def run_elsewhere(
    compute: Callable[..., R], arguments: tuple[object, ...], stopped: Callable[[], bool]
) -> R:
    """
    Compute something in another process, below the control loop's priority.

    :param compute: of a module; it, its arguments and its result can be pickled.
    :raises TrainingStopped: as soon as `stopped` says so.
    :raises LastingError: if the computation does.
    :raises FdrlError: if the process ends without a result; its error is on standard error.
    """
    process, ours = _start(_compute, compute, arguments)
    try:
        while not ours.poll(LOOK):
            if stopped():
                raise TrainingStopped('the node stopped before a computation was done')
        result: R = _receive(process, ours, compute.__name__)
        return result
    finally:
        _end(process, ours)


class KeptProcess(Closeable):
    """
    Another process for computations as those of :func:`run_elsewhere`, one after the other.

    What modules keep between two computations is there for the next. It starts with the first
    one, and ends when nothing was computed for IDLE seconds, or by :meth:`close`. It belongs to
    one thread at a time.
    """

    def __init__(self) -> None:
        self._running: tuple[SpawnProcess, Connection] | None = None
        self._used = 0.0

    def __call__(
        self,
        compute: Callable[..., R],
        arguments: tuple[object, ...],
        stopped: Callable[[], bool],
    ) -> R:
        """Compute something, as :func:`run_elsewhere` does; it raises the same."""
        if time.monotonic() - self._used > IDLE / 2:
            self.close()  # it may be about to end
        if self._running is None:
            self._running = _start(_compute_each)
        process, ours = self._running
        try:
            with suppress(OSError):  # of a process that ended: the answer tells
                ours.send((compute, arguments))
            while not ours.poll(LOOK):
                if stopped():
                    raise TrainingStopped('the node stopped before a computation was done')
            result: R = _receive(process, ours, compute.__name__)
        except LastingError:
            self._used = time.monotonic()
            raise
        except BaseException:
            self.close()
            raise
        self._used = time.monotonic()
        return result

    def close(self) -> None:
        """End the process; the next computation starts another."""
        running, self._running = self._running, None
        if running is not None:
            _end(*running)


class SeparateObject(Closeable):
    """
    A callable object in a process of its own, whose module this process never imports.

    The process starts with the first call and serves all of them, until :meth:`close`.
    """

    def __init__(self, place: str, *arguments: object) -> None:
        """
        Choose what the process makes.

        :param place: module and class, as `module:Class`.
        :param arguments: of the class; they can be pickled.
        """
        self._place, self._arguments = place, arguments
        self._running: tuple[SpawnProcess, Connection] | None = None
        self._lock = threading.RLock()
        self._closed = False

    def __call__(self, *arguments: object) -> Any:
        """
        Call the object and return its result.

        :raises LastingError: if the object does.
        :raises FdrlError: if it is closed, or if the process ends without a result; the error of
            the process is on standard error. The next call starts another process.
        """
        with self._lock:
            if self._closed:
                raise FdrlError(f'{self._place} is closed')
            if self._running is None:
                self._running = _start(_serve, self._place, self._arguments)
            process, ours = self._running
        try:
            with suppress(OSError):  # of a process that ended or is closed: the answer tells
                ours.send(arguments)
            return _receive(process, ours, self._place.rpartition(':')[2])
        except LastingError:
            raise
        except FdrlError:
            self._stop()
            raise

    def close(self) -> None:
        """End the process, also in the middle of a call; no later call starts another."""
        with self._lock:
            self._closed = True
        self._stop()

    def _stop(self) -> None:
        with self._lock:
            running, self._running = self._running, None
        if running is not None:
            _end(*running)


def _start(target: Callable[..., None], *arguments: object) -> tuple[SpawnProcess, Connection]:
    context = multiprocessing.get_context('spawn')
    ours, theirs = context.Pipe()
    process = context.Process(target=target, args=(*arguments, theirs), daemon=True)
    with spared_interrupts():
        process.start()
    theirs.close()
    return process, ours


def _receive(process: SpawnProcess, ours: Connection, name: str) -> Any:
    try:
        result = ours.recv()
    except (EOFError, OSError):
        process.join()
        raise FdrlError(f'{name} ended with exit code {process.exitcode}') from None
    if isinstance(result, LastingError):
        raise result
    return result


def _end(process: SpawnProcess, ours: Connection) -> None:
    process.terminate()
    process.join()
    ours.close()


def _compute(
    compute: Callable[..., object], arguments: tuple[object, ...], pipe: Connection
) -> None:
    """Compute once, in the other process."""
    end_with_parent()
    os.nice(5)
    pipe.send(_result(compute, arguments))


def _compute_each(pipe: Connection) -> None:
    """Compute whatever is asked, in the other process, until nothing is for a time."""
    end_with_parent()
    os.nice(5)
    with suppress(EOFError):
        while pipe.poll(IDLE):
            compute, arguments = pipe.recv()
            pipe.send(_result(compute, arguments))


def _serve(place: str, arguments: tuple[object, ...], pipe: Connection) -> None:
    """Make the object and answer calls, in the other process."""
    end_with_parent()
    module, _, name = place.partition(':')
    made = getattr(import_module(module), name)(*arguments)
    while True:
        pipe.send(_result(made, pipe.recv()))


def _result(compute: Callable[..., object], arguments: tuple[object, ...]) -> object:
    try:
        return compute(*arguments)
    except LastingError as error:
        return error
