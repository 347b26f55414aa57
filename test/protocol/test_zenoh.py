# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""Zenoh sessions as links have them: who may connect, who may say what, what a cut loses."""

from collections.abc import Iterator
from datetime import datetime, timedelta, UTC
from pathlib import Path
from queue import Empty, Queue
import shutil
import socket
import stat

from cryptography.x509.oid import ExtendedKeyUsageOID
from fdrl_ros.crypto.dds.certificates import Authority, Binding, pem
from fdrl_ros.crypto.keys.keystore import load_identity
from fdrl_ros.crypto.keys.transaction import transaction
from fdrl_ros.deployment.hosts import export
from fdrl_ros.deployment.layout import Layout
from fdrl_ros.deployment.link.credentials import FOLDER, LinkFiles, make_links, ROUTER
from fdrl_ros.deployment.link.transport import (
    free_port,
    OLDER_FILES,
    open_client,
    open_router,
    place_of,
    refusal,
    Session,
)
from fdrl_ros.deployment.prepare import prepare
from fdrl_ros.errors import FdrlError, KeyFileError, SecurityError, SettingError, TrainingStopped
import pytest
from support.small_run import SMALL_PLAN

pytest.importorskip('zenoh', reason='eclipse-zenoh is not installed (requirements/zenoh.txt)')

PREFIX = 'fdrl/federation'
HEARD = 10.0  # longest wait for what has to come, seconds


def linked(directory: Path, now: datetime | None = None, days: int = 30) -> Layout:
    layout = prepare(directory, SMALL_PLAN)
    make_links(layout, ['127.0.0.1'], now or datetime.now(UTC), days)
    return layout


@pytest.fixture(scope='module')
def layout(tmp_path_factory: pytest.TempPathFactory) -> Layout:
    return linked(tmp_path_factory.mktemp('links') / 'federation')


class Way:
    """A router, and parties that have dialled it."""

    def __init__(self, layout: Layout) -> None:
        self.layout = layout
        self.place = f'tls/127.0.0.1:{free_port()}'
        self.open()
        self.parties: dict[str, Session] = {}
        self.heard: dict[str, Queue[tuple[str, bytes]]] = {}

    def open(self) -> None:
        files = LinkFiles(self.layout.keys, ROUTER)
        self.router = open_router(files, self.layout.roster(), self.place)

    def join(self, name: str, *keys: str) -> None:
        session = open_client(LinkFiles(self.layout.keys, name), self.place)
        queue: Queue[tuple[str, bytes]] = Queue()
        session.listen([*keys, f'{PREFIX}/*/*/{name}'], lambda *each: queue.put(each))
        self.parties[name], self.heard[name] = session, queue

    def until_heard(self, sender: str, receiver: str, key: str) -> bytes:
        """Send again and again until it is heard: subscriptions take a moment to be known."""
        for number in range(int(HEARD / 0.1)):
            self.parties[sender].put(f'{PREFIX}/{key}', b'%d' % number)
            try:
                while True:
                    found, payload = self.heard[receiver].get(timeout=0.1)
                    if found == f'{PREFIX}/{key}':
                        return payload
            except Empty:
                continue
        pytest.fail(f'{receiver} never heard {key}')

    def close(self) -> None:
        for each in self.parties.values():
            each.close()
        self.router.close()


@pytest.fixture
def way(layout: Layout) -> Iterator[Way]:
    made = Way(layout)
    yield made
    made.close()


def drain(queue: Queue[tuple[str, bytes]]) -> list[str]:
    return [queue.get_nowait()[0] for _ in range(queue.qsize())]


def test_an_operator_hears_what_is_for_it_and_nothing_that_is_for_all(way):
    way.join('operator', f'{PREFIX}/*/GlobalPolicy')
    way.join('hospital_1', f'{PREFIX}/*/GlobalPolicy')
    way.join('key_authority')
    way.until_heard('operator', 'key_authority', 'operator/Order/key_authority')
    way.until_heard('key_authority', 'hospital_1', 'key_authority/GlobalPolicy')
    way.until_heard('key_authority', 'operator', 'key_authority/taken/operator')
    way.parties['operator'].put(f'{PREFIX}/hospital_1/taken/operator', b'forged')
    way.until_heard('key_authority', 'operator', 'key_authority/taken/operator')
    assert not [key for key in drain(way.heard['operator']) if key.endswith('GlobalPolicy')]


def test_a_party_publishes_under_its_own_name_and_nothing_else(way):
    for name in ('hospital_1', 'hospital_2', 'aggregator'):
        way.join(name, f'{PREFIX}/*/RoundKey', f'{PREFIX}/*/RoundStatus')
    way.until_heard('hospital_1', 'hospital_2', 'hospital_1/RoundKey')
    way.until_heard('aggregator', 'hospital_2', 'aggregator/RoundStatus')
    forger = way.parties['hospital_1']
    for key in ('hospital_2/RoundKey', 'aggregator/RoundStatus', 'aggregator/Wanted/hospital_2'):
        forger.put(f'{PREFIX}/{key}', b'forged')
    # One link keeps its order: what comes after the forged ones shows that they were dropped.
    forger.put(f'{PREFIX}/hospital_1/RoundKey', b'after')
    found = []
    while not found or found[-1] != (f'{PREFIX}/hospital_1/RoundKey', b'after'):
        found.append(way.heard['hospital_2'].get(timeout=HEARD))
    assert not [key for key, payload in found if payload == b'forged']
    # The servers are no exception.
    way.parties['aggregator'].put(f'{PREFIX}/hospital_1/RoundKey', b'forged')
    way.parties['aggregator'].put(f'{PREFIX}/aggregator/RoundStatus', b'after')
    key, payload = way.heard['hospital_2'].get(timeout=HEARD)
    while payload != b'after':
        assert payload != b'forged'
        key, payload = way.heard['hospital_2'].get(timeout=HEARD)


def test_a_hospital_does_not_hear_what_is_for_another(way):
    way.join('aggregator')
    way.join('hospital_2')
    way.join('hospital_1', f'{PREFIX}/**', f'{PREFIX}/*/*/hospital_2', f'{PREFIX}/*/RoundStatus')
    way.until_heard('aggregator', 'hospital_1', 'aggregator/RoundStatus')
    way.until_heard('aggregator', 'hospital_2', 'aggregator/Delivery/hospital_2')
    way.until_heard('aggregator', 'hospital_1', 'aggregator/Delivery/hospital_1')
    assert not [key for key in drain(way.heard['hospital_1']) if key.endswith('hospital_2')]


def test_20_megabytes_arrive_whole(way):
    way.join('key_authority')
    way.join('hospital_1', f'{PREFIX}/*/GlobalPolicy')
    way.until_heard('key_authority', 'hospital_1', 'key_authority/GlobalPolicy')
    sent = bytes(range(256)) * 80_000
    way.parties['key_authority'].put(f'{PREFIX}/key_authority/GlobalPolicy', sent)
    while (payload := way.heard['hospital_1'].get(timeout=HEARD)[1]) != sent:
        assert len(payload) < 10


def test_who_lost_the_router_finds_it_again(way):
    way.join('hospital_1')
    way.join('hospital_2', f'{PREFIX}/*/RoundKey')
    way.until_heard('hospital_1', 'hospital_2', 'hospital_1/RoundKey')
    way.router.close()
    way.open()
    way.until_heard('hospital_1', 'hospital_2', 'hospital_1/RoundKey')


def test_foreign_certificates_are_refused_and_it_is_said_why(way, layout, tmp_path):
    foreign = linked(tmp_path / 'foreign')
    files = LinkFiles(foreign.keys, 'hospital_1')
    found = refusal(files, way.place)
    assert found.startswith('its certificate is refused here: unable to get local issuer')
    assert found.endswith(OLDER_FILES)
    # With the authority of this federation, as a stranger who knows it has.
    shutil.copy2(LinkFiles(layout.keys, ROUTER).authority, files.authority)
    refused = f'the router refuses our certificate: TLSV1_ALERT_UNKNOWN_CA{OLDER_FILES}'
    assert refusal(files, way.place) == refused
    with pytest.raises(SecurityError, match='is not that of the root of this federation'):
        open_client(files, way.place)


def test_who_has_files_of_before_links_were_made_again_is_told_so(layout, tmp_path):
    keys = Path(shutil.copytree(layout.directory, tmp_path / 'renewed'))
    renewed = Layout(keys)
    make_links(renewed, ['127.0.0.1'], datetime.now(UTC), 30)
    place = f'tls/127.0.0.1:{free_port()}'
    with open_router(LinkFiles(renewed.keys, ROUTER), renewed.roster(), place):
        found = refusal(LinkFiles(layout.keys, 'hospital_1'), place)
    assert found.startswith('its certificate is refused here: ') and found.endswith(OLDER_FILES)


@pytest.mark.parametrize('file', ['ca.pem', 'hospital_1/cert.pem'])
def test_a_spoilt_certificate_is_named_with_its_party_and_the_remedy(file, layout, tmp_path):
    copy = Layout(Path(shutil.copytree(layout.directory, tmp_path / 'copy')))
    spoilt = copy.keys / FOLDER / file
    spoilt.write_text('rubbish')
    if file == 'ca.pem':  # as the root never signs it
        root = load_identity(copy.keys / 'root' / 'identity.key', 'root')
        spoilt.with_name('ca.sig').write_bytes(root.sign(b'fdrl_ros links 1\nrubbish'))
    with pytest.raises(SecurityError) as found:
        LinkFiles(copy.keys, 'hospital_1').check(datetime.now(UTC))
    for words in (str(spoilt), 'the link of hospital_1', 'fdrl link init', 'fdrl export'):
        assert words in str(found.value)


@pytest.mark.parametrize(
    ('address', 'reason'),
    [('127.0.0.1', 'Address already in use'), ('192.0.2.77', 'Cannot assign requested address')],
)
def test_a_router_that_cannot_listen_tells_the_reason_alone(address, reason, layout):
    with socket.create_server(('127.0.0.1', 0)) as taken:
        place = f'{address}:{taken.getsockname()[1]}'
        with pytest.raises(FdrlError) as found:
            open_router(LinkFiles(layout.keys, ROUTER), layout.roster(), f'tls/{place}')
    assert str(found.value) == f'Zenoh does not open: cannot listen at {place}: {reason}'


def test_a_hospital_cannot_play_the_router(layout):
    files = LinkFiles(layout.keys, 'hospital_2')
    place = f'tls/127.0.0.1:{free_port()}'
    with open_router(files, layout.roster(), place):
        found = refusal(LinkFiles(layout.keys, 'hospital_1'), place)
    assert found == 'its certificate is refused here: unsuitable certificate purpose'


def test_a_router_at_another_address_than_its_certificate_says_is_refused(layout):
    place = f'tls/127.0.0.1:{free_port()}'
    with open_router(LinkFiles(layout.keys, ROUTER), layout.roster(), place):
        other = place.replace('127.0.0.1', 'localhost')
        found = refusal(LinkFiles(layout.keys, 'hospital_1'), other)
    assert "Hostname mismatch, certificate is not valid for 'localhost'" in found
    assert '`fdrl link init --router HOST`' in found


def test_the_certificate_of_another_party_is_refused_without_a_word_about_clocks(layout, tmp_path):
    keys = Path(shutil.copytree(layout.keys, tmp_path / 'keys'))
    other, files = LinkFiles(keys, 'hospital_2'), LinkFiles(keys, 'hospital_1')
    shutil.copy2(other.certificate, files.certificate)
    shutil.copy2(other.private, files.private)
    with pytest.raises(SecurityError, match="its certificate is that of 'hospital_2'; ") as found:
        open_client(files, 'tls/127.0.0.1:1')
    assert 'clock' not in str(found.value)


def test_expired_and_future_certificates_are_refused_with_the_time_of_this_host(tmp_path):
    now = datetime.now(UTC)
    old = linked(tmp_path / 'old', now - timedelta(days=40), 30)
    files = LinkFiles(old.keys, 'hospital_1')
    with pytest.raises(SecurityError, match=rf'has expired on .*this host has {now:%Y-%m-%d}'):
        open_client(files, 'tls/127.0.0.1:1')
    with pytest.raises(SecurityError, match='has expired on'):
        open_router(LinkFiles(old.keys, ROUTER), old.roster(), 'tls/127.0.0.1:1')
    early = linked(tmp_path / 'early', now + timedelta(days=40), 30)
    with pytest.raises(SecurityError, match='is not valid before .*correct its clock'):
        open_client(LinkFiles(early.keys, 'hospital_1'), 'tls/127.0.0.1:1')


def test_a_router_refuses_an_expired_certificate(layout, tmp_path):
    # As of a host whose clock is wrong: it does not notice, the router does.
    keys, now = tmp_path / 'keys', datetime.now(UTC)
    shutil.copytree(layout.keys, keys)
    authority = Authority.make('both', now - timedelta(days=50))
    usages = {
        ROUTER: ExtendedKeyUsageOID.SERVER_AUTH,
        'hospital_1': ExtendedKeyUsageOID.CLIENT_AUTH,
    }
    with transaction(keys) as changes:
        signed = pem(authority.certificate)
        changes.write(f'{FOLDER}/ca.pem', signed)
        root = load_identity(keys / 'root' / 'identity.key', 'root')
        changes.write(f'{FOLDER}/ca.sig', root.sign(b'fdrl_ros links 1\n' + signed))
        for (name, usage), days in zip(usages.items(), (100, 20), strict=True):
            made = authority.issue(
                name,
                Binding('federation', name, 'none', 1),
                now - timedelta(days=45),
                days,
                usage,
                ['127.0.0.1'],
            )
            changes.write(f'{FOLDER}/{name}/cert.pem', pem(made[0]))
            changes.write(f'{FOLDER}/{name}/key.pem', made[1])
    place = f'tls/127.0.0.1:{free_port()}'
    with open_router(LinkFiles(keys, ROUTER), layout.roster(), place):
        found = refusal(LinkFiles(keys, 'hospital_1'), place)
    assert found == 'the router refuses our certificate: SSLV3_ALERT_CERTIFICATE_EXPIRED'


def test_links_are_made_where_the_root_is_and_its_secrets_are_private(layout, tmp_path):
    export(layout, ['hospital_1'], tmp_path / 'one')
    export(layout, ['router'], tmp_path / 'relay')
    one, relay = Layout(tmp_path / 'one'), Layout(tmp_path / 'relay')
    secrets = [*one.keys.glob('link/*/*.key'), *one.keys.glob('link/*/key.pem')]
    assert {each.parent.name for each in secrets} == {'hospital_1'} and len(secrets) == 2
    assert {stat.S_IMODE(each.stat().st_mode) for each in secrets} == {0o600}
    assert [each.name for each in relay.keys.glob('link/*/*.key')] == []  # it can read nothing
    LinkFiles(one.keys, 'hospital_1').check(datetime.now(UTC))
    LinkFiles(relay.keys, ROUTER).check(datetime.now(UTC))
    with pytest.raises(KeyFileError, match='links are made where the root is'):
        make_links(one, ['127.0.0.1'], datetime.now(UTC), 30)
    LinkFiles(relay.keys, ROUTER).authority.unlink()
    with pytest.raises(SecurityError, match='link cannot be read: No such file'):
        LinkFiles(relay.keys, ROUTER).check(datetime.now(UTC))
    with pytest.raises(SecurityError, match='`fdrl link init` makes it'):
        LinkFiles(one.keys, 'hospital_2').check(datetime.now(UTC))


def test_waiting_for_a_router_says_why_once_and_can_be_stopped(layout):
    said: list[str] = []
    place = f'tls/127.0.0.1:{free_port()}'
    files = LinkFiles(layout.keys, 'hospital_1')
    with pytest.raises(TrainingStopped):
        open_client(files, place, lambda: bool(said), said.append)
    assert said == [f'no link to {place[4:]} yet: nobody answers: Connection refused']


@pytest.mark.parametrize('value', ['', 'tcp/host:1', 'host:0', 'host:70000', 'a b', 'tls/'])
def test_what_is_no_address_is_refused(value):
    with pytest.raises(SettingError, match='router'):
        place_of('router', value)
