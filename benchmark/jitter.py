# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""
What a running round does to a control loop on the same machine.

    tools/in_workspace python benchmark/jitter.py --json jitter.json

A loop of 500 Hz has the last core to itself; a federation over DDS (trainers, aggregator, key
authority, `fdrl run`) has the others. In turns the federation runs and is stopped (SIGSTOP), and
the loop is measured: its 99th percentile of |period - 2 ms|. The figure is the median over the
pairs of what running adds. The peer is the same loop beside a process that only counts.
"""

import os
from pathlib import Path
import signal
import statistics
import subprocess
import sys
import tempfile
import time

import numpy as np
from turns import check, circumstances, options, progress, write

PERIOD = 0.002
GOAL = 0.5
"""Milliseconds that a round may add at the 99th percentile."""


def jitter(seconds: float) -> float:
    """
    Run the loop, and return its 99th percentile of |period - 2 ms|.

    :returns: millisecond.
    """
    count = int(seconds / PERIOD)
    woke = np.empty(count)
    begin = time.perf_counter()
    for tick in range(count):
        time.sleep(max(0.0, begin + (tick + 1) * PERIOD - time.perf_counter()))
        woke[tick] = time.perf_counter()
    return float(1e3 * np.percentile(np.abs(np.diff(woke) - PERIOD), 99))


def signal_all(group: int, what: signal.Signals) -> None:
    """Send a signal to all processes of a session: the runner's nodes have groups of their own."""
    for each in Path('/proc').iterdir():
        if each.name.isdigit() and int(each.name) != os.getpid():
            try:
                if os.getsid(int(each.name)) == group:
                    os.kill(int(each.name), what)
            except (ProcessLookupError, PermissionError):
                continue


class Load:
    """Processes on all cores but the last, which can be stopped and go on."""

    def __init__(self, command: list[str], until: bytes) -> None:
        """
        Start them, and wait until they say that the work has begun.

        :param until: words in what they print.
        """
        cores = sorted(os.sched_getaffinity(0))
        self._process = subprocess.Popen(
            command,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            preexec_fn=lambda: os.sched_setaffinity(0, cores[:-1]),
        )
        assert self._process.stdout is not None
        self._output = self._process.stdout
        said = b''
        while until not in said:
            line = self._output.readline()
            if not line:
                raise SystemExit('the load ended before it began:\n' + said.decode()[-2000:])
            said += line
        os.set_blocking(self._output.fileno(), False)

    def turn(self, running: bool) -> None:
        """Let them run, or stop them."""
        self._output.read()
        if self._process.poll() is not None:
            raise SystemExit('the load ended too early: give it more rounds')
        signal_all(self._process.pid, signal.SIGCONT if running else signal.SIGSTOP)

    def end(self) -> None:
        """Let go of them."""
        signal_all(self._process.pid, signal.SIGCONT)
        signal_all(self._process.pid, signal.SIGTERM)
        try:
            self._process.wait(30)
        except subprocess.TimeoutExpired:
            signal_all(self._process.pid, signal.SIGKILL)


def added(load: Load, pairs: int, seconds: float, what: str) -> list[tuple[float, float]]:
    """Return the jitter with the load stopped and running, pair by pair, millisecond."""
    found = []
    for pair in range(pairs):
        both = []
        for running in (False, True) if pair % 2 == 0 else (True, False):
            progress(f'{what}: pair {pair + 1} of {pairs}, {"running" if running else "stopped"}')
            load.turn(running)
            time.sleep(0.5)  # what is under way in the kernel ends
            both.append((running, jitter(seconds)))
        found.append(tuple(value for _, value in sorted(both)))
    return found


def main() -> None:
    """Measure, print, write."""
    parser = options('What a running round does to a control loop of 500 Hz on the same machine.')
    parser.set_defaults(seconds=10.0)
    given = parser.parse_args()
    check(parser, given)
    cores = sorted(os.sched_getaffinity(0))
    if len(cores) < 2:
        parser.error('one core: the loop would have none to itself')
    run, results = circumstances(given, 1, ['numpy', 'torch', 'tenseal']), {}
    with tempfile.TemporaryDirectory() as folder:
        federation = [sys.executable, '-m', 'fdrl_ros', 'run', '--rounds', '1000']
        federation += ['--directory', f'{folder}/run', '--privacy-budget', 'inf']
        counting = 'import sys\nprint("begun", flush=True)\nwhile True: pass'
        for name, command, until in (
            ('federation', federation, b'training together'),
            ('counting', [sys.executable, '-c', counting], b'begun'),
        ):
            os.sched_setaffinity(0, cores)
            progress(f'starting {name}')
            load = Load(command, until)
            os.sched_setaffinity(0, cores[-1:])
            try:
                results[name] = added(load, given.repeats, given.seconds, name)
            finally:
                load.end()
    change = {
        name: statistics.median(running - stopped for stopped, running in pairs)
        for name, pairs in results.items()
    }
    for name, pairs in results.items():
        print(f'{name}: p99 jitter, stopped and running, ms')
        for stopped, running in pairs:
            print(f'  {stopped:7.3f} {running:7.3f}')
    met = 'met' if change['federation'] <= GOAL else 'missed'
    print(f'a round adds {change["federation"]:.3f} ms (goal {GOAL} ms: {met});', end=' ')
    print(f'a process that only counts adds {change["counting"]:.3f} ms')
    if given.json:
        figure = {
            'value': change['federation'],
            'unit': 'ms',
            'peer': 'a process that only counts',
            'peer_value': change['counting'],
        }
        write(given.json, {'jitter_added_p99': figure | run})


if __name__ == '__main__':
    main()
