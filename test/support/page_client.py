# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""A browser without a screen: enters the page, looks at snapshots, and acts."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
import json
import threading
from typing import Any

from fdrl_ros.page.serving import Address, serve
from fdrl_ros.page.sessions import Person, Role
import httpx
from starlette.types import ASGIApp
from websockets.sync.client import ClientConnection, connect

NAME = 'Ada'


@contextmanager
def served(app: ASGIApp, address: Address | None = None) -> Iterator[str]:
    """Serve an application on a free port of loopback while the block runs."""
    address, ending = address or Address(port=0), threading.Event()
    with address.listen() as taken:
        url = address.url(taken.getsockname()[1])
        thread = threading.Thread(target=serve, args=(app, address, taken, ending.is_set))
        thread.start()
        try:
            yield url
        finally:
            ending.set()
            thread.join(20.0)


class PageClient:
    """
    A person's browser.

    :param url: of the page.
    :param token: of a link.
    """

    def __init__(self, url: str, token: str) -> None:
        self.url = url
        self.http = httpx.Client(base_url=url, headers={'Origin': url})
        answer = self.http.get('/enter', params={'token': token})
        assert answer.status_code == 303, answer.text
        self.session = self.http.get('/api/session').json()

    @classmethod
    def of(cls, page: Any, url: str, role: Role = Role.OPERATOR, name: str = NAME) -> 'PageClient':
        """Let a person in."""
        return cls(url, page.sessions.invite(Person(name, role)))

    def act(self, act: str, **about: Any) -> httpx.Response:
        """Ask for an act."""
        headers = {'X-CSRF-Token': self.session['csrf']}
        return self.http.post('/api/act', json={'act': act, **about}, headers=headers)

    @contextmanager
    def looking(self, path: str = '/ws') -> Iterator[ClientConnection]:
        """Open a WebSocket."""
        cookies = '; '.join(f'{name}={value}' for name, value in self.http.cookies.items())
        address = self.url.replace('http', 'ws', 1) + path
        with connect(address, origin=self.url, additional_headers={'Cookie': cookies}) as made:
            yield made

    def wait(
        self, condition: Callable[[dict[str, Any]], Any], seconds: float = 60.0
    ) -> dict[str, Any]:
        """Look at snapshots until one fulfils a condition."""
        with self.looking() as socket:
            ended = threading.Event()
            timer = threading.Timer(seconds, ended.set)
            timer.start()
            try:
                snapshot: dict[str, Any] = {}
                while True:
                    snapshot |= json.loads(socket.recv(10.0))  # a part that is absent is as before
                    if condition(snapshot):
                        return snapshot
                    assert not ended.is_set(), f'not within {seconds} s: {snapshot}'
                    socket.send(json.dumps({'got': snapshot['n']}))
            finally:
                timer.cancel()

    def close(self) -> None:
        """Leave."""
        self.http.close()
