# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""Zenoh sessions of routers and parties: mutual TLS, nothing but the router is ever dialled."""

from collections.abc import Callable, Sequence
from contextlib import suppress
from datetime import datetime, UTC
from functools import partial
import importlib
import json
import re
import socket
import ssl
import time
from typing import Any, Final

from fdrl_ros.crypto.keys.roster import Roster
from fdrl_ros.deployment.link.credentials import LinkFiles
from fdrl_ros.deployment.link.streams import LARGEST_MESSAGE
from fdrl_ros.errors import FdrlError, SettingError, TrainingStopped
from fdrl_ros.runtime.closeable import Closeable

PORT: Final = 7447
"""TCP port of a router, unless another is named."""

LEASE: Final = 4000
"""Time without a sign of life after which a link counts as cut, millisecond."""

PATIENCE: Final = 3.0
"""Longest wait for an answer when the way to a router is tried, second."""

PAUSES: Final = 20
"""Looks in that time whether to stop waiting."""

OLDER_FILES: Final = (
    ': it is of another federation, or one end has files of before `fdrl link init` was run '
    'again: then router and parties all need the new ones'
)
"""Why one end may not know the authority of the other."""

_OTHER_ADDRESS = {62, 64}  # what OpenSSL calls a certificate for another name or address
_UNKNOWN_HERE = {18, 19, 20, 21}  # what OpenSSL calls a chain that leads to no authority known
_UNKNOWN_THERE = 'TLSV1_ALERT_UNKNOWN_CA'

_NOISE = re.compile(r' \(os error \d+\)| at /\S+\.rs:\d+\.?')  # of Zenoh's words
_LISTENER = re.compile(r'Can not create a new TLS listener on (\S+): \1: ')

_PLACE = re.compile(r'(?:tls/)?(\[[0-9a-fA-F:]+\]|[\w.-]+)(?::(\d{1,5}))?', re.ASCII)


def place_of(name: str, value: str) -> tuple[str, int]:
    """
    Read where a router is: `tls/HOST:PORT`, `HOST:PORT` or `HOST`.

    :param name: of the setting, for an error.
    :raises SettingError: if it is none of these.
    """
    found = _PLACE.fullmatch(value)
    if not found or not 0 < int(found[2] or PORT) < 65536:
        expected = f'HOST:PORT such as tls/router.example:{PORT}, with a port up to 65535'
        raise SettingError(name, value, expected)
    return found[1], int(found[2] or PORT)


def free_port() -> int:
    """Return a TCP port of loopback that is free now."""
    with socket.socket() as probe:
        probe.bind(('127.0.0.1', 0))
        port: int = probe.getsockname()[1]
        return port


class Session(Closeable):
    """
    One Zenoh session over TLS.

    :param trouble: says why there is no way to the router; '' if there is one.
    """

    trouble: Callable[[], str] = staticmethod(lambda: '')

    def __init__(self, config: dict[str, Any]) -> None:
        """
        Open it.

        :raises FdrlError: if Zenoh is not installed, or does not open.
        """
        try:
            self._zenoh: Any = importlib.import_module('zenoh')
        except ImportError as error:
            raise FdrlError('Zenoh is not here: pip install "fdrl_ros[zenoh]"') from error
        # Failures to connect are told by `refusal`, once and in words.
        self._zenoh.init_log_from_env_or('off')
        try:
            self._session = self._zenoh.open(self._zenoh.Config.from_json5(json.dumps(config)))
        except self._zenoh.ZError as error:
            words = _LISTENER.sub(r'cannot listen at \1: ', _NOISE.sub('', str(error)))
            raise FdrlError(f'Zenoh does not open: {words}') from error

    def put(self, key: str, payload: bytes) -> None:
        """Send bytes; where there is no way to anybody, they are lost."""
        block = self._zenoh.CongestionControl.BLOCK
        with suppress(self._zenoh.ZError):
            self._session.put(key, payload, congestion_control=block, express=True)

    def listen(self, keys: Sequence[str], hear: Callable[[str, bytes], object]) -> None:
        """Have a function called, in a thread of Zenoh, with what comes from others."""
        remote = self._zenoh.Locality.REMOTE

        def take(sample: Any) -> None:
            if sample.kind == self._zenoh.SampleKind.PUT:
                hear(str(sample.key_expr), sample.payload.to_bytes())

        self._heard = [
            self._session.declare_subscriber(key, take, allowed_origin=remote) for key in keys
        ]

    @property
    def connected(self) -> bool:
        """Whether there is a link to a router now."""
        return bool(self._session.info.routers_zid())

    def close(self) -> None:
        """Leave."""
        self._session.close()


def open_router(files: LinkFiles, roster: Roster, listen: str) -> Session:
    """
    Open a router for the parties of a roster, and no others.

    :param listen: `tls/ADDRESS:PORT`.
    :raises SettingError: if that is no address.
    :raises SecurityError: if the router's certificate cannot be used.
    :raises FdrlError: if it cannot listen there.
    """
    host, port = place_of('listen', listen)
    files.check(datetime.now(UTC))
    tls = {
        'listen_certificate': str(files.certificate),
        'listen_private_key': str(files.private),
    }
    config = _config(files, 'router', tls)
    config['listen'] = {'endpoints': [f'tls/{host}:{port}']}
    config['access_control'] = access(roster)
    return Session(config)


def open_client(
    files: LinkFiles,
    router: str,
    stopped: Callable[[], bool] = lambda: False,
    say: Callable[[str], object] = lambda words: None,
) -> Session:
    """
    Wait for the router and open a party's session, which connects again by itself from then on.

    :param router: `tls/HOST:PORT`.
    :param say: told why there is no way to the router yet, each reason once.
    :raises SettingError: if that is no address.
    :raises SecurityError: if the party's certificate cannot be used.
    :raises TrainingStopped: as soon as `stopped` says so.
    """
    host, port = place_of('router', router)
    said = None
    while True:
        files.check(datetime.now(UTC))
        reason = refusal(files, router)
        if not reason:
            break
        if reason != said:
            say(f'no link to {host}:{port} yet: {reason}')
        said = reason
        for _ in range(PAUSES):
            if stopped():
                raise TrainingStopped('stopped before there was a link')
            time.sleep(PATIENCE / PAUSES)
    tls = {
        'connect_certificate': str(files.certificate),
        'connect_private_key': str(files.private),
    }
    config = _config(files, 'client', tls)
    config['connect'] = {
        'endpoints': [f'tls/{host}:{port}'],
        'timeout_ms': 10_000,
        'exit_on_failure': False,
        'retry': {
            'period_init_ms': 250,
            'period_max_ms': 2000,
            'period_increase_factor': 2,
        },
    }
    session = Session(config)
    session.trouble = partial(trouble, files, router)
    return session


def access(roster: Roster) -> dict[str, Any]:
    """
    Return who may do what at a router, by the common names of certificates.

    A party publishes under its own name alone, and hears what is for everybody and for itself; an
    operator hears the latter alone. Whoever is not in the roster may do nothing.
    """
    prefix = f'fdrl/{roster.federation}'
    names = [each.name for each in roster.members]
    rules, policies = [], []

    def allow(rule: str, messages: list[str], flow: str, keys: list[str], of: str) -> None:
        words = {'id': rule, 'permission': 'allow', 'messages': messages, 'flows': [flow]}
        rules.append({**words, 'key_exprs': keys})
        policies.append({'rules': [rule], 'subjects': [of]})

    for name, role in ((each.name, each.role) for each in roster.members):
        shared = [] if role == 'operator' else [f'{prefix}/*/*']
        own, heard = [f'{prefix}/{name}/**'], [*shared, f'{prefix}/*/*/{name}']
        allow(f'{name} sends', ['put'], 'ingress', own, name)
        allow(f'{name} listens', ['declare_subscriber'], 'ingress', heard, name)
        allow(f'{name} hears', ['put'], 'egress', heard, name)
        allow(f'{name} learns', ['declare_subscriber'], 'egress', [f'{prefix}/**'], name)
    return {
        'enabled': True,
        'default_permission': 'deny',
        'rules': rules,
        'subjects': [{'id': name, 'cert_common_names': [name]} for name in names],
        'policies': policies,
    }


def refusal(files: LinkFiles, router: str) -> str:
    """
    Try the way to a router by TLS alone, and say in words why there is none.

    :returns: '' if the router takes this end's certificate, and this end the router's.
    """
    context = ssl.create_default_context(cafile=str(files.authority))
    context.load_cert_chain(files.certificate, files.private)
    host, port = place_of('router', router)
    try:
        with socket.create_connection((host.strip('[]'), port), PATIENCE) as way:
            with context.wrap_socket(way, server_hostname=host.strip('[]')) as wrapped:
                # TLS 1.3: what the router thinks of our certificate comes after the handshake.
                wrapped.settimeout(PATIENCE / 6)
                with suppress(TimeoutError):
                    if not wrapped.recv(1):
                        return 'the router closed the connection'
        return ''
    except ssl.SSLCertVerificationError as error:
        hint = OLDER_FILES if error.verify_code in _UNKNOWN_HERE else ''
        if error.verify_code in _OTHER_ADDRESS:
            hint = ': `fdrl link init --router HOST` makes one for HOST'
        return f'its certificate is refused here: {error.verify_message}{hint}'
    except ssl.SSLError as error:
        hint = OLDER_FILES if error.reason == _UNKNOWN_THERE else ''
        return f'the router refuses our certificate: {error.reason or error}{hint}'
    except OSError as error:
        return f'nobody answers: {error.strerror or error}'
    except UnicodeError:
        return f'{host!r} is no name of a host'


def trouble(files: LinkFiles, router: str) -> str:
    """Say in words why there is no way to a router: this end's files or clock, or the way."""
    try:
        files.check(datetime.now(UTC))
    except FdrlError as error:
        return str(error)
    return refusal(files, router)


def _config(files: LinkFiles, mode: str, tls: dict[str, Any]) -> dict[str, Any]:
    """Return what both ends have: TLS alone, no scouting, bounded messages."""
    return {
        'mode': mode,
        'scouting': {'multicast': {'enabled': False}, 'gossip': {'enabled': False}},
        'transport': {
            'shared_memory': {'enabled': False},
            'link': {
                'protocols': ['tls'],
                'tx': {'lease': LEASE},
                'rx': {'max_message_size': LARGEST_MESSAGE + 4096},
                'tls': {
                    'root_ca_certificate': str(files.authority),
                    'enable_mtls': True,
                    # Zenoh takes public authorities too: the name keeps their servers away.
                    'verify_name_on_connect': True,
                    'close_link_on_expiration': True,
                    **tls,
                },
            },
        },
    }
