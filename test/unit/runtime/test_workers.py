# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""Worker processes: results in order, errors as raised, a clean end whoever is asked."""

import multiprocessing
import os
from pathlib import Path
import signal
import subprocess
import sys

from fdrl_ros.errors import FdrlError, PrivacyError
from fdrl_ros.runtime.progress import NOBODY
from fdrl_ros.runtime.worker_processes import kept_workers, run_tasks
import pytest
from support.worker_tasks import double, process_of

COMMAND = """
import signal, sys
from fdrl_ros.errors import TrainingStopped
from fdrl_ros.runtime.progress import Caller
from fdrl_ros.runtime.worker_processes import run_tasks
from support.worker_tasks import wait_for_the_end

if __name__ == '__main__':
    asked = []
    signal.signal(signal.SIGTERM, lambda number, frame: asked.append(number))
    print('begins', flush=True)
    try:
        run_tasks(
            wait_for_the_end,
            [(1,), (2,)],
            workers=2,
            caller=Caller(
                lambda told: print(told.who, told.done, flush=True), lambda: bool(asked)
            ),
        )
    except TrainingStopped:
        print('stopped', flush=True)
        sys.exit(130)
"""


def run(work, tasks, workers):
    return run_tasks(work, tasks, workers=workers, caller=NOBODY)


@pytest.fixture
def command(tmp_path):
    """Start a command of two workers in a process group of its own."""
    script = tmp_path / 'command.py'
    script.write_text(COMMAND)
    tests = Path(__file__).parents[2]
    path = os.pathsep.join([str(tests), str(tests.parent)])
    with subprocess.Popen(
        [sys.executable, str(script)],
        env={**os.environ, 'PYTHONPATH': path},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    ) as started:
        yield started
        if started.poll() is None:
            os.killpg(started.pid, signal.SIGKILL)


def ended(command):
    """Wait until nobody can write any more, which is the end of all, and expect it clean."""
    out, errors = command.communicate(timeout=60)
    assert 'Traceback' not in errors and 'BrokenProcessPool' not in errors, errors
    assert out.splitlines()[-1] == 'stopped' and command.returncode == 130


def test_results_come_in_the_order_of_tasks_and_errors_as_they_are():
    assert run(double, [(3,), (1,), (2,)], 2) == [6, 2, 4]
    with pytest.raises(PrivacyError, match='13 has no double'):
        run(double, [(1,), (13,)], 2)


def test_a_worker_that_is_gone_is_told_in_one_line():
    with pytest.raises(FdrlError, match='a worker process is gone'):
        run(double, [(1,), (14,)], 2)


def test_a_request_to_the_group_ends_work_cleanly(command):
    lines = [command.stdout.readline() for _ in range(3)]
    assert lines[0] == 'begins\n' and {each[:5] for each in lines[1:]} == {'works'}
    os.killpg(command.pid, signal.SIGTERM)
    ended(command)


def test_a_request_while_workers_start_ends_work_cleanly(command):
    assert command.stdout.readline() == 'begins\n'
    os.killpg(command.pid, signal.SIGTERM)
    ended(command)


def test_a_request_to_one_worker_ends_all_cleanly(command):
    command.stdout.readline()
    os.kill(int(command.stdout.readline().split()[-1]), signal.SIGTERM)
    ended(command)


def test_kept_workers_serve_one_call_after_another_and_end_with_the_block():
    with kept_workers():
        first = set(run(process_of, [(each,) for each in range(20)], 2))
        assert run(double, [(1,), (2,)], 2) == [2, 4]
        again = set(run(process_of, [(each,) for each in range(20)], 2))
        assert len(first | again) <= 2 and os.getpid() not in first
        with pytest.raises(PrivacyError):
            run(double, [(13,), (1,)], 2)
        after = set(run(process_of, [(each,) for each in range(20)], 2))
        assert not after & first, 'what was stopped serves no other call'
    assert not multiprocessing.active_children()
