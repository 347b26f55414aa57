# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""
How long a node that was killed is missing.

    tools/in_workspace python benchmark/restart.py --json restart.json

A federation of the default plan runs a round over DDS; then one hospital is stopped, so that the
others wait. In turns a trainer, the aggregator and the key authority are killed (SIGKILL), and the
runner starts each again. The time is from the kill to the first word of the new process that only
a node with a whole party says: active, with keys, ledger and state read, and heard by another
process. The peer is the time that the node's modules alone take to import.
"""

import argparse
from collections.abc import Callable
import os
from pathlib import Path
import signal
import subprocess
import sys
import tempfile
import time

from benchmarking import check, circumstances, Measurement, options, progress, Row, Table, write
from fdrl_ros.deployment.bringup import BringupSettings, federation_graph, free_domains, middleware
from fdrl_ros.deployment.events import Event, NodeHealth, PrivacySpent, ReceivedMessage
from fdrl_ros.deployment.parties.hospital import open_records
from fdrl_ros.deployment.plan import Plan
from fdrl_ros.deployment.prepare import prepare
from fdrl_ros.deployment.runner import Runner
from fdrl_ros.federation.protocol.message import GlobalPolicy
from fdrl_ros.nodes.observer import Observer
from fdrl_ros.runtime.environment_variables import with_variables

GOAL = 3.0
"""Seconds that a killed node may be missing."""

LONGEST = 120.0
"""Seconds after which a node is not waited for any longer."""

NODES = {
    'trainer': 'hospital_1.trainer',
    'aggregator': 'federation.aggregator',
    'key_authority': 'federation.key_authority',
}
ROWS = tuple(
    Row(f'restart_{name}_s', name, f'{name} import', 'its modules alone', GOAL, False)
    for name in NODES
)
PLAN = Plan()


def speaks(name: str, event: Event) -> bool:
    """Tell whether an event is the first word of a node that has its party."""
    if name == 'trainer':
        return isinstance(event, PrivacySpent) and event.hospital == 'hospital_1'
    words = {'aggregator': 'round ', 'key_authority': 'released round '}
    return (
        isinstance(event, NodeHealth)
        and event.node == f'/federation/{name}'
        and event.summary.startswith(words[name])
    )


class Federation:
    """A federation that runs, and who looks on."""

    def __init__(self, runner: Runner, watch: Observer) -> None:
        self._runner = runner
        self._watch = watch

    def wait(self, condition: Callable[[Event], bool], longest: float = LONGEST) -> float:
        """Wait for an event, and return the time that it took, second."""
        begun = time.perf_counter()
        while True:
            self._runner.poll()
            if any(condition(each) for each in self._watch.poll(0.01)):
                return time.perf_counter() - begun
            if time.perf_counter() > begun + longest:
                raise SystemExit(f'nothing within {longest:g} s')

    def kill(self, name: str) -> float:
        """Kill a node, and return the time until it speaks again, second."""
        process = self._runner.process_id(NODES[name])
        os.kill(process, signal.SIGKILL)
        os.waitid(os.P_PID, process, os.WEXITED | os.WNOWAIT)
        self._watch.poll(0.0)  # what it said before
        return self.wait(lambda event: speaks(name, event))


def has_policy(event: Event) -> bool:
    """Tell whether the policy of the first round was released."""
    return (
        isinstance(event, ReceivedMessage)
        and isinstance(event.message, GlobalPolicy)
        and event.message.envelope.round == 1
    )


def importing(name: str) -> float:
    """Return the time that importing a node's module takes, with the interpreter, second."""
    begun = time.perf_counter()
    subprocess.run([sys.executable, '-c', f'import fdrl_ros.nodes.{name}'], check=True)
    return time.perf_counter() - begun


def found_by(given: argparse.Namespace, folder: Path) -> dict[str, Measurement]:
    """Kill every node in turns."""
    found = {
        name: Measurement(lambda: lambda: 0.0, 's')
        for node in NODES
        for name in (node, f'{node} import')
    }
    progress('preparing')
    layout = prepare(folder / 'federation', PLAN)
    for name in PLAN.hospitals:
        open_records(layout, name, PLAN)
    federation_domain, robot_domain = free_domains(2)
    settings = BringupSettings(str(layout.directory), federation_domain, robot_domain)
    with (
        with_variables(middleware(settings)),
        Observer(
            layout.roster(), settings.federation_domain, n_parameters=PLAN.network.n_parameters
        ) as watch,
        Runner(settings, layout.log, restarts=1000) as runner,
    ):
        federation = Federation(runner, watch)
        runner.start(federation_graph(settings, PLAN.hospitals))
        progress('the first round')
        federation.wait(has_policy, 10 * LONGEST)
        os.kill(runner.process_id(f'{PLAN.hospitals[-1]}.trainer'), signal.SIGSTOP)
        for repeat in range(given.repeats):
            for node in NODES:
                progress(f'repeat {repeat + 1} of {given.repeats}: {node}')
                found[node].samples.append(federation.kill(node))
                found[f'{node} import'].samples.append(importing(node))
    return found


def main() -> None:
    """Measure, print, write."""
    parser = options('Measure how long a node that was killed is missing.')
    given = parser.parse_args()
    check(parser, given)
    run = circumstances(given, PLAN.federation.seed, ('numpy', 'torch', 'ros-rclpy'), bind=False)
    with tempfile.TemporaryDirectory() as folder:
        found = found_by(given, Path(folder))
    table = Table([row.name for row in ROWS], run)
    for row in ROWS:
        table.add(row, found)
    table.end()
    if given.json:
        write(given.json, table.written)


if __name__ == '__main__':
    main()
