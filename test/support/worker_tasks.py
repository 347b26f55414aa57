# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""Work for worker processes, in a module that they import quickly."""

import os
import signal
import threading

from fdrl_ros.errors import PrivacyError, TrainingStopped
from fdrl_ros.runtime.progress import Progress


def wait_for_the_end(number, caller):
    """Work until it is told to stop, as collecting does; tell of the process first."""
    caller.report(Progress('test', f'works {number}', os.getpid(), 0))
    idle = threading.Event()
    while not caller.stopped():
        idle.wait(0.01)
    raise TrainingStopped('stopped')


def double(number, caller):
    """Return twice the number; none has twice 13, and 14 kills."""
    if number == 13:
        raise PrivacyError('13 has no double')
    if number == 14:
        os.kill(os.getpid(), signal.SIGKILL)
    return 2 * number


def process_of(number, caller):
    """Return the process that works on it."""
    return os.getpid()
