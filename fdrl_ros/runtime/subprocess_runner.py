# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""Long computations in a process of their own, so that the control loop keeps its 100 Hz."""

from collections.abc import Callable
import multiprocessing
from multiprocessing.connection import Connection
import os
from typing import Any

from fdrl_ros.errors import FdrlError, LastingError, TrainingStopped
from fdrl_ros.runtime.interrupts import spared_interrupts
from fdrl_ros.runtime.orphans import end_with_parent

LOOK = 0.2
"""Time between two looks whether to stop, second."""


def run_elsewhere(
    compute: Callable[..., Any], arguments: tuple[Any, ...], stopped: Callable[[], bool]
) -> Any:
    """
    Compute something in another process, below the control loop's priority.

    :param compute: of a module; it, its arguments and its result can be pickled.
    :raises TrainingStopped: as soon as `stopped` says so.
    :raises LastingError: if the computation does.
    :raises FdrlError: if the process ends without a result; its error is on standard error.
    """
    context = multiprocessing.get_context('spawn')
    ours, theirs = context.Pipe(duplex=False)
    process = context.Process(target=_compute, args=(compute, arguments, theirs), daemon=True)
    with spared_interrupts():
        process.start()
    theirs.close()
    try:
        while not ours.poll(LOOK):
            if stopped():
                raise TrainingStopped('the node stopped before a computation was done')
            if not process.is_alive() and not ours.poll():
                raise FdrlError(f'{compute.__name__} ended with exit code {process.exitcode}')
        result = ours.recv()
    except EOFError:
        process.join()
        raise FdrlError(f'{compute.__name__} ended with exit code {process.exitcode}') from None
    finally:
        process.terminate()
        process.join()
        ours.close()
    if isinstance(result, LastingError):
        raise result
    return result


def _compute(compute: Callable[..., Any], arguments: tuple[Any, ...], out: Connection) -> None:
    """Run in the other process."""
    end_with_parent()
    os.nice(5)
    try:
        result = compute(*arguments)
    except LastingError as error:
        result = error
    out.send(result)
