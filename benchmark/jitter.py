# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""
What a running round does to a control loop on the same machine.

    tools/in_workspace python benchmark/jitter.py --json jitter.json

A loop of 500 Hz has the last core to itself; a federation over DDS (trainers, aggregator, key
authority) has the others and goes from round to round. In turns it runs and is stopped (SIGSTOP),
and the loop is measured: its 99th percentile of |period - 2 ms|. The figure is the median over the
pairs of what running adds. The peer is the same loop beside a process that only counts.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
import os
from pathlib import Path
import signal
import statistics
import subprocess
import sys
import tempfile
import time

from benchmarking import check, circumstances, options, progress, write
from fdrl_ros.deployment.bringup import BringupSettings, federation_graph, free_domains, middleware
from fdrl_ros.deployment.events import Event, ReceivedMessage
from fdrl_ros.deployment.plan import Plan
from fdrl_ros.deployment.prepare import prepare
from fdrl_ros.deployment.runner import Runner
from fdrl_ros.federation.protocol.message import GlobalPolicy
from fdrl_ros.nodes.observer import Observer
from fdrl_ros.runtime.environment_variables import with_variables
import numpy as np

PERIOD = 0.002
GOAL = 0.5
"""Milliseconds that a round may add at the 99th percentile."""

LONGEST = 600.0
"""Seconds after which the first policy is not waited for any longer."""

PLAN = Plan().changed({'rounds': {'rounds': 1000}, 'privacy': {'budget': float('inf')}})


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


class Load:
    """Processes that can be stopped and go on."""

    def __init__(self, processes: Sequence[int]) -> None:
        """
        Take them as they run.

        :param processes: their numbers.
        """
        self._processes = processes

    def turn(self, running: bool) -> None:
        """
        Let them run, or stop them.

        :raises SystemExit: if one has ended.
        """
        for each in self._processes:
            if os.waitid(os.P_PID, each, os.WEXITED | os.WNOHANG | os.WNOWAIT):
                raise SystemExit('the load ended too early')
            os.kill(each, signal.SIGCONT if running else signal.SIGSTOP)


@contextmanager
def federation(folder: Path, cores: Sequence[int]) -> Iterator[Load]:
    """Run a federation whose first round is over, on some cores."""
    os.sched_setaffinity(0, cores)  # who is started stays on them
    layout = prepare(folder / 'federation', PLAN)
    federation_domain, robot_domain = free_domains(2)
    settings = BringupSettings(str(layout.directory), federation_domain, robot_domain)
    specs = federation_graph(settings, PLAN.hospitals)
    with Runner(settings, layout.log) as runner:
        runner.start(specs)
        with (
            with_variables(middleware(settings)),
            Observer(
                layout.roster(), federation_domain, n_parameters=PLAN.network.n_parameters
            ) as watch,
        ):
            end = time.monotonic() + LONGEST
            while not any(has_policy(each) for each in watch.poll(0.1)):
                if runner.poll() or time.monotonic() > end:
                    raise SystemExit(f'no policy was released; {layout.log} says why')
        load = Load([runner.process_id(each.label) for each in specs])
        try:
            yield load
        finally:
            load.turn(running=True)


@contextmanager
def counting(folder: Path, cores: Sequence[int]) -> Iterator[Load]:
    """Run a process that only counts, on some cores."""
    os.sched_setaffinity(0, cores)
    process = subprocess.Popen([sys.executable, '-c', 'while True: pass'])
    try:
        yield Load([process.pid])
    finally:
        process.kill()
        process.wait()


def has_policy(event: Event) -> bool:
    """Tell whether the policy of the first round, or a later one, was released."""
    return (
        isinstance(event, ReceivedMessage)
        and isinstance(event.message, GlobalPolicy)
        and event.message.envelope.round >= 1
    )


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
    for name, begin in (('federation', federation), ('counting', counting)):
        progress(f'starting {name}')
        with tempfile.TemporaryDirectory() as folder, begin(Path(folder), cores[:-1]) as load:
            os.sched_setaffinity(0, cores[-1:])
            results[name] = added(load, given.repeats, given.seconds, name)
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
