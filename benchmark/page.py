# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""
How fast the page of `fdrl watch` is, beside Foxglove's SDK with one topic.

    tools/in_workspace python benchmark/page.py --json page.json

The simulated arm, its selector, `fdrl watch` and the peer have a process each; the browsers are
WebSockets of this one, which answer at once and draw nothing. All have their turns one after the
other: nobody looks, one client, ten clients, one client of the peer, take-overs.

`stamp_to_browser_*_ms` goes from the stamp of a state of the operation, which the env writes when
it publishes, to the arrival of the first snapshot with it; of the peer, to the arrival of its
bytes. `take_over_p*_ms` goes from an HTTP request to the arrival of the selector's word that the
surgeon drives; `take_over_answer_p*_ms` to the answer, before which the selector waits for its
disk. `ten_clients_core_fraction` is the processor time of the page with ten clients, of one core;
its peer's is that of the SDK's server with one. `selector_p99_ms` goes from a state's stamp to the
arrival of the action here while ten clients look; its peer is the same while nobody does.
"""

import asyncio
from collections.abc import Callable, Iterator
from contextlib import AsyncExitStack, contextmanager, ExitStack
import json
import os
from pathlib import Path
import struct
import subprocess
import sys
import tempfile
import threading
import time

from benchmarking import (
    as_process,
    check,
    circumstances,
    has,
    Measurement,
    options,
    progress,
    Row,
    Skipped,
    Table,
    write,
)
from fdrl_ros.deployment.bringup import BringupSettings, free_domains, middleware, robot_graph
from fdrl_ros.deployment.plan import Plan
from fdrl_ros.deployment.prepare import prepare
from fdrl_ros.deployment.runner import Runner
import fdrl_ros.msg as ros
from fdrl_ros.nodes.common import qos
from fdrl_ros.nodes.common.service_call import node_in
from fdrl_ros.runtime.environment_variables import with_variables
import httpx
import numpy as np
from rclpy.experimental import EventsExecutor
from websockets.asyncio.client import connect

PACKAGES = ('starlette', 'uvicorn', 'websockets', 'foxglove-sdk')
SEED = 1
ROBOT = 'robot_1'
CLIENTS = 10
PEOPLE = 10
"""Operators who take over in turns: a session may act 20 times in 10 s."""

STARTING = 60.0
"""Longest wait for the processes, second."""

PLAN = Plan().changed(
    {
        'federation': {'seed': SEED, 'noise': 'seeded'},
        'pretraining': {'patients': 10, 'steps': 20},
        'world': {'mode': 'kinematic'},
    }
)
SDK = "Foxglove's SDK, one topic, one client"
ROWS = (
    Row('stamp_to_browser_p50_ms', 'one p50', 'sdk p50', SDK, 20.0, at_least=False),
    Row('stamp_to_browser_p99_ms', 'one p99', 'sdk p99', SDK, 60.0, at_least=False),
    Row('ten_stamp_to_browser_p99_ms', 'ten p99', None, '', None),
    Row('take_over_p50_ms', 'take p50', None, '', None),
    Row('take_over_p99_ms', 'take p99', None, '', 50.0, at_least=False),
    Row('take_over_answer_p50_ms', 'answer p50', None, '', None),
    Row('take_over_answer_p99_ms', 'answer p99', None, '', None),
    Row('ten_clients_core_fraction', 'ten core', 'sdk core', SDK, 0.2, at_least=False),
    Row('one_client_core_fraction', 'one core', None, '', None),
    Row('idle_core_fraction', 'none core', None, '', None),
    Row('selector_p99_ms', 'selector ten', 'selector none', 'nobody looks', None),
)
UNITS = {'core': '1'}


def processor_time(process: int) -> float:
    """Return what a process has used of a core, second."""
    words = Path(f'/proc/{process}/stat').read_text('utf-8').rpartition(')')[2].split()
    return (int(words[11]) + int(words[12])) / os.sysconf('SC_CLK_TCK')


class Answers:
    """Hears the selector's actions, and how long after the stamp of their states they come."""

    def __init__(self, domain: int) -> None:
        self.waits: list[float] = []
        self.taken: list[float] = []
        """When the selector said that the surgeon drives now."""
        self._driver = ''
        self._ending = threading.Event()
        self._thread = threading.Thread(target=self._listen, args=(domain,))
        self._thread.start()

    def _listen(self, domain: int) -> None:
        with node_in(domain, 'listener') as node:
            executor = EventsExecutor(context=node.context)
            executor.add_node(node)
            topic = f'/{ROBOT}/action'
            node.create_subscription(ros.SelectedAction, topic, self._take, qos.SENSOR)
            topic = f'/{ROBOT}/policies'
            node.create_subscription(ros.Policies, topic, self._take_driver, qos.HEARD)
            while not self._ending.is_set():
                executor.spin_once(timeout_sec=0.1)
            executor.remove_node(node)

    def _take_driver(self, source: ros.Policies) -> None:
        if self._driver == 'selector' and source.driver == 'surgeon':
            self.taken.append(time.time())
        self._driver = source.driver

    def _take(self, source: ros.SelectedAction) -> None:
        stamp = source.header.stamp
        self.waits.append(time.time() - stamp.sec - 1e-9 * stamp.nanosec)

    def close(self) -> None:
        """End."""
        self._ending.set()
        self._thread.join()


class Page:
    """
    `fdrl watch` in a process of its own.

    :param process: that serves.
    :param links: of each person.
    """

    def __init__(self, settings: BringupSettings) -> None:
        words = ['watch', '--directory', settings.directory, '--port', '0']
        words += ['--federation-domain', str(settings.federation_domain)]
        words += ['--domain', str(settings.robot_domain), '--operator-key', 'operator']
        for number in range(PEOPLE):
            words += ['--operator', f'operator {number}']
        self.process = subprocess.Popen(
            [sys.executable, '-P', '-m', 'fdrl_ros', *words], stdout=subprocess.PIPE, text=True
        )
        assert self.process.stdout is not None
        lines = [self.process.stdout.readline() for _ in range(PEOPLE + 1)]
        self.links = [line.rsplit(' ', 1)[-1].strip() for line in lines[1:]]
        if not all(each.startswith('http') for each in self.links):
            raise SystemExit('fdrl watch did not begin')
        self.url = self.links[0].partition('/enter')[0]
        self.people = [httpx.Client(base_url=self.url) for _ in self.links]
        self._tokens = []
        for client, link in zip(self.people, self.links, strict=True):
            client.get(link)
            self._tokens.append(client.get('/api/session').json()['csrf'])

    def act(self, number: int, act: str) -> float:
        """Have a person act on the robot, and return how long the answer took, second."""
        headers = {'Origin': self.url, 'X-CSRF-Token': self._tokens[number]}
        start = time.perf_counter()
        answer = self.people[number].post(
            '/api/act', json={'act': act, 'robot': ROBOT}, headers=headers
        )
        taken = time.perf_counter() - start
        if answer.status_code != 200:
            raise SystemExit(f'{act}: {answer.text}')
        return taken

    def close(self) -> None:
        """End it."""
        self.process.terminate()
        self.process.wait(20.0)
        for each in self.people:
            each.close()


async def look(page: Page, count: int, seconds: float) -> list[float]:
    """
    Let clients look at the page.

    :returns: from a state's stamp to its arrival, of all clients, second.
    """
    waits: list[float] = []
    end = time.monotonic() + seconds
    cookies = page.people[0].cookies
    cookie = '; '.join(f'{name}={value}' for name, value in cookies.items())

    async def client() -> None:
        newest = None
        async with connect(
            page.url.replace('http', 'ws', 1) + '/ws',
            origin=page.url,  # type: ignore[arg-type]
            additional_headers={'Cookie': cookie},
            compression=None,
        ) as socket:
            while time.monotonic() < end:
                text = await socket.recv()
                came = time.time()
                snapshot = json.loads(text)
                await socket.send(json.dumps({'got': snapshot['n']}))
                stamp = snapshot['robots'][ROBOT]['stamp']
                if stamp is not None and stamp != newest:
                    if newest is not None:
                        waits.append(came - stamp)
                    newest = stamp

    async with asyncio.TaskGroup() as group:
        for _ in range(count):
            group.create_task(client())
    return waits


async def look_at_peer(port: int, seconds: float) -> list[float]:
    """Let one client look at the peer, and return the same."""
    waits: list[float] = []
    async with AsyncExitStack() as opened:
        socket = await opened.enter_async_context(
            connect(
                f'ws://127.0.0.1:{port}',
                subprotocols=['foxglove.sdk.v1'],  # type: ignore[list-item]
                compression=None,
            )
        )
        async for text in socket:
            told = json.loads(text) if isinstance(text, str) else {}
            if told.get('op') == 'advertise':
                channel = told['channels'][0]['id']
                wanted = [{'id': 1, 'channelId': channel}]
                await socket.send(json.dumps({'op': 'subscribe', 'subscriptions': wanted}))
                break
        end = time.monotonic() + seconds
        async for data in socket:
            came = time.time()
            if isinstance(data, bytes) and data[0] == 1:
                # Opcode, subscription, time, then CDR: four bytes, then the stamp.
                second, nanosecond = struct.unpack_from('<iI', data, 1 + 4 + 8 + 4)
                waits.append(came - second - 1e-9 * nanosecond)
            if time.monotonic() > end:
                break
    return waits


@contextmanager
def peer(domain: int) -> Iterator[tuple[int, int] | None]:
    """Run the peer, and yield its process and port; None where its SDK is not installed."""
    if not has('foxglove-sdk'):
        yield None
        return
    script = Path(__file__).with_name('page_foxglove.py')
    with subprocess.Popen(
        [sys.executable, str(script), str(domain), f'/{ROBOT}/operation_state'],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout is not None and process.stdin is not None
        try:
            yield process.pid, int(process.stdout.readline())
        finally:
            process.stdin.close()
            process.wait(20.0)


class Bench:
    """What is measured, in turns."""

    def __init__(self, page: Page, answers: Answers, sdk: tuple[int, int] | None) -> None:
        self._page, self._answers, self._sdk = page, answers, sdk
        names = {row.own for row in ROWS} | {row.peer for row in ROWS if row.peer}
        self.found = {
            name: Measurement(_no_work, UNITS.get(name.split()[-1], 'ms')) for name in names
        }
        if sdk is None:
            for name in names:
                if name.startswith('sdk'):
                    self.found[name].reason = 'foxglove-sdk is not installed'

    def turn(self, seconds: float) -> None:
        """Measure everything once."""
        for name, clients in (('none', 0), ('one', 1), ('ten', CLIENTS)):
            del self._answers.waits[:]
            waits = self._with_core(
                name, self._page.process.pid, lambda n=clients: self._look(n, seconds), seconds
            )
            if clients:
                self._note(name, waits)
            self._note('selector', self._answers.waits, name)
        if self._sdk is not None:
            process, port = self._sdk
            waits = self._with_core(
                'sdk', process, lambda: asyncio.run(look_at_peer(port, seconds)), seconds
            )
            self._note('sdk', waits)
        self._take_overs(seconds)

    def _look(self, clients: int, seconds: float) -> list[float]:
        if clients:
            return asyncio.run(look(self._page, clients, seconds))
        time.sleep(seconds)
        return []

    def _take_overs(self, seconds: float) -> None:
        found, answers, end, number = [], [], time.monotonic() + seconds, 0
        while time.monotonic() < end:
            del self._answers.taken[:]
            start = time.time()
            answers.append(self._page.act(number % PEOPLE, 'take_over'))
            while not self._answers.taken:
                time.sleep(0.001)
            found.append(self._answers.taken[0] - start)
            self._page.act(number % PEOPLE, 'hand_back')
            number += 1
            time.sleep(0.1)  # ten people may act 20 times a second
        self._note('take', found)
        self._note('answer', answers)

    def _with_core(
        self, name: str, process: int, work: Callable[[], list[float]], seconds: float
    ) -> list[float]:
        before, start = processor_time(process), time.monotonic()
        waits = work()
        used = (processor_time(process) - before) / (time.monotonic() - start)
        self._add(f'{name} core', used)
        return waits

    def _note(self, name: str, waits: list[float], last: str = '') -> None:
        if not waits:
            raise SystemExit(f'{name}: nothing came')
        if last:
            self._add(f'{name} {last}', 1e3 * float(np.quantile(waits, 0.99)))
            return
        for share in (50, 99):
            self._add(f'{name} p{share}', 1e3 * float(np.quantile(waits, share / 100)))

    def _add(self, name: str, value: float) -> None:
        if name in self.found:
            self.found[name].samples.append(value)


def _no_work() -> Callable[[], float]:
    raise Skipped('it is measured in turns of its own')


def main() -> None:
    """Measure, print, write."""
    parser = options('Measure the speed of the page.')
    given = parser.parse_args()
    check(parser, given)
    as_process()
    run = circumstances(given, SEED, PACKAGES, bind=False)
    federation, robots = free_domains(2)
    with ExitStack() as opened:
        folder = opened.enter_context(tempfile.TemporaryDirectory())
        settings = BringupSettings(
            directory=f'{folder}/federation', federation_domain=federation, robot_domain=robots
        )
        progress('preparing')
        layout = prepare(Path(settings.directory), PLAN)
        opened.enter_context(with_variables(middleware(settings)))
        runner = opened.enter_context(Runner(settings, layout.log))
        runner.start(robot_graph(settings, ROBOT, -1))
        answers = Answers(robots)
        opened.callback(answers.close)
        end = time.monotonic() + STARTING
        while not answers.waits and time.monotonic() < end:
            time.sleep(0.1)
        page = Page(settings)
        opened.callback(page.close)
        bench = Bench(page, answers, opened.enter_context(peer(robots)))
        for repeat in range(given.repeats):
            progress(f'repeat {repeat + 1} of {given.repeats}')
            bench.turn(given.seconds)
        progress('')
    made = Table([row.name for row in ROWS], run)
    for row in ROWS:
        made.add(row, bench.found)
    made.end()
    if given.json:
        write(given.json, made.written)


if __name__ == '__main__':
    main()
