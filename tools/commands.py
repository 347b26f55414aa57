# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""Run the commands of the set-up: progress on the screen, everything they print in a log."""

import os
from pathlib import Path
import subprocess
import sys
import time

ROOT = Path(__file__).resolve().parent.parent
LOG = ROOT / 'log' / 'setup.log'
OTHER_ROS = ('AMENT_', 'COLCON_', 'CMAKE_PREFIX', 'LD_LIBRARY', 'PYTHON', 'VIRTUAL_ENV', '_ROS')


class Failed(Exception):
    """A command failed; its output is in the log."""


def run(command, count=None):
    """
    Run a command in an environment without any other ROS; its output goes to the log.

    :param count: show progress: how many lines start with this.
    """
    clean = {k: v for k, v in os.environ.items() if not k.startswith(OTHER_ROS)}
    words = [str(each) for each in command]
    seen = 0
    shown = 0.0
    with open(LOG, 'a') as log:
        log.write(f'\n$ {" ".join(words)}\n')
        log.flush()
        process = subprocess.Popen(
            words, cwd=ROOT, env=clean, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        )
        tail = []
        try:
            for line in process.stdout:
                log.write(line)
                log.flush()
                tail = [*tail[-40:], line]
                if count and line.startswith(count):
                    seen += 1
                    if time.monotonic() - shown > (0.2 if sys.stdout.isatty() else 15.0):
                        shown = time.monotonic()
                        end = '\r' if sys.stdout.isatty() else '\n'
                        print(f'   fetched {seen} {"":30}', end=end, flush=True)
                elif count and line.startswith('Installing collected'):
                    print(f'   fetched all {seen}, installing {"":30}', flush=True)
        except BaseException:
            process.terminate()  # else it would go on writing beside the next try
            process.wait()
            raise
        if process.wait() != 0:
            print(''.join(tail), file=sys.stderr)
            raise Failed(f'{words[0]} ended with {process.returncode}; all output: {LOG}')


def step(text):
    """Say what happens now."""
    print(f'-- {text}', flush=True)
