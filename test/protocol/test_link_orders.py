# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""Orders of an operator over links: taken, answered, and refused with the reason."""

from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from datetime import datetime, UTC
import threading
import time

from fdrl_ros.crypto.keys.keystore import KEY_FILE, load_identity
from fdrl_ros.deployment.layout import Layout
from fdrl_ros.deployment.link import orders
from fdrl_ros.deployment.link.credentials import LinkFiles, make_links, operator_key, ROUTER
from fdrl_ros.deployment.link.driver import PartyProcess
from fdrl_ros.deployment.link.orders import deliver
from fdrl_ros.deployment.link.party_link import PartyLink, Taken
from fdrl_ros.deployment.link.transport import free_port, open_router
from fdrl_ros.deployment.prepare import prepare
from fdrl_ros.errors import MessageError, OrderError
from fdrl_ros.federation.aggregator.aggregator import Aggregator
from fdrl_ros.federation.protocol.message import Envelope, GlobalPolicy, Order
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


def send(layout: Layout, place: str, order: Order, say: Callable[[str], object] = print) -> None:
    deliver(order, LinkFiles(layout.keys, 'operator'), layout.roster(), place, say)


def test_a_server_takes_orders_over_its_link_and_says_why_it_refuses_one(layout, place):
    with running(layout, 'aggregator', place):
        send(layout, place, signed(layout, 'withdraw', hospital='hospital_2'))
        with pytest.raises(OrderError, match='refused: the roster names no hospital .nobody.'):
            send(layout, place, signed(layout, 'admit', hospital='nobody'))
        send(layout, place, signed(layout, 'pause'))
    with closing(Store(layout.state('aggregator'))) as store:
        assert store.get('paused') == b'yes' and store.get('withdrawn') == b'["hospital_2"]'


def test_an_order_of_a_wrong_clock_keeps_no_later_one_away(layout, place):
    identity = load_identity(layout.keys / 'operator' / KEY_FILE, 'operator')
    tomorrow = time.time() + 86400.0
    late = sign_order(identity, layout.roster().federation, 'pause', tomorrow)
    with running(layout, 'aggregator', place):
        with pytest.raises(OrderError, match='set both clocks'):
            send(layout, place, late)
        send(layout, place, signed(layout, 'resume'))


def test_an_order_that_comes_again_is_answered_again_and_done_once(layout):
    roster, group, sent = layout.roster(), bytes(range(32)), []
    heard = []

    def link(name, takes, key):
        return PartyLink(
            name,
            roster,
            takes,
            key,
            lambda *each: sent.append(each),
            lambda server, answer: heard.append((server, answer)),
        )

    server = link('aggregator', Aggregator.takes, group)
    operator = link('operator', {}, operator_key(group, 'operator'))
    order = signed(layout, 'pause')
    operator.send(order)
    assert server.heard(*sent[-1]) == [order]
    server.answer(order, 'not now')
    for _ in range(2):
        operator.send(order)
        assert server.heard(*sent[-1]) == []
        assert operator.heard(*sent[-1]) == []
    assert heard == [('aggregator', Taken(order.envelope.counter, 'not now'))] * 2


def test_an_operator_cannot_read_what_parties_say(layout):
    roster, group, sent = layout.roster(), bytes(range(32)), []
    bench = layout.credentials('key_authority')[0]
    envelope = Envelope(roster.federation, 1, 0, 'key_authority', 1)
    said = GlobalPolicy(envelope, b'', b'', (), b'', False, False, '').signed_by(bench)
    party = PartyLink('key_authority', roster, {}, group, lambda *each: sent.append(each))
    party.send(said)
    for key in (operator_key(group, 'operator'), operator_key(group, 'hospital_1')):
        operator = PartyLink('operator', roster, {GlobalPolicy: ('key_authority',)}, key, print)
        with pytest.raises(MessageError, match='not sealed with the key'):
            operator.heard(*sent[-1])
    hospital = PartyLink('hospital_1', roster, {GlobalPolicy: ('key_authority',)}, group, print)
    assert hospital.heard(*sent[-1]) == [said]


def test_nobody_answers_for_a_server_that_is_not_there(layout, place, monkeypatch):
    said = []
    monkeypatch.setattr(orders, 'PATIENCE', 2.0)
    with pytest.raises(
        OrderError, match='the key_authority did not answer within 2 s: it is not linked, or'
    ):
        send(layout, place, signed(layout, 'forgive', hospital='hospital_1'))
    with pytest.raises(OrderError, match='no way to the aggregator: .*nobody answers'):
        send(layout, f'tls/127.0.0.1:{free_port()}', signed(layout, 'resume'), said.append)
    (line,) = said
    assert 'nobody answers' in line and 'tried for 2 s' in line
