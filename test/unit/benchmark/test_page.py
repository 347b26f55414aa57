# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""`benchmark/page.py`: every promised figure has a row, and clients time what they are shown."""

import asyncio
import threading
import time
from types import SimpleNamespace

import pytest

pytest.importorskip('rclpy', reason='ROS 2 is not sourced')
pytest.importorskip('fdrl_ros.msg', reason='the messages are not built')

from fdrl_ros.page.server import Place, Server  # noqa: E402, I100
from fdrl_ros.page.sessions import Person, Role, Sessions  # noqa: E402
from fdrl_ros.page.state import PageState  # noqa: E402
import httpx  # noqa: E402
from support.page_client import served  # noqa: E402


@pytest.fixture
def work(module):
    return module('page')


def test_every_promised_figure_has_a_row(work):
    names = {row.name for row in work.ROWS}
    assert names >= {
        'stamp_to_browser_p50_ms',
        'stamp_to_browser_p99_ms',
        'take_over_p99_ms',
        'ten_clients_core_fraction',
    }
    bench = work.Bench(None, None, None)
    for row in work.ROWS:
        assert {row.own} <= bench.found.keys()
        assert bench.found[row.own].unit == ('1' if row.name.endswith('fraction') else 'ms')


def test_clients_time_each_state_from_its_stamp(work):
    state, sessions = PageState((work.ROBOT,), None), Sessions(time.monotonic, 60.0)
    server = Server(state, sessions, None, None, Place(), lambda robot: '')
    ending = threading.Event()

    def say():
        while not ending.wait(0.05):
            with state.robot(work.ROBOT, urgent=True) as robot:
                robot.receive_operation(time.time() - 1.0, 'reach', '', '', ())

    thread = threading.Thread(target=say)
    thread.start()
    try:
        with served(server.app()) as url:
            person = httpx.Client(base_url=url)
            token = sessions.invite(Person('Ada', Role.VIEWER))
            person.get('/enter', params={'token': token})
            page = SimpleNamespace(url=url, people=[person])
            waits = asyncio.run(work.look(page, 2, 1.0))
    finally:
        ending.set()
        thread.join()
    assert len(waits) > 10 and min(waits) >= 1.0
