# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""Orders of an operator over links: taken, answered, and refused with the reason."""

from collections.abc import Iterator
from contextlib import closing, contextmanager
from datetime import datetime, UTC
import threading
import time

from fdrl_ros.crypto.keys.keystore import KEY_FILE, load_identity
from fdrl_ros.deployment.layout import Layout
from fdrl_ros.deployment.link import orders
from fdrl_ros.deployment.link.credentials import LinkFiles, make_links, ROUTER
from fdrl_ros.deployment.link.driver import PartyProcess
from fdrl_ros.deployment.link.orders import deliver
from fdrl_ros.deployment.link.transport import free_port, open_router
from fdrl_ros.deployment.prepare import prepare
from fdrl_ros.errors import OrderError
from fdrl_ros.federation.protocol.message import Order
from fdrl_ros.federation.protocol.orders import sign_order
from fdrl_ros.federation.protocol.store import Store
import pytest
from support.small_run import SMALL_PLAN

pytest.importorskip('zenoh', reason='eclipse-zenoh is not installed (requirements/zenoh.txt)')


@pytest.fixture(scope='module')
def layout(tmp_path_factory: pytest.TempPathFactory) -> Layout:
    made = prepare(tmp_path_factory.mktemp('orders') / 'federation', SMALL_PLAN)
    make_links(made, ['127.0.0.1'], datetime.now(UTC), 30)
    return made


@contextmanager
def running(layout: Layout, name: str, place: str) -> Iterator[PartyProcess]:
    process = PartyProcess(layout, name, place)
    thread = threading.Thread(target=process.run)
    thread.start()
    try:
        yield process
    finally:
        process.stop()
        thread.join(30)


@pytest.fixture
def place(layout: Layout) -> Iterator[str]:
    found = f'tls/127.0.0.1:{free_port()}'
    router = open_router(LinkFiles(layout.keys, ROUTER), layout.roster(), found)
    yield found
    router.close()


def signed(layout: Layout, action: str, **about: str) -> Order:
    identity = load_identity(layout.keys / 'operator' / KEY_FILE, 'operator')
    return sign_order(identity, layout.roster().federation, action, time.time(), **about)


def send(layout: Layout, place: str, order: Order) -> None:
    deliver(order, LinkFiles(layout.keys, 'operator'), layout.roster(), place)


def test_a_server_takes_orders_over_its_link_and_says_why_it_refuses_one(layout, place):
    with running(layout, 'aggregator', place):
        send(layout, place, signed(layout, 'withdraw', hospital='hospital_2'))
        with pytest.raises(OrderError, match='refused: .*names no hospital .nobody.'):
            send(layout, place, signed(layout, 'admit', hospital='nobody'))
        send(layout, place, signed(layout, 'pause'))
    with closing(Store(layout.state('aggregator'))) as store:
        assert store.get('paused') == b'yes' and store.get('withdrawn') == b'["hospital_2"]'


def test_nobody_answers_for_a_server_that_is_not_there(layout, place, monkeypatch):
    monkeypatch.setattr(orders, 'PATIENCE', 2.0)
    with pytest.raises(OrderError, match='the key_authority did not answer within 2 s'):
        send(layout, place, signed(layout, 'forgive', hospital='hospital_1'))
    with pytest.raises(OrderError, match='no way to the aggregator: .*nobody answers'):
        send(layout, f'tls/127.0.0.1:{free_port()}', signed(layout, 'resume'))
