# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""Serves the page on a port, by TLS unless it stays on this host, until it is told to end."""

from collections.abc import Callable
from dataclasses import dataclass
import errno
import ipaddress
from pathlib import Path
import socket
import ssl
import threading

from cryptography import x509
from fdrl_ros.deployment.live.running import PAGE_PORT
from fdrl_ros.errors import ResourceError, SettingError, StoreError
from starlette.types import ASGIApp
import uvicorn

_LOOK = 0.2  # s between two looks whether to end
_PARTING = 2  # s that open connections have at the end


@dataclass(frozen=True)
class Address:
    """
    Where the page is served.

    :param host: name or address of this host's interface.
    :param port: 0 for a free one.
    :param certificate: file of the certificate, in PEM; None without TLS.
    :param key: file of its private key.
    :raises SettingError: if the host is another than loopback and there is no TLS, or half of it.
    """

    host: str = '127.0.0.1'
    port: int = PAGE_PORT
    certificate: Path | None = None
    key: Path | None = None

    def __post_init__(self) -> None:
        """Refuse what would send cookies in clear over a network."""
        if (self.certificate is None) != (self.key is None):
            expected = 'both --tls-certificate and --tls-key, or none'
            raise SettingError('tls', str(self.certificate or self.key), expected)
        if self.certificate is None and not self.loopback:
            port = self.port or PAGE_PORT
            expected = (
                '127.0.0.1 without TLS: give --tls-certificate and --tls-key, or reach it through '
                f'a tunnel: ssh -L {port}:localhost:{port} THIS_HOST'
            )
            raise SettingError('host', self.host, expected)

    @property
    def loopback(self) -> bool:
        """Whether nothing leaves this host."""
        if self.host == 'localhost':
            return True
        try:
            return ipaddress.ip_address(self.host).is_loopback
        except ValueError:
            return False

    @property
    def secure(self) -> bool:
        """Whether by TLS."""
        return self.certificate is not None

    def names(self) -> tuple[str, ...]:
        """
        Return the names by which browsers may call the server: those of its certificate.

        :raises StoreError: if the certificate cannot be read.
        """
        if self.certificate is None:
            return ()
        try:
            loaded = x509.load_pem_x509_certificate(self.certificate.read_bytes())
            found = loaded.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
        except (OSError, ValueError, x509.ExtensionNotFound) as error:
            raise StoreError(
                f'{self.certificate}: expected a certificate in PEM that names this host: {error}'
            ) from error
        addresses = map(str, found.get_values_for_type(x509.IPAddress))
        return (*(each.lower() for each in found.get_values_for_type(x509.DNSName)), *addresses)

    def context(self) -> ssl.SSLContext | None:
        """
        Return what TLS needs; None without.

        :raises StoreError: if certificate or key cannot be used.
        """
        if self.certificate is None:
            return None
        made = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        made.minimum_version = ssl.TLSVersion.TLSv1_2
        try:
            made.load_cert_chain(self.certificate, self.key)
        except (OSError, ssl.SSLError) as error:
            raise StoreError(f'{self.certificate}, {self.key}: cannot be used: {error}') from error
        return made

    def listen(self) -> socket.socket:
        """
        Take the port.

        :raises SettingError: if another program has it, or the host is none of this machine.
        """
        try:
            family, kind, protocol, _, place = socket.getaddrinfo(
                self.host, self.port, type=socket.SOCK_STREAM
            )[0]
            made = socket.socket(family, kind, protocol)
        except OSError as error:
            raise SettingError('host', self.host, f'a name of this host: {error}') from error
        made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            made.bind(place)
            made.listen(128)
        except OSError as error:
            made.close()
            if error.errno == errno.EADDRNOTAVAIL:
                raise SettingError('host', self.host, 'a name of this host') from error
            expected = f'a free port, such as 0 for any: {error.strerror}'
            raise SettingError('port', self.port, expected) from error
        made.setblocking(False)
        return made

    def url(self, port: int) -> str:
        """
        Return the address that a person enters.

        :param port: that was taken.
        """
        names = self.names()
        whole = [each for each in names if '*' not in each]
        here = socket.gethostname().lower().partition('.')[0]
        # A wildcard stands for this host's own name.
        host = (*whole, *(each.replace('*', here) for each in names), self.host)[0]
        host = f'[{host}]' if ':' in host else host
        return f'{"https" if self.secure else "http"}://{host}:{port}'


def serve(
    app: ASGIApp, address: Address, taken: socket.socket, stopped: Callable[[], bool]
) -> None:
    """
    Serve an application until it is told to stop.

    :param taken: the port, of :meth:`Address.listen`.
    :raises StoreError: if certificate or key cannot be used.
    :raises ResourceError: if the server ended by itself.
    """
    context = address.context()
    config = uvicorn.Config(
        app,
        # Tokens are in addresses of requests: none of them is logged.
        access_log=False,
        log_level='warning',
        lifespan='on',
        server_header=False,
        proxy_headers=False,
        # Packing small snapshots costs more than it saves.
        ws_per_message_deflate=False,
        ws_max_size=10_000,
        timeout_graceful_shutdown=_PARTING,
        ssl_context_factory=None if context is None else lambda *_: context,
    )
    server = uvicorn.Server(config)
    # Signals are the caller's, in the main thread.
    thread = threading.Thread(target=server.run, kwargs={'sockets': [taken]}, name='page')
    thread.start()
    while thread.is_alive() and not stopped():
        thread.join(_LOOK)
    if not thread.is_alive() and not stopped():
        raise ResourceError('the server of the page ended by itself: see what was logged before')
    server.should_exit = True
    thread.join()
