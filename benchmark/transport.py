# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""
How fast 20 MB (5 million weights) get from one process to another, and what waits for them.

    tools/in_workspace python benchmark/transport.py --json transport.json

Transport only: from the bytes in one process to the same bytes in the other, where a callback has
them. Signatures, hashes and files on disk are not in it. All ways are measured in turns, each
between two processes of its own: ours in chunks, one
ROS message with the middleware as it comes, and a TCP connection. Then a small message is sent 50
times a second between the same two processes while 20 MB go again and again: how late is it?
"""

import argparse
import json
import os
from pathlib import Path
import socket
import statistics
import subprocess
import sys
import time
from typing import Any

from fdrl_ros.deployment.bringup import BringupSettings, free_domains, middleware
import numpy as np
from transport_ends import CHUNKS, MESSAGE, SOCKET, TICK, WAYS
from turns import check, circumstances, Measurement, options, progress, Row, Table, write

QUIET = 'the same without transfers'
PLAIN = 'one ROS message, Fast DDS as it comes'
ROWS = (
    Row('transfer_20mb_ms', CHUNKS, MESSAGE, PLAIN, None, False),
    Row('transfer_over_socket', CHUNKS, SOCKET, 'a TCP connection, ms', None, False, 'own/peer'),
    Row('small_p99_ms', f'{CHUNKS} small', 'quiet small', QUIET, None, False),
    Row('small_p99_message_ms', f'{MESSAGE} small', 'quiet small', QUIET, None, False),
)


class Pair:
    """A sender and a reader."""

    def __init__(self, way: str, domain: int) -> None:
        """Start them, in a DDS domain of their own, and wait until they know each other."""
        variables = os.environ | {'ROS_DOMAIN_ID': str(domain)}
        if way != MESSAGE:
            variables |= middleware(BringupSettings())
        ends = socket.create_server(('127.0.0.1', 0))
        near = socket.create_connection(ends.getsockname())
        far, _ = ends.accept()
        command = [sys.executable, str(Path(__file__).with_name('transport_ends.py')), way]
        self._reader = subprocess.Popen([*command, 'reader'], env=variables, stdin=far)
        self._sender = subprocess.Popen(
            [*command, 'sender', str(near.fileno())],
            env=variables,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            pass_fds=(near.fileno(),),
            text=True,
        )
        for each in (ends, near, far):
            each.close()
        self._answer()

    def send(self) -> float:
        """Have 20 MB sent, and return the time until they are there, millisecond."""
        return float(self._order('send'))

    def small(self, count: int, *, sending: bool) -> float:
        """Have small messages sent, and return the 99th percentile of their time, millisecond."""
        late = self._order(f'{"beside" if sending else "alone"} {count}')
        return float(np.percentile(late, 99)) if len(late) == count else float('inf')

    def _order(self, words: str) -> Any:
        assert self._sender.stdin is not None
        print(words, file=self._sender.stdin, flush=True)
        return self._answer()

    def _answer(self) -> Any:
        assert self._sender.stdout is not None
        line = self._sender.stdout.readline()
        if not line:
            raise SystemExit('a sender has ended')
        return json.loads(line)

    def end(self) -> None:
        """End both."""
        self._sender.communicate(timeout=20)
        self._reader.kill()
        self._reader.wait()


def found_by(given: argparse.Namespace) -> dict[str, Measurement]:
    """Measure every way in turns."""
    names = {name for row in ROWS for name in (row.own, row.peer) if name}
    found = {name: Measurement(lambda: lambda: 0.0, 'ms') for name in names}
    count = max(1, int(5 * given.seconds / TICK))
    pairs: dict[str, Pair] = {}
    try:
        for way, domain in zip(WAYS, free_domains(len(WAYS)), strict=True):
            progress(f'warming {way}')
            pairs[way] = Pair(way, domain)
            for _ in range(5):
                pairs[way].send()
        for repeat in range(given.repeats):
            turn = f'repeat {repeat + 1} of {given.repeats}'
            for way, pair in pairs.items():
                progress(f'{turn}: {way}')
                taken, end = [pair.send()], time.perf_counter() + given.seconds
                while time.perf_counter() < end:
                    taken.append(pair.send())
                found[way].samples.append(statistics.median(taken))
            for way in (CHUNKS, MESSAGE):
                progress(f'{turn}: small messages beside {way}')
                found[f'{way} small'].samples.append(pairs[way].small(count, sending=True))
            progress(f'{turn}: small messages alone')
            found['quiet small'].samples.append(pairs[CHUNKS].small(count, sending=False))
    finally:
        for pair in pairs.values():
            pair.end()
    return found


def main() -> None:
    """Measure, print, write."""
    parser = options('Measure how fast 20 MB get from one process to another.')
    given = parser.parse_args()
    check(parser, given)
    run = circumstances(given, 0, ('numpy', 'ros-kilted-rclpy'), bind=False)
    found = found_by(given)
    table = Table([row.name for row in ROWS], run)
    for row in ROWS:
        table.add(row, found)
    table.end()
    if given.json:
        write(given.json, table.written)


if __name__ == '__main__':
    main()
