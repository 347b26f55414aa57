# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""The page's server: who is let in, from which site, and how snapshots reach slow clients."""

from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from datetime import datetime, timedelta, UTC
import json
from pathlib import Path
from queue import SimpleQueue
import socket
import ssl
import struct
from threading import Event
import time
from types import SimpleNamespace

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from fdrl_ros.deployment.events import NodeHealth
from fdrl_ros.errors import FdrlError, RecordsError, ResourceError, SettingError, StoreError
from fdrl_ros.page.acts import ActJournal, Acts, CALMING, JOURNAL, SIGNED
from fdrl_ros.page.pictures import Picture, Pictures
from fdrl_ros.page.server import HEADERS, Place, Server
from fdrl_ros.page.serving import Address, serve
from fdrl_ros.page.sessions import LIFE, Person, Role, Sessions
from fdrl_ros.page.state import PageState
from fdrl_ros.surgery.gym.state import OPERATION_LAYOUT, OPERATION_SIZE
import httpx
import numpy as np
import pytest
from starlette.requests import HTTPConnection
from starlette.testclient import TestClient
from starlette.websockets import WebSocketDisconnect
from support.page_client import PageClient, served
import uvicorn
from websockets.exceptions import InvalidStatus
from websockets.sync.client import connect

URL, SOCKETS = 'http://localhost:8765', 'ws://localhost:8765'
URDF = '<robot name="psm"/>'


class Records:
    """Two records, of which one is broken."""

    free = Event()
    free.set()

    def listed(self):
        assert self.free.wait(60.0)
        return [{'id': 'run 1', 'kind': 'run'}, {'id': 'broken', 'kind': 'bag'}]

    def read(self, name):
        if name != 'run 1':
            raise RecordsError(f'{name} was cut short')
        return {'kind': 'run', 'frames': []}


@pytest.fixture
def desk(tmp_path):
    """Return a server without ROS, and all that is behind it."""
    static = tmp_path / 'static'
    static.mkdir()
    (static / 'index.html').write_text('<!doctype html><title>page</title>')
    (static / 'page.js').write_text('// code')
    made = SimpleNamespace(now=100.0, acts=[], looks=[], takes=SimpleQueue())
    state = PageState(('robot_1',), None)

    def do(act, session):
        made.acts.append(act)
        if act.name == 'veto':
            raise FdrlError('<b>no such policy</b>')
        return 'so it is'

    def look(robot, kind, take):
        made.looks.append((robot, kind))
        made.takes.put(take)
        return lambda: made.looks.remove((robot, kind))

    with ActJournal(tmp_path / JOURNAL, time.time) as journal:
        unable = dict.fromkeys(SIGNED, 'no key of an operator is here')
        sessions = Sessions(lambda: made.now, 600.0)
        server = Server(
            state=state,
            sessions=sessions,
            acts=Acts(journal, do, state.note, lambda: made.now, unable),
            pictures=Pictures(look),
            place=Place(names=('or.example',)),
            urdf=lambda robot: URDF,
            records=Records(),
            static=static,
        )
        made.state, made.sessions, made.app = state, sessions, server.app()
        made.done = made.acts
        yield made


def say(state, force=1.0):
    with state.robot('robot_1', urgent=True) as robot:
        robot.receive_operation(1.0, 'reach', 'one', OPERATION_LAYOUT, [force] * OPERATION_SIZE)


def browser(desk, role=Role.SURGEON, url=URL):
    """Return a client that entered, and its token against forgery."""
    client = TestClient(desk.app, base_url=url)
    token = desk.sessions.invite(Person('Ada', role))
    answer = client.get('/enter', params={'token': token}, follow_redirects=False)
    assert answer.status_code == 303 and answer.headers['location'] == '/'
    return client, client.get('/api/session').json()


def act(client, csrf, origin=URL, body=None):
    headers = {'Origin': origin} | ({'X-CSRF-Token': csrf} if csrf is not None else {})
    body = {'act': 'take_over', 'robot': 'robot_1'} if body is None else body
    return client.post('/api/act', json=body, headers=headers)


def test_a_link_opens_the_page_and_the_cookie_is_strict(desk):
    client = TestClient(desk.app, base_url=URL)
    token = desk.sessions.invite(Person('Ada', Role.VIEWER))
    assert client.get('/').status_code == 403
    answer = client.get('/enter', params={'token': token}, follow_redirects=False)
    cookie = answer.headers['set-cookie'].lower()
    assert all(each in cookie for each in ('httponly', 'samesite=strict', 'path=/'))
    assert 'secure' not in cookie and token.lower() not in cookie
    page = client.get('/')
    assert page.status_code == 200 and '<title>page' in page.text
    for name, value in HEADERS.items():
        assert page.headers[name] == value
    assert 'unsafe' not in page.headers['content-security-policy']
    again = client.get('/enter', params={'token': token}, follow_redirects=False)
    assert again.status_code == 403 and 'ask who runs' in again.text
    assert client.get('/static/page.js').text == '// code'


def test_a_preview_of_a_link_uses_nothing_up(desk):
    client = TestClient(desk.app, base_url=URL)
    token = {'token': desk.sessions.invite(Person('Ada', Role.VIEWER))}
    assert client.head('/enter', params=token, follow_redirects=False).status_code == 405
    assert client.get('/enter', params=token, follow_redirects=False).status_code == 303


def test_who_signs_out_is_out(desk):
    client, session = browser(desk)
    headers = {'Origin': URL, 'X-CSRF-Token': session['csrf']}
    assert client.post('/leave', headers=headers | {'X-CSRF-Token': 'x'}).status_code == 403
    assert client.get('/api/session').status_code == 200
    cookies = dict(client.cookies)
    assert client.post('/leave', headers=headers).status_code == 204
    assert not client.cookies
    client.cookies.update(cookies)
    assert client.get('/api/session').status_code == 403
    assert client.post('/leave', headers=headers).status_code == 403


def test_a_session_says_what_it_may(desk):
    client, session = browser(desk)
    assert session['name'] == 'Ada' and session['role'] == 'surgeon'
    assert 'take_over' in session['acts'] and 'hand_back' not in session['acts']
    assert session['calming'] == list(CALMING)
    assert session['note'] == (
        'A browser is no emergency stop. Nobody can hand back from here: no key of an operator '
        'is here.'
    )
    viewer = browser(desk, Role.VIEWER)[1]
    assert viewer['acts'] == [] and viewer['note'] == 'A browser is no emergency stop.'
    desk.now += LIFE + 1.0
    assert client.get('/api/session').status_code == 403


def test_an_act_needs_cookie_token_and_the_page_s_own_site(desk):
    client, session = browser(desk)
    assert act(client, session['csrf']).json() == {'ok': True, 'message': 'so it is'}
    desk.done.clear()
    for csrf, origin in (
        (None, URL),
        ('wrong', URL),
        (session['csrf'], 'https://evil.example'),
        (session['csrf'], 'http://localhost:3000'),
        (session['csrf'], 'https://localhost:8765'),
        (session['csrf'], 'null'),
    ):
        assert act(client, csrf, origin).status_code == 403
    token = {'X-CSRF-Token': session['csrf']}
    assert client.post('/api/act', json={}, headers=token).status_code == 403, 'no Origin'
    stranger = TestClient(desk.app, base_url=URL)
    assert act(stranger, session['csrf']).status_code == 403
    assert client.get('/api/act').status_code == 405
    assert not desk.done


def test_the_server_answers_to_its_own_names_alone(desk):
    client, _ = browser(desk)
    for host, code in (
        ('localhost:8765', 200),
        ('127.0.0.1:9000', 200),
        ('[::1]:8765', 200),
        ('or.example', 200),
        ('evil.example:8765', 403),
        ('localhost.evil.example', 403),
        ('', 403),
        ('[', 403),
    ):
        assert client.get('/api/session', headers={'Host': host}).status_code == code, host


def test_acts_that_fail_say_why_as_text(desk):
    client, session = browser(desk)
    veto = {'act': 'veto', 'robot': 'robot_1', 'policy': 'global'}
    answer = act(client, session['csrf'], body=veto)
    assert answer.status_code == 409
    assert answer.json() == {'ok': False, 'message': '<b>no such policy</b>'}
    assert answer.headers['content-type'] == 'application/json'
    assert act(client, session['csrf'], body={'act': 'pause'}).status_code == 403
    assert act(client, session['csrf'], body={'act': 'explode'}).status_code == 422
    headers = {'Origin': URL, 'X-CSRF-Token': session['csrf']}
    for data in (b'{', b'[' * 9999, b'x' * 20_000):
        assert client.post('/api/act', content=data, headers=headers).status_code == 422


def test_a_viewer_s_acts_are_refused(desk):
    client, session = browser(desk, Role.VIEWER)
    answer = act(client, session['csrf'])
    assert answer.status_code == 403 and 'a viewer may not' in answer.json()['message']
    assert not desk.done


def test_snapshots_come_after_the_one_before_was_drawn(desk):
    client, _ = browser(desk)
    with client, client.websocket_connect(f'{SOCKETS}/ws', headers={'Origin': URL}) as socket:
        first = socket.receive_json()
        assert first['robots']['robot_1']['age'] is None
        for force in range(5):
            say(desk.state, float(force))
        socket.send_json({'got': first['n']})
        second = socket.receive_json()
        assert second['robots']['robot_1']['force'] == 4.0, 'the newest, none before'
        assert second['n'] > first['n']


@pytest.mark.parametrize('headers', [{}, {'Origin': 'https://evil.example'}])
def test_other_sites_open_no_websocket(desk, headers):
    client, _ = browser(desk)
    for path in ('/ws', '/ws/picture/robot_1'):
        with client, pytest.raises(WebSocketDisconnect):
            with client.websocket_connect(f'{SOCKETS}{path}', headers=headers):
                pass
    stranger = TestClient(desk.app, base_url=URL)
    with stranger, pytest.raises(WebSocketDisconnect):
        with stranger.websocket_connect(f'{SOCKETS}/ws', headers={'Origin': URL}):
            pass


def test_pictures_are_looked_at_while_somebody_watches(desk):
    client, _ = browser(desk)
    reads = []

    def read():
        reads.append(1)
        return 12.5, np.zeros((4, 6, 3), np.uint8)

    address = '/ws/picture/robot_1?kind=overlay'
    with (
        client,
        client.websocket_connect(f'{SOCKETS}{address}', headers={'Origin': URL}) as socket,
    ):
        take = desk.takes.get(timeout=10.0)
        take(Picture(read))
        data = socket.receive_bytes()
        assert struct.unpack('<d', data[:8]) == (12.5,) and data[8:10] == b'\xff\xd8'
        for _ in range(3):
            take(Picture(read))
        assert len(reads) == 1, 'what nobody draws is not packed'
        socket.send_json({'got': 1})
        socket.receive_bytes()
        assert len(reads) == 2
    assert desk.looks == []
    for path in ('/ws/picture/robot_9', '/ws/picture/robot_1?kind=depth'):
        with client, pytest.raises(WebSocketDisconnect):
            with client.websocket_connect(f'{SOCKETS}{path}', headers={'Origin': URL}):
                pass


def test_description_and_records_need_a_session(desk):
    client, _ = browser(desk)
    assert client.get('/api/urdf/robot_1').text == URDF
    assert client.get('/api/urdf/robot_9').status_code == 404
    assert len(client.get('/api/records').json()) == 2
    assert client.get('/api/records/run 1').json()['kind'] == 'run'
    broken = client.get('/api/records/broken')
    assert broken.status_code == 409 and broken.json()['message'] == 'broken was cut short'
    stranger = TestClient(desk.app, base_url=URL)
    for path in ('/api/urdf/robot_1', '/api/records', '/api/records/x', '/api/session'):
        assert stranger.get(path).status_code == 403


def test_federation_and_health_come_when_they_are_new(desk):
    client, _ = browser(desk)
    with client, client.websocket_connect(f'{SOCKETS}/ws', headers={'Origin': URL}) as socket:
        first = socket.receive_json()
        assert first['federation'] is None and first['health'] == []
        for _ in range(3):
            say(desk.state)
            socket.send_json({'got': first['n']})
            assert not {'federation', 'health'} & socket.receive_json().keys()
        desk.state.receive(NodeHealth('/federation/aggregator', 0, 'ok', {}))
        for _ in range(100):
            socket.send_json({'got': 0})
            if 'health' in (now := socket.receive_json()):
                break
        assert now['health'][0]['summary'] == 'ok' and 'federation' in now
        with client.websocket_connect(f'{SOCKETS}/ws', headers={'Origin': URL}) as late:
            assert late.receive_json()['health'] == now['health']


# Over a real port.


def test_who_looks_at_records_delays_no_act(desk, monkeypatch):
    free = Event()
    monkeypatch.setattr(Records, 'free', free)
    with served(desk.app) as url, ThreadPoolExecutor(60) as looking:
        ada, bob = (PageClient.of(desk, url) for _ in range(2))
        asked = [looking.submit(bob.http.get, '/api/records', timeout=60.0) for _ in range(60)]
        try:
            for _ in range(5):
                assert ada.act('take_over', robot='robot_1').status_code == 200
        finally:
            free.set()
        assert {each.result().status_code for each in asked} == {200}


def test_a_slow_client_delays_no_other(desk):
    with served(desk.app) as url:
        slow, quick = (PageClient.of(desk, url, Role.VIEWER) for _ in range(2))
        with slow.looking() as asleep:
            asleep.recv(5.0)
            for number in range(50):
                say(desk.state, float(number))
                found = quick.wait(
                    lambda now, number=number: now['robots']['robot_1']['force'] == number, 5.0
                )
            asleep.send(json.dumps({'got': 1}))
            newest = json.loads(asleep.recv(5.0))
            assert newest['n'] >= found['n'] and newest['robots']['robot_1']['force'] == 49.0


def test_a_session_that_ends_closes_its_windows(desk):
    with served(desk.app) as url:
        client = PageClient.of(desk, url, Role.VIEWER)
        with client.looking() as socket:
            first = json.loads(socket.recv(5.0))
            desk.now += LIFE + 1.0
            socket.send(json.dumps({'got': first['n']}))
            with pytest.raises(Exception, match='4403'):
                for _ in range(3):
                    socket.recv(5.0)
                    socket.send(json.dumps({'got': 1}))


def test_foreign_sites_are_refused_over_the_wire(desk):
    with served(desk.app) as url:
        client = PageClient.of(desk, url)
        cookies = '; '.join(f'{name}={value}' for name, value in client.http.cookies.items())
        address = url.replace('http', 'ws') + '/ws'
        with pytest.raises(InvalidStatus, match='403'):
            connect(
                address,
                origin='https://evil.example',
                additional_headers={'Cookie': cookies},
            )


def certificate(folder: Path, *names: str) -> tuple[Path, Path]:
    """Make a certificate of its own authority."""
    key, now = ec.generate_private_key(ec.SECP256R1()), datetime.now(UTC)
    subject = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, 'page')])
    made = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(subject)
        .public_key(key.public_key())
        .serial_number(1)
        .not_valid_before(now - timedelta(days=1))
        .not_valid_after(now + timedelta(days=1))
    )
    if names:
        told = x509.SubjectAlternativeName([x509.DNSName(each) for each in names])
        made = made.add_extension(told, critical=False)
    signed = made.sign(key, hashes.SHA256())
    paths = folder / 'certificate.pem', folder / 'key.pem'
    paths[0].write_bytes(signed.public_bytes(serialization.Encoding.PEM))
    paths[1].write_bytes(
        key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        )
    )
    return paths


def test_over_tls_the_cookie_is_secure_and_names_are_the_certificate_s(
    desk, tmp_path, monkeypatch
):
    files = certificate(tmp_path, 'localhost', 'or.example')
    address = Address('localhost', 0, *files)
    assert address.names() == ('localhost', 'or.example')
    assert address.context().minimum_version == ssl.TLSVersion.TLSv1_2
    served_by = []
    monkeypatch.setattr(Address, 'context', _noting(Address.context, served_by))
    trust = ssl.create_default_context(cafile=files[0])
    with served(desk.app, address) as url:
        assert url.startswith('https://localhost:')
        token = desk.sessions.invite(Person('Ada', Role.VIEWER))
        answer = httpx.get(f'{url}/enter', params={'token': token}, verify=trust)
        assert answer.status_code == 303
        assert served_by[0].session_stats()['accept'] > 0, 'it is the context of the address'


def _noting(make, made):
    def noting(address):
        made.append(make(address))
        return made[-1]

    return noting


def test_a_wildcard_of_a_certificate_names_this_host(tmp_path):
    address = Address('0.0.0.0', 0, *certificate(tmp_path, '*.or.example'))
    here = socket.gethostname().lower().partition('.')[0]
    assert address.url(8765) == f'https://{here}.or.example:8765'
    place = Place(True, address.names())
    for name, known in (
        (f'{here}.or.example:8765', True),
        ('or.example', False),
        ('a.b.or.example', False),
        ('or.example.evil', False),
    ):
        asked = HTTPConnection({'type': 'http', 'headers': [(b'host', name.encode())]})
        assert place.knows(asked) == known, name
    both = Address('0.0.0.0', 0, *certificate(tmp_path, '*.or.example', 'page.or.example'))
    assert both.url(1) == 'https://page.or.example:1'


def test_a_server_that_ends_by_itself_is_an_error(monkeypatch):
    monkeypatch.setattr(uvicorn.Server, 'run', lambda *_, **__: None)
    address = Address(port=0)
    with address.listen() as taken, pytest.raises(ResourceError, match='ended by itself'):
        serve(lambda *_: None, address, taken, lambda: False)


def test_another_host_than_loopback_needs_tls(tmp_path):
    with pytest.raises(SettingError, match='ssh -L 8765:localhost:8765'):
        Address('0.0.0.0')
    with pytest.raises(SettingError, match='both --tls-certificate and --tls-key'):
        Address(certificate=tmp_path / 'certificate.pem')
    for host in ('127.0.0.1', '::1', 'localhost'):
        assert Address(host).loopback
    Address('0.0.0.0', 0, *certificate(tmp_path, 'or.example'))


def test_what_is_wrong_with_certificates_is_one_clear_line(tmp_path):
    nameless = certificate(tmp_path)
    with pytest.raises(StoreError, match='names this host'):
        Address('0.0.0.0', 0, *nameless).names()
    nameless[1].write_text('no key')
    with pytest.raises(StoreError, match='cannot be used'):
        Address('0.0.0.0', 0, *nameless).context()
    with pytest.raises(StoreError):
        Address('0.0.0.0', 0, tmp_path / 'missing', tmp_path / 'missing').names()


def test_a_port_in_use_is_one_clear_line():
    with closing(socket.create_server(('127.0.0.1', 0))) as other:
        port = other.getsockname()[1]
        with pytest.raises(SettingError, match=f'port = {port}: expected a free port'):
            Address(port=port).listen()
    with pytest.raises(SettingError, match='host'):
        Address('192.0.2.1', 0, Path('a'), Path('b')).listen()
