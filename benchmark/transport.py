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
from collections.abc import Callable
import hashlib
import json
import os
import socket
import statistics
import subprocess
import sys
import threading
import time
from typing import Any

from benchmarking import check, circumstances, Measurement, options, progress, Row, Table, write
from builtin_interfaces.msg import Time
from fdrl_ros.deployment.bringup import BringupSettings, free_domains, middleware
from fdrl_ros.federation.protocol.message import Envelope, GlobalPolicy
import fdrl_ros.msg as ros
from fdrl_ros.nodes.common import qos
from fdrl_ros.nodes.parties.weights_topic import PERIOD, PolicyPublisher, PolicyReader
import numpy as np
import rclpy
from rclpy.experimental import EventsExecutor
from std_msgs.msg import Int64, UInt8MultiArray

SIZE = 20_000_000
"""Bytes: 5 million weights."""

TICK = 0.02
"""Time between two small messages, second."""

WAYS = CHUNKS, MESSAGE, SOCKET = 'chunks', 'message', 'socket'
"""As this package does it; one ROS message; a TCP connection."""

LONGEST = 10.0
"""What takes longer is given up, second."""


class End:
    """A node with what both ends have: an executor in this thread, and a thread beside it."""

    def __init__(self, name: str) -> None:
        rclpy.init()
        self.node = rclpy.create_node(name)
        self.executor = EventsExecutor()
        self.executor.add_node(self.node)

    def spin(self, until: Callable[[], bool], longest: float = LONGEST) -> bool:
        """Move messages until a condition holds."""
        end = time.monotonic() + longest
        while not until() and time.monotonic() < end:
            self.executor.spin_once(timeout_sec=0.1)
        return until()


def read(way: str) -> None:
    """Tell the sender when 20 MB are whole, and when each small message arrived."""
    end = End('reader')
    arrived = end.node.create_publisher(Int64, 'arrived', 10)
    ticked = end.node.create_publisher(Int64, 'ticked', 1000)

    def tell(*_: Any) -> None:
        arrived.publish(Int64(data=time.monotonic_ns()))

    def tick(message: Int64) -> None:
        ticked.publish(Int64(data=time.monotonic_ns() - message.data))

    end.node.create_subscription(Int64, 'tick', tick, qos.EVENT)
    if way == MESSAGE:
        end.node.create_subscription(UInt8MultiArray, 'data', tell, 10)
    elif way == SOCKET:
        threading.Thread(target=drain, daemon=True, args=(tell,)).start()
    else:
        reader = PolicyReader(SIZE, tell)
        reader.subscribe(end.node.create_subscription, ros.GlobalPolicy, 'data')
    end.spin(lambda: False, longest=float('inf'))


def drain(tell: Callable[[], None]) -> None:
    """Read 20 MB again and again from the connection that is handed on as standard input."""
    connection = socket.socket(fileno=os.dup(0))
    buffer = memoryview(bytearray(SIZE))
    while True:
        got = 0
        while got < SIZE:
            count = connection.recv_into(buffer[got:])
            if not count:
                return
            got += count
        tell()


class Sender:
    """Obeys orders: `send` answers with the time that 20 MB take, the others with latencies."""

    def __init__(self, way: str, connection: int) -> None:
        """
        Join the reader.

        :param connection: file descriptor of the TCP connection.
        """
        self._way = way
        self._end = End('sender')
        self._arrived: list[int] = []
        self._ticked: list[int] = []
        node = self._end.node
        node.create_subscription(Int64, 'arrived', lambda m: self._arrived.append(m.data), 10)
        node.create_subscription(Int64, 'ticked', lambda m: self._ticked.append(m.data), 1000)
        self._tick = node.create_publisher(Int64, 'tick', qos.EVENT)
        self._data = np.random.default_rng(0).bytes(SIZE)
        self._number = 0
        self._end.spin(lambda: self._tick.get_subscription_count() > 0)
        if way == CHUNKS:
            self._timer = node.create_timer(PERIOD, self._publish_burst)
            self._out = PolicyPublisher(
                node.create_publisher, ros.GlobalPolicy, 'data', self._timer.reset
            )
        elif way == MESSAGE:
            self._publisher = node.create_publisher(UInt8MultiArray, 'data', 10)
            self._end.spin(lambda: self._publisher.get_subscription_count() > 0)
        else:
            self._connection = socket.socket(fileno=connection)

    def _publish_burst(self) -> None:
        if not self._out.publish_burst():
            self._timer.cancel()

    def send(self) -> float:
        """
        Send 20 MB that were never sent before.

        :returns: time until the reader has them all, millisecond; infinite if it never has.
        """
        self._number += 1
        data = self._number.to_bytes(8, 'little') + self._data[8:]
        digest = hashlib.sha256(data).digest()
        envelope = Envelope('', 1, 1, 'sender', self._number)
        policy = GlobalPolicy(envelope, data, digest, (), b'', False, True, '')
        self._arrived.clear()
        begun = time.monotonic_ns()
        if self._way == MESSAGE:
            large = UInt8MultiArray()
            large.data.frombytes(data)
            self._publisher.publish(large)
        elif self._way == SOCKET:
            threading.Thread(target=self._connection.sendall, args=(data,)).start()
        else:
            self._out.publish(policy, Time())
        if not self._end.spin(lambda: bool(self._arrived)):
            return float('inf')
        return (self._arrived[0] - begun) / 1e6

    def small(self, count: int, *, sending: bool) -> list[float]:
        """
        Send small messages, and beside them 20 MB again and again if asked to.

        :returns: time from each one's publishing to its callback, millisecond.
        """
        self._ticked.clear()
        sent = 0

        def beat() -> None:
            nonlocal sent
            if sent < count:
                sent += 1
                self._tick.publish(Int64(data=time.monotonic_ns()))

        timer = self._end.node.create_timer(TICK, beat)
        limit = time.monotonic() + count * TICK + LONGEST
        while len(self._ticked) < count and time.monotonic() < limit:
            enough = min(count, len(self._ticked) + 5)
            if sending:
                self.send()
            self._end.spin(lambda enough=enough: len(self._ticked) >= enough, 0.5)
        self._end.node.destroy_timer(timer)
        return [each / 1e6 for each in self._ticked]

    def obey(self) -> None:
        """Carry out orders until there are no more."""
        print('0', flush=True)
        for line in sys.stdin:
            order, *number = line.split()
            if order == 'send':
                answer: Any = self.send()
            else:
                answer = self.small(int(number[0]), sending=order == 'beside')
            print(json.dumps(answer), flush=True)


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
        command = [sys.executable, __file__, way]
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


def run_end(way: str, end: str, *connection: str) -> None:
    """Be a reader or a sender until the orders end, in a process of its own."""
    if end == 'reader':
        read(way)
    else:
        Sender(way, int(connection[0])).obey()
    os._exit(0)  # what is under way in foreign threads is of no account


def main() -> None:
    """Measure, print, write."""
    parser = options('Measure how fast 20 MB get from one process to another.')
    given = parser.parse_args()
    check(parser, given)
    run = circumstances(given, 0, ('numpy', 'ros-rclpy'), bind=False)
    found = found_by(given)
    table = Table([row.name for row in ROWS], run)
    for row in ROWS:
        table.add(row, found)
    table.end()
    if given.json:
        write(given.json, table.written)


if __name__ == '__main__':
    if len(sys.argv) > 2 and sys.argv[1] in WAYS:
        run_end(*sys.argv[1:])
    main()
